"""Reductions by a sum or by logic: sum, mean, sum_to_size, any, all."""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import Category, dtype
from tfw.errors import ArgumentError, DimError, DtypeError, ShapeError
from tfw.fastpath import Fast
from tfw.graph import Extent
from tfw.ops.convert import to
from tfw.ops.elementwise import div, mul
from tfw.ops.expand import expand
from tfw.ops.movement import reshape
from tfw.registry import Call, Cost, Reject, fresh, op, primitive
from tfw.runtime.cpu.sums import sum_axes
from tfw.shapes import Shape, Spec, normalize_dims
from tfw.tensor import Tensor

Dims = int | tuple[int, ...] | list[int] | None


def reduced_shape(op: str, shape: Shape, dim: Any, keepdim: bool) -> Shape:
    """Return the shape left by a reduction over `dim` (None or (): all dims)."""
    dims = normalize_dims(op, dim, shape)
    return tuple(1 if i in dims else n for i, n in enumerate(shape) if keepdim or i not in dims)


def axes(dim: Any) -> Any:
    """Return NumPy's axis argument for PyTorch's dim."""
    if dim is None or isinstance(dim, int):
        return dim
    return tuple(dim) or None


def own_axes(a: Any, dim: Any) -> Any:
    """Return NumPy's axis argument for references: a 0-d array has no axis to name."""
    return axes(dim) if a.ndim else None


def row_major(y: Any) -> Any:
    """Return a reduction's result in row-major order, as a transposed array's need not be."""
    return y if y.flags.c_contiguous else y.copy()


def reducing(name: str, ufunc: np.ufunc) -> Any:
    """Return the NumPy rule of a reduction by a ufunc."""

    def rule(a: Any, dim: Any, keepdim: bool) -> Any:
        if not a.ndim:
            normalize_dims(name, dim, ())
            dim = None
        return row_major(ufunc.reduce(a, axis=axes(dim), keepdims=keepdim))

    return rule


def restore(g: Tensor, spec: Extent, dim: Any, keepdim: bool) -> Tensor:
    """Return a gradient (or result) of a reduction with its reduced dims back, at size 1."""
    if keepdim or not spec.shape:
        return g
    return reshape(g, reduced_shape("restore", spec.shape, dim, True))


def reduction_cost(x: Spec, *_: Any) -> Cost:
    """Return the work of a reduction: one addition or comparison per element."""
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
        wide = np.add.reduce(a, axis=axes(dim), keepdims=keepdim, dtype=np.float32)
        return row_major(wide.astype(kind))
    if a.dtype == kind and a.flags.c_contiguous:
        return _sum_fast(a, dim, keepdim)
    return row_major(np.add.reduce(a, axis=axes(dim), keepdims=keepdim, dtype=kind))


def _sum_fast(a: Any, dim: Any, keepdim: bool) -> Any:
    if dim is None or dim.__class__ is int:
        return sum_axes(a, dim, keepdim)
    return sum_axes(a, tuple(dim) or None, keepdim)


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
sum.reference(lambda a, dim, keepdim, dtype: np.sum(a, axis=own_axes(a, dim), keepdims=keepdim))
sum.cost(reduction_cost)


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
    if a.dtype == wide and a.flags.c_contiguous:
        total = _sum_fast(a, dim, keepdim)
    else:
        total = np.add.reduce(a, axis=axes(dim), dtype=wide, keepdims=keepdim)
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
        np.sum(a, axis=own_axes(a, dim), keepdims=keepdim)
        / np.sum(np.ones(a.shape), axis=own_axes(a, dim), keepdims=keepdim)
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


# ---- any and all


def _logical_spec(name: str) -> Any:
    def infer(x: Spec, dim: Any, keepdim: bool) -> Spec:
        return fresh(x, reduced_shape(name, x.shape, dim, keepdim), dtypes.bool_)

    return infer


@primitive(
    numpy=reducing("any", np.logical_or),
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
    numpy=reducing("all", np.logical_and),
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
        lambda a, dim, keepdim, _numpy=_numpy: _numpy(a, axis=own_axes(a, dim), keepdims=keepdim)
    )

    @_function.samples
    def _(rng: np.random.Generator) -> Iterator[Call]:
        x = rng.standard_normal((3, 4)) > 0
        yield Call(x)
        yield Call(x, 1, True)

    @_function.rejects
    def _() -> Iterator[Reject]:
        yield Reject(Call(np.ones((2, 3)), 2), DimError, argument="dim", value=2)
