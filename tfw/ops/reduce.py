"""Reductions: sum, mean, amax, amin, max and min with indices, argmax, argmin, any, all."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import Category, dtype
from tfw.errors import ArgumentError, DimError, DtypeError, OutOfRangeError, ShapeError
from tfw.fastpath import Fast
from tfw.graph import Extent
from tfw.ops.convert import to
from tfw.ops.elementwise import div, eq, maximum, minimum, mul, where
from tfw.ops.movement import expand, reshape, unsqueeze
from tfw.registry import Call, Cost, Reject, fresh, op, primitive
from tfw.shapes import Shape, Spec, normalize_dim, normalize_dims
from tfw.tensor import Tensor

Dims = int | tuple[int, ...] | list[int] | None


def reduced_shape(op: str, shape: Shape, dim: Any, keepdim: bool) -> Shape:
    """Return the shape left by a reduction over `dim` (None or (): all dims)."""
    dims = normalize_dims(op, dim, shape)
    return tuple(1 if i in dims else n for i, n in enumerate(shape) if keepdim or i not in dims)


def _axes(dim: Any) -> Any:
    """Return NumPy's axis argument for PyTorch's dim."""
    if dim is None or isinstance(dim, int):
        return dim
    return tuple(dim) or None


def _own(a: Any, dim: Any) -> Any:
    """Return NumPy's axis argument for references: a 0-d array has no axis to name."""
    return _axes(dim) if a.ndim else None


def row_major(y: Any) -> Any:
    """Return NumPy's result of a reduction in row-major order: of a transposed array it need not be."""
    return y if y.flags.c_contiguous else y.copy()


def _reducing(name: str, ufunc: np.ufunc) -> Any:
    """Return the NumPy rule of a reduction by a ufunc."""

    def rule(a: Any, dim: Any, keepdim: bool) -> Any:
        if not a.ndim:
            normalize_dims(name, dim, ())
            dim = None
        return row_major(ufunc.reduce(a, axis=_axes(dim), keepdims=keepdim))

    return rule


def restore(g: Tensor, spec: Extent, dim: Any, keepdim: bool) -> Tensor:
    """Return a gradient (or result) of a reduction with its reduced dims back, at size 1."""
    if keepdim or not spec.shape:
        return g
    return reshape(g, reduced_shape("restore", spec.shape, dim, True))


def _cost(x: Spec, *_: Any) -> Cost:
    return Cost(x.numel * x.dtype.itemsize, x.numel)


# ---- sum and mean


def _sum_dtype(x: dtype, wanted: dtype | None) -> dtype:
    return wanted or (dtypes.int64 if x.category < Category.FLOATING else x)


def _sum_spec(x: Spec, dim: Any, keepdim: bool, dtype: dtype | None) -> Spec:
    return fresh(x, reduced_shape("sum", x.shape, dim, keepdim), _sum_dtype(x.dtype, dtype))


def _sum(a: Any, dim: Any, keepdim: bool, dtype: dtype | None) -> Any:
    if a.ndim == 0:
        normalize_dims("sum", dim, ())
        dim = None
    kind = _sum_dtype(dtypes.BY_NUMPY[a.dtype], dtype).numpy
    if dtype is not None and dtype.itemsize < 4 and dtype.is_floating_point:
        wide = np.add.reduce(a, axis=_axes(dim), keepdims=keepdim, dtype=np.float32)
        return row_major(wide.astype(kind))
    return row_major(np.add.reduce(a, axis=_axes(dim), keepdims=keepdim, dtype=kind))


def _sum_fast(a: Any, dim: Any, keepdim: bool) -> Any:
    if dim is None or dim.__class__ is int:
        return np.add.reduce(a, dim, None, None, keepdim)
    return np.add.reduce(a, tuple(dim) or None, None, None, keepdim)


