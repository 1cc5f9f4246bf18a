"""Order: topk and sort."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import REAL
from tfw.errors import DimError, ShapeError
from tfw.graph import Extent
from tfw.ops.extreme import ReturnType
from tfw.ops.movement import reshape
from tfw.ops.parts import zeros_of
from tfw.ops.take import put_at
from tfw.registry import Call, Reject, fresh, primitive
from tfw.shapes import Spec, normalize_dim
from tfw.tensor import Tensor


def _order(a: Any, dim: int, descending: bool) -> Any:
    """Return the stable order along dim; NaN counts as largest."""
    if not descending:
        return np.argsort(a, axis=dim, kind="stable")
    # Stable from the largest: order the reversed sequence and read it backwards.
    flipped = np.argsort(np.flip(a, dim), axis=dim, kind="stable")
    return a.shape[dim] - 1 - np.flip(flipped, dim)


def _topk_spec(x: Spec, k: int, dim: int, largest: bool, sorted: bool) -> tuple[Spec, Spec]:
    d = normalize_dim("topk", dim, x.ndim, x.shape)
    n = x.shape[d] if x.shape else 1
    if not 0 <= k <= n:
        raise ShapeError(
            f"k={k} of {n} elements", op="topk", argument="k", value=k, rule=f"0 <= k <= {n}"
        )
    shape = (*x.shape[:d], k, *x.shape[d + 1 :]) if x.shape else ()
    return fresh(x, shape), fresh(x, shape, dtypes.int64)


def _topk(a: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    if not a.ndim:
        if not 0 <= k <= 1:
            raise ValueError
        return a.copy(), np.zeros((), np.int64)
    if not 0 <= k <= a.shape[dim]:
        raise ValueError
    at = np.ascontiguousarray(np.take(_order(a, dim, largest), np.arange(k), dim))
    return np.take_along_axis(a, at, dim), at


@primitive(
    numpy=_topk,
    infer=_topk_spec,
    outputs=("values", "indices"),
    dtypes=REAL,
    computes=False,
    hidden=True,
    method=False,
    shown="topk",
)
def topk_along(
    input: Tensor, k: int, dim: int, largest: bool, sorted: bool
) -> tuple[Tensor, Tensor]:
    """The k largest (or smallest) elements along dim, in order, and where they are; NaN is largest.

    Shapes: input's with size k at dim.
    Dtypes: all real; indices are int64.
    Errors: RuntimeError for k out of range, IndexError for a dim out of range.
    Source: elementary.
    Example: used by topk.
    """
    ...


def _put_back(g_values: Tensor, indices: Tensor, input_spec: Extent, dim: int) -> Tensor:
    """Return a gradient with g_values at indices along dim, zero elsewhere."""
    from tfw.ops.creation import arange

    ndim = input_spec.ndim
    if not ndim:
        return g_values
    d = dim % ndim
    grid = [
        indices
        if i == d
        else reshape(arange(n, device=indices.device), (-1, *[1] * (ndim - 1 - i)))
        for i, n in enumerate(g_values._a.shape)
    ]
    return put_at(zeros_of(input_spec.shape, g_values), g_values, grid, tuple(range(ndim)), True)


topk_along.vjp(input=_put_back)


def topk(input: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    """The k largest (or smallest) elements along dim, in order, and where they are; NaN is largest.

    Shapes: input's with size k at dim; a pair (values, indices).
    Dtypes: all real; indices are int64.
    Errors: RuntimeError for k out of range, IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.topk(tfw.tensor([1.0, 3.0, 2.0]), 2).indices.tolist() == [1, 2]`
    """
    return tuple.__new__(ReturnType, topk_along(input, k, dim, largest, sorted))


def sort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Any:
    """The elements along dim in order, equal ones as they came, and where they were; NaN last.

    Shapes: input's; a pair (values, indices).
    Dtypes: all real; indices are int64.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.sort(tfw.tensor([3, 1, 2])).values.tolist() == [1, 2, 3]`
    """
    shape = input._a.shape
    d = normalize_dim("sort", dim, len(shape), shape)
    return topk(input, shape[d] if shape else 1, dim, descending)


def argsort(input: Tensor, dim: int = -1, descending: bool = False, stable: bool = False) -> Tensor:
    """The indices that put the elements along dim in order.

    Shapes: input's.
    Dtypes: all real; the result is int64.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.argsort(tfw.tensor([3, 1, 2])).tolist() == [1, 2, 0]`
    """
    return sort(input, dim, descending).indices


def _reference(a: Any, k: int, dim: int, largest: bool, sorted: bool) -> Any:
    if not a.ndim:
        return a, np.array(0)
    sign = -1 if largest else 1

    def order(row: Any) -> list[int]:
        # NaN counts as largest; Python's sort is stable.
        return builtins.sorted(
            range(len(row)), key=lambda i: (sign * (row[i] != row[i]), sign * row[i].item())
        )

    moved = np.moveaxis(a, dim, -1)
    at = np.array([order(row)[:k] for row in moved.reshape(-1, moved.shape[-1])], np.int64)
    at = np.moveaxis(at.reshape(*moved.shape[:-1], k), -1, dim)
    return np.take_along_axis(a, at, dim), at


topk_along.reference(_reference)


@topk_along.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 5)), 2, -1, True, True)
    yield Call(rng.standard_normal((3, 5)), 3, 0, False, True)


@topk_along.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), 4, 1, True, True), ShapeError, argument="k", value=4)
    yield Reject(Call(np.ones((2, 3)), 1, 2, True, True), DimError, argument="dim", value=2)
