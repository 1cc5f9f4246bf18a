"""Loader workers: what comes back, random numbers, one pass after another."""

from __future__ import annotations

import multiprocessing
import os
import random
from typing import Any

import numpy as np
import pytest
import toy_datasets
from toy_datasets import Calls, same

import tfw
from tfw.utils.data import DataLoader, IterableDataset, get_worker_info
from tfw.utils.data.transport import INLINE_BYTES, KEPT_SEGMENTS, Receiver, Sender

no_process_is_left = toy_datasets.no_process_is_left
pytestmark = pytest.mark.usefixtures("no_process_is_left")
METHODS = ["fork", "spawn"]


class Shard(IterableDataset):
    """The stream 3, 4, 5, 6 of PyTorch's documentation, split into runs by worker."""

    def __init__(self, start, end):
        self.start, self.end = start, end

    def __iter__(self):
        info: Any = get_worker_info()
        per_worker = -(-(self.end - self.start) // info.num_workers)
        first = self.start + info.id * per_worker
        return iter(range(first, min(first + per_worker, self.end)))


def image(index):
    return tfw.full((3, 64, 64), float(index)), index, f"s{index}"


def numbers(index):
    info: Any = get_worker_info()
    return random.random(), float(np.random.rand()), tfw.rand(1).item(), info.seed


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
    pipe: Any = multiprocessing.Pipe()
    ours, theirs = pipe
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
