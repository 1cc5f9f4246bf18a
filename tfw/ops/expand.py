"""Views that add, drop or repeat dims of size 1. Sources: elementary."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np

from tfw.errors import DimError, ShapeError
from tfw.fastpath import Fast
from tfw.graph import Extent
from tfw.ops.movement import Layout, flat_sizes, reshape
from tfw.registry import OPS, Call, Reject, primitive
from tfw.shapes import (
    Shape,
    Spec,
    as_shape,
    expand_strides,
    normalize_dim,
    normalize_dims,
)
from tfw.tensor import Tensor

# ---- sizes of one


def _expand_layout(x: Spec, size: Any) -> Layout:
    sizes = as_shape("expand", flat_sizes(size))
    lead = len(sizes) - x.ndim
    shape = tuple(x.shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(sizes))
    if (
        lead < 0
        or min(shape, default=0) < 0
        or any(n not in (1, m) for n, m in zip(x.shape, shape[lead:], strict=True))
    ):
        raise ShapeError(
            f"size={sizes} does not fit a tensor of shape {x.shape}",
            op="expand",
            argument="size",
            value=sizes,
            rule="the tensor's own sizes (or -1) at the end, any size where it has 1 or no dim",
        )
    return shape, expand_strides(x.shape, x.strides, shape), 0


def _expand_numpy(a: Any, *size: Any) -> Any:
    """NumPy's constructor on row-major memory: a tenth of broadcast_to's time."""
    shape, strides = _expanded(a.shape, a.strides, size)
    return np.ndarray(shape, a.dtype, a, 0, strides)


@lru_cache(maxsize=1024)
def _expanded(shape: Shape, strides: Shape, size: tuple[Any, ...]) -> tuple[Shape, Shape]:
    """Return shape and strides in bytes after expand; ValueError where the sizes do not fit."""
    sizes = flat_sizes(size)
    lead = len(sizes) - len(shape)
    if lead < 0:
        raise ValueError
    result, steps = list(sizes), [0] * lead
    for i, (n, stride) in enumerate(zip(shape, strides, strict=True), lead):
        if result[i] in (n, -1):
            result[i] = n
            steps.append(stride)
        elif n == 1:
            steps.append(0)
        else:
            raise ValueError
    if min(result, default=0) < 0:
        raise ValueError
    return tuple(result), tuple(steps)


@primitive(layout=_expand_layout, fast=Fast("view", _expand_numpy), varargs="size")
def expand(input: Tensor, size: Any) -> Tensor:
    """The tensor repeated along dims of size 1, without using memory; -1 keeps a size.

    Shapes: size, whose last sizes are input's where those are not 1.
    Dtypes: all.
    Errors: RuntimeError if the sizes do not fit.
    Source: elementary.
    Example: `tfw.ones(2, 1).expand(2, 3).shape == (2, 3)`
    """
    ...


expand.vjp(input=lambda g, input_spec: OPS["sum_to_size"].function(g, input_spec.shape))


@expand.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 1)), (2, -1, 4))
    yield Call(rng.standard_normal(()), (2,))


expand.reference(
    lambda a, size: np.broadcast_to(
        a, [a.shape[i - len(size)] if n == -1 else n for i, n in enumerate(size)]
    )
)


@expand.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(3), (4,)), ShapeError, argument="size", value=(4,))
    yield Reject(Call(np.ones((2, 3)), (3,)), ShapeError, argument="size")
    yield Reject(Call(np.ones(3), (-1, 3)), ShapeError, argument="size")


def _unsqueeze_layout(x: Spec, dim: int) -> Layout:
    d = normalize_dim("unsqueeze", dim, x.ndim + 1, x.shape)
    stride = x.shape[d] * x.strides[d] if d < x.ndim else 1
    return (
        (*x.shape[:d], 1, *x.shape[d:]),
        (*x.strides[:d], stride, *x.strides[d:]),
        0,
    )


@primitive(layout=_unsqueeze_layout)
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """The tensor with a new dim of size 1 at `dim`; a view.

    Shapes: input's with 1 inserted.
    Dtypes: all.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.zeros(3).unsqueeze(0).shape == (1, 3)`
    """
    ...


unsqueeze.vjp(input=lambda g, input_spec: view_like(g, input_spec))


def view_like(g: Tensor, spec: Extent) -> Tensor:
    """Return a gradient at the shape that the input of a view op had."""
    return reshape(g, spec.shape)


@unsqueeze.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), 1)
    yield Call(rng.standard_normal((3, 4)), -1)


unsqueeze.reference(lambda a, dim: np.expand_dims(a, dim))


@unsqueeze.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(3), 2), DimError, argument="dim", value=2)


def _squeeze_layout(x: Spec, dim: Any) -> Layout:
    dims = (
        range(x.ndim)
        if dim is None
        else normalize_dims("squeeze", dim, x.shape)
        if dim != ()
        else ()
    )
    kept = [i for i in range(x.ndim) if not (i in dims and x.shape[i] == 1)]
    return tuple(x.shape[i] for i in kept), tuple(x.strides[i] for i in kept), 0


@primitive(layout=_squeeze_layout)
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """The tensor without its dims of size 1, or without those of `dim` (an int or several); a view.

    Shapes: input's with 1s removed.
    Dtypes: all.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.zeros(1, 3, 1).squeeze().shape == (3,)`
    """
    ...


squeeze.vjp(input=lambda g, input_spec: view_like(g, input_spec))


@squeeze.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((1, 3, 1)))
    yield Call(rng.standard_normal((1, 3, 1)), -1)
    yield Call(rng.standard_normal((1, 3, 1)), (0, 1))


squeeze.reference(
    lambda a, dim: a.reshape(
        [
            n
            for i, n in enumerate(a.shape)
            if n != 1 or (dim is not None and i not in np.atleast_1d(dim) % a.ndim)
        ]
    )
)


@squeeze.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((1, 3)), 2), DimError, argument="dim", value=2)
