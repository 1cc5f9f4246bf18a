"""Comparisons, logic, bits and choice, element by element."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tfw import dtypes
from tfw.dtypes import Number
from tfw.errors import ArgumentError, DtypeError, ShapeError
from tfw.fastpath import Fast
from tfw.ops.pointwise import binary, integer, pointwise_cost
from tfw.registry import Call, OpFunction, Reject, op, primitive
from tfw.runtime.cpu.choice import choose
from tfw.tensor import Tensor

# ---- comparisons and logic


def _comparison(
    name: str, symbol: str, ufunc: np.ufunc, at_one: list[bool]
) -> OpFunction[..., Tensor]:
    return binary(
        name,
        f"Whether input {symbol} other, element by element.",
        numpy=ufunc,
        triton=f"{{input}} {symbol} {{other}}",
        result=dtypes.bool_,
        inplace=False,
        dunders=(f"__{name}__",),
        example=f"tfw.{name}(tfw.tensor([0.0, 1.0, 2.0]), 1.0).tolist() == {at_one}",
    )


eq = _comparison("eq", "==", np.equal, [False, True, False])
ne = _comparison("ne", "!=", np.not_equal, [True, False, True])
lt = _comparison("lt", "<", np.less, [True, False, False])
le = _comparison("le", "<=", np.less_equal, [True, True, False])
gt = _comparison("gt", ">", np.greater, [False, False, True])
ge = _comparison("ge", ">=", np.greater_equal, [False, True, True])

logical_and = binary(
    "logical_and",
    "Whether both are nonzero.",
    numpy=np.logical_and,
    triton="({input} != 0) & ({other} != 0)",
    result=dtypes.bool_,
    inplace=False,
    example="tfw.logical_and(tfw.tensor([0, 1, 2]), 1).tolist() == [False, True, True]",
)


def _bitwise(name: str, symbol: str, ufunc: np.ufunc, six_and_five: int) -> OpFunction[..., Tensor]:
    return binary(
        f"bitwise_{name}",
        f"Bits of input {symbol} other; for bool the logical {name}.",
        numpy=ufunc,
        triton=f"{{input}} {symbol} {{other}}",
        taken=(dtypes.bool_, *dtypes.INTEGERS),
        differentiable=False,
        draw=integer,
        number=5,
        dunders=(f"__{name}__", f"__r{name}__"),
        example=f"tfw.bitwise_{name}(tfw.tensor([6]), 5).tolist() == [{six_and_five}]",
    )


bitwise_and = _bitwise("and", "&", np.bitwise_and, 4)
bitwise_or = _bitwise("or", "|", np.bitwise_or, 7)
bitwise_xor = _bitwise("xor", "^", np.bitwise_xor, 3)


@op(
    triton="{input} == 0",
    pointwise=True,
    numpy=np.logical_not,
    result_dtype=dtypes.bool_,
    differentiable=False,
)
def logical_not(input: Tensor) -> Tensor:
    """Whether input is zero.

    Shapes: the input's.
    Dtypes: all; the result is bool.
    Errors: TypeError if input is no tensor.
    Source: elementary.
    Example: `tfw.logical_not(tfw.tensor([0, 1])).tolist() == [True, False]`
    """
    return eq(input, 0)


@logical_not.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)) > 0)
    yield Call(rng.integers(-1, 2, (3, 4)))


logical_not.reference(np.logical_not)


@logical_not.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call("a"), ArgumentError, argument="input")


@primitive(
    numpy=np.invert,
    triton="~{input}",
    pointwise=True,
    dtypes=(dtypes.bool_, *dtypes.INTEGERS),
    differentiable=False,
    inplace=True,
    dunders=("__invert__",),
)
def bitwise_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Inverted bits; for bool the logical not.

    Shapes: the input's.
    Dtypes: bool and integers.
    Errors: RuntimeError for floating point.
    Source: elementary.
    Example: `tfw.bitwise_not(tfw.tensor([0, 1])).tolist() == [-1, -2]`
    """
    ...


@bitwise_not.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)) > 0)
    yield Call(rng.integers(-5, 5, (3, 4)))


bitwise_not.reference(np.invert)


@bitwise_not.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(2)), DtypeError, argument="input")


# ---- choice


@primitive(
    numpy=choose,
    triton="tl.where({condition}, {input}, {other})",
    pointwise=True,
    promotion="common",
    promoted=("input", "other"),
    dtypes={"condition": (dtypes.bool_,)},
    fast=Fast("direct", main="input", needs={"condition": dtypes.bool_}),
    method=False,
)
def where(condition: Tensor, input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """Choice: input where condition holds, other elsewhere.

    Shapes: all three broadcast to the result's shape.
    Dtypes: condition bool; input and other any, the result has their promoted dtype.
    Errors: RuntimeError if the shapes do not broadcast or condition is not bool.
    Source: elementary.
    Example: `tfw.where(tfw.tensor([True, False]), 1.0, 2.0).tolist() == [1.0, 2.0]`
    """
    ...


# Chosen rather than multiplied: 0 * inf must not reach the side that was not taken.
where.vjp(
    input=lambda g, condition: where(condition, g, 0.0),
    other=lambda g, condition: where(condition, 0.0, g),
)
where.reference(np.where)
where.cost(pointwise_cost)


@where.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(
        rng.standard_normal((3, 4)) > 0, rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    )
    yield Call(rng.standard_normal((3, 1)) > 0, rng.standard_normal(4), 2.0)


@where.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(2), np.ones(2), np.ones(2)), DtypeError, argument="condition")
    yield Reject(Call(np.ones(2) > 0, np.ones(3), np.ones(2)), ShapeError, argument="shape")


def where_method(self: Tensor, condition: Tensor, other: Tensor | Number) -> Tensor:
    """Choose this tensor where condition holds, other elsewhere."""
    return where(condition, self, other)
