"""Views: the same memory at another shape. One layout rule per op serves every device.

A layout rule maps a Spec to (shape, strides, offset), in elements; on the CPU NumPy's own view
is taken, which the tests hold against the rule. Sources: elementary.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw.errors import ArgumentError, DimError, LayoutError, ShapeError
from tfw.fastpath import Fast
from tfw.ops.convert import contiguous
from tfw.registry import Call, Reject, op, primitive
from tfw.shapes import (
    Shape,
    Spec,
    as_shape,
    check_view,
    infer_size,
    normalize_dim,
    view_strides,
)
from tfw.tensor import Tensor

Layout = tuple[Shape, Shape, int]


def flat_sizes(sizes: Any) -> tuple[Any, ...]:
    """Return sizes given as `f(2, 3)`, `f((2, 3))` or `f(2)` as one tuple."""
    if not isinstance(sizes, (tuple, list)):
        return (sizes,)
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        return tuple(sizes[0])
    return tuple(sizes)


# ---- reshape and view


def _view_layout(x: Spec, shape: Any) -> Layout:
    to = infer_size("view", as_shape("view", flat_sizes(shape), "shape"), x.numel)
    return to, check_view("view", x.shape, x.strides, to), 0


@primitive(
    layout=_view_layout,
    fast=Fast("view", np.ndarray.reshape),
    varargs="shape",
)
def view(input: Tensor, shape: Any) -> Tensor:
    """The same memory at another shape; one size may be -1.

    Shapes: shape holds as many elements as input.
    Dtypes: all.
    Errors: RuntimeError if the sizes do not fit, or if only a copy has that shape.
    Source: elementary.
    Example: `tfw.arange(6).view(2, 3).shape == (2, 3)`
    """
    ...


view.vjp(input=lambda g, input_spec: reshape(g, input_spec.shape))


@view.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), (2, 6))
    yield Call(rng.standard_normal((3, 4)), (2, -1, 1))
    yield Call(rng.standard_normal(()), (1, 1))


view.reference(lambda a, shape: np.reshape(a, shape))


@view.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), (4,)), ShapeError, argument="shape")
    yield Reject(Call(np.ones((2, 3)), (-1, -1)), ShapeError, argument="shape")
    yield Reject(Call(np.ones((2, 3)).T, (6,)), LayoutError, argument="shape")
    yield Reject(Call(np.ones((2, 3)), (2.5,)), ArgumentError, argument="shape")


@op(fast=Fast("view", np.ndarray.reshape, viewed_as=view), varargs="shape")
def reshape(input: Tensor, shape: Any) -> Tensor:
    """The elements at another shape: a view where one exists, else a copy; one size may be -1.

    Shapes: shape holds as many elements as input.
    Dtypes: all.
    Errors: RuntimeError if the sizes do not fit.
    Source: elementary.
    Example: `tfw.arange(6).reshape(3, -1).shape == (3, 2)`
    """
    spec = input._kind.backend.spec(input._a)
    to = infer_size("reshape", as_shape("reshape", flat_sizes(shape), "shape"), spec.numel)
    if view_strides(spec.shape, spec.strides, to) is None:
        input = contiguous(input)
    return view(input, to)


@reshape.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), (2, 6))
    yield Call(rng.standard_normal((3, 4)).T, (-1,))


reshape.reference(lambda a, shape: np.reshape(a, shape))


@reshape.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), (4,)), ShapeError, argument="shape")
    yield Reject(Call(np.ones((2, 3)), (-1, 4)), ShapeError, argument="shape")


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dims from start_dim to end_dim as one; a view where one exists.

    Shapes: (..., d1, ..., dk, ...) to (..., d1 * ... * dk, ...).
    Dtypes: all.
    Errors: IndexError for a dim out of range, RuntimeError if start_dim comes after end_dim.
    Source: elementary.
    Example: `tfw.flatten(tfw.zeros(2, 3, 4), 1).shape == (2, 12)`
    """
    shape = input._a.shape
    first = normalize_dim("flatten", start_dim, len(shape), shape, "start_dim")
    last = normalize_dim("flatten", end_dim, len(shape), shape, "end_dim")
    if first > last:
        raise ShapeError(
            f"start_dim={start_dim} comes after end_dim={end_dim}",
            op="flatten",
            argument="start_dim",
            value=start_dim,
        )
    if first == last and shape:
        return input
    return reshape(input, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


# ---- the order of dims


def _transpose_layout(x: Spec, dim0: int, dim1: int) -> Layout:
    d0 = normalize_dim("transpose", dim0, x.ndim, x.shape, "dim0")
    d1 = normalize_dim("transpose", dim1, x.ndim, x.shape, "dim1")
    order = list(range(x.ndim))
    if order:
        order[d0], order[d1] = d1, d0
    return tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order), 0


