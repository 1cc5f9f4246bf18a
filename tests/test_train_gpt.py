"""The training example, at sizes that take a second: it learns, resumes, stops and complains."""

from __future__ import annotations

import dataclasses
import io
import math
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import tfw

EXAMPLES = Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

import corpus  # noqa: E402 - the examples are programs, not a package
import gpt_options  # noqa: E402
import live_line  # noqa: E402
import train_gpt  # noqa: E402

SMALL = shlex.split(
    "--n-layer 1 --n-head 2 --n-embd 16 --block-size 16 --batch-size 4 --accumulate 2 "
    "--dropout 0.1 --steps 30 --warmup 5 --eval-interval 10 --eval-batches 2 --sample 20"
)


@pytest.fixture
def text(tmp_path):
    """Four files of a text that is easy to learn."""
    directory = tmp_path / "text"
    directory.mkdir()
    for number in range(4):
        (directory / f"file_{number}.py").write_text(f"def f{number}(x):\n    return x\n" * 40)
    return directory


@pytest.fixture
def run(text, tmp_path, capsys):
    """Run the program in this process; return its exit code, output and complaints."""

    def run(*arguments, out=tmp_path / "out"):
        code = train_gpt.main([*SMALL, "--data", str(text), "--out", str(out), *arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


def same(a, b) -> bool:
    """Compare nested checkpoints bit for bit."""
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, tfw.Tensor):
        return a.dtype == b.dtype and np.array_equal(a.numpy(), b.numpy())
    return a == b or (a != a and b != b)


def test_learns_and_says_so(run, tmp_path):
    code, output, complaints = run()
    assert (code, complaints) == (0, "")
    assert "\x1b" not in output, "no escape sequences in a pipe"
    losses = [float(loss) for loss in re.findall(r"^step.*validation loss ([\d.]+)", output, re.M)]
    assert len(losses) == 4, "at steps 0, 10, 20 and 30"
    assert losses[0] == pytest.approx(math.log(96), abs=0.3), "a fresh model knows nothing"
    assert losses[-1] < losses[0] - 0.3
    state = tfw.load(tmp_path / "out" / "checkpoint.tfw")
    assert state["step"] == 30
    assert f"{state['validation_loss']:.4f}" in output.splitlines()[-1]


def test_same_seed_same_run(run, tmp_path):
    assert run(out=tmp_path / "a")[0] == 0
    assert run(out=tmp_path / "b")[0] == 0
    a, b = (tfw.load(tmp_path / name / "checkpoint.tfw") for name in "ab")
    assert same(a["model"], b["model"])
    assert run("--seed", "2", out=tmp_path / "c")[0] == 0
    assert not same(a["model"], tfw.load(tmp_path / "c" / "checkpoint.tfw")["model"])


@pytest.mark.parametrize("stop_at", [13, 20])  # between validations, and during one
def test_resume_is_bit_for_bit(run, tmp_path, monkeypatch, stop_at):
    assert run(out=tmp_path / "whole")[0] == 0

    interrupt_at(monkeypatch, stop_at)
    code, output, _ = run(out=tmp_path / "parts")
    assert code == 130
    assert f"stopped at step {stop_at} of 30" in output
    assert "--resume" in output
    monkeypatch.undo()

    code, output, _ = run("--resume", out=tmp_path / "parts")
    assert code == 0
    assert f"resuming at step {stop_at}" in output
    whole, parts = (tfw.load(tmp_path / name / "checkpoint.tfw") for name in ("whole", "parts"))
    for state in (whole, parts):
        del state["settings"]["out"]
    assert same(whole, parts)


def interrupt_at(monkeypatch, step: int) -> None:
    """Press Ctrl-C in the middle of a step; at a multiple of ten, in the middle of a validation."""
    run_class = train_gpt.Run
    name = "validate" if step % 10 == 0 else "advance"
    original = getattr(run_class, name)

    def pressed(self, *arguments):
        if self.step == step - (name == "advance"):
            os.kill(os.getpid(), signal.SIGINT)
        return original(self, *arguments)

    monkeypatch.setattr(run_class, name, pressed)


def test_second_interrupt_cannot_tear_a_checkpoint(run, tmp_path, monkeypatch):
    interrupt_at(monkeypatch, 13)
    save = tfw.save

    def save_interrupted(state, path):
        if state["step"] == 13:
            os.kill(os.getpid(), signal.SIGINT)
        save(state, path)

    monkeypatch.setattr(tfw, "save", save_interrupted)
    assert run()[0] == 130
    assert tfw.load(tmp_path / "out" / "checkpoint.tfw")["step"] == 13


def test_interrupt_from_outside(text, tmp_path):
    program = [sys.executable, "-u", str(EXAMPLES / "train_gpt.py"), *SMALL]
    out = tmp_path / "out"
    child = subprocess.Popen(
        [*program, "--steps", "100000", "--data", str(text), "--out", str(out)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )  # fmt: skip
    assert child.stdout is not None
    for line in child.stdout:
        if line.startswith("step    10"):
            break
    time.sleep(0.1)
    child.send_signal(signal.SIGINT)
    output, complaints = child.communicate(timeout=30)
    assert child.returncode == 130, complaints
    step = int(re.findall(r"stopped at step (\d+)", output)[0])
    assert tfw.load(out / "checkpoint.tfw")["step"] == step


def test_nan_stops_and_keeps_the_last_checkpoint(run, tmp_path, monkeypatch):
    advance = train_gpt.Run.advance

    def broken(self):
        loss = advance(self)
        return loss * math.nan if self.step == 15 else loss

    monkeypatch.setattr(train_gpt.Run, "advance", broken)
    code, _, complaints = run()
    assert code == 1
    assert "the loss became nan at step 14" in complaints
    assert "keeps step 10" in complaints
    assert tfw.load(tmp_path / "out" / "checkpoint.tfw")["step"] == 10


def test_diverging_run_stops(run):
    code, _, complaints = run("--lr", "1e30")
    assert code == 1
    assert "the loss became" in complaints
    assert "no checkpoint of this run was saved yet" in complaints


def test_new_run_keeps_the_old_checkpoint(run, tmp_path):
    assert run("--steps", "10")[0] == 0
    code, output, _ = run("--steps", "20")
    assert code == 0
    assert "previous.tfw" in output
    assert tfw.load(tmp_path / "out" / "previous.tfw")["step"] == 10
    assert tfw.load(tmp_path / "out" / "checkpoint.tfw")["step"] == 20


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("--n-embd 15", "n_embd=15 is not a multiple of n_head=2"),
        ("--n-layer 0", "n_layer=0 must be at least 1"),
        ("--dropout 1", "dropout=1.0 is outside"),
        ("--steps 0", "--steps 0: must be at least 1"),
        ("--lr nan", "--lr nan: must be positive"),
        ("--lr fast", "argument --lr: invalid float value: 'fast'"),
        ("--speed 3", "unrecognized arguments: --speed 3"),
        ("--device tpu", "--device tpu: choose cpu, cuda or cuda:N"),
        ("--device cuda:99", "--device cuda:99: not available"),
        ("--data /nowhere/text", "no such file or directory: /nowhere/text"),
        ("--block-size 100000", "training and validation text need more than"),
        ("--out /proc/nowhere", "--out /proc/nowhere: cannot be written"),
        ("--resume", "--resume: there is no checkpoint at"),
    ],
)
def test_wrong_options(run, arguments, message):
    code, output, complaints = run(*arguments.split())
    assert code == 2
    assert output == ""
    assert message in complaints
    assert complaints.count("\n") == 1, "one line"


