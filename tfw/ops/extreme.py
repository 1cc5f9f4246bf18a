"""The largest and smallest: amax, amin, argmax, argmin, max and min with indices."""

from __future__ import annotations

import builtins
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.errors import DimError, OutOfRangeError, ShapeError
from tfw.fastpath import Fast
from tfw.graph import Extent
from tfw.ops.compare import eq, where
from tfw.ops.convert import to
from tfw.ops.elementwise import div, maximum, minimum, mul
from tfw.ops.expand import unsqueeze
from tfw.ops.movement import reshape
from tfw.ops.reduce import (
    Dims,
    own_axes,
    reduced_shape,
    reducing,
    reduction_cost,
    restore,
    row_major,
    sum,
)
from tfw.registry import Call, Reject, fresh, primitive
from tfw.shapes import Spec, normalize_dim, normalize_dims
from tfw.tensor import Tensor

# ---- largest and smallest


def _extreme_spec(name: str) -> Any:
    def infer(x: Spec, dim: Any, keepdim: bool) -> Spec:
        dims = normalize_dims(name, dim, x.shape)
        if x.shape and builtins.any(x.shape[d] == 0 for d in dims):
            # PyTorch has an IndexError where a dim is named, a RuntimeError where none is.
            kind = OutOfRangeError if dim not in (None, ()) else ShapeError
            raise kind(
                f"nothing to choose from along dim={dim} of shape {x.shape}",
                op=name,
                argument="dim",
                value=dim,
            )
        return fresh(x, reduced_shape(name, x.shape, dim, keepdim))

    return infer