@primitive(
    layout=_transpose_layout,
    fast=Fast("view", np.ndarray.swapaxes, any_layout=True),
)
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """The tensor with two dims exchanged; a view.

    Shapes: input's with sizes dim0 and dim1 exchanged.
    Dtypes: all.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.zeros(2, 3).transpose(0, 1).shape == (3, 2)`
    """
    ...


transpose.vjp(input=lambda g, dim0, dim1: transpose(g, dim0, dim1))


@transpose.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), 0, 1)
    yield Call(rng.standard_normal((2, 3, 4)), -1, 0)
    yield Call(rng.standard_normal(()), 0, -1)


transpose.reference(lambda a, dim0, dim1: np.swapaxes(a, dim0, dim1) if a.ndim else a)


@transpose.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), 0, 2), DimError, argument="dim1", value=2)
    yield Reject(Call(np.ones((2, 3)), "a", 1), ArgumentError, argument="dim0")


def t(input: Tensor) -> Tensor:
    """The transpose of a tensor of at most two dims; a view.

    Shapes: (m, n) to (n, m); (n,) and () unchanged.
    Dtypes: all.
    Errors: RuntimeError for more than two dims.
    Source: elementary.
    Example: `tfw.t(tfw.zeros(2, 3)).shape == (3, 2)`
    """
    if input._a.ndim > 2:
        raise ShapeError(
            f"input has shape {tuple(input._a.shape)}",
            op="t",
            argument="input",
            rule="at most two dims",
            remedy="use transpose(dim0, dim1) or .mT",
        )
    return transpose(input, 0, 1) if input._a.ndim == 2 else view(input, input._a.shape)


def _permute_layout(x: Spec, dims: Any) -> Layout:
    given = flat_sizes(dims)
    order = [normalize_dim("permute", d, x.ndim, x.shape, "dims") for d in given]
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(
            f"dims={given} is no order of the dims of shape {x.shape}",
            op="permute",
            argument="dims",
            value=given,
            rule=f"each of 0 to {x.ndim - 1} once",
        )
    return tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order), 0


@primitive(layout=_permute_layout, varargs="dims")
def permute(input: Tensor, dims: Any) -> Tensor:
    """The tensor with its dims in another order; a view.

    Shapes: input's sizes in the order of dims.
    Dtypes: all.
    Errors: RuntimeError unless dims names each dim once, IndexError for one out of range.
    Source: elementary.
    Example: `tfw.zeros(2, 3, 4).permute(2, 0, 1).shape == (4, 2, 3)`
    """
    ...


def _permute_grad(g: Tensor, dims: Any) -> Tensor:
    order = [d % g._a.ndim for d in flat_sizes(dims)]
    return permute(g, tuple(sorted(range(len(order)), key=order.__getitem__)))


permute.vjp(input=_permute_grad)


@permute.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((2, 3, 4)), (2, 0, -2))


permute.reference(lambda a, dims: np.transpose(a, dims))


@permute.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), (0, 0)), ShapeError, argument="dims")
    yield Reject(Call(np.ones((2, 3)), (0, 2)), DimError, argument="dims", value=2)