def test_resume_with_other_options(run, text):
    assert run()[0] == 0
    for option, value in (("--n-embd", "32"), ("--steps", "60"), ("--lr", "1")):
        code, _, complaints = run("--resume", option, value)
        assert code == 2
        assert f"the checkpoint was made with {option}" in complaints
    (text / "file_0.py").write_text("something else\n" * 100)
    code, _, complaints = run("--resume")
    assert code == 2
    assert "the training text is not the one of the checkpoint" in complaints


def test_documented_options_are_those_there_are():
    page = (EXAMPLES.parent / "docs" / "training.md").read_text(encoding="utf-8")
    for field in dataclasses.fields(gpt_options.Settings):
        row = f"| `{gpt_options.flag(field.name)}` | {field.default} | {field.metadata['help']} |"
        assert row in page


@pytest.mark.parametrize("content", [b"", b"not a checkpoint at all", b"\xff" * 64])
def test_resume_from_a_broken_file(run, tmp_path, content):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "checkpoint.tfw").write_bytes(content)
    code, _, complaints = run("--resume")
    assert code == 2
    assert "cannot be read" in complaints
    assert (tmp_path / "out" / "checkpoint.tfw").read_bytes() == content


# -- the text ----------------------------------------------------------------------------------


def test_symbols_and_back():
    assert corpus.VOCAB_SIZE == 96
    assert corpus.decode(corpus.encode("if x:\n\treturn 'é'\r\n")) == "if x:\n    return '?'\n"


