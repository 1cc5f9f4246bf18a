"""Filling where a mask holds."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import Number
from tfw.errors import DtypeError, ShapeError
from tfw.fastpath import Fast
from tfw.graph import Extent
from tfw.ops.compare import where
from tfw.ops.convert import contiguous, to
from tfw.ops.reduce import row_major, sum, sum_to_size
from tfw.registry import Call, Reject, fresh, op, primitive
from tfw.runtime.cpu.choice import choose
from tfw.shapes import Spec, broadcast_shapes
from tfw.tensor import Tensor


def spec_of(x: Any) -> Any:
    """Return the Spec of a tensor; a number as it is."""
    return x._kind.backend.spec(x._a) if isinstance(x, Tensor) else x


def _masked_fill_spec(x: Spec, mask: Spec, value: Any) -> Spec:
    if mask.dtype is not dtypes.bool_:
        raise DtypeError(
            f"mask has dtype {mask.dtype!r}",
            op="masked_fill",
            argument="mask",
            value=mask.dtype,
            rule="bool",
        )
    if isinstance(value, Spec):
        if value.shape:
            raise ShapeError(
                f"value has shape {value.shape}",
                op="masked_fill",
                argument="value",
                rule="a number or a 0-d tensor",
            )
    elif dtypes.of_scalar(value).category > x.dtype.category:
        raise DtypeError(
            f"value={value!r} does not fit {x.dtype!r}",
            op="masked_fill",
            argument="value",
            value=value,
        )
    names = ("input", "mask")
    return fresh(x, broadcast_shapes("masked_fill", x.shape, mask.shape, names=names))


def _masked_fill_rule(x: Any, mask: Any, value: Any) -> Any:
    if mask.dtype != np.bool_:
        raise TypeError
    if not isinstance(value, np.ndarray):
        if dtypes.of_scalar(value).category > dtypes.BY_NUMPY[x.dtype].category:
            raise TypeError
    elif value.ndim:
        raise ValueError
    return row_major(choose(mask, np.asarray(value).astype(x.dtype, copy=False), x))


@op(
    numpy=_masked_fill_rule,
    infer=_masked_fill_spec,
    fast=Fast("direct", needs={"mask": dtypes.bool_}),
    computes=False,
    inplace=True,
)
def masked_fill(input: Tensor, mask: Tensor, value: Tensor | Number) -> Tensor:
    """Input with value where mask holds, in row-major order.

    Shapes: input and mask broadcast; value is a number or a 0-d tensor.
    Dtypes: input any, mask bool; the result has input's dtype.
    Errors: RuntimeError if mask is not bool or the shapes do not broadcast.
    Source: elementary.
    Example: `tfw.zeros(2).masked_fill(tfw.tensor([True, False]), 1.0).tolist() == [1.0, 0.0]`
    """
    _masked_fill_spec(spec_of(input), spec_of(mask), spec_of(value))
    if isinstance(value, Tensor):
        value = to(value, input.dtype)
    return contiguous(where(mask, value, input))


masked_fill.vjp(
    input=lambda g, mask, input_spec: summed_to(where(mask, 0.0, g), input_spec),
    value=lambda g, mask, value_spec: to(sum(where(mask, g, 0.0)), value_spec.kind.dtype),
)


def summed_to(g: Tensor, spec: Extent) -> Tensor:
    """Return a gradient at the shape of an operand that may have been broadcast."""
    return g if g._a.shape == spec.shape else sum_to_size(g, spec.shape)


@masked_fill.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), rng.standard_normal((3, 4)) > 0, -1.0)
    yield Call(rng.standard_normal((2, 3, 4)), rng.standard_normal((3, 1)) > 0, float("-inf"))


masked_fill.reference(lambda x, mask, value: np.where(mask, value, x))


@masked_fill.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(2), np.ones(2), 0.0), DtypeError, argument="mask")
    yield Reject(Call(np.ones(2), np.ones(2) > 0, np.ones(2)), ShapeError, argument="value")
    yield Reject(Call(np.ones(2), np.ones(3) > 0, 0.0), ShapeError, argument="shape")
    yield Reject(Call(np.ones(2, np.int64), np.ones(2) > 0, 0.5), DtypeError, argument="value")


# ---- triangles


def _triangle_spec(name: str) -> Any:
    def infer(x: Spec, diagonal: int) -> Spec:
        if x.ndim < 2:
            raise ShapeError(
                f"input has shape {x.shape}",
                op=name,
                argument="input",
                value=x.shape,
                rule="at least two dims",
            )
        return fresh(x, x.shape)

    return infer


def _triangle_rule(function: Any) -> Any:
    def rule(a: Any, diagonal: int) -> Any:
        if a.ndim < 2:
            raise ValueError
        return np.ascontiguousarray(function(a, diagonal))

    return rule


def _declare_triangle(function: Any, numpy: Any) -> None:
    function.vjp(input=lambda g, diagonal: function(g, diagonal))
    function.reference(lambda a, diagonal: numpy(a, diagonal))

    @function.samples
    def _(rng: np.random.Generator) -> Iterator[Call]:
        yield Call(rng.standard_normal((4, 5)))
        yield Call(rng.standard_normal((2, 3, 3)), -1)

    @function.rejects
    def _() -> Iterator[Reject]:
        yield Reject(Call(np.ones(3)), ShapeError, argument="input")


@primitive(numpy=_triangle_rule(np.tril), infer=_triangle_spec("tril"), computes=False)
def tril(input: Tensor, diagonal: int = 0) -> Tensor:
    """The lower triangle of matrices, zero above the given diagonal.

    Shapes: (..., n, m), unchanged.
    Dtypes: all.
    Errors: RuntimeError for fewer than two dims.
    Source: elementary.
    Example: `tfw.tril(tfw.ones(2, 2)).tolist() == [[1.0, 0.0], [1.0, 1.0]]`
    """
    ...


@primitive(numpy=_triangle_rule(np.triu), infer=_triangle_spec("triu"), computes=False)
def triu(input: Tensor, diagonal: int = 0) -> Tensor:
    """The upper triangle of matrices, zero below the given diagonal.

    Shapes: (..., n, m), unchanged.
    Dtypes: all.
    Errors: RuntimeError for fewer than two dims.
    Source: elementary.
    Example: `tfw.triu(tfw.ones(2, 2)).tolist() == [[1.0, 1.0], [0.0, 1.0]]`
    """
    ...


_declare_triangle(tril, np.tril)
_declare_triangle(triu, np.triu)
