"""A small thread pool for NumPy loops: NumPy and BLAS release the GIL while they run."""

from __future__ import annotations

import contextvars
import os
import threading
from collections.abc import Callable
from itertools import count
from queue import SimpleQueue

import numpy as np

from tfw.config import NUM_THREADS

from . import blas

Body = Callable[[int, int], object]


class _Job:
    """One parallel loop: chunks are handed out by a counter, so a slow thread takes fewer."""

    __slots__ = ("body", "done", "error", "finished", "grain", "n", "n_chunks", "taken")

    def __init__(self, n: int, grain: int, body: Body) -> None:
        self.body = body
        self.n = n
        self.grain = grain
        self.n_chunks = -(-n // grain)
        # next() on itertools.count is one bytecode in C, hence atomic under the GIL.
        self.taken = count()
        self.finished = count(1)
        self.error: BaseException | None = None
        self.done = threading.Lock()
        self.done.acquire()

    def work(self) -> None:
        """Run chunks until none is left; whoever finishes the last one releases `done`."""
        while (i := next(self.taken)) < self.n_chunks:
            if self.error is None:
                try:
                    self.body(i * self.grain, min(self.n, (i + 1) * self.grain))
                except BaseException as error:
                    self.error = error
            if next(self.finished) == self.n_chunks:
                self.done.release()


class _Local(threading.local):
    """A context in which floating-point errors are ignored, and whether a loop is running."""

    def __init__(self) -> None:
        self.context = contextvars.Context()
        self.context.run(np.seterr, all="ignore")
        self.running = False


class _Pool:
    """The threads; `wanted` is their number if set, else the environment tells at first use."""

    def __init__(self, wanted: int | None = None) -> None:
        self.wanted = wanted
        self.n_workers = 0
        self.jobs: SimpleQueue[_Job] = SimpleQueue()
        self.lock = threading.Lock()

    @property
    def n_threads(self) -> int:
        """How many threads work, the calling one included."""
        if self.wanted is None:
            self.wanted = NUM_THREADS.get()
        return self.wanted

    def submit(self, job: _Job) -> None:
        """Offer the job to as many workers as can be of use, starting them at first need."""
        wanted = min(self.n_threads, job.n_chunks) - 1
        if self.n_workers < wanted:
            with self.lock:
                while self.n_workers < wanted:
                    name = f"tfw-cpu-{self.n_workers}"
                    args = (self.jobs,)
                    threading.Thread(target=_serve, name=name, args=args, daemon=True).start()
                    self.n_workers += 1
        for _ in range(wanted):
            self.jobs.put(job)


def _serve(jobs: SimpleQueue[_Job]) -> None:
    _local.running = True  # loops inside a chunk run inline
    work = _local.context.run
    while True:
        # No name keeps the job: while the worker waits, nothing may hold the arrays of the last.
        work(jobs.get().work)


def _new_pool() -> None:
    """Start afresh in a forked child: threads do not survive fork, and locks may be held."""
    global _pool
    _pool = _Pool(_pool.wanted)


_local = _Local()
_pool = _Pool()
os.register_at_fork(after_in_child=_new_pool)


def get_num_threads() -> int:
    """Return how many threads a parallel loop uses, the calling one included."""
    return _pool.n_threads


def set_num_threads(n: int) -> None:
    """Let parallel loops and BLAS use `n` threads, the calling one included."""
    if n < 1:
        raise ValueError(f"set_num_threads: n={n} must be at least 1")
    _pool.wanted = n
    blas.set_num_threads(n)


def parallel_for(n: int, grain: int, body: Body) -> None:
    """Call `body(start, stop)` for consecutive chunks of `grain` that cover [0, n).

    The chunks depend on n and grain alone, never on the number of threads, so a kernel that
    keeps partial sums per chunk gives the same bits on every machine. Floating-point errors are
    ignored inside. The first exception stops the loop and is raised here.
    """
    local = _local
    if local.running:
        _run_inline(n, grain, body)
        return
    local.running = True
    try:
        if n <= grain or _pool.n_threads == 1:
            with blas.one_thread:
                local.context.run(_run_inline, n, grain, body)
            return
        job = _Job(n, grain, body)
        with blas.one_thread:
            _pool.submit(job)
            local.context.run(job.work)
            job.done.acquire()
        if job.error is not None:
            raise job.error
    finally:
        local.running = False


def run_quietly(fn: Callable[..., object], *args: object) -> None:
    """Call fn here, with floating-point errors ignored: for work too small to cut up."""
    local = _local
    if local.running:
        fn(*args)
        return
    # As inside a loop, so that whatever fn starts runs inline and does not enter the context again.
    local.running = True
    try:
        local.context.run(fn, *args)
    finally:
        local.running = False


def _run_inline(n: int, grain: int, body: Body) -> None:
    for start in range(0, n, grain):
        body(start, min(n, start + grain))
