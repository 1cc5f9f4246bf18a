"""Joining tensors: cat and stack. Sources: elementary."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfw.errors import ArgumentError, DimError, ShapeError, ValueRangeError
from tfw.fastpath import Fast
from tfw.graph import Extent
from tfw.ops.expand import unsqueeze
from tfw.ops.parts import split
from tfw.registry import Call, Reject, fresh, primitive
from tfw.runtime.cpu.join import concatenate
from tfw.shapes import Spec, normalize_dim
from tfw.tensor import Tensor


def _kept(parts: Sequence[Any]) -> list[Any]:
    """Return the parts that count: PyTorch ignores tensors of shape (0,) beside others."""
    return [p for p in parts if p.shape != (0,)] or list(parts[:1])


def _cat_spec(tensors: Sequence[Spec], dim: int) -> Spec:
    if not tensors:
        raise ValueRangeError(
            "tensors is empty", op="cat", argument="tensors", rule="at least one tensor"
        )
    parts = _kept(tensors)
    first = parts[0]
    for x in tensors:
        if not x.shape:
            raise ShapeError(
                "a 0-d tensor cannot be joined", op="cat", argument="tensors", remedy="use stack()"
            )
    d = normalize_dim("cat", dim, first.ndim, first.shape)
    for i, x in enumerate(tensors):
        if x.shape != (0,) and (
            x.ndim != first.ndim
            or x.shape[:d] + x.shape[d + 1 :] != first.shape[:d] + first.shape[d + 1 :]
        ):
            raise ShapeError(
                f"tensors[{i}] of shape {x.shape} does not fit {first.shape} along dim={dim}",
                op="cat",
                argument="tensors",
                value=x.shape,
                rule="equal sizes in every other dim",
            )
    shape = list(first.shape)
    shape[d] = sum(x.shape[d] for x in parts)
    return fresh(first, shape)


def _cat(tensors: Sequence[Any], dim: int) -> Any:
    if len(tensors) > 1:
        tensors = _kept(tensors)
    result = np.concatenate(tensors, dim)
    return result if result.flags.c_contiguous else np.ascontiguousarray(result)


def _cat_fast(tensors: Sequence[Any], dim: int) -> Any:
    for x in tensors:
        if x.ndim == 1 and not x.size:
            raise ValueError  # may be one of those that are ignored
    return concatenate(tensors, dim)


@primitive(
    numpy=_cat,
    infer=_cat_spec,
    fast=Fast("list", _cat_fast),
    promotion="common",
    computes=False,
    method=False,
)
def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors one after the other along dim.

    Shapes: equal but for dim, where the result has the sum; a tensor of shape (0,) is ignored.
    Dtypes: all; the result has the promoted dtype.
    Errors: RuntimeError if the shapes do not fit, IndexError for a dim out of range, ValueError for
        no tensors.
    Source: elementary.
    Example: `tfw.cat([tfw.ones(1), tfw.zeros(2)]).tolist() == [1.0, 0.0, 0.0]`
    """
    ...


def _cat_grad(g: Tensor, tensors_spec: Sequence[Extent], dim: int) -> list[Tensor | None]:
    ndim = len(g._a.shape)
    parts = iter(
        split(
            g,
            [x.shape[dim % ndim] for x in tensors_spec if x.shape != (0,) or ndim == 1],
            dim % ndim,
        )
    )
    return [next(parts) if x.shape != (0,) or ndim == 1 else None for x in tensors_spec]


cat.vjp(tensors=_cat_grad)
cat.reference(lambda tensors, dim: np.concatenate(tensors, dim))


@cat.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call([rng.standard_normal((2, 3)), rng.standard_normal((1, 3))])
    yield Call(
        [rng.standard_normal((2, 3)), rng.standard_normal((2, 2)), rng.standard_normal((2, 1))], -1
    )


@cat.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call([]), ValueRangeError, argument="tensors")
    yield Reject(Call([np.ones((2, 3)), np.ones((2, 2))]), ShapeError, argument="tensors")
    yield Reject(Call([np.ones(2)], 1), DimError, argument="dim", value=1)
    yield Reject(Call([np.ones(2), 3]), ArgumentError, argument="tensors")
    yield Reject(Call(np.ones(2)), ArgumentError, argument="tensors")


def stack(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    """The tensors side by side along a new dim.

    Shapes: all equal; the result has their number inserted at dim.
    Dtypes: all; the result has the promoted dtype.
    Errors: RuntimeError if the shapes differ, IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.stack([tfw.ones(2), tfw.zeros(2)]).shape == (2, 2)`
    """
    if isinstance(tensors, Tensor):
        raise ArgumentError(
            "tensors must be a list or tuple of Tensors", op="stack", argument="tensors"
        )
    tensors = list(tensors)
    for i, x in enumerate(tensors):
        if not isinstance(x, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"tensors[{i}] is a {type(x).__name__}, not a Tensor",
                op="stack",
                argument="tensors",
            )
        if x._a.shape != tensors[0]._a.shape:
            raise ShapeError(
                f"tensors[{i}] has shape {tuple(x._a.shape)}, "
                f"tensors[0] has {tuple(tensors[0]._a.shape)}",
                op="stack",
                argument="tensors",
                value=tuple(x._a.shape),
                rule="equal shapes",
            )
    return cat([unsqueeze(x, dim) for x in tensors], dim)
