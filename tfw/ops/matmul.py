"""Matrix products: matmul with broadcasting, and linear. Sources: elementary."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw.dtypes import NUMERIC
from tfw.errors import ArgumentError, DtypeError, ShapeError
from tfw.fastpath import Fast
from tfw.graph import Extent
from tfw.ops.elementwise import add, mul
from tfw.ops.expand import unsqueeze
from tfw.ops.movement import reshape, transpose
from tfw.ops.reduce import sum, sum_to_size
from tfw.registry import Call, Cost, Reject, fresh, op, primitive
from tfw.runtime.cpu import matmul as cpu
from tfw.shapes import Shape, Spec, broadcast_shapes
from tfw.tensor import Tensor


def _product_shape(op: str, a: Shape, b: Shape) -> Shape:
    if not a or not b:
        raise ShapeError(
            f"input of shape {a} and other of shape {b}",
            op=op,
            argument="input",
            rule="at least one dim each",
        )
    inner = b[max(-2, -len(b))]
    if a[-1] != inner:
        raise ShapeError(
            f"input of shape {a} and other of shape {b} differ in the dim that is summed over "
            f"({a[-1]} against {inner})",
            op=op,
            argument="other",
            value=b,
            rule="(..., n, k) with (..., k, m)",
        )
    lead = broadcast_shapes(op, a[:-2], b[:-2])
    return (*lead, *a[-2:-1], *(b[-1:] if len(b) > 1 else ()))


def _matmul_spec(x: Spec, other: Spec) -> Spec:
    if x.dtype is not other.dtype:
        raise DtypeError(
            f"input is {x.dtype!r}, other is {other.dtype!r}",
            op="matmul",
            argument="other",
            value=other.dtype,
            rule="equal dtypes",
            remedy="convert one with .to(dtype)",
        )
    return fresh(x, _product_shape("matmul", x.shape, other.shape))


def _matmul(a: Any, b: Any) -> Any:
    if a.dtype != b.dtype:
        raise TypeError
    return cpu.matmul(a, b)


def _matmul_fast(a: Any, b: Any) -> Any:
    if a.ndim == 2 and b.ndim == 2:
        return cpu.dot(a, b)  # half of matmul's overhead
    if a.ndim < 2 or b.ndim < 2:
        raise ValueError
    return _matmul(a, b)


def _cost(x: Spec, other: Spec) -> Cost:
    y = fresh(x, _product_shape("matmul", x.shape, other.shape))
    return Cost((x.numel + other.numel + y.numel) * x.dtype.itemsize, 2 * y.numel * x.shape[-1])


@primitive(
    numpy=_matmul,
    infer=_matmul_spec,
    fast=Fast("direct", _matmul_fast, any_layout=True),
    dtypes=NUMERIC,
    dunders=("__matmul__",),
    autocast="half",
)
def matmul(input: Tensor, other: Tensor) -> Tensor:
    """Matrix product of the last two dims, the leading ones broadcast; vectors are rows or columns.

    Shapes: (..., n, k) and (..., k, m) give (..., n, m); (k,) on the left or right drops that dim.
    Dtypes: equal, not bool; half types accumulate in float32.
    Errors: RuntimeError if shapes or dtypes do not fit.
    Source: elementary.
    Example: `(tfw.ones(2, 3) @ tfw.ones(3)).tolist() == [3.0, 3.0]`
    """
    ...


def _matmul_grad_input(g: Tensor, other: Tensor, input_spec: Extent) -> Tensor:
    a = input_spec.shape
    if other._a.ndim == 1:
        # g (..., n) or () times the row vector
        result = mul(unsqueeze(g, -1), other)
    elif len(a) == 1:
        result = matmul(other, unsqueeze(g, -1))  # (..., k, m) (..., m, 1)
        result = reshape(result, result._a.shape[:-1])
    else:
        result = matmul(g, transpose(other, -2, -1))
    return result if result._a.shape == a else sum_to_size(result, a)


def _rows(x: Tensor) -> Tensor:
    """Return the tensor as a matrix of its last dim; no -1, which has no meaning beside 0."""
    shape = x._a.shape
    return x if len(shape) == 2 else reshape(x, (math.prod(shape[:-1]), shape[-1]))


def _matmul_grad_other(g: Tensor, input: Tensor, other_spec: Extent) -> Tensor:
    b = other_spec.shape
    if input._a.ndim == 1:
        result = mul(input, g) if len(b) == 1 else mul(unsqueeze(input, -1), unsqueeze(g, -2))
    elif len(b) == 1:
        return matmul(reshape(g, (-1,)), _rows(input))
    elif len(b) == 2 and input._a.ndim > 2:
        return matmul(transpose(_rows(input), 0, 1), _rows(g))
    else:
        result = matmul(transpose(input, -2, -1), g)
    return result if result._a.shape == b else sum_to_size(result, b)


matmul.vjp(input=_matmul_grad_input, other=_matmul_grad_other)
matmul.reference(np.matmul)
matmul.cost(_cost)


@matmul.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    draw = rng.standard_normal
    yield Call(draw((3, 4)), draw((4, 5)))
    yield Call(draw((2, 3, 4)), draw((4, 5)))
    yield Call(draw((2, 1, 3, 4)), draw((5, 4, 2)))
    yield Call(draw(4), draw(4))
    yield Call(draw((2, 3, 4)), draw(4))
    yield Call(draw(4), draw((2, 4, 3)))


@matmul.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), np.ones((2, 3))), ShapeError, argument="other")
    yield Reject(Call(np.ones(()), np.ones(2)), ShapeError, argument="input")
    yield Reject(Call(np.ones((2, 3, 4)), np.ones((3, 4, 5))), ShapeError)
    yield Reject(Call(np.ones((2, 3)), np.ones((3, 2), np.float16)), DtypeError, argument="other")
    yield Reject(Call(np.ones((2, 3)), 2.0), ArgumentError, argument="other")


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """Product of two matrices.

    Shapes: (n, k) and (k, m) give (n, m).
    Dtypes: equal, not bool.
    Errors: RuntimeError unless both have two dims that fit.
    Source: elementary.
    Example: `tfw.mm(tfw.ones(2, 3), tfw.ones(3, 1)).tolist() == [[3.0], [3.0]]`
    """
    return _of_ndim("mm", 2, input, mat2)


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Products of two batches of matrices.

    Shapes: (b, n, k) and (b, k, m) give (b, n, m).
    Dtypes: equal, not bool.
    Errors: RuntimeError unless both have three dims that fit.
    Source: elementary.
    Example: `tfw.bmm(tfw.ones(2, 1, 3), tfw.ones(2, 3, 1)).tolist() == [[[3.0]], [[3.0]]]`
    """
    if input._a.ndim == 3 == mat2._a.ndim and input._a.shape[0] != mat2._a.shape[0]:
        raise ShapeError(
            f"batches of {input._a.shape[0]} and {mat2._a.shape[0]} matrices",
            op="bmm",
            argument="mat2",
        )
    return _of_ndim("bmm", 3, input, mat2)


