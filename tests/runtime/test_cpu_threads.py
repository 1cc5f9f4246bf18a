"""The thread pool: every index once, in chunks that do not depend on the number of threads."""

from __future__ import annotations

import gc
import os
import threading
import time
import warnings
import weakref
from collections.abc import Iterator

import numpy as np
import pytest

from tfw.runtime.cpu import blas, threads
from tfw.runtime.cpu.threads import get_num_threads, parallel_for, set_num_threads


@pytest.fixture(params=[1, 2, 5])
def n_threads(request: pytest.FixtureRequest) -> Iterator[int]:
    before = get_num_threads()
    set_num_threads(request.param)
    yield request.param
    set_num_threads(before)


@pytest.mark.parametrize(("n", "grain"), [(0, 3), (1, 3), (3, 3), (4, 3), (1000, 7), (1000, 10**6)])
def test_every_index_once(n_threads: int, n: int, grain: int) -> None:
    seen = np.zeros(n, int)
    chunks: list[tuple[int, int]] = []

    def body(start: int, stop: int) -> None:
        seen[start:stop] += 1
        chunks.append((start, stop))

    parallel_for(n, grain, body)
    assert (seen == 1).all()
    assert sorted(chunks) == [(i, min(n, i + grain)) for i in range(0, n, grain)]


def test_first_exception_is_raised_and_the_pool_survives(n_threads: int) -> None:
    def body(start: int, stop: int) -> None:
        raise ZeroDivisionError(start)

    with pytest.raises(ZeroDivisionError):
        parallel_for(100, 1, body)
    total: list[int] = []
    parallel_for(100, 1, lambda start, stop: total.append(start))
    assert sum(total) == 4950


def test_nested_loops_run_inline(n_threads: int) -> None:
    same: list[bool] = []

    def body(start: int, stop: int) -> None:
        me = threading.get_ident()
        parallel_for(10, 1, lambda *_: same.append(threading.get_ident() == me))

    parallel_for(20, 1, body)
    assert len(same) == 200
    assert all(same)


def test_floating_point_errors_are_ignored_inside_only(n_threads: int) -> None:
    before = np.geterr()
    zeros = np.zeros(4)
    parallel_for(8, 1, lambda *_: np.divide(1.0, zeros))
    assert np.geterr() == before
    with pytest.warns(RuntimeWarning, match="divide"):
        np.divide(1.0, zeros)


def test_two_callers_at_once(n_threads: int) -> None:
    sums = [0, 0]

    def caller(i: int) -> None:
        for _ in range(50):
            partial = np.zeros(40, int)
            parallel_for(40, 1, lambda start, stop, p=partial: p.__setitem__(start, start))
            sums[i] += int(partial.sum())

    callers = [threading.Thread(target=caller, args=(i,)) for i in (0, 1)]
    for t in callers:
        t.start()
    for t in callers:
        t.join()
    assert sums == [50 * 780, 50 * 780]


def test_pool_keeps_no_arrays(n_threads: int) -> None:
    x = np.zeros(10)
    gone = weakref.ref(x)
    parallel_for(10, 1, lambda start, stop, x=x: x.__setitem__(start, 1))
    del x
    deadline = time.monotonic() + 5
    gc.collect()
    # A worker that was late for the job drops it as soon as it has looked at it.
    while gone() is not None and time.monotonic() < deadline:
        time.sleep(0.001)
    assert gone() is None


def test_forked_child_starts_its_own_workers() -> None:
    before = get_num_threads()
    set_num_threads(2)
    parallel_for(100, 1, lambda *_: None)
    with warnings.catch_warnings():
        # Python warns of fork in a process with threads; that is the case under test.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if child == 0:
        seen = np.zeros(1000, int)
        parallel_for(1000, 1, lambda start, stop: seen.__setitem__(start, 1))
        os._exit(0 if seen.all() else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    set_num_threads(before)


def test_thread_count_must_be_positive() -> None:
    with pytest.raises(ValueError, match="n=0"):
        set_num_threads(0)


def test_blas_runs_with_one_thread_inside() -> None:
    openblas = blas._openblas
    if openblas is None:
        pytest.skip("NumPy was built with another BLAS")
    before = get_num_threads()
    set_num_threads(2)
    inside: list[int] = []
    parallel_for(8, 1, lambda *_: inside.append(openblas[0]()))
    assert set(inside) == {1}
    assert openblas[0]() == 2
    set_num_threads(before)
    assert threads.get_num_threads() == before
