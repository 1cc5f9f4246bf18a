"""The `tfw` command: what doctor says, in each of its forms, and exit codes."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from pathlib import Path

import pytest

from tfw.cli import diagnosis, doctor
from tfw.cli.diagnosis import Finding
from tfw.cli.main import main

SECTIONS = ["packages", "devices", "kernel compiler", "caches", "environment variables"]


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("TFW_CACHE_DIR", str(tmp_path / "cache"))
    for name in ("TFW_NUM_THREADS", "TFW_ANOMALY", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def no_compiler(monkeypatch):
    """Leave the compile probe out, which takes seconds; one test runs it."""

    def compiler():
        yield Finding("kernel compiler", "sm_80", "ok", "compiles")

    monkeypatch.setattr(diagnosis, "_compiler", compiler)


def findings(capsys) -> dict[str, dict]:
    report = json.loads(capsys.readouterr().out)
    assert report["works"] == all(f["status"] != "broken" for f in report["findings"])
    return {f"{f['section']}/{f['name']}": f for f in report["findings"]}


@pytest.mark.usefixtures("no_compiler")
def test_doctor_json(capsys):
    assert main(["doctor", "--json"]) == 0
    found = findings(capsys)
    assert [*dict.fromkeys(f["section"] for f in found.values())] == SECTIONS
    assert found["devices/cpu"]["status"] == "ok"
    assert found["devices/meta"]["status"] == "ok"
    assert found["packages/numpy"]["status"] == "ok"
    assert found["packages/numpy"]["detail"][0].isdigit()
    assert "TFW_NUM_THREADS" in {f["name"] for f in found.values()}


@pytest.mark.usefixtures("no_compiler")
def test_doctor_plain(capsys):
    assert main(["doctor"]) == 0
    text = capsys.readouterr().out
    assert "\x1b" not in text
    lines = text.splitlines()
    assert lines[0].startswith("tfw ")
    assert [line for line in lines if line in SECTIONS] == SECTIONS
    assert any(line.split()[:2] == ["ok", "cpu"] for line in lines)
    assert lines[-1].startswith("Training works on the CPU")


@pytest.mark.usefixtures("no_compiler")
def test_bad_variable_is_broken(capsys, monkeypatch):
    monkeypatch.setenv("TFW_ANOMALY", "maybe")
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "broken   TFW_ANOMALY" in text
    assert "'maybe' cannot be used" in text
    assert "unset TFW_ANOMALY" in text


@pytest.mark.usefixtures("no_compiler")
def test_missing_essential_package(capsys, monkeypatch):
    real = diagnosis.installed
    monkeypatch.setattr(
        diagnosis, "installed", lambda name: None if name == "ml_dtypes" else real(name)
    )
    assert main(["doctor"]) == 1
    text = capsys.readouterr().out
    assert "broken   ml_dtypes" in text
    assert "ml_dtypes: pip install ml_dtypes" in text


@pytest.mark.usefixtures("no_compiler")
def test_cache_that_cannot_be_written(capsys, monkeypatch, tmp_path):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TFW_CACHE_DIR", str(tmp_path / "file" / "cache"))
    assert main(["doctor", "--json"]) == 0, "training on the CPU does not need the cache"
    found = findings(capsys)["caches/tfw"]
    assert found["status"] == "limited"
    assert "TFW_CACHE_DIR" in found["remedy"]


@pytest.mark.usefixtures("no_compiler")
def test_cache_size(capsys, tmp_path):
    (tmp_path / "cache" / "cubins").mkdir(parents=True)
    (tmp_path / "cache" / "cubins" / "a").write_bytes(b"x" * 1_500_000)
    assert main(["doctor", "--json"]) == 0
    detail = findings(capsys)["caches/tfw"]["detail"]
    assert detail == f"{tmp_path / 'cache'} (1.5 MB in 1 files)"


@pytest.mark.parametrize("no_color", [False, True])
def test_doctor_on_a_terminal(no_color):
    pytest.importorskip("rich")
    environment = {**os.environ, "COLUMNS": "80", "TERM": "xterm-256color"}
    if no_color:
        environment["NO_COLOR"] = "1"
    code = (
        "from tfw.cli import diagnosis, doctor\n"
        "diagnosis._compiler = lambda: iter(())\n"
        "raise SystemExit(doctor.run(as_json=False))"
    )
    text = run_on_terminal([sys.executable, "-c", code], environment)
    assert ("\x1b[32m" in text) is not no_color
    plain = text
    for piece in ("\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[32m", "\x1b[33m"):
        plain = plain.replace(piece, "")
    assert "devices" in plain
    assert max(len(line) for line in plain.splitlines()) <= 80


def run_on_terminal(command: list[str], environment: dict[str, str]) -> str:
    main_end, child_end = pty.openpty()
    child = subprocess.Popen(command, stdout=child_end, stderr=child_end, env=environment)
    os.close(child_end)
    pieces = []
    while True:
        try:
            piece = os.read(main_end, 65536)
        except OSError:  # the other end is closed
            break
        if not piece:
            break
        pieces.append(piece)
    os.close(main_end)
    assert child.wait(timeout=60) == 0, b"".join(pieces)
    return b"".join(pieces).decode()


@pytest.mark.compiles
def test_whole_command_with_a_read_only_home():
    """Doctor needs no home that it can write, compiles all the same, and leaves nothing behind."""
    pytest.importorskip("triton")
    environment = {**os.environ, "HOME": "/proc/nowhere"}
    for name in ("TFW_CACHE_DIR", "XDG_CACHE_HOME", "TRITON_CACHE_DIR"):
        environment.pop(name, None)
    done = subprocess.run(
        [sys.executable, "-m", "tfw.cli.main", "doctor", "--json"],
        env=environment, cwd=Path(doctor.__file__).parents[2],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    found = {f"{f['section']}/{f['name']}": f for f in json.loads(done.stdout)["findings"]}
    assert found["caches/tfw"]["status"] == "limited"
    assert found["caches/tfw"]["detail"] == "/proc/nowhere/.cache/tfw cannot be written"
    for name in ("sm_80", "sm_90", "sm_100"):
        finding = found[f"kernel compiler/{name}"]
        assert finding["status"] == "ok", finding
        assert "bytes in" in finding["detail"]


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["doctor", "--nonsense"]])
def test_wrong_usage(arguments, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: tfw" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "expected"), [(["--help"], "doctor"), (["--version"], "tfw ")]
)
def test_help_and_version(arguments, expected, capsys):
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 0
    assert expected in capsys.readouterr().out
