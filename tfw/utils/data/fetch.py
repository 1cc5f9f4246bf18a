"""What turns indices into a batch, in the loader's own process and in workers alike."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from tfw.utils.data.dataset import IterableDataset


class _End:
    """What a fetcher returns when its stream has ended."""

    def __reduce__(self) -> str:
        return "END"


END: Final = _End()


@dataclass(frozen=True)
class Recipe:
    """How to make batches: all that a worker needs of a DataLoader.

    Attributes:
        dataset: where samples come from.
        collates: whether a task is a list of indices (a batch) rather than one index.
        collate_fn: joins the samples of a batch, or converts one sample.
        drop_last: whether an iterable dataset's last, shorter batch is left out.

    """

    dataset: Any
    collates: bool
    collate_fn: Callable[[Any], Any]
    drop_last: bool

    def fetcher(self) -> Callable[[Any], Any]:
        """Return a function from a task to a batch, or to END when the stream has ended."""
        if isinstance(self.dataset, IterableDataset):
            return _StreamFetcher(self)
        return self._fetch

    def _fetch(self, task: Any) -> Any:
        if not self.collates:
            return self.collate_fn(self.dataset[task])
        get_items = getattr(self.dataset, "__getitems__", None)
        if get_items:
            return self.collate_fn(get_items(task))
        return self.collate_fn([self.dataset[index] for index in task])


class _StreamFetcher:
    """Takes as many samples from one pass over an iterable dataset as the task has indices."""

    def __init__(self, recipe: Recipe) -> None:
        self._recipe = recipe
        self._samples: Iterator[Any] = iter(recipe.dataset)
        self._ended = False

    def __call__(self, task: Any) -> Any:
        recipe = self._recipe
        if not recipe.collates:
            sample = self._next()
            return END if sample is END else recipe.collate_fn(sample)
        batch: list[Any] = []
        for _ in task:
            sample = self._next()
            if sample is END:
                break
            batch.append(sample)
        if not batch or (recipe.drop_last and len(batch) < len(task)):
            return END
        return recipe.collate_fn(batch)

    def _next(self) -> Any:
        if not self._ended:
            try:
                return next(self._samples)
            except StopIteration:
                # An iterator need not keep raising it, so the end is remembered here.
                self._ended = True
        return END
