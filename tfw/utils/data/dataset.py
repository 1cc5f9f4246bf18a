"""Datasets: what a DataLoader draws samples from. Names and behaviour are PyTorch's."""

from __future__ import annotations

import bisect
import itertools
import math
import warnings
from collections.abc import Iterable, Iterator, Sequence, Sized
from typing import Any, Generic, TypeVar, cast

from tfw.errors import ArgumentError, OutOfRangeError, ShapeError, ValueRangeError
from tfw.ops.generator import Generator
from tfw.tensor import Tensor
from tfw.utils.data import draw

T_co = TypeVar("T_co", covariant=True)


class Dataset(Generic[T_co]):
    """Base of datasets whose samples have an index: a subclass gives `__getitem__` and `__len__`.

    It may also give ``__getitems__(indices)``, which loads a whole batch at once.

    Example: a class with ``__getitem__(self, index)`` and ``__len__(self)``
    """

    def __getitem__(self, index: Any) -> T_co:
        raise NotImplementedError(f"{type(self).__name__} does not define __getitem__")

    def __add__(self, other: Dataset[Any]) -> ConcatDataset[Any]:
        return ConcatDataset([self, other])


class IterableDataset(Dataset[T_co], Iterable[T_co]):
    """Base of datasets that are streams: a subclass gives `__iter__`.

    Each worker process iterates its own copy, so `__iter__` should take its share by what
    `get_worker_info()` says; otherwise every worker yields every sample.

    Example: ``islice(stream, info.id, None, info.num_workers)`` in ``__iter__``
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")

    def __add__(self, other: Dataset[Any]) -> ChainDataset:  # type: ignore[override]
        return ChainDataset([self, other])  # pyright: ignore[reportReturnType]  as PyTorch's


class TensorDataset(Dataset[tuple[Tensor, ...]]):
    """Sample i is row i of each tensor.

    Shapes: tensors (n, ...), all with the same n.
    Errors: RuntimeError (ShapeError) if the first sizes differ or there is no tensor.
    Source: elementary.
    Example: ``TensorDataset(inputs, targets)[0]`` is ``(inputs[0], targets[0])``
    """

    def __init__(self, *tensors: Tensor) -> None:
        lengths = [t.shape[0] if t.ndim else None for t in tensors]
        if not tensors or None in lengths or len(set(lengths)) > 1:
            raise ShapeError(
                f"tensors of shapes {', '.join(str(tuple(t.shape)) for t in tensors)} have no "
                "common first size",
                op="TensorDataset",
                argument="tensors",
                rule="one or more tensors whose first sizes are equal",
            )
        self.tensors = tensors

    def __getitem__(self, index: Any) -> tuple[Tensor, ...]:
        return tuple(cast("Any", t)[index] for t in self.tensors)

    def __len__(self) -> int:
        return self.tensors[0].shape[0]


class StackDataset(Dataset[Any]):
    """Datasets side by side: sample i is the tuple, or the dict, of each one's sample i.

    Errors: ValueError for no dataset, for positional and named ones at once, for unequal lengths.
    Source: elementary.
    Example: ``StackDataset(image=images, text=texts)[0]``
    """

    datasets: tuple[Any, ...] | dict[str, Any]

    def __init__(self, *args: Dataset[Any], **kwargs: Dataset[Any]) -> None:
        parts = cast("list[Sized]", [*args, *kwargs.values()])
        if not parts or (args and kwargs):
            raise ValueRangeError(
                f"got {len(args)} positional and {len(kwargs)} named datasets",
                op="StackDataset",
                argument="datasets",
                rule="one or more, all positional or all named",
            )
        lengths = [len(d) for d in parts]
        if len(set(lengths)) > 1:
            raise ValueRangeError(
                f"datasets have lengths {lengths}",
                op="StackDataset",
                argument="datasets",
                value=lengths,
                rule="equal lengths",
            )
        self.datasets = args or kwargs
        self._length = lengths[0]

    def __getitem__(self, index: Any) -> Any:
        return self.__getitems__([index])[0]

    def __getitems__(self, indices: list[Any]) -> list[Any]:
        """Return the samples at `indices`, in one call per dataset that has `__getitems__`."""
        if isinstance(self.datasets, dict):
            columns = [_items("StackDataset", d, indices) for d in self.datasets.values()]
            return [
                dict(zip(self.datasets, row, strict=True)) for row in zip(*columns, strict=True)
            ]
        return list(zip(*(_items("StackDataset", d, indices) for d in self.datasets), strict=True))

    def __len__(self) -> int:
        return self._length


class ConcatDataset(Dataset[T_co]):
    """Datasets one after the other.

    Attributes: `datasets`, and `cumulative_sizes`, the end of each within the whole.
    Errors: ValueError for no dataset or an index below -len, TypeError for an IterableDataset.
    Source: elementary.
    Example: ``len(ConcatDataset([a, b])) == len(a) + len(b)``
    """

    def __init__(self, datasets: Iterable[Dataset[T_co]]) -> None:
        self.datasets = list(datasets)
        if not self.datasets:
            raise ValueRangeError(
                "there is no dataset", op="ConcatDataset", argument="datasets", rule="one or more"
            )
        for d in self.datasets:
            if isinstance(d, IterableDataset):
                raise ArgumentError(
                    f"{type(d).__name__} is iterable and has no indices",
                    op="ConcatDataset",
                    argument="datasets",
                    value=d,
                    remedy="chain iterable datasets with ChainDataset",
                )
        self.cumulative_sizes = list(
            itertools.accumulate(len(cast("Sized", d)) for d in self.datasets)
        )

    def __getitem__(self, index: int) -> T_co:
        n = len(self)
        if index < -n:
            raise ValueRangeError(
                f"index={index} is out of range for {n} samples",
                op="ConcatDataset",
                argument="index",
                value=index,
                rule=f"{-n} <= index <= {n - 1}",
            )
        if index >= n:
            # An IndexError, which ends a `for` loop over a dataset without __iter__.
            raise OutOfRangeError(
                f"index={index} is out of range for {n} samples",
                op="ConcatDataset",
                argument="index",
                value=index,
                rule=f"{-n} <= index <= {n - 1}",
            )
        index %= n
        which = bisect.bisect_right(self.cumulative_sizes, index)
        start = self.cumulative_sizes[which - 1] if which else 0
        return self.datasets[which][index - start]

    def __len__(self) -> int:
        return self.cumulative_sizes[-1]


class ChainDataset(IterableDataset[Any]):
    """Iterable datasets one after the other.

    Errors: TypeError, when iterated, for a dataset that is not iterable-style.
    Source: elementary.
    Example: ``ChainDataset([stream_a, stream_b])``
    """

    def __init__(self, datasets: Iterable[Dataset[Any]]) -> None:
        self.datasets = datasets

    def _parts(self) -> Iterator[IterableDataset[Any]]:
        for d in self.datasets:
            if not isinstance(d, IterableDataset):
                raise ArgumentError(
                    f"{type(d).__name__} is not an IterableDataset",
                    op="ChainDataset",
                    argument="datasets",
                    value=d,
                    remedy="join indexed datasets with ConcatDataset",
                )
            yield d

    def __iter__(self) -> Iterator[Any]:
        for part in self._parts():
            yield from part

    def __len__(self) -> int:
        return sum(len(cast("Sized", part)) for part in self._parts())


class Subset(Dataset[T_co]):
    """The samples of a dataset at the given indices, in their order.

    Source: elementary.
    Example: ``Subset(dataset, range(100))``
    """

    def __init__(self, dataset: Dataset[T_co], indices: Sequence[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __getitem__(self, index: Any) -> T_co:
        if isinstance(index, list):
            chosen: Any = [self.indices[i] for i in cast("list[int]", index)]
            return self.dataset[chosen]
        return self.dataset[self.indices[index]]

    def __getitems__(self, indices: list[int]) -> list[T_co]:
        """Return the samples at `indices`, in one call if the dataset has `__getitems__`."""
        cls: Any = type(self)
        if cls.__getitem__ is not Subset.__dict__["__getitem__"]:
            # A subclass that changes __getitem__ means every sample, also those of a batch.
            return [self[i] for i in indices]
        return _items("Subset", self.dataset, [self.indices[i] for i in indices])

    def __len__(self) -> int:
        return len(self.indices)


def _items(op: str, dataset: Any, indices: list[Any]) -> list[Any]:
    """Return several samples, in one call where the dataset offers it."""
    get_items = getattr(dataset, "__getitems__", None)
    if not callable(get_items):
        return [dataset[i] for i in indices]
    items = cast("list[Any]", get_items(indices))
    if len(items) != len(indices):
        raise ValueRangeError(
            f"__getitems__ of {type(dataset).__name__} returned {len(items)} samples for "
            f"{len(indices)} indices",
            op=op,
            argument="dataset",
            value=len(items),
        )
    return items


def random_split(
    dataset: Dataset[T_co], lengths: Sequence[int | float], generator: Generator | None = None
) -> list[Subset[T_co]]:
    """Split a dataset at random into parts of the given lengths, or of fractions that sum to 1.

    Of fractions, each part gets floor(fraction * n) samples, and the rest goes to the first parts.

    Errors: ValueError if lengths do not sum to the dataset's, or a fraction is outside [0, 1].
    Source: elementary.
    Example: ``train, val = random_split(dataset, [0.9, 0.1], tfw.Generator().manual_seed(0))``
    """
    n = len(cast("Sized", dataset))
    if lengths and math.isclose(sum(lengths), 1) and sum(lengths) <= 1:
        lengths = _from_fractions(lengths, n)
    if sum(lengths) != n or min(lengths, default=0) < 0:
        raise ValueRangeError(
            f"lengths={list(lengths)} do not add up to the {n} samples of the dataset",
            op="random_split",
            argument="lengths",
            value=list(lengths),
            rule=f"counts that sum to {n}, or fractions that sum to 1",
        )
    counts = [int(length) for length in lengths]
    order = draw.permutation(n, generator)
    ends = itertools.accumulate(counts)
    return [
        Subset(dataset, order[end - count : end]) for count, end in zip(counts, ends, strict=True)
    ]


def _from_fractions(fractions: Sequence[float], n: int) -> list[int]:
    for i, fraction in enumerate(fractions):
        if not 0 <= fraction <= 1:
            raise ValueRangeError(
                f"fraction {fraction} at index {i} is outside [0, 1]",
                op="random_split",
                argument="lengths",
                value=list(fractions),
                rule="0 <= fraction <= 1",
            )
    counts = [math.floor(n * fraction) for fraction in fractions]
    for i in range(n - sum(counts)):
        counts[i % len(counts)] += 1
    for i, count in enumerate(counts):
        if not count:
            warnings.warn(f"random_split: part {i} has no samples", stacklevel=3)
    return counts
