"""DataLoader: batches from a dataset, in this process or through worker processes."""

from __future__ import annotations

import multiprocessing
import weakref
from collections.abc import Callable, Iterable, Sized
from multiprocessing.context import BaseContext
from typing import Any, Generic, TypeVar, cast

from tfw.errors import ArgumentError, ValueRangeError
from tfw.ops.generator import Generator
from tfw.utils.data.collate import default_collate, default_convert
from tfw.utils.data.dataset import Dataset, IterableDataset
from tfw.utils.data.fetch import Recipe
from tfw.utils.data.iterators import LoaderIterator, SerialIterator, WorkerIterator
from tfw.utils.data.pool import Pool
from tfw.utils.data.sampler import (
    BatchSampler,
    InfiniteSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

T_co = TypeVar("T_co", covariant=True)

_FIXED = ("batch_size", "batch_sampler", "sampler", "drop_last", "dataset", "persistent_workers")


def _refuse(argument: str, value: object, message: str, rule: str = "") -> ValueRangeError:
    return ValueRangeError(message, op="DataLoader", argument=argument, value=value, rule=rule)


class DataLoader(Generic[T_co]):
    """Iterate over a dataset in batches: PyTorch's arguments, defaults and checks.

    Each pass draws one base seed from `generator`, or the global random state. Worker i seeds
    `random`, `numpy.random` and `tfw` from base seed and i, so a seed fixes what workers draw.
    Batches come from workers through shared memory that has no name, so nothing is left behind
    however a process ends.

    Args:
        dataset: has `__getitem__` and `__len__`, or is an `IterableDataset`.
        batch_size: samples per batch; None passes single samples on.
        shuffle: whether each pass has an order of its own.
        sampler: gives the indices instead; excludes shuffle.
        batch_sampler: gives lists of indices; excludes batch_size, shuffle, sampler and drop_last.
        num_workers: processes that make batches; 0 makes them in this one.
        collate_fn: joins samples into a batch, by default `default_collate`.
        pin_memory: put batches into page-locked memory for CUDA; does nothing on the CPU.
        drop_last: leave out a last, shorter batch.
        timeout: seconds to wait for a worker's batch; 0 waits for ever.
        worker_init_fn: called in each worker with its number, after seeding.
        multiprocessing_context: "fork", "spawn", "forkserver" or a context; Python's default if
            None.
        generator: where the order and the base seed come from.
        prefetch_factor: batches per worker that are made in advance; 2 if there are workers.
        persistent_workers: keep the workers from one pass to the next.
        pin_memory_device: accepted as PyTorch does.
        in_order: yield batches in the sampler's order; False yields them as they are ready.

    Errors: ValueError for values and combinations that exclude each other, TypeError for a wrong
    context. While iterating, what the dataset raises, also in workers, with its class and the
    worker's traceback; RuntimeError (LoaderError) if a worker dies or the timeout passes.
    Source: elementary.
    Example: ``for x, y in DataLoader(dataset, batch_size=32, shuffle=True, num_workers=2): ...``

    """

    def __init__(
        self,
        dataset: Dataset[T_co] | Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Sampler[Any] | Iterable[Any] | None = None,
        batch_sampler: Sampler[list[Any]] | Iterable[list[Any]] | None = None,
        num_workers: int = 0,
        collate_fn: Callable[[Any], Any] | None = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: str | BaseContext | None = None,
        generator: Generator | None = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        _check_workers(num_workers, timeout, prefetch_factor, persistent_workers)
        is_stream = isinstance(dataset, IterableDataset)
        if is_stream:
            _check_stream(shuffle, sampler, batch_sampler)
        _check_order(batch_size, shuffle, sampler, batch_sampler, drop_last)
        if batch_sampler is not None:
            batch_size, drop_last = None, False
        if sampler is None:
            if is_stream:
                sampler = InfiniteSampler()
            elif shuffle:
                sampler = RandomSampler(cast("Sized", dataset), generator=generator)
            else:
                sampler = SequentialSampler(cast("Sized", dataset))
        if batch_size is not None:
            batch_sampler = BatchSampler(sampler, batch_size, drop_last)
        if collate_fn is None:
            collate_fn = default_convert if batch_sampler is None else default_collate
        self.dataset = dataset
        self.batch_size, self.drop_last = batch_size, drop_last
        self.sampler, self.batch_sampler = sampler, batch_sampler
        self.num_workers, self.timeout = num_workers, timeout
        self.prefetch_factor = 2 if num_workers and prefetch_factor is None else prefetch_factor
        self.persistent_workers = persistent_workers
        self.collate_fn, self.worker_init_fn = collate_fn, worker_init_fn
        self.pin_memory, self.pin_memory_device = pin_memory, pin_memory_device
        self.generator, self.in_order = generator, in_order
        self.multiprocessing_context = multiprocessing_context
        # Batches that len() last promised for an iterable dataset; more are worth a warning.
        self.promised_batches: int | None = None
        self._pool: Pool | None = None
        self._pool_user: weakref.ref[WorkerIterator[Any]] | None = None
        self._initialized = True

    def __setattr__(self, name: str, value: Any) -> None:
        if name in _FIXED and "_initialized" in self.__dict__:
            raise _refuse(name, value, f"{name} cannot be changed after the loader was made")
        super().__setattr__(name, value)

    @property
    def multiprocessing_context(self) -> BaseContext | None:
        """The context that starts workers, or None for Python's default."""
        return self._context

    @multiprocessing_context.setter
    def multiprocessing_context(self, value: str | BaseContext | None) -> None:
        if value is not None and not self.num_workers:
            raise _refuse(
                "multiprocessing_context",
                value,
                f"multiprocessing_context={value!r} needs workers, and num_workers is 0",
            )
        if isinstance(value, str):
            known = multiprocessing.get_all_start_methods()
            if value not in known:
                raise _refuse(
                    "multiprocessing_context",
                    value,
                    f"multiprocessing_context={value!r} is unknown",
                    ", ".join(known),
                )
            value = multiprocessing.get_context(value)
        if value is not None and not isinstance(value, BaseContext):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"multiprocessing_context={value!r} is a {type(value).__name__}",
                op="DataLoader",
                argument="multiprocessing_context",
                value=value,
                rule="a start method's name, a multiprocessing context or None",
            )
        self._context: BaseContext | None = value

    @property
    def index_sampler(self) -> Any:
        """What yields tasks: lists of indices, or single ones if nothing is batched."""
        return self.sampler if self.batch_sampler is None else self.batch_sampler

    @property
    def recipe(self) -> Recipe:
        """What is needed to make batches, here or in a worker."""
        return Recipe(self.dataset, self.batch_sampler is not None, self.collate_fn, self.drop_last)

    def start_pool(self, base_seed: int) -> Pool:
        """Start worker processes."""
        return Pool(
            self._context or multiprocessing.get_context(),
            self.recipe,
            self.num_workers,
            base_seed,
            self.worker_init_fn,
            self.timeout,
        )

    def __iter__(self) -> LoaderIterator[Any]:
        if not self.num_workers:
            return SerialIterator(self)
        if not self.persistent_workers:
            return WorkerIterator(self)
        return self._iterate_again()

    def _iterate_again(self) -> WorkerIterator[Any]:
        """Start a pass with the workers that were kept, or with new ones while those are in use."""
        user = self._pool_user() if self._pool_user is not None else None
        if user is not None and not user.finished and not user.pool.failed:
            return WorkerIterator(self)
        pool = self._pool
        if pool is None or pool.failed:
            iterator = WorkerIterator(self)
            iterator.keep_pool()
            self._pool = iterator.pool
        else:
            pool.start_epoch()
            iterator = WorkerIterator(self, pool)
        self._pool_user = weakref.ref(iterator)
        return iterator

    def __len__(self) -> int:
        if not isinstance(self.dataset, IterableDataset):
            return len(cast("Sized", self.index_sampler))
        n = len(cast("Sized", self.dataset))
        if self.batch_size is not None:
            n = n // self.batch_size if self.drop_last else -(-n // self.batch_size)
        self.promised_batches = n
        return n


def _check_workers(
    num_workers: int, timeout: float, prefetch_factor: int | None, persistent_workers: bool
) -> None:
    if num_workers < 0:
        raise _refuse(
            "num_workers", num_workers, f"num_workers={num_workers} is negative", "num_workers >= 0"
        )
    if timeout < 0:
        raise _refuse("timeout", timeout, f"timeout={timeout} is negative", "timeout >= 0 seconds")
    if prefetch_factor is not None and not num_workers:
        raise _refuse(
            "prefetch_factor",
            prefetch_factor,
            f"prefetch_factor={prefetch_factor} needs workers, and num_workers is 0",
        )
    if prefetch_factor is not None and prefetch_factor < 1:
        raise _refuse(
            "prefetch_factor",
            prefetch_factor,
            f"prefetch_factor={prefetch_factor} leaves workers without a task",
            "prefetch_factor >= 1",
        )
    if persistent_workers and not num_workers:
        raise _refuse(
            "persistent_workers",
            True,
            "persistent_workers=True needs workers, and num_workers is 0",
        )


def _check_stream(shuffle: bool | None, sampler: object, batch_sampler: object) -> None:
    given = {"shuffle": shuffle or None, "sampler": sampler, "batch_sampler": batch_sampler}
    for name, value in given.items():
        if value is not None:
            raise _refuse(
                name,
                value,
                f"{name}={value!r} does not apply to an IterableDataset, which has its own order",
            )


def _check_order(
    batch_size: int | None,
    shuffle: bool | None,
    sampler: object,
    batch_sampler: object,
    drop_last: bool,
) -> None:
    if sampler is not None and shuffle:
        raise _refuse("sampler", sampler, "sampler and shuffle=True exclude each other")
    if batch_sampler is not None:
        if batch_size != 1 or shuffle or sampler is not None or drop_last:
            raise _refuse(
                "batch_sampler",
                batch_sampler,
                "batch_sampler excludes batch_size, shuffle, sampler and drop_last",
            )
    elif batch_size is None and drop_last:
        raise _refuse(
            "drop_last", True, "batch_size=None makes no batches, so drop_last does not apply"
        )
