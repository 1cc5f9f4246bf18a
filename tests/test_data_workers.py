"""Loader workers: order, seeds, shared memory, and every way in which a process may end."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
import traceback
from typing import Any

import numpy as np
import pytest

import tfw
from tfw.errors import LoaderError, ShapeError
from tfw.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from tfw.utils.data.transport import INLINE_BYTES, KEPT_SEGMENTS, Receiver, Sender

METHODS = ["fork", "spawn"]


class Calls(Dataset):
    """Sample i is what a function returns for i."""

    def __init__(self, function, n=12):
        self.function, self.n = function, n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return self.function(index)


class Shard(IterableDataset):
    """The stream 3, 4, 5, 6 of PyTorch's documentation, split into runs by worker."""

    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        info: Any = get_worker_info()
        per_worker = -(-(self.end - self.start) // info.num_workers)
        first = self.start + info.id * per_worker
        return iter(range(first, min(first + per_worker, self.end)))


def same(index):
    return index


def image(index):
    return tfw.full((3, 64, 64), float(index)), index, f"s{index}"


def numbers(index):
    info: Any = get_worker_info()
    return random.random(), float(np.random.rand()), tfw.rand(1).item(), info.seed


def raises(index):
    if index == 4:
        raise KeyError("no sample 4")
    return index


@pytest.fixture(autouse=True)
def _no_process_is_left():
    shared = set(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else set()
    yield
    gc.collect()  # a caught error holds the frames that it passed, and the loader's iterator there
    assert multiprocessing.active_children() == []
    if shared:
        assert {n for n in os.listdir("/dev/shm") if "tfw" in n} <= shared


# ---- what comes back


@pytest.mark.parametrize("method", METHODS)
def test_batches_are_those_of_one_process(method):
    workers = 2 if method == "fork" else 1
    loader = DataLoader(Calls(image), 4, num_workers=workers, multiprocessing_context=method)
    k = -1
    for k, (x, y, names) in enumerate(loader):
        wanted = [4 * k + i for i in range(4)]
        assert x.shape == (4, 3, 64, 64)
        assert x[:, 1, 2, 3].tolist() == y.tolist() == wanted
        assert list(names) == [f"s{i}" for i in wanted]
    assert k == 2


@pytest.mark.parametrize("nbytes", [0, 1, INLINE_BYTES - 300, 4 * INLINE_BYTES, 10_000_000])
def test_any_size_arrives_writable(nbytes):
    def sample(index):
        return np.full(nbytes, index, np.uint8)

    for k, batch in enumerate(DataLoader(Calls(sample, 3), batch_size=None, num_workers=1)):
        assert batch.shape == (nbytes,)
        assert bool((batch == k).all())
        batch += 1


@pytest.mark.parametrize("dtype", [tfw.bool, tfw.bfloat16, tfw.float8_e5m2, tfw.complex64])
def test_any_dtype_arrives(dtype):
    def sample(index):
        return tfw.tensor([[index, 1], [0, 1]]).to(dtype)

    (batch,) = DataLoader(Calls(sample, 2), batch_size=2, num_workers=1)
    assert batch.dtype is dtype
    assert batch.to(tfw.complex64).tolist() == [[[0, 1], [0, 1]], [[1, 1], [0, 1]]]


def test_kept_batches_are_not_overwritten():
    def sample(index):
        return tfw.full((50_000,), float(index))

    loader = DataLoader(Calls(sample, 40), batch_size=1, num_workers=2)
    kept = [batch[0, ::1000] for batch in loader]
    assert [k.tolist() for k in kept] == [[float(i)] * 50 for i in range(40)]


def test_memory_of_dropped_batches_is_used_again():
    def sample(index):
        return np.zeros(1_000_000, np.uint8)

    loader = DataLoader(Calls(sample, 30), batch_size=None, num_workers=1)
    addresses = {batch.numpy().__array_interface__["data"][0] for batch in loader}
    assert len(addresses) <= 5


def test_memory_of_many_kept_batches_is_given_back():
    ours, theirs = multiprocessing.Pipe()
    sender, receiver = Sender(theirs), Receiver(ours)

    def through(value):
        sender.send((1,), np.full(40_000, value, np.uint8))
        return receiver.receive()[1].load()

    with ours, theirs:
        kept = [through(i) for i in range(30)]
        assert [k[-1] for k in kept] == list(range(30))
        kept.clear()
        sender.release(receiver.take_free())
        assert through(7)[0] == 7
        assert len(sender._segments) == len(receiver._segments) <= 1 + KEPT_SEGMENTS


def test_batches_that_grow_replace_their_memory():
    def sample(index):
        return np.full(20_000 * (index + 1), index, np.uint8)

    for k, batch in enumerate(DataLoader(Calls(sample, 30), None, num_workers=1)):
        assert batch.shape == (20_000 * (k + 1),)
        assert bool((batch == k).all())


def test_large_text_needs_no_tensor():
    def sample(index):
        return "x" * 300_000

    assert [len(b) for b in DataLoader(Calls(sample), None, num_workers=2)] == [300_000] * 12


def test_out_of_order_yields_what_is_ready():
    one_came = multiprocessing.Event()

    def sample(index):
        if index == 0:
            one_came.wait(60)
        return index

    batches = iter(DataLoader(Calls(sample, 8), None, num_workers=2, in_order=False))
    first = next(batches)
    one_came.set()
    assert first == 1
    assert sorted(batches) == [0, *range(2, 8)]


def test_streams_are_sharded_as_in_pytorch():
    # PyTorch's documentation: two workers give 3, 5, 4, 6; twelve give 3, 4, 5, 6.
    assert list(DataLoader(Shard(3, 7), None, num_workers=2)) == [3, 5, 4, 6]
    assert list(DataLoader(Shard(3, 7), None, num_workers=4)) == [3, 4, 5, 6]
    batches = DataLoader(Shard(0, 10), 2, num_workers=2)
    assert [b.tolist() for b in batches] == [[0, 1], [5, 6], [2, 3], [7, 8], [4], [9]]
    batches = DataLoader(Shard(0, 10), 2, num_workers=2, drop_last=True)
    assert [b.tolist() for b in batches] == [[0, 1], [5, 6], [2, 3], [7, 8]]


# ---- random numbers


def test_workers_are_seeded_apart_and_repeatably():
    def draw(method):
        tfw.manual_seed(3)
        loader = DataLoader(Calls(numbers), 6, num_workers=2, multiprocessing_context=method)
        return [[t.tolist() for t in batch] for batch in loader]

    random.seed(0)
    np.random.seed(0)
    states = random.getstate(), np.random.get_state(legacy=False)
    first = draw("fork")
    assert repr((random.getstate(), np.random.get_state(legacy=False))) == repr(states)
    assert draw("spawn") == first
    (python0, numpy0, tfw0, seed0), (python1, numpy1, tfw1, seed1) = first
    assert {s - seed0[0] for s in seed0} == {0}
    assert {s - seed0[0] for s in seed1} == {1}
    everything = python0 + numpy0 + tfw0 + python1 + numpy1 + tfw1
    assert len(set(everything)) == len(everything)


def test_order_depends_on_the_seed_alone():
    def order(workers):
        tfw.manual_seed(8)
        batches = list(DataLoader(Calls(same, 30), 4, shuffle=True, num_workers=workers))
        return [b.tolist() for b in batches], tfw.get_rng_state().tolist()

    assert order(0) == order(1) == order(2)


def test_worker_info_and_init_function():
    seen = []

    def init(worker):
        info: Any = get_worker_info()
        info.dataset.function = lambda index: (worker, info.num_workers)
        seen.append(worker)

    loader = DataLoader(Calls(same, 4), 1, num_workers=2, worker_init_fn=init)
    assert [(w.item(), n.item()) for w, n in loader] == [(0, 2), (1, 2), (0, 2), (1, 2)]
    assert seen == []  # it ran in the workers


def test_workers_compute_with_one_thread():
    def sample(index):
        return tfw.get_num_threads(), float((tfw.ones(300, 300) @ tfw.ones(300, 300))[0, 0])

    _ = tfw.ones(300, 300) @ tfw.ones(300, 300)  # BLAS has threads before the fork
    assert list(DataLoader(Calls(sample, 2), None, num_workers=1)) == [[1, 300.0], [1, 300.0]]


# ---- passes


def test_two_passes_at_once():
    loader = DataLoader(Calls(same, 6), 2, num_workers=2)
    assert [(a[0].item(), b[0].item()) for a, b in zip(loader, loader, strict=True)] == [
        (0, 0),
        (2, 2),
        (4, 4),
    ]


def test_persistent_workers_serve_every_pass():
    loader = DataLoader(Calls(lambda i: os.getpid()), None, num_workers=2, persistent_workers=True)
    assert len({pid for _ in range(3) for pid in loader}) == 2
    assert len(multiprocessing.active_children()) == 2
    del loader


def test_persistent_workers_forget_a_pass_that_was_broken_off():
    loader = DataLoader(Calls(same, 40), None, num_workers=2, persistent_workers=True)
    for _ in range(3):
        for index in loader:
            if index == 5:
                break
    assert list(loader) == list(range(40))
    a, b = iter(loader), iter(loader)  # the second one has workers of its own
    assert [next(a), next(a), next(b), next(a)] == [0, 1, 0, 2]
    del loader, a, b


def test_persistent_stream_starts_anew():
    loader = DataLoader(Shard(3, 7), None, num_workers=2, persistent_workers=True)
    assert list(loader) == list(loader) == [3, 5, 4, 6]
    del loader


def test_break_ends_the_workers():
    for _ in DataLoader(Calls(same, 1000), 2, num_workers=2):
        break
    assert multiprocessing.active_children() == []


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
