"""A loader's worker process: takes tasks, sends batches, and ends when the loader does."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import random
import signal
import threading
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from queue import SimpleQueue
from types import FrameType
from typing import Any, NoReturn

import numpy as np

from tfw.errors import LoaderError
from tfw.ops.generator import manual_seed
from tfw.runtime.cpu.threads import set_num_threads
from tfw.utils.data.fetch import Recipe
from tfw.utils.data.transport import Sender

# How often a worker looks whether its parent is still there, should nothing else tell.
WATCH_S = 1.0


@dataclass
class WorkerInfo:
    """What `get_worker_info` returns in a worker.

    Attributes:
        id: number of this worker, 0 to num_workers - 1.
        num_workers: workers of this loader.
        seed: what `random` and `tfw` were seeded with: base seed + id.
        dataset: this process's copy of the dataset.

    """

    id: int
    num_workers: int
    seed: int
    dataset: Any


_info: WorkerInfo | None = None


def get_worker_info() -> WorkerInfo | None:
    """Return which worker this process is, or None outside of workers.

    Example: ``info = get_worker_info(); shard = info.id if info else 0``
    """
    return _info


@dataclass(frozen=True)
class Job:
    """All that a worker is started with."""

    recipe: Recipe
    worker_id: int
    num_workers: int
    base_seed: int
    init_fn: Callable[[int], None] | None


class WorkerTraceback(Exception):  # noqa: N818  it is shown in a traceback, not raised as such
    """The traceback of an error in a worker, as text: the cause of what the loader raises."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text

    def __str__(self) -> str:
        return f"\n{self.text}"


@dataclass(frozen=True)
class Failure:
    """An error on its way from a worker."""

    worker_id: int
    pid: int
    name: str
    pickled: bytes
    text: str

    def reraise(self) -> NoReturn:
        """Raise the worker's error: the same class, with the worker's traceback as its cause.

        An error that does not survive pickling comes as a LoaderError.
        """
        where = f"in DataLoader worker {self.worker_id} (pid {self.pid})"
        try:
            error = pickle.loads(self.pickled)
            error.add_note(f"raised {where}")
        except Exception:
            error = None
        # StopIteration would end the loop as if there were no more data.
        if error is None or isinstance(error, StopIteration):
            error = LoaderError(f"{self.name} {where}", op="DataLoader", value=self.name)
        try:
            raise error from WorkerTraceback(self.text)
        finally:
            # The error's traceback holds this frame: without this they would hold each other, and
            # the loader's workers with them, until the garbage collector comes by.
            del error


def _pack(error: Exception, worker_id: int) -> Failure:
    text = "".join(traceback.format_exception(error))
    try:
        pickled = pickle.dumps(error)
        pickle.loads(pickled)
    except Exception:
        pickled = b""
    name = traceback.format_exception_only(error)[-1].strip()
    return Failure(worker_id, os.getpid(), name, pickled, text)


class _Tasks:
    """Tasks as they come in, read by a thread, so that neither process waits for the other to read.

    The thread also ends the process once the loader's process is gone.
    """

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.queue: SimpleQueue[tuple[Any, ...]] = SimpleQueue()
        # The newest pass over the data; tasks of older ones, which were broken off, are skipped.
        self.epoch = 0
        threading.Thread(target=self._listen, name="tfw-loader-tasks", daemon=True).start()

    def _listen(self) -> None:
        parent = multiprocessing.parent_process()
        started_by = os.getppid()  # the loader's process, or the fork server
        sources: list[Any] = [self._connection]
        if parent is not None:
            sources.append(parent.sentinel)
        while True:
            ready = wait(sources, WATCH_S)
            orphaned = parent is not None and parent.sentinel in ready
            if orphaned or os.getppid() != started_by:
                os._exit(1)
            if self._connection not in ready:
                continue
            message: tuple[Any, ...]
            try:
                message = pickle.loads(self._connection.recv_bytes())
            except (EOFError, OSError):
                message = ("stop",)
            if message[0] == "stop":
                # Go on watching the parent: the main thread may be busy for long.
                sources.remove(self._connection)
            elif message[0] == "start":
                self.epoch = message[1]
            self.queue.put(message)


def _no_action(number: int, frame: FrameType | None) -> None:
    """Leave Ctrl-C, which the terminal sends to the whole group, to the loader's process."""


def _seed(job: Job) -> int:
    """Seed the generators that a dataset may use, each worker's apart from the others'."""
    seed = job.base_seed + job.worker_id
    random.seed(seed)
    manual_seed(seed)
    # Spread by SeedSequence: NumPy's and Python's Mersenne Twisters must not walk in step.
    words = np.random.SeedSequence([job.base_seed, job.worker_id]).generate_state(4)
    np.random.seed(words)
    return seed


def main(job: Job, connection: Connection) -> None:
    """Run a worker until the loader says stop or goes away."""
    global _info
    # The loader starts workers with SIGINT blocked, so that none can come before this line. The
    # loader's own SIGTERM handler (to save a checkpoint, say) is not for its workers.
    signal.signal(signal.SIGINT, _no_action)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    set_num_threads(1)
    seed = _seed(job)
    _info = WorkerInfo(job.worker_id, job.num_workers, seed, job.recipe.dataset)
    tasks, sender = _Tasks(connection), Sender(connection)
    # The loader is gone, or closed its end because it wants no more.
    with contextlib.suppress(BrokenPipeError, ConnectionResetError):
        _serve(job, tasks, sender)


def _serve(job: Job, tasks: _Tasks, sender: Sender) -> None:
    fetch: Callable[[Any], Any] | None = None
    broken = _initialise(job)
    while True:
        message = tasks.queue.get()
        if message[0] == "stop":
            return
        if message[0] == "start":
            fetch = None
            continue
        _, epoch, number, task, freed = message
        sender.release(freed)
        if epoch != tasks.epoch:
            continue
        try:
            if broken is None:
                fetch = fetch or job.recipe.fetcher()
                # No name keeps the batch while the worker waits for the next task.
                sender.send((epoch, number), fetch(task))
            else:
                sender.send((epoch, number), broken)
        except (BrokenPipeError, ConnectionResetError):
            raise
        except Exception as error:
            sender.send((epoch, number), _pack(error, job.worker_id))


def _initialise(job: Job) -> Failure | None:
    """Run the user's init function; what it raises is the answer to every task."""
    try:
        if job.init_fn is not None:
            job.init_fn(job.worker_id)
    except Exception as error:
        return _pack(error, job.worker_id)
    return None
