"""Arithmetic and elementary functions, element by element.

A primitive gives its NumPy rule, its Triton expression and its vjp on adjacent lines.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tfw.dtypes import NUMERIC, Number
from tfw.errors import DtypeError
from tfw.ops.compare import eq, ge, gt, logical_and, lt, where
from tfw.ops.pointwise import away_from_zero, binary, is_number, positive, unary
from tfw.registry import OpFunction
from tfw.runtime.cpu.choice import choose
from tfw.tensor import Tensor

# ---- arithmetic


def _scaled(  # pyright: ignore[reportReturnType]  a primitive has no body
    input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None
) -> Tensor: ...


def _times(b: Any, alpha: Any) -> Any:
    return b if alpha == 1 else np.multiply(b, b.dtype.type(alpha))


add = binary(
    "add",
    "Sum: input + alpha * other.",
    numpy=lambda a, b, alpha: np.add(a, _times(b, alpha)),
    triton="{input} + {other} * {alpha}",
    prototype=_scaled,
    fast_rule=np.add,
    dunders=("__add__", "__radd__"),
    example="tfw.add(tfw.ones(2), 1.0).tolist() == [2.0, 2.0]",
)
add.vjp(input=lambda g: g, other=lambda g, alpha: g if alpha == 1 else mul(g, alpha))


sub = binary(
    "sub",
    "Difference: input - alpha * other.",
    numpy=lambda a, b, alpha: np.subtract(a, _times(b, alpha)),
    triton="{input} - {other} * {alpha}",
    prototype=_scaled,
    fast_rule=np.subtract,
    taken=NUMERIC,
    dunders=("__sub__",),
    example="tfw.sub(tfw.ones(2), 1.0).tolist() == [0.0, 0.0]",
)
sub.vjp(input=lambda g: g, other=lambda g, alpha: mul(g, -alpha))

mul = binary(
    "mul",
    "Product: input * other.",
    numpy=np.multiply,
    triton="{input} * {other}",
    dunders=("__mul__", "__rmul__"),
    example="tfw.mul(tfw.ones(2), 3.0).tolist() == [3.0, 3.0]",
)
mul.vjp(input=lambda g, other: mul(g, other), other=lambda g, input: mul(g, input))

div = binary(
    "div",
    "Quotient: input / other, in floating point; x / 0 is inf or NaN.",
    numpy=np.divide,
    triton="device.divide({input}, {other})",
    like="float",
    draw=away_from_zero,
    dunders=("__truediv__",),
    example="tfw.div(tfw.ones(2), 2.0).tolist() == [0.5, 0.5]",
)
div.vjp(
    input=lambda g, other: div(g, other),
    # From the inputs, not from the result: `y = a / b; y -= c` must stay differentiable.
    other=lambda g, input, other: neg(div(mul(g, div(input, other)), other)),
)


def _power(a: Any, b: Any) -> Any:
    if b.dtype.kind == "i" and b.size and b.min() < 0:
        return _integer_power(a, b)
    if b.ndim == 0 and b == 2:  # np.power is 20 times slower than a product
        return np.multiply(a, a)
    return np.power(a, b)


def _integer_power(a: Any, b: Any) -> Any:
    """Cut reciprocals of integers towards zero, as PyTorch does: only those of 1 and -1 remain."""
    if not b.ndim:
        raise DtypeError(
            f"an integer to the power {int(b)} is no integer",
            op="pow",
            argument="exponent",
            value=int(b),
            rule="exponent >= 0 for integers",
            remedy="convert one to floating point",
        )
    reciprocal = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2, -1, 1), 0))
    return np.where(b < 0, reciprocal, np.power(a, np.maximum(b, 0))).astype(b.dtype)


def _power_reference(a: Any, b: Any) -> Any:
    if np.result_type(a, b).kind == "f":
        return np.power(a, b)

    def power(x: Any, y: Any) -> int:
        x, y = int(x), int(y)
        if y < 0:
            return 0 if x == 0 else int(1 / x) ** (-y % 2 or 2)
        low = builtins.pow(x, y, 1 << 64)
        return low - (low >> 63 << 64)

    return np.vectorize(power, otypes=[np.int64])(a, b)


def _pow(  # pyright: ignore[reportReturnType]  a primitive has no body
    input: Tensor | Number, exponent: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...


pow = binary(
    "pow",
    "Power: input ** exponent; 0 ** 0 = 1.",
    numpy=_power,
    triton="device.power({input}, {exponent})",
    prototype=_pow,
    reference=_power_reference,
    taken=NUMERIC,
    draw=positive,
    fast=False,
    dunders=("__pow__",),
    example="tfw.pow(tfw.full((2,), 3.0), 2).tolist() == [9.0, 9.0]",
)


def _pow_grad_input(g: Tensor, input: Tensor, exponent: Any) -> Tensor:
    slope = mul(
        pow(input, sub(exponent, 1) if isinstance(exponent, Tensor) else exponent - 1), exponent
    )
    # d/dx x**0 is 0 also at x = 0, where exponent * x**(exponent - 1) is 0 * inf.
    return mul(g, where(eq(exponent, 0), 0.0, slope))


def _pow_grad_exponent(g: Tensor, y: Tensor, input: Any, exponent: Tensor) -> Tensor:
    if is_number(input):
        return mul(g, mul(y, math.log(input) if input > 0 else 0.0 if input == 0 else math.nan))
    flat = logical_and(eq(input, 0), ge(exponent, 0))
    return mul(g, where(flat, 0.0, mul(y, log(input))))


pow.vjp(input=_pow_grad_input, exponent=_pow_grad_exponent)


def _reflected(function: OpFunction[..., Tensor]) -> Callable[[Tensor, Any], Any]:
    def operator(self: Tensor, other: Any) -> Any:
        return function(other, self) if is_number(other) else NotImplemented

    return operator


for _dunder, _function in (("__rsub__", sub), ("__rtruediv__", div), ("__rpow__", pow)):
    setattr(Tensor, _dunder, _reflected(_function))

maximum = binary(
    "maximum",
    "The larger of the two; NaN if one is NaN. Equal inputs share the gradient.",
    numpy=np.maximum,
    triton="tl.maximum({input}, {other}, propagate_nan=tl.PropagateNan.ALL)",
    inplace=False,
    example="tfw.maximum(tfw.ones(2), tfw.zeros(2)).tolist() == [1.0, 1.0]",
)
minimum = binary(
    "minimum",
    "The smaller of the two; NaN if one is NaN. Equal inputs share the gradient.",
    numpy=np.minimum,
    triton="tl.minimum({input}, {other}, propagate_nan=tl.PropagateNan.ALL)",
    inplace=False,
    example="tfw.minimum(tfw.ones(2), tfw.zeros(2)).tolist() == [0.0, 0.0]",
)


def _share(lost: Any, a: Any, b: Any, g: Tensor) -> Tensor:
    """Give half to equal operands, all to the winner; NaN makes both winners."""
    return where(eq(a, b), mul(g, 0.5), where(lost, 0.0, g))


maximum.vjp(
    input=lambda g, input, other: _share(lt(input, other), input, other, g),
    other=lambda g, input, other: _share(gt(input, other), input, other, g),
)
minimum.vjp(
    input=lambda g, input, other: _share(gt(input, other), input, other, g),
    other=lambda g, input, other: _share(lt(input, other), input, other, g),
)


# ---- functions of one tensor

neg = unary(
    "neg",
    "Negative: -input.",
    numpy=np.negative,
    triton="-{input}",
    vjp=lambda g: neg(g),
    dunders=("__neg__",),
    example="tfw.neg(tfw.ones(2)).tolist() == [-1.0, -1.0]",
)
exp = unary(
    "exp",
    "Exponential: e ** input.",
    numpy=np.exp,
    triton="device.exp({input})",
    vjp=lambda g, y: mul(g, y),
    like="float",
    autocast="float32",
    example="tfw.exp(tfw.zeros(2)).tolist() == [1.0, 1.0]",
)
log = unary(
    "log",
    "Natural logarithm: -inf at 0, NaN below.",
    numpy=np.log,
    triton="tl.log({input})",
    vjp=lambda g, input: div(g, input),
    like="float",
    draw=positive,
    autocast="float32",
    example="tfw.log(tfw.ones(2)).tolist() == [0.0, 0.0]",
)
sqrt = unary(
    "sqrt",
    "Square root: NaN below 0.",
    numpy=np.sqrt,
    triton="device.sqrt({input})",
    vjp=lambda g, y: div(g, mul(y, 2.0)),
    like="float",
    draw=positive,
    example="tfw.sqrt(tfw.full((2,), 4.0)).tolist() == [2.0, 2.0]",
)
tanh = unary(
    "tanh",
    "Hyperbolic tangent.",
    numpy=np.tanh,
    triton="libdevice.tanh({input})",
    vjp=lambda g, y: mul(g, sub(1.0, mul(y, y))),
    like="float",
    example="tfw.tanh(tfw.zeros(2)).tolist() == [0.0, 0.0]",
)
abs = unary(
    "abs",
    "Absolute value; its gradient at 0 is 0.",
    numpy=np.absolute,
    triton="tl.abs({input})",
    vjp=lambda g, input: mul(g, sign(input)),
    dunders=("__abs__",),
    example="tfw.abs(tfw.full((2,), -3.0)).tolist() == [3.0, 3.0]",
)
sign = unary(
    "sign",
    "Sign: -1, 0 or 1, NaN for NaN (PyTorch gives 0); its gradient is 0.",
    numpy=np.sign,
    triton="device.sign({input})",
    vjp=lambda g: mul(g, 0.0),
    example="tfw.sign(tfw.full((2,), -3.0)).tolist() == [-1.0, -1.0]",
)

# maximum with a 0-d array of the same dtype is twice as fast as with a Python number.
_ZERO = {d.numpy: np.zeros((), d.numpy) for d in NUMERIC}

relu = unary(
    "relu",
    "Rectifier: max(input, 0); its gradient at 0 is 0, NaN stays NaN.",
    numpy=lambda x, out=None: np.maximum(x, _ZERO[x.dtype], out=out),
    triton="tl.maximum({input}, 0, propagate_nan=tl.PropagateNan.ALL)",
    vjp=lambda g, y: relu_grad(g, y),
    reference=lambda x: np.maximum(x, 0),
    example="tfw.relu(tfw.full((2,), -3.0)).tolist() == [0.0, 0.0]",
)


def _relu_grad(g: Any, y: Any, out: Any = None) -> Any:
    # Chosen, not multiplied: inf * 0 would be NaN.
    result = choose(np.less_equal(y, _ZERO[y.dtype]), _ZERO[g.dtype], g)
    if out is not None:
        out[...] = result
    return result if result.ndim else result[()]  # a scalar, as ufuncs give


relu_grad = binary(
    "relu_grad",
    "Gradient of relu from its result: 0 where other <= 0, else input; other gets no gradient.",
    numpy=_relu_grad,
    triton="tl.where({other} <= 0, 0, {input})",
    inplace=False,
    hidden=True,
    taken=NUMERIC,
    reference=lambda g, y: np.where(y <= 0, 0, g),
    example="",
)
relu_grad.vjp(input=lambda g, other: relu_grad(g, other))