def _of_ndim(name: str, ndim: int, input: Tensor, mat2: Tensor) -> Tensor:
    for argument, x in (("input", input), ("mat2", mat2)):
        if x._a.ndim != ndim:
            raise ShapeError(
                f"{argument} has shape {tuple(x._a.shape)}",
                op=name,
                argument=argument,
                value=tuple(x._a.shape),
                rule=f"{ndim} dims",
                remedy="use matmul() to broadcast",
            )
    return matmul(input, mat2)


# ---- linear


def _linear_spec(x: Spec, weight: Spec, bias: Spec | None) -> Spec:
    if not x.shape or weight.ndim != 2 or x.shape[-1] != weight.shape[1]:
        raise ShapeError(
            f"input of shape {x.shape} does not fit weight of shape {weight.shape}",
            op="linear",
            argument="input",
            value=x.shape,
            rule="input (..., n_in), weight (n_out, n_in)",
        )
    if bias is not None and bias.shape != (weight.shape[0],):
        raise ShapeError(
            f"bias of shape {bias.shape} does not fit weight of shape {weight.shape}",
            op="linear",
            argument="bias",
            value=bias.shape,
            rule=f"({weight.shape[0]},)",
        )
    for name, other in (("weight", weight), ("bias", bias)):
        if other is not None and other.dtype is not x.dtype:
            raise DtypeError(
                f"input is {x.dtype!r}, {name} is {other.dtype!r}",
                op="linear",
                argument=name,
                value=other.dtype,
                rule="equal dtypes",
            )
    return fresh(x, (*x.shape[:-1], weight.shape[0]))


def _linear_rule(x: Any, weight: Any, bias: Any) -> Any:
    if (
        x.shape[-1] != weight.shape[1]
        or x.dtype != weight.dtype
        or (bias is not None and (bias.dtype != x.dtype or bias.shape != weight.shape[:1]))
    ):
        raise ValueError
    rows = x if x.ndim == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    y = cpu.dot(rows, weight.T, bias)
    return y if x.ndim == 2 else y.reshape(*x.shape[:-1], weight.shape[0])


@op(
    numpy=_linear_rule,
    fast=Fast("direct", any_layout=True),
    infer=_linear_spec,
    dtypes=NUMERIC,
    method=False,
    autocast="half",
)
def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """Affine map of the last dim: input @ weight.T + bias.

    Shapes: input (..., n_in), weight (n_out, n_in), bias (n_out,), result (..., n_out).
    Dtypes: equal, not bool; half types accumulate in float32.
    Errors: RuntimeError if shapes or dtypes do not fit.
    Source: elementary.
    Example: `nn.functional.linear(tfw.ones(2), tfw.ones(3, 2)).tolist() == [2.0, 2.0, 2.0]`
    """
    y = matmul(input, transpose(weight, 0, 1))
    return y if bias is None else add(y, bias)


def _linear_grad_bias(g: Tensor) -> Tensor:
    return sum(_rows(g), 0)


def _linear_grad_weight(g: Tensor, input: Tensor) -> Tensor:
    return matmul(transpose(_rows(g), 0, 1), _rows(input))


linear.vjp(
    input=lambda g, weight: matmul(g, weight), weight=_linear_grad_weight, bias=_linear_grad_bias
)


def _linear_reference(x: Any, weight: Any, bias: Any) -> Any:
    y = np.einsum("...i,oi->...o", x, weight)
    return y if bias is None else y + bias


linear.reference(_linear_reference)


@linear.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    draw = rng.standard_normal
    yield Call(draw((3, 4)), draw((5, 4)), draw(5))
    yield Call(draw((2, 3, 4)), draw((5, 4)))
    yield Call(draw(4), draw((5, 4)), draw(5))


@linear.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), np.ones((2, 4))), ShapeError, argument="input")
    yield Reject(Call(np.ones((2, 3)), np.ones((2, 3)), np.ones(3)), ShapeError, argument="bias")
    yield Reject(Call(np.ones((2, 3)), np.ones((2, 3), np.float16)), DtypeError, argument="weight")
