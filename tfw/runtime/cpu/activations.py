"""GELU, exact and by tanh, and the gradients."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from .blocks import Array, map_blocks, scratch
from .memory import empty_like
from .special import erf_normal_block

Approximate = Literal["none", "tanh"]

_NORMAL_PEAK = 1 / math.sqrt(2 * math.pi)
# The tanh form's argument is x * (_LINEAR + _CUBIC * x^2).
_LINEAR = math.sqrt(2 / math.pi)
_CUBIC = 0.044715 * _LINEAR
# For x^2 beyond this tanh is 1 or -1 in every dtype.
_SATURATED = 1e3


def gelu(x: Array, approximate: Approximate = "none", out: Array | None = None) -> Array:
    """GELU: x * (1 + erf(x / sqrt(2))) / 2, in x's dtype and memory layout.

    The "tanh" form is x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2.
    """
    if out is None:
        out = empty_like(x)
    map_blocks(_gelu_block if approximate == "none" else _gelu_tanh_block, out, x)
    return out


def gelu_grad(g: Array, x: Array, approximate: Approximate = "none") -> Array:
    """Gradient of GELU: g * (cdf(x) + x * pdf(x)) of the normal distribution; or of "tanh"."""
    out = empty_like(x)
    map_blocks(_gelu_grad_block if approximate == "none" else _gelu_tanh_grad_block, out, g, x)
    return out


def gelu_and_slope(x: Array) -> tuple[Array, Array]:
    """Exact GELU and its derivative cdf(x) + x * pdf(x), sharing the error function.

    A caller that keeps the slope instead of x needs no gelu_grad: g * slope is the gradient.
    Forward and gradient together then take three quarters of the time.
    """
    out, slope = empty_like(x), empty_like(x)
    map_blocks(_gelu_and_slope_block, (out, slope), x)
    return out, slope


def _cdf(y: Array, x: Array) -> None:
    """Write (1 + erf(x / sqrt(2))) / 2 into y."""
    erf_normal_block(y, x)
    np.add(y, 1.0, out=y)
    np.multiply(y, 0.5, out=y)


def _add_x_pdf(y: Array, x: Array) -> None:
    """Add x * exp(-x^2 / 2) / sqrt(2 pi) to y."""
    pdf = scratch(7, x.shape, x.dtype)
    np.multiply(x, x, out=pdf)
    np.multiply(pdf, -0.5, out=pdf)
    np.exp(pdf, out=pdf)
    np.multiply(pdf, x, out=pdf)
    np.multiply(pdf, _NORMAL_PEAK, out=pdf)
    np.add(y, pdf, out=y)


def _gelu_block(y: Array, x: Array) -> None:
    _cdf(y, x)
    np.multiply(y, x, out=y)


def _gelu_grad_block(dx: Array, g: Array, x: Array) -> None:
    _cdf(dx, x)
    _add_x_pdf(dx, x)
    np.multiply(dx, g, out=dx)


def _gelu_and_slope_block(y: Array, slope: Array, x: Array) -> None:
    _cdf(slope, x)
    np.multiply(slope, x, out=y)
    _add_x_pdf(slope, x)


def _gelu_tanh_block(y: Array, x: Array) -> None:
    np.multiply(x, x, out=y)
    np.multiply(y, _CUBIC, out=y)
    np.add(y, _LINEAR, out=y)
    np.multiply(y, x, out=y)
    np.tanh(y, out=y)
    np.add(y, 1.0, out=y)
    np.multiply(y, x, out=y)
    np.multiply(y, 0.5, out=y)


def _gelu_tanh_grad_block(dx: Array, g: Array, x: Array) -> None:
    """With t = tanh(x p(x^2)): g * (1 + t + x (1 - t^2) (p + 2 cubic x^2)) / 2."""
    slope, t = scratch(4, x.shape, x.dtype), scratch(5, x.shape, x.dtype)
    np.multiply(x, x, out=slope)
    # Where 1 - t is 0 the slope must not overflow: 0 * inf is NaN.
    np.minimum(slope, _SATURATED, out=slope)
    np.multiply(slope, _CUBIC, out=t)
    np.add(t, _LINEAR, out=t)
    np.multiply(slope, 3 * _CUBIC, out=slope)
    np.add(slope, _LINEAR, out=slope)
    np.multiply(t, x, out=t)
    np.tanh(t, out=t)
    np.multiply(slope, x, out=slope)
    # 1 + t + (1 - t^2) s = (1 + t) (1 + (1 - t) s)
    np.subtract(1.0, t, out=dx)
    np.multiply(dx, slope, out=dx)
    np.add(dx, 1.0, out=dx)
    np.add(t, 1.0, out=t)
    np.multiply(dx, t, out=dx)
    np.multiply(dx, 0.5, out=dx)
    np.multiply(dx, g, out=dx)