def test_split_is_by_file(text):
    loaded = corpus.load_corpus(text, 16)
    total = sum(len(path.read_text()) for path in text.iterdir())
    assert len(loaded.train) + len(loaded.validation) == total
    assert len(loaded.validation) in {len(path.read_text()) for path in text.iterdir()}
    assert loaded.fingerprint == corpus.load_corpus(text, 16).fingerprint


def test_standard_library_is_large_and_leaves_tests_out():
    loaded = corpus.load_corpus(None, 64)
    assert len(loaded.train) > 3_000_000
    assert 0.01 < len(loaded.validation) / len(loaded.train) < 0.2
    assert int(loaded.train.max()) < corpus.VOCAB_SIZE


def test_batches_depend_on_the_key_alone(text):
    loaded = corpus.load_corpus(text, 16)
    inputs, targets = loaded.batch((1, 5, 0), 4, 16)
    assert inputs.shape == targets.shape == (4, 16)
    assert np.array_equal(inputs[:, 1:], targets[:, :-1])
    again, _ = loaded.batch((1, 5, 0), 4, 16)
    other, _ = loaded.batch((1, 6, 0), 4, 16)
    assert np.array_equal(inputs, again)
    assert not np.array_equal(inputs, other)


# -- the live line -----------------------------------------------------------------------------


class Terminal(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize("no_color", ["", "1"])
def test_live_line_on_a_terminal(monkeypatch, no_color):
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("NO_COLOR", no_color)
    terminal = Terminal()
    line = live_line.LiveLine(terminal)
    line.update("x" * 100)
    line.note("stays")
    written = terminal.getvalue()
    assert written.count("x") == 39, "one column less than the window, so that it cannot wrap"
    assert written.endswith("stays\n")
    assert ("\x1b[2m" in written) is not bool(no_color)


def test_live_line_in_a_pipe(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(live_line.time, "monotonic", lambda: now[0])
    pipe = io.StringIO()
    line = live_line.LiveLine(pipe)
    for second in range(35):
        now[0] = float(second)
        line.update(f"at {second}")
    line.note("end")
    assert pipe.getvalue().split("\n") == ["at 10", "at 20", "at 30", "end", ""]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (725, "12:05"), (3723, "1:02:03")]
)
def test_duration(seconds, text):
    assert live_line.duration(seconds) == text


@pytest.mark.parametrize(("number", "text"), [(950, "950"), (12_345, "12.3k"), (4.56e6, "4.56M")])
def test_count(number, text):
    assert live_line.count(number) == text
