"""Loader workers: errors, and every way in which a process may end."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
import traceback
from typing import Any

import pytest
import toy_datasets
from toy_datasets import Calls, raises, same

import tfw
from tfw.errors import LoaderError, ShapeError
from tfw.utils.data import DataLoader

no_process_is_left = toy_datasets.no_process_is_left
pytestmark = pytest.mark.usefixtures("no_process_is_left")
METHODS = ["fork", "spawn"]


# ---- errors


def test_error_comes_with_class_and_worker_traceback():
    with pytest.raises(KeyError) as caught:
        list(DataLoader(Calls(raises), 2, num_workers=2))
    assert caught.value.args == ("no sample 4",)
    text = "".join(traceback.format_exception(caught.value))
    assert 'raise KeyError("no sample 4")' in text
    assert "in DataLoader worker 0 (pid " in text


def test_loop_may_go_on_after_an_error():
    batches = iter(DataLoader(Calls(raises), 2, num_workers=2))
    assert [next(batches).tolist() for _ in range(2)] == [[0, 1], [2, 3]]
    with pytest.raises(KeyError):
        next(batches)
    assert [b.tolist() for b in batches] == [[6, 7], [8, 9], [10, 11]]


def test_errors_with_fields_keep_them():
    with pytest.raises(ShapeError) as caught:
        list(DataLoader(Calls(lambda i: tfw.zeros(i + 1)), 2, num_workers=1))
    assert caught.value.value == ((1,), (2,))


class UnpicklableError(Exception):
    def __init__(self, a, b):
        super().__init__(a + b)


def test_error_that_cannot_travel():
    def sample(index):
        raise UnpicklableError("x", "y")

    with pytest.raises(
        LoaderError, match=r"UnpicklableError: xy in DataLoader worker 0 \(pid \d+\)"
    ):
        list(DataLoader(Calls(sample), 2, num_workers=1))


def test_batch_that_cannot_travel():
    loader = DataLoader(Calls(lambda i: lambda: i, 1), None, num_workers=1)
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        list(loader)


def test_error_in_init_function():
    def init(worker):
        raise ZeroDivisionError("bad init")

    with pytest.raises(ZeroDivisionError, match="bad init"):
        list(DataLoader(Calls(same), 2, num_workers=1, worker_init_fn=init))


def test_dataset_that_cannot_be_sent_to_spawned_workers():
    loader = DataLoader(Calls(lambda i: i), num_workers=1, multiprocessing_context="spawn")
    with pytest.raises((AttributeError, TypeError), match="pickle"):
        iter(loader)


def test_stop_iteration_does_not_end_the_loop_silently():
    def sample(index):
        raise StopIteration

    with pytest.raises(LoaderError, match="StopIteration"):
        list(DataLoader(Calls(sample), 2, num_workers=1))


@pytest.mark.parametrize(
    ("die", "how", "code"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "was killed by signal SIGKILL", -9),
        (lambda: os._exit(3), "exited with code 3", 3),
        (lambda: sys.exit(4), "exited with code 4", 4),
    ],
)
def test_death_of_a_worker_is_told_soon(die, how, code):
    def sample(index):
        if index == 5:
            die()
        return index

    batches = iter(DataLoader(Calls(sample, 100), 2, num_workers=2))
    started = time.monotonic()
    with pytest.raises(LoaderError, match=rf"worker 0 \(pid \d+\) {how}") as caught:
        list(batches)
    assert time.monotonic() - started < 4  # on a busy machine; 0.1 s on an idle one
    assert caught.value.value == code
    with pytest.raises(LoaderError, match=how):  # and not the end of the data
        next(batches)


def test_persistent_loader_recovers_from_a_death():
    def sample(index):
        if index == 3 and os.path.exists(trap):
            os.unlink(trap)
            os._exit(1)
        return index

    trap = os.path.join(os.environ.get("TMPDIR", "/tmp"), f"tfw-trap-{os.getpid()}")
    open(trap, "w").close()
    loader = DataLoader(Calls(sample, 6), None, num_workers=2, persistent_workers=True)
    with pytest.raises(LoaderError, match="exited with code 1"):
        list(loader)
    assert list(loader) == list(range(6))
    del loader


def test_timeout():
    def sample(index):
        time.sleep(60 if index == 3 else 0)
        return index

    started = time.monotonic()
    with pytest.raises(LoaderError, match=r"no batch came within 0\.3 s") as caught:
        list(DataLoader(Calls(sample), None, num_workers=2, timeout=0.3))
    assert caught.value.argument == "timeout"
    assert time.monotonic() - started < 6  # the dataset would sleep for 60


def test_nothing_is_left_for_the_garbage_collector():
    gc.collect()
    gc.disable()
    try:
        with pytest.raises(KeyError):
            list(DataLoader(Calls(raises), 2, num_workers=2))
        assert multiprocessing.active_children() == []
    finally:
        gc.enable()


# ---- the end of the loader's own process

_PROGRAM = """
import time
import tfw
from tfw.utils.data import DataLoader, Dataset

class Images(Dataset):
    def __len__(self):
        return 100_000

    def __getitem__(self, index):
        if index > 20:
            time.sleep(SLOW)
        return tfw.zeros(100, 100)

if __name__ == "__main__":
    for k, batch in enumerate(
        DataLoader(Images(), 2, num_workers=2, multiprocessing_context="METHOD")
    ):
        if k == 3:
            print("running", flush=True)
"""


def _start(tmp_path, method, slow):
    path = tmp_path / "program.py"
    path.write_text(textwrap.dedent(_PROGRAM).replace("METHOD", method).replace("SLOW", str(slow)))
    process: Any = subprocess.Popen(
        [sys.executable, "-W", "error", str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout.readline() == "running\n"
    return process


def _members(group):
    """Return the live processes of a process group."""
    found = []
    for name in filter(str.isdecimal, os.listdir("/proc")):
        try:
            with open(f"/proc/{name}/stat") as file:
                state, _, member_of = file.read().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(member_of) == group and state not in "ZX":
            found.append(int(name))
    return found


@pytest.mark.skipif(not os.path.isdir("/proc"), reason="reads /proc")
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_workers_end_with_the_loader(tmp_path, method, number):
    slow = 0.001 if number == signal.SIGINT else 60
    with _start(tmp_path, method, slow) as process:
        try:
            assert len(_members(process.pid)) >= 3
            if number == signal.SIGINT:
                os.killpg(process.pid, number)  # as the terminal does
            else:
                os.kill(process.pid, number)
            assert process.wait(5) == -number
            deadline = time.monotonic() + 5
            while _members(process.pid) and time.monotonic() < deadline:
                time.sleep(0.02)
            assert _members(process.pid) == []
            errors = process.stderr.read()
            assert errors.count("Traceback") == (number == signal.SIGINT)  # the loader's own
        finally:
            for member in _members(process.pid):
                os.kill(member, signal.SIGKILL)