@primitive(
    numpy=_sum,
    infer=_sum_spec,
    fast=Fast("unary", _sum_fast, guard="dtype is None"),
    autocast="float32",
)
def sum(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Sum over the elements along dim (an int, several, or all).

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: all; bool and integers sum to int64, half types accumulate in float32.
    Errors: IndexError for a dim out of range, RuntimeError for one named twice.
    Source: elementary.
    Example: `tfw.ones(2, 3).sum(1).tolist() == [3.0, 3.0]`
    """
    ...


def _sum_grad(g: Tensor, input_spec: Extent, dim: Any, keepdim: bool) -> Tensor:
    g = to(g, input_spec.kind.dtype)
    return expand(restore(g, input_spec, dim, keepdim), input_spec.shape)


sum.vjp(input=_sum_grad)
sum.reference(lambda a, dim, keepdim, dtype: np.sum(a, axis=_own(a, dim), keepdims=keepdim))
sum.cost(_cost)


@sum.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.standard_normal((3, 4, 2))
    yield Call(x)
    yield Call(x, 1)
    yield Call(x, (0, -1), True)


@sum.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), 2), DimError, argument="dim", value=2)
    yield Reject(Call(np.ones((2, 3)), (0, 0)), ShapeError, argument="dim")
    yield Reject(Call(np.ones((2, 3)), "a"), ArgumentError, argument="dim")


def _mean(a: Any, dim: Any, keepdim: bool, dtype: dtype | None) -> Any:
    if a.dtype.kind not in "fV" or (dtype is not None and dtype.category < Category.FLOATING):
        raise TypeError
    if not a.ndim:
        normalize_dims("mean", dim, ())
        dim = None
    wanted = a.dtype if dtype is None else dtype.numpy
    wide = dtypes.accumulation(dtypes.BY_NUMPY[wanted]).numpy
    total = np.add.reduce(a, axis=_axes(dim), dtype=wide, keepdims=keepdim)
    count = a.size // total.size if total.size else reduced_count(a.shape, dim)
    return row_major(np.divide(total, wide.type(count)).astype(wanted, copy=False))


def _mean_fast(a: Any, dim: Any, keepdim: bool) -> Any:
    total = _sum_fast(a, dim, keepdim)
    if not total.size:
        raise ValueError
    return total / a.dtype.type(a.size // total.size)


def reduced_count(shape: Shape, dim: Any) -> int:
    """Return how many elements a reduction over `dim` takes together."""
    dims = normalize_dims("mean", dim, shape)
    return math.prod(shape[d] for d in dims) if shape else 1


def _mean_spec(x: Spec, dim: Any, keepdim: bool, dtype: dtype | None) -> Spec:
    if (dtype or x.dtype).category < Category.FLOATING:
        raise DtypeError(
            f"input has dtype {(dtype or x.dtype)!r}",
            op="mean",
            argument="input",
            value=x.dtype,
            rule="floating-point dtypes",
            remedy="pass dtype=tfw.float32",
        )
    return fresh(x, reduced_shape("mean", x.shape, dim, keepdim), dtype)


@op(
    numpy=_mean,
    infer=_mean_spec,
    fast=Fast("unary", _mean_fast, guard="dtype is None"),
    computes=False,  # accumulates half types in float32 itself
    autocast="float32",
)
def mean(input: Tensor, dim: Dims = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """Mean of the elements along dim (an int, several, or all): sum / count; NaN of nothing.

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: floating; half types accumulate in float32.
    Errors: RuntimeError for an integer dtype, IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.ones(2, 3).mean().item() == 1.0`
    """
    count = reduced_count(input._a.shape, dim)
    wanted = dtype or input.dtype
    # Half types stay in float32 until divided, so that a long sum does not overflow.
    inner = dtypes.accumulation(wanted)
    total = sum(input, dim, keepdim, dtype=None if inner is input.dtype else inner)
    return to(div(total, float(count)), wanted)


def _mean_grad(g: Tensor, input_spec: Extent, dim: Any, keepdim: bool) -> Tensor:
    count = reduced_count(input_spec.shape, dim)
    return _sum_grad(mul(g, 1.0 / count) if count else g, input_spec, dim, keepdim)


mean.vjp(input=_mean_grad)


@mean.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.standard_normal((3, 4))
    yield Call(x)
    yield Call(x, -1, True)


mean.reference(
    lambda a, dim, keepdim, dtype: (
        np.sum(a, axis=_own(a, dim), keepdims=keepdim)
        / np.sum(np.ones(a.shape), axis=_own(a, dim), keepdims=keepdim)
    )
)


@mean.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(3, np.int64)), DtypeError, argument="input")
    yield Reject(Call(np.ones(3), 1), DimError, argument="dim", value=1)


@op(hidden=True, method=True)
def sum_to_size(input: Tensor, size: Any) -> Tensor:
    """Sum over the dims that broadcasting `size` to input's shape would repeat.

    Shapes: size, which must broadcast to input's shape.
    Dtypes: all.
    Errors: RuntimeError if size does not broadcast to input's shape.
    Source: elementary.
    Example: `tfw.ones(2, 3).sum_to_size((2, 1)).tolist() == [[3.0], [3.0]]`
    """
    shape, to_shape = input._a.shape, tuple(size)
    lead = len(shape) - len(to_shape)
    if lead < 0 or builtins.any(
        n not in (1, m) for n, m in zip(to_shape, shape[lead:], strict=True)
    ):
        raise ShapeError(
            f"size={to_shape} does not broadcast to {tuple(shape)}",
            op="sum_to_size",
            argument="size",
            value=to_shape,
        )
    kept = [i + lead for i, n in enumerate(to_shape) if n == 1 and shape[i + lead] != 1]
    if kept:
        input = sum(input, tuple(kept), True)
    if lead:
        input = sum(input, tuple(range(lead)))
    return input


@sum_to_size.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((2, 3, 4)), (3, 1))


def _sum_to_reference(a: Any, size: Any) -> Any:
    lead = a.ndim - len(size)
    kept = tuple(i + lead for i, n in enumerate(size) if n == 1)
    return a.sum(kept, keepdims=True).sum(tuple(range(lead)))


sum_to_size.reference(_sum_to_reference)


@sum_to_size.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), (2,)), ShapeError, argument="size")


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
    numpy=_reducing("amax", np.maximum),
    infer=_extreme_spec("amax"),
    fast=Fast("unary"),
)
def amax(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Largest element along dim (an int, several, or all); NaN if there is one. Ties share the gradient.

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: all real.
    Errors: IndexError for a dim out of range or of size 0, RuntimeError for an empty tensor without dim.
    Source: elementary.
    Example: `tfw.arange(4).amax().item() == 3`
    """
    ...


@primitive(
    numpy=_reducing("amin", np.minimum),
    infer=_extreme_spec("amin"),
    fast=Fast("unary"),
)
def amin(input: Tensor, dim: Dims = (), keepdim: bool = False) -> Tensor:
    """Smallest element along dim (an int, several, or all); NaN if there is one. Ties share the gradient.

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: all real.
    Errors: IndexError for a dim out of range or of size 0, RuntimeError for an empty tensor without dim.
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
    _function.cost(_cost)
    _function.reference(
        lambda a, dim, keepdim, _numpy=_numpy: _numpy(a, axis=_own(a, dim), keepdims=keepdim)
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
    """Index of the largest element along dim, or in the flattened tensor; the first of equals, NaN is largest.

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
    """Index of the smallest element along dim, or in the flattened tensor; the first of equals, NaN is smallest.

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: all real; the result is int64.
    Errors: IndexError for a dim out of range or of size 0.
    Source: elementary.
    Example: `tfw.argmin(tfw.tensor([1.0, 3.0, 2.0])).item() == 0`
    """
    ...


for _function, _numpy in ((argmax, np.argmax), (argmin, np.argmin)):
    _function.reference(
        lambda a, dim, keepdim, _numpy=_numpy: _numpy(a, axis=_own(a, dim), keepdims=keepdim)
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
    """Return the rule from NumPy's index function and the reduction that gives the same elements."""

    def rule(a: Any, dim: int, keepdim: bool) -> Any:
        if not a.ndim:
            if dim not in (0, -1):
                raise IndexError
            return a.copy(), np.zeros((), np.int64)
        values = value.reduce(a, dim, None, None, keepdim)
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

    Shapes: `max(x)` gives (); `max(x, dim)` a pair (values, indices) without dim; `max(x, other)` broadcasts.
    Dtypes: all real; NaN is largest.
    Errors: RuntimeError for the maximum of nothing, IndexError for a dim out of range or of size 0.
    Source: elementary.
    Example: `tfw.max(tfw.tensor([[1.0, 3.0]]), 1).values.tolist() == [3.0]`
    """
    return _choose("max", amax, max_along, maximum, input, dim, keepdim)


def min(input: Tensor, dim: Any = None, keepdim: bool = False) -> Any:
    """Smallest element: of all; along a dim, with indices; or of two tensors, element by element.

    Shapes: `min(x)` gives (); `min(x, dim)` a pair (values, indices) without dim; `min(x, other)` broadcasts.
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


Tensor.max = max
Tensor.min = min


# ---- any and all


def _logical_spec(name: str) -> Any:
    def infer(x: Spec, dim: Any, keepdim: bool) -> Spec:
        return fresh(x, reduced_shape(name, x.shape, dim, keepdim), dtypes.bool_)

    return infer


@primitive(
    numpy=_reducing("any", np.logical_or),
    infer=_logical_spec("any"),
    differentiable=False,
    computes=False,
)
def any(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether an element along dim (an int, several, or all) is nonzero.

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: all; the result is bool.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.tensor([0, 1]).any().item() is True`
    """
    ...


@primitive(
    numpy=_reducing("all", np.logical_and),
    infer=_logical_spec("all"),
    differentiable=False,
    computes=False,
)
def all(input: Tensor, dim: Dims = None, keepdim: bool = False) -> Tensor:
    """Whether every element along dim (an int, several, or all) is nonzero.

    Shapes: input's without dim, or with size 1 there if keepdim.
    Dtypes: all; the result is bool.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.tensor([0, 1]).all().item() is False`
    """
    ...


for _function, _numpy in ((any, np.any), (all, np.all)):
    _function.reference(
        lambda a, dim, keepdim, _numpy=_numpy: _numpy(a, axis=_own(a, dim), keepdims=keepdim)
    )

    @_function.samples
    def _(rng: np.random.Generator) -> Iterator[Call]:
        x = rng.standard_normal((3, 4)) > 0
        yield Call(x)
        yield Call(x, 1, True)

    @_function.rejects
    def _() -> Iterator[Reject]:
        yield Reject(Call(np.ones((2, 3)), 2), DimError, argument="dim", value=2)
