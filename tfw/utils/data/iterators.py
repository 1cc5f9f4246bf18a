"""One pass over a DataLoader: in the loader's own process, or through workers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sized
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from tfw.errors import LoaderError
from tfw.utils.data import draw
from tfw.utils.data.fetch import END
from tfw.utils.data.pool import Pool
from tfw.utils.data.transport import Content
from tfw.utils.data.worker import Failure

if TYPE_CHECKING:
    from tfw.utils.data.loader import DataLoader

T = TypeVar("T")


class LoaderIterator(Generic[T]):
    """What ``iter(loader)`` returns.

    Attributes:
        base_seed: drawn from the loader's generator; worker i is seeded with base_seed + i.

    """

    def __init__(self, loader: DataLoader[T]) -> None:
        self._sampler = loader.index_sampler
        self._tasks: Iterator[Any] = iter(self._sampler)
        self.base_seed = draw.seed(loader.generator)
        self._promised = loader.promised_batches
        self._n_yielded = 0

    def __iter__(self) -> LoaderIterator[T]:
        return self

    def __len__(self) -> int:
        return len(cast("Sized", self._sampler))

    def __next__(self) -> T:
        batch = self._next()
        self._n_yielded += 1
        if self._promised is not None and self._n_yielded > self._promised:
            warnings.warn(
                f"the iterable dataset's len promised {self._promised} batches, and more came; "
                "with workers, each must take its share by get_worker_info()",
                stacklevel=2,
            )
            self._promised = None
        return batch

    def _next(self) -> T:
        raise NotImplementedError


class SerialIterator(LoaderIterator[T]):
    """Makes each batch when it is asked for."""

    def __init__(self, loader: DataLoader[T]) -> None:
        super().__init__(loader)
        self._fetch = loader.recipe.fetcher()

    def _next(self) -> T:
        task = next(self._tasks)
        try:
            batch = self._fetch(task)
        except StopIteration as error:
            # Passed on it would end the loop as if there were no more data.
            raise LoaderError("the dataset raised StopIteration", op="DataLoader") from error
        if batch is END:
            raise StopIteration
        return batch


class WorkerIterator(LoaderIterator[T]):
    """Keeps `prefetch_factor` tasks per worker under way and yields what comes back.

    Tasks go to the workers in turn, or to the one with fewest under way if order does not matter. A
    worker whose stream has ended leaves the round when its answer is taken, not when it arrives, so
    that the order of batches never depends on timing.
    """

    def __init__(self, loader: DataLoader[T], pool: Pool | None = None) -> None:
        super().__init__(loader)
        self._in_order = loader.in_order
        self._owned = pool is None
        self.pool = pool or loader.start_pool(self.base_seed)
        self.finished = False
        self._active = [True] * self.pool.size
        self._turn = 0
        self._n_asked = 0
        self._n_taken = 0
        self._asked: dict[int, int] = {}  # number of each task under way, and its worker
        self._arrived: dict[int, Content] = {}
        self._no_more_tasks = False
        for _ in range((loader.prefetch_factor or 1) * self.pool.size):
            self._ask()

    def keep_pool(self) -> None:
        """Leave the workers running when this pass is over: the loader keeps them for the next."""
        self._owned = False

    def _ask(self) -> None:
        """Give the next task to a worker, if there are both."""
        if self._no_more_tasks or not any(self._active):
            return
        try:
            task = next(self._tasks)
        except StopIteration:
            self._no_more_tasks = True
            return
        worker = self._choose()
        self.pool.submit(worker, self._n_asked, task)
        self._asked[self._n_asked] = worker
        self._n_asked += 1

    def _choose(self) -> int:
        size = self.pool.size
        turns = [(self._turn + i) % size for i in range(size)]
        active = [w for w in turns if self._active[w]]
        worker = active[0]
        if not self._in_order:
            busy = list(self._asked.values())
            worker = min(active, key=busy.count)
        self._turn = (worker + 1) % size
        return worker

    def _take(self) -> tuple[int, Content]:
        """Wait for the next answer: the oldest task's, or any if order does not matter."""
        wanted = self._n_taken
        while wanted not in self._arrived:
            number, content = self.pool.receive()
            if not self._in_order:
                return number, content
            self._arrived[number] = content
        return wanted, self._arrived.pop(wanted)

    def _next(self) -> T:
        while self._asked:
            number, content = self._take()
            self._n_taken += 1
            worker = self._asked.pop(number)
            batch: Any = None
            try:
                batch = content.load()
            finally:
                # Loading runs the user's code. Whatever it does, the worker goes on.
                if batch is END:
                    self._active[worker] = False
                self._ask()
            if isinstance(batch, Failure):
                batch.reraise()
            if batch is not END:
                return batch
        self.finished = True
        if self._owned:
            self.pool.close()
        raise StopIteration
