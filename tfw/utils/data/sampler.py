"""Samplers: the order in which a DataLoader visits a dataset. Names and behaviour are PyTorch's."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized
from itertools import islice, repeat
from typing import Any, Generic, TypeVar, cast

from tfw import dtypes
from tfw.errors import ArgumentError, ValueRangeError
from tfw.ops.data import as_tensor
from tfw.ops.generator import Generator
from tfw.ops.random import multinomial
from tfw.utils.data import draw

T_co = TypeVar("T_co", covariant=True)


def _positive(op: str, name: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value <= 0:
        raise ValueRangeError(
            f"{name}={value!r} is not a positive integer",
            op=op,
            argument=name,
            value=value,
            rule=f"{name} >= 1",
        )
    return value


def _flag(op: str, name: str, value: object) -> bool:
    if not isinstance(value, bool):
        raise ValueRangeError(
            f"{name}={value!r} is not a bool",
            op=op,
            argument=name,
            value=value,
            rule="True or False",
        )
    return value


class Sampler(Generic[T_co]):
    """Base of samplers: a subclass gives `__iter__`, which yields indices or lists of them.

    Example: a class with ``__iter__(self)``, and ``__len__(self)`` if len(loader) is wanted
    """

    def __iter__(self) -> Iterator[T_co]:
        raise NotImplementedError(f"{type(self).__name__} does not define __iter__")


class SequentialSampler(Sampler[int]):
    """Yields 0, 1, ..., len(data_source) - 1.

    Source: elementary.
    Example: ``list(SequentialSampler("abc")) == [0, 1, 2]``
    """

    def __init__(self, data_source: Sized) -> None:
        self.data_source = data_source

    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self.data_source)))

    def __len__(self) -> int:
        return len(self.data_source)


class RandomSampler(Sampler[int]):
    """Yields indices in random order, or independent ones with `replacement`.

    Without a generator, each pass draws one seed from the global random state and then leaves it
    alone.

    Args:
        data_source: what has the length.
        replacement: whether an index may come again within a pass.
        num_samples: indices per pass; by default the length. More than that repeats permutations.
        generator: where random numbers come from.

    Errors: TypeError for a replacement that is no bool, ValueError unless num_samples >= 1.
    Source: elementary.
    Example: ``sorted(RandomSampler("abc")) == [0, 1, 2]``

    """

    def __init__(
        self,
        data_source: Sized,
        replacement: bool = False,
        num_samples: int | None = None,
        generator: Generator | None = None,
    ) -> None:
        if not isinstance(replacement, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"replacement={replacement!r} is not a bool",
                op="RandomSampler",
                argument="replacement",
                value=replacement,
            )
        self.data_source = data_source
        self.replacement = replacement
        self._num_samples = num_samples
        self.generator = generator
        _positive("RandomSampler", "num_samples", self.num_samples)

    @property
    def num_samples(self) -> int:
        """Indices per pass. Follows the length of a data source that grows."""
        return len(self.data_source) if self._num_samples is None else self._num_samples

    def __iter__(self) -> Iterator[int]:
        n, wanted = len(self.data_source), self.num_samples
        generator = self.generator
        if generator is None:
            generator = Generator().manual_seed(draw.seed(None))
        if self.replacement:
            yield from draw.integers(n, wanted, generator)
            return
        while wanted > 0:
            order = draw.permutation(n, generator)
            yield from order[:wanted]
            wanted -= n

    def __len__(self) -> int:
        return self.num_samples


class SubsetRandomSampler(Sampler[int]):
    """Yields the given indices in random order.

    Source: elementary.
    Example: ``sorted(SubsetRandomSampler([3, 5])) == [3, 5]``
    """

    def __init__(self, indices: Sequence[int], generator: Generator | None = None) -> None:
        self.indices, self.generator = indices, generator

    def __iter__(self) -> Iterator[int]:
        for i in draw.permutation(len(self.indices), self.generator):
            yield self.indices[i]

    def __len__(self) -> int:
        return len(self.indices)


class WeightedRandomSampler(Sampler[int]):
    """Yields index i with probability weights[i] / sum(weights).

    Args:
        weights: one number >= 0 per index; they need not sum to 1.
        num_samples: indices per pass.
        replacement: whether an index may come again within a pass.
        generator: where random numbers come from.

    Errors: ValueError unless weights are 1-d, num_samples an int >= 1 and replacement a bool; when
    iterated, RuntimeError for weights that are no distribution (`tfw.multinomial`).
    Source: `tfw.multinomial`.
    Example: ``list(WeightedRandomSampler([0.0, 1.0], 3)) == [1, 1, 1]``

    """

    def __init__(
        self,
        weights: Sequence[float] | Any,
        num_samples: int,
        replacement: bool = True,
        generator: Generator | None = None,
    ) -> None:
        op = "WeightedRandomSampler"
        self.num_samples = _positive(op, "num_samples", num_samples)
        self.replacement = _flag(op, "replacement", replacement)
        self.weights = as_tensor(weights, dtype=dtypes.float64)
        if self.weights.ndim != 1:
            raise ValueRangeError(
                f"weights of shape {tuple(self.weights.shape)} are not one-dimensional",
                op=op,
                argument="weights",
                value=tuple(self.weights.shape),
                rule="one number per index",
            )
        self.generator = generator

    def __iter__(self) -> Iterator[int]:
        chosen = multinomial(
            self.weights, self.num_samples, self.replacement, generator=self.generator
        )
        return iter(chosen.tolist())

    def __len__(self) -> int:
        return self.num_samples


class BatchSampler(Sampler[list[int]]):
    """Yields lists of `batch_size` indices from another sampler.

    Args:
        sampler: any iterable of indices.
        batch_size: indices per list.
        drop_last: whether to leave out a last, shorter list.

    Errors: ValueError unless batch_size is an int >= 1 and drop_last a bool.
    Source: elementary.
    Example: ``list(BatchSampler(range(3), 2, False)) == [[0, 1], [2]]``

    """

    def __init__(
        self, sampler: Sampler[int] | Iterable[int], batch_size: int, drop_last: bool
    ) -> None:
        self.sampler = sampler
        self.batch_size = _positive("BatchSampler", "batch_size", batch_size)
        self.drop_last = _flag("BatchSampler", "drop_last", drop_last)

    def __iter__(self) -> Iterator[list[int]]:
        indices = iter(self.sampler)
        while batch := list(islice(indices, self.batch_size)):
            if len(batch) < self.batch_size and self.drop_last:
                return
            yield batch

    def __len__(self) -> int:
        n = len(cast("Sized", self.sampler))
        return n // self.batch_size if self.drop_last else -(-n // self.batch_size)


class InfiniteSampler(Sampler[None]):
    """Yields None for ever: an iterable dataset decides itself when it ends."""

    def __iter__(self) -> Iterator[None]:
        return repeat(None)
