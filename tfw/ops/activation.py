"""Activations beyond the elementary functions: erf and GELU."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw.dtypes import FLOATING
from tfw.errors import DtypeError, ValueRangeError
from tfw.fastpath import Fast
from tfw.ops.elementwise import add, exp, mul, sub, tanh
from tfw.ops.pointwise import unary
from tfw.registry import Call, Reject, like, op
from tfw.runtime.cpu import activations as cpu
from tfw.runtime.cpu import special
from tfw.shapes import Spec, broadcast_shapes, elementwise_strides
from tfw.tensor import Tensor

erf = unary(
    "erf",
    "Error function: 2 / sqrt(pi) * integral of exp(-t^2) from 0 to input.",
    numpy=lambda x: special.erf(x),
    triton="tl.erf({input})",
    vjp=lambda g, input: mul(g, mul(exp(mul(mul(input, input), -1.0)), 2 / math.sqrt(math.pi))),
    like="float",
    reference=np.vectorize(math.erf, otypes=[np.float64]),
    example="tfw.erf(tfw.zeros(2)).tolist() == [0.0, 0.0]",
)

_SQRT_HALF = math.sqrt(0.5)
_SQRT_2_OVER_PI = math.sqrt(2 / math.pi)
_CUBIC = 0.044715
APPROXIMATIONS = ("none", "tanh")


def _check(op: str, approximate: str) -> None:
    if approximate not in APPROXIMATIONS:
        raise ValueRangeError(
            f"approximate={approximate!r}",
            op=op,
            argument="approximate",
            value=approximate,
            rule="'none' or 'tanh'",
        )


def _checked(op: str, approximate: Any) -> Any:
    _check(op, approximate)
    return approximate


def _gelu_grad_spec(g: Spec, x: Spec, approximate: str) -> Spec:
    _check("gelu_grad", approximate)
    shape = broadcast_shapes("gelu_grad", g.shape, x.shape, names=("grad", "input"))
    strides = elementwise_strides(shape, [g[:2], x[:2]])
    return x._replace(shape=shape, strides=strides)


_SAME = like("input")


def _gelu_grad(g: Any, x: Any, approximate: Any) -> Any:
    _check("gelu_grad", approximate)
    g, x = np.broadcast_arrays(g, x)
    return cpu.gelu_grad(g, x, approximate)


@op(
    pointwise=True,
    promotion="common",
    dtypes=FLOATING,
    method=False,
    fast=Fast("unary"),
    infer=lambda x, approximate: _SAME(x, _checked("gelu", approximate)),
    numpy=lambda x, approximate: cpu.gelu(x, _checked("gelu", approximate)),
)
def gelu(input: Tensor, approximate: str = "none") -> Tensor:
    """GELU: x * (1 + erf(x / sqrt(2))) / 2, or its tanh form.

    The tanh form is x * (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))) / 2.

    Shapes: input's.
    Dtypes: floating.
    Errors: ValueError for another approximation, RuntimeError for an integer dtype.
    Source: Hendrycks and Gimpel 2016, Gaussian Error Linear Units, arXiv:1606.08415.
    Example: `nn.functional.gelu(tfw.zeros(2)).tolist() == [0.0, 0.0]`
    """
    _check("gelu", approximate)
    if approximate == "tanh":
        inner = mul(add(input, mul(mul(mul(input, input), input), _CUBIC)), _SQRT_2_OVER_PI)
        return mul(mul(input, 0.5), add(tanh(inner), 1.0))
    return mul(mul(input, 0.5), add(erf(mul(input, _SQRT_HALF)), 1.0))


@op(
    pointwise=True,
    promotion="common",
    dtypes=FLOATING,
    method=False,
    hidden=True,
    infer=_gelu_grad_spec,
    numpy=_gelu_grad,
)
def gelu_grad(grad: Tensor, input: Tensor, approximate: str = "none") -> Tensor:
    """Gradient of GELU: grad * (cdf(x) + x * pdf(x)) of the normal distribution; or of "tanh".

    Shapes: grad and input broadcast.
    Dtypes: floating.
    Errors: ValueError for another approximation.
    Source: elementary.
    Example: used by gradients.
    """
    _check("gelu_grad", approximate)
    square = mul(input, input)
    if approximate == "tanh":
        th = tanh(mul(add(input, mul(mul(square, input), _CUBIC)), _SQRT_2_OVER_PI))
        slope = mul(add(mul(square, 3 * _CUBIC), 1.0), _SQRT_2_OVER_PI)
        rise = mul(mul(mul(input, 0.5), sub(1.0, mul(th, th))), slope)
        return mul(grad, add(mul(add(th, 1.0), 0.5), rise))
    cdf = mul(add(erf(mul(input, _SQRT_HALF)), 1.0), 0.5)
    pdf = mul(exp(mul(square, -0.5)), 1 / math.sqrt(2 * math.pi))
    return mul(grad, add(cdf, mul(input, pdf)))


gelu.vjp(input=lambda g, input, approximate: gelu_grad(g, input, approximate))


def _gelu_reference(x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    return 0.5 * x * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))


gelu.reference(_gelu_reference)


def _gelu_grad_reference(g: Any, x: Any, approximate: str) -> Any:
    if approximate == "tanh":
        th = np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))
        slope = math.sqrt(2 / math.pi) * (1 + 3 * 0.044715 * x**2)
        return g * (0.5 * (1 + th) + 0.5 * x * (1 - th**2) * slope)
    cdf = 0.5 * (1 + np.vectorize(math.erf, otypes=[np.float64])(x / math.sqrt(2)))
    return g * (cdf + x * np.exp(-0.5 * x**2) / math.sqrt(2 * math.pi))


gelu_grad.reference(_gelu_grad_reference)


@gelu.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)))
    yield Call(rng.standard_normal((3, 4)), "tanh")


@gelu.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(2), "sigmoid"), ValueRangeError, argument="approximate")
    yield Reject(Call(np.ones(2, np.int64)), DtypeError, argument="input")


@gelu_grad.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), rng.standard_normal((3, 4)))
    yield Call(rng.standard_normal((3, 4)), rng.standard_normal((3, 4)), "tanh")


@gelu_grad.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(2), np.ones(2), "sigmoid"), ValueRangeError, argument="approximate")
