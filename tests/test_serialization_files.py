"""Saving and loading: how a file is replaced, and what is refused."""

from __future__ import annotations

import io
import os
import signal
import struct
import subprocess
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest
import safetensors.numpy
from checkpoints import again, saved

import tfw
from tfw.errors import CheckpointError
from tfw.serialization import load, save
from tfw.serialization.failure import SaveError
from tfw.tensor import Tensor

# ---- replacing a file


def test_path_like_and_replacement(tmp_path):
    path = tmp_path / "run.tfw"
    save(1, str(path))
    save({"x": 2}, path)
    assert load(str(path)) == {"x": 2}
    assert os.listdir(tmp_path) == ["run.tfw"]


def test_permissions_and_links_stay(tmp_path):
    path, link = tmp_path / "real.tfw", tmp_path / "link.tfw"
    save(1, path)
    os.chmod(path, 0o640)
    link.symlink_to(path)
    save(2, link)
    assert link.is_symlink()
    assert load(path) == 2
    assert path.stat().st_mode & 0o777 == 0o640


@pytest.mark.parametrize("error", [OSError(28, "No space left on device"), KeyboardInterrupt()])
def test_interrupted_save_leaves_the_old_file(tmp_path, monkeypatch, error):
    path = tmp_path / "run.tfw"
    save("old", path)

    def fail(descriptor):
        raise error

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises((OSError, KeyboardInterrupt)) as caught:
        save("new", path)
    monkeypatch.undo()
    assert load(path) == "old"
    assert os.listdir(tmp_path) == ["run.tfw"]
    if isinstance(error, OSError):
        assert isinstance(caught.value, SaveError)
        assert "no space is left on the device" in str(caught.value)
        assert caught.value.errno == 28


def test_refused_object_leaves_the_old_file(tmp_path):
    path = tmp_path / "run.tfw"
    save("old", path)
    with pytest.raises(CheckpointError):
        save({"x": tfw.ones(2), "y": object()}, path)
    assert load(path) == "old"
    assert os.listdir(tmp_path) == ["run.tfw"]


def test_full_disk():
    with pytest.raises(OSError, match="no space is left"):
        save(tfw.ones(100), "/dev/full")


def test_folder_errors(tmp_path):
    missing = tmp_path / "no" / "x.tfw"
    with pytest.raises(RuntimeError, match="the folder does not exist") as caught:
        save(1, missing)
    assert isinstance(caught.value, OSError)
    assert caught.value.filename == str(missing)
    with pytest.raises(CheckpointError, match="it is a folder"):
        save(1, tmp_path)
    with pytest.raises(FileNotFoundError):
        load(missing)
    if os.geteuid():
        os.chmod(tmp_path, 0o500)
        with pytest.raises(CheckpointError, match="permission denied"):
            save(1, tmp_path / "x.tfw")


def test_killed_while_saving(tmp_path):
    path = tmp_path / "run.tfw"
    save({"x": tfw.zeros(10)}, path)
    program = (
        "import sys, tfw\nfrom tfw.serialization import save\nbig = tfw.ones(4_000_000)\n"
        "print('ready', flush=True)\nwhile True: save({'x': big}, sys.argv[1])\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        for _ in range(20):
            assert load(path)["x"].numel() in (10, 4_000_000)  # whole at any time
        process.send_signal(signal.SIGKILL)
    assert load(path)["x"].numel() in (10, 4_000_000)


# ---- what is refused


class Odd:
    pass


class Pair(NamedTuple):
    x: int


def cycle():
    items: list[Any] = [1]
    items.append({"again": items})
    return {"x": items}


@pytest.mark.parametrize(
    ("obj", "where"),
    [
        ({"optimizer": [1, 2, 3, Odd()]}, r"obj\['optimizer'\]\[3\] is a .*Odd"),
        ([len], r"obj\[0\] is a builtins.builtin_function_or_method"),
        ({"p": Pair(1)}, r"obj\['p'\] is a .*Pair"),
        ([np.array([object()])], r"obj\[0\] is a NumPy array of dtype object"),
        ([np.array(["a"])], r"obj\[0\] is a NumPy array of dtype <U1"),
        ([np.arange(3, dtype=">f4")], r"NumPy array of dtype >f4"),
        ({"a": {Odd(): 1}}, r"obj\['a'\] has a key of type Odd"),
        (cycle(), r"obj\['x'\]\[1\]\['again'\] contains itself"),
    ],
)
def test_save_names_what_it_refuses(obj, where):
    with pytest.raises(CheckpointError, match=where) as caught:
        saved(obj)
    assert caught.value.op == "save"


def test_too_deep():
    nested: list = []
    for _ in range(90):
        nested = [nested]
    assert again(nested) == nested
    for _ in range(5000):
        nested = [nested]
    with pytest.raises(CheckpointError, match="nested deeper than 100 levels"):
        saved(nested)


def test_subclass_of_tensor_is_refused():
    class Mask(Tensor):
        pass

    mask = object.__new__(Mask)
    mask.data = tfw.ones(1)
    with pytest.raises(CheckpointError, match=r"obj\['m'\] is a .*Mask"):
        saved({"m": mask})


@pytest.mark.parametrize("f", [3, None, object(), io.StringIO("text")])
def test_no_file(f):
    with pytest.raises(TypeError, match="f is a"):
        save(1, f)
    with pytest.raises(TypeError, match="f is a"):
        load(f)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "ends within the header's length"),
        (b"PK\x03\x04" + bytes(100), "perhaps a zip archive, as torch.save writes them"),
        (b"\x80\x02}q\x00." + bytes(20), "perhaps a pickle"),
        (b"hello world, this is text", "no checkpoint"),
        (struct.pack("<Q", 1 << 62) + b"{}", "no checkpoint"),
        (struct.pack("<Q", 90_000_000) + b"{}", "cut or no checkpoint"),
        (
            safetensors.numpy.save({"a": np.zeros(2)}),
            "a safetensors file of another program",
        ),
    ],
)
def test_other_files(tmp_path, data, reason):
    path = tmp_path / "x"
    path.write_bytes(data)
    for file in (path, io.BytesIO(data)):
        with pytest.raises(CheckpointError, match=reason):
            load(file)
