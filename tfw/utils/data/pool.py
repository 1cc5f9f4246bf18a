"""A loader's worker processes as the loader's process sees them: start, talk to, watch, end."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import time
import weakref
from collections.abc import Callable, Generator
from copy import copy
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection, wait
from multiprocessing.context import BaseContext
from typing import Any, NoReturn

from tfw.errors import LoaderError
from tfw.utils.data.fetch import Recipe
from tfw.utils.data.transport import Content, Receiver
from tfw.utils.data.worker import Job, main

# How long workers may take to finish what they are at before they are ended by force.
GRACE_S = 2.0
# The same after one died or the timeout passed.
_GRACE_AFTER_FAILURE_S = 0.5
# A dead worker shows as a closed connection. Should another process hold that open, we look anyway.
_WATCH_S = 1.0

# The loaders' ends of all connections of this process. A forked child closes its copies: otherwise
# a worker would not see that the loader's process is gone.
_connections: weakref.WeakSet[Connection] = weakref.WeakSet()


def _close_inherited() -> None:
    for connection in list(_connections):
        with contextlib.suppress(OSError):
            connection.close()
    _connections.clear()


os.register_at_fork(after_in_child=_close_inherited)


class _Worker:
    """One process and the loader's end of its connection."""

    def __init__(self, context: BaseContext, job: Job) -> None:
        ours, theirs = context.Pipe(duplex=True)
        self.connection: Connection = ours  # pyright: ignore[reportAttributeAccessIssue]  typeshed's Pipe names its base
        self.receiver = Receiver(self.connection)
        # Every concrete context has a Process, but BaseContext does not declare it.
        make: Any = context
        self.process: Any = make.Process(
            target=main, args=(job, theirs), name=f"tfw-loader-{job.worker_id}", daemon=True
        )
        _connections.add(self.connection)
        try:
            self.process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            # Held open here or in the next worker, it would hide this worker's death.
            theirs.close()

    def send(self, message: tuple[Any, ...]) -> None:
        self.connection.send_bytes(pickle.dumps(message))


@contextlib.contextmanager
def _interrupts_held(context: BaseContext) -> Generator[None]:
    """Hold back Ctrl-C, so that a worker starts with it blocked and none is lost half-started."""
    if context.get_start_method() != "fork":
        # The tracker that spawn needs unblocks SIGINT when it starts; it must not do so in here.
        resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class Pool:
    """Worker processes. They end when the pool is closed, dropped, or its process goes.

    Attributes:
        size: how many there are.
        epoch: number of the current pass over the data; answers of earlier ones are not reported.

    """

    def __init__(
        self,
        context: BaseContext,
        recipe: Recipe,
        size: int,
        base_seed: int,
        init_fn: Callable[[int], None] | None,
        timeout_s: float,
    ) -> None:
        self.size = size
        self._timeout_s = timeout_s
        self.epoch = 0
        self._failure: LoaderError | None = None
        self._workers: list[_Worker] = []
        self.close = weakref.finalize(self, _close, self._workers, os.getpid(), GRACE_S)
        try:
            with _interrupts_held(context):
                for i in range(size):
                    self._workers.append(_Worker(context, Job(recipe, i, size, base_seed, init_fn)))
        except BaseException:
            self.close()
            raise

    def start_epoch(self) -> None:
        """Begin a new pass: what the last one asked for and did not take is forgotten."""
        self._check()
        self.epoch += 1
        for i in range(self.size):
            self._send(i, ("start", self.epoch))

    def submit(self, worker: int, number: int, task: Any) -> None:
        """Give a worker a task. RuntimeError (LoaderError) if it is dead."""
        self._check()
        freed = self._workers[worker].receiver.take_free()
        self._send(worker, ("task", self.epoch, number, task, freed))

    def _send(self, worker: int, message: tuple[Any, ...]) -> None:
        try:
            self._workers[worker].send(message)
        except OSError:
            self._fail(self._death(worker))

    def receive(self) -> tuple[int, Content]:
        """Wait for an answer of the current pass: the task's number and what the worker made.

        Errors: RuntimeError (LoaderError) if a worker died or the time is up.
        """
        self._check()
        deadline = time.monotonic() + (self._timeout_s or float("inf"))
        workers: dict[Any, int] = {w.connection: i for i, w in enumerate(self._workers)}
        while True:
            remaining_s = deadline - time.monotonic()
            ready = wait(workers, max(0.0, min(remaining_s, _WATCH_S)))
            for connection in ready:
                worker = workers[connection]
                try:
                    (epoch, number), content = self._workers[worker].receiver.receive()
                except (EOFError, OSError):
                    self._fail(self._death(worker))
                if epoch == self.epoch:
                    return number, content
            if not ready:
                self._look()
                if remaining_s <= 0:
                    self._fail(
                        LoaderError(
                            f"no batch came within {self._timeout_s} s",
                            op="DataLoader",
                            argument="timeout",
                            value=self._timeout_s,
                            remedy="raise timeout, or find what keeps the dataset",
                        )
                    )

    def _look(self) -> None:
        for i, worker in enumerate(self._workers):
            if worker.process.exitcode is not None and not worker.connection.poll():
                self._fail(self._death(i))

    def _check(self) -> None:
        if self._failure is not None:
            # A copy: the traceback of the one that is kept would keep all frames that it passed.
            raise copy(self._failure)

    def _fail(self, error: LoaderError) -> NoReturn:
        """End the pool and raise the error, now and whenever the pool is used again."""
        self._failure = error
        _close(self._workers, os.getpid(), _GRACE_AFTER_FAILURE_S)
        raise copy(error) from None

    def _death(self, worker: int) -> LoaderError:
        """Return the error that tells what is known of a worker's death."""
        process = self._workers[worker].process
        process.join(_WATCH_S)
        code = process.exitcode
        remedy = "run with num_workers=0 to see the dataset fail in this process"
        if code is None:
            how = "closed its connection"
        elif code >= 0:
            how = f"exited with code {code}"
        else:
            how = f"was killed by {_signal_name(-code)}"
            if -code == signal.SIGKILL:
                remedy = (
                    "the system kills processes when memory runs out: use fewer workers, a smaller "
                    "prefetch_factor or smaller batches"
                )
        return LoaderError(
            f"worker {worker} (pid {process.pid}) {how}",
            op="DataLoader",
            argument="num_workers",
            value=code,
            remedy=remedy,
        )

    @property
    def failed(self) -> bool:
        """Whether the pool has ended with an error."""
        return self._failure is not None


def _signal_name(number: int) -> str:
    try:
        return f"signal {signal.Signals(number).name}"
    except ValueError:
        return f"signal {number}"


def _close(workers: list[_Worker], owner: int, grace_s: float) -> None:
    """End workers: ask, wait, then force. A forked child leaves its parent's alone."""
    if os.getpid() != owner:
        return
    for worker in workers:
        with contextlib.suppress(OSError, ValueError):
            worker.send(("stop",))
        # A worker that is writing to us is let go by this.
        worker.connection.close()
    try:
        _join(workers, grace_s)
    finally:
        # Also after a second Ctrl-C: whatever happens, no worker stays.
        for worker in workers:
            if worker.process.exitcode is None:
                worker.process.terminate()
        _join(workers, 1.0)
        for worker in workers:
            if worker.process.exitcode is None:
                worker.process.kill()
                worker.process.join()
            worker.process.close()
        workers.clear()


def _join(workers: list[_Worker], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    for worker in workers:
        worker.process.join(max(0.0, deadline - time.monotonic()))