@primitive(
    numpy=reducing("amax", np.maximum),
    infer=_extreme_spec("amax"),
    fast=Fast("unary"),
)
def amax(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Largest element along dim (an int, several, or all); NaN if any. Ties share the gradient.

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: all real.
    Errors: IndexError for a dim out of range or of size 0, RuntimeError for an empty tensor without
        dim.
    Source: elementary.
    Example: `tfw.arange(4).amax().item() == 3`
    """
    ...


@primitive(
    numpy=reducing("amin", np.minimum),
    infer=_extreme_spec("amin"),
    fast=Fast("unary"),
)
def amin(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Smallest element along dim (an int, several, or all); NaN if any. Ties share the gradient.

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: all real.
    Errors: IndexError for a dim out of range or of size 0, RuntimeError for an empty tensor without
        dim.
    Source: elementary.
    Example: `tfw.arange(4).amin().item() == 0`
    """
    ...


def _extreme_grad(g: Tensor, y: Tensor, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    spec = Extent(input._a.shape, input._kind)
    hits = to(eq(input, restore(y, spec, dim, keepdim)), input.dtype)
    count = sum(hits, dim, True)
    return mul(hits, div(restore(g, spec, dim, keepdim), count))


for _function, _numpy in ((amax, np.max), (amin, np.min)):
    _function.vjp(input=_extreme_grad)
    _function.cost(reduction_cost)
    _function.reference(
        lambda a, dim, keepdim, _numpy=_numpy: _numpy(a, axis=own_axes(a, dim), keepdims=keepdim)
    )

    @_function.samples
    def _(rng: np.random.Generator) -> Iterator[Call]:
        x = rng.standard_normal((3, 4))
        yield Call(x)
        yield Call(x, 1)
        yield Call(x, (0, 1), True)

    @_function.rejects
    def _() -> Iterator[Reject]:
        yield Reject(Call(np.ones((2, 3)), 2), DimError, argument="dim", value=2)
        yield Reject(Call(np.ones((0, 3)), 0), OutOfRangeError, argument="dim", value=0)
        yield Reject(Call(np.ones((0, 3))), ShapeError, argument="dim")


def _finding(name: str, function: Any) -> Any:
    """Return the NumPy rule of argmax or argmin."""

    def rule(a: Any, dim: int | None, keepdim: bool) -> Any:
        if not a.ndim:
            normalize_dims(name, dim, ())
            dim = None
        return row_major(np.asarray(function(a, axis=dim, keepdims=keepdim)))

    return rule


def _index_spec(name: str) -> Any:
    def infer(x: Spec, dim: int | None, keepdim: bool) -> Spec:
        if dim is None:
            if not x.numel:
                raise OutOfRangeError(
                    "nothing to choose from in an empty tensor", op=name, argument="input"
                )
            return fresh(x, (1,) * x.ndim if keepdim else (), dtypes.int64)
        d = normalize_dim(name, dim, x.ndim, x.shape)
        if x.shape and x.shape[d] == 0:
            raise OutOfRangeError(
                f"nothing to choose from along dim={dim} of shape {x.shape}",
                op=name,
                argument="dim",
                value=dim,
            )
        return fresh(x, reduced_shape(name, x.shape, dim, keepdim), dtypes.int64)

    return infer


@primitive(
    numpy=_finding("argmax", np.argmax),
    infer=_index_spec("argmax"),
    differentiable=False,
)
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the largest element along dim, or of all; the first of equals, NaN is largest.

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: all real; the result is int64.
    Errors: IndexError for a dim out of range or of size 0.
    Source: elementary.
    Example: `tfw.argmax(tfw.tensor([1.0, 3.0, 2.0])).item() == 1`
    """
    ...


@primitive(
    numpy=_finding("argmin", np.argmin),
    infer=_index_spec("argmin"),
    differentiable=False,
)
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Index of the smallest element along dim, or of all; the first of equals, NaN is smallest.

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: all real; the result is int64.
    Errors: IndexError for a dim out of range or of size 0.
    Source: elementary.
    Example: `tfw.argmin(tfw.tensor([1.0, 3.0, 2.0])).item() == 0`
    """
    ...


for _function, _numpy in ((argmax, np.argmax), (argmin, np.argmin)):
    _function.reference(
        lambda a, dim, keepdim, _numpy=_numpy: _numpy(a, axis=own_axes(a, dim), keepdims=keepdim)
    )

    @_function.samples
    def _(rng: np.random.Generator) -> Iterator[Call]:
        x = rng.standard_normal((3, 4))
        yield Call(x)
        yield Call(x, -1)
        yield Call(x, 0, True)

    @_function.rejects
    def _() -> Iterator[Reject]:
        yield Reject(Call(np.ones((2, 3)), 2), DimError, argument="dim", value=2)
        yield Reject(Call(np.ones((0, 3)), 0), OutOfRangeError, argument="dim", value=0)


# ---- max and min: of all, with another tensor, or with indices along a dim


class ReturnType(tuple[Tensor, Tensor]):
    """Values and indices, as a pair with names."""

    __slots__ = ()
    values: Tensor = property(lambda self: self[0])  # pyright: ignore[reportAssignmentType]  typed as what it returns
    indices: Tensor = property(lambda self: self[1])  # pyright: ignore[reportAssignmentType]


def _along_numpy(index: Any, value: np.ufunc) -> Any:
    """Return the rule from NumPy's index function and the reduction with the same result."""

    def rule(a: Any, dim: int, keepdim: bool) -> Any:
        if not a.ndim:
            if dim not in (0, -1):
                raise IndexError
            return a.copy(), np.zeros((), np.int64)
        values = np.asarray(value.reduce(a, axis=dim, keepdims=keepdim))
        return row_major(values), row_major(np.asarray(index(a, dim, None, keepdims=keepdim)))

    return rule


def _along_spec(name: str) -> Any:
    indices = _index_spec(name)

    def infer(x: Spec, dim: int, keepdim: bool) -> tuple[Spec, Spec]:
        spec = indices(x, dim, keepdim)
        return spec._replace(dtype=x.dtype), spec

    return infer


@primitive(
    numpy=_along_numpy(np.ndarray.argmax, np.maximum),
    infer=_along_spec("max"),
    outputs=("values", "indices"),
    fast=Fast("direct", outputs=(None, dtypes.int64)),
    computes=False,
    hidden=True,
    method=False,
    shown="max",
)
def max_along(input: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Largest elements along dim and where they are; the first of equals gets the gradient.

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: all real; indices are int64.
    Errors: IndexError for a dim out of range or of size 0.
    Source: elementary.
    Example: `tfw.tensor([1.0, 3.0]).max(0).indices.item() == 1`
    """
    ...


@primitive(
    numpy=_along_numpy(np.ndarray.argmin, np.minimum),
    infer=_along_spec("min"),
    outputs=("values", "indices"),
    fast=Fast("direct", outputs=(None, dtypes.int64)),
    computes=False,
    hidden=True,
    method=False,
    shown="min",
)
def min_along(input: Tensor, dim: int, keepdim: bool = False) -> tuple[Tensor, Tensor]:
    """Smallest elements along dim and where they are; the first of equals gets the gradient.

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: all real; indices are int64.
    Errors: IndexError for a dim out of range or of size 0.
    Source: elementary.
    Example: `tfw.tensor([1.0, 3.0]).min(0).indices.item() == 0`
    """
    ...


def _along_grad(
    g_values: Tensor, indices: Tensor, input_spec: Extent, dim: int, keepdim: bool
) -> Tensor:
    from tfw.ops.creation import arange

    if not input_spec.shape:
        return g_values
    d = dim % input_spec.ndim
    if not keepdim:
        g_values, indices = unsqueeze(g_values, d), unsqueeze(indices, d)
    steps = arange(input_spec.shape[d], device=indices.device)
    steps = reshape(steps, (-1, *[1] * (input_spec.ndim - 1 - d)))
    return where(eq(steps, indices), g_values, 0.0)


def _along_reference(index: Any) -> Any:
    def reference(a: Any, dim: int, keepdim: bool) -> Any:
        if not a.ndim:
            return a, np.array(0)
        at = index(a, axis=dim, keepdims=True)
        values = np.take_along_axis(a, at, dim)
        return (values, at) if keepdim else (values.squeeze(dim), at.squeeze(dim))

    return reference


for _function, _numpy in ((max_along, np.argmax), (min_along, np.argmin)):
    _function.vjp(input=_along_grad)
    _function.reference(_along_reference(_numpy))

    @_function.samples
    def _(rng: np.random.Generator) -> Iterator[Call]:
        x = rng.standard_normal((3, 4))
        yield Call(x, 1)
        yield Call(x, 0, True)

    @_function.rejects
    def _() -> Iterator[Reject]:
        yield Reject(Call(np.ones((2, 3)), 2), DimError, argument="dim", value=2)
        yield Reject(Call(np.ones((0, 3)), 0), OutOfRangeError, argument="dim", value=0)


def max(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """Largest element: of all; along a dim, with indices; or of two tensors, element by element.

    Shapes: `max(x)` gives (); `max(x, dim)` a pair (values, indices) without dim; `max(x, other)`
        broadcasts.
    Dtypes: all real; NaN is largest.
    Errors: RuntimeError for the maximum of nothing, IndexError for a dim out of range or of size 0.
    Source: elementary.
    Example: `tfw.max(tfw.tensor([[1.0, 3.0]]), 1).values.tolist() == [3.0]`
    """
    return _choose("max", amax, max_along, maximum, input, dim, keepdim)


def min(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """Smallest element: of all; along a dim, with indices; or of two tensors, element by element.

    Shapes: `min(x)` gives (); `min(x, dim)` a pair (values, indices) without dim; `min(x, other)`
        broadcasts.
    Dtypes: all real; NaN is smallest.
    Errors: RuntimeError for the minimum of nothing, IndexError for a dim out of range or of size 0.
    Source: elementary.
    Example: `tfw.min(tfw.tensor([[1.0, 3.0]]), 1).values.tolist() == [1.0]`
    """
    return _choose("min", amin, min_along, minimum, input, dim, keepdim)


def _choose(
    name: str, whole: Any, along: Any, pairwise: Any, input: Tensor, dim: Any, keepdim: bool
) -> Any:
    if isinstance(dim, Tensor):
        return pairwise(input, dim)
    if dim is not None:
        return tuple.__new__(ReturnType, along(input, dim, keepdim))
    if not input._a.size:
        raise ShapeError(
            "nothing to choose from in an empty tensor",
            op=name,
            argument="input",
            remedy="name a dim",
        )
    return whole(input)
