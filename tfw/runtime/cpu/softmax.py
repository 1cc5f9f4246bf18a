"""Softmax and log-softmax along one axis, and their gradients."""

from __future__ import annotations

import numpy as np

from .axis import axis_dot, axis_max, axis_sum, map_along, ones
from .blocks import SMALL, Array, scratch
from .memory import empty

# Softmax does not change when a row is shifted. While |x| stays below these bounds, exp(x), its sum
# over a row and every quotient are normal numbers without a shift, and the pass for the row
# maxima, the dearest of all, is saved.
_UNSHIFTED = {np.dtype(np.float32): 40.0, np.dtype(np.float64): 300.0}


def _axis(x: Array, axis: int) -> int:
    return axis + x.ndim if axis < 0 else axis


def _is_bounded(x: Array) -> bool:
    """Tell whether |x| < bound everywhere; False with NaN. argmax is NumPy's fastest reduction."""
    bound = _UNSHIFTED[x.dtype]
    return x.item(x.argmax()) < bound and x.item(x.argmin()) > -bound


def softmax(x: Array, axis: int = -1) -> Array:
    """Softmax along axis: exp(x - max) / sum(exp(x - max)), in x's dtype and C order.

    A row that is all -inf, or holds NaN or +inf, gives NaN.
    """
    if 0 < x.size <= SMALL and x.dtype in _UNSHIFTED and x.ndim and _is_bounded(x):
        e = np.exp(x, order="C")
        if axis in (-1, x.ndim - 1):
            # (n, 1) ones leave a last axis of length 1, ready to broadcast.
            n = x.shape[-1]
            e /= e.dot(ones(n, x.dtype).reshape(n, 1))
        else:
            e /= np.add.reduce(e, axis=axis, keepdims=True)
        return e
    out = empty(x.shape, x.dtype)
    if out.size:
        map_along(_softmax_block, _axis(x, axis), out, x)
    return out


def _softmax_block(axis: int, y: Array, x: Array) -> None:
    if _is_bounded(x):
        np.exp(x, out=y)
    else:
        np.subtract(x, axis_max(x, axis), out=y)
        np.exp(y, out=y)
    np.divide(y, axis_sum(y, axis), out=y)


def softmax_grad(g: Array, y: Array, axis: int = -1) -> Array:
    """Gradient of softmax from its result y: y * (g - sum(g * y)), in y's dtype and C order."""
    out = empty(y.shape, y.dtype)
    if out.size:
        map_along(_softmax_grad_block, _axis(y, axis), out, g, y)
    return out


def _softmax_grad_block(axis: int, dx: Array, g: Array, y: Array) -> None:
    np.subtract(g, axis_dot(g, y, axis), out=dx)
    np.multiply(dx, y, out=dx)


def log_softmax(x: Array, axis: int = -1) -> Array:
    """Log-softmax along axis: x - max - log(sum(exp(x - max))), in x's dtype and C order.

    A row that is all -inf, or holds NaN or +inf, gives NaN.
    """
    out = empty(x.shape, x.dtype)
    if out.size:
        map_along(_log_softmax_block, _axis(x, axis), out, x)
    return out


def _log_softmax_block(axis: int, y: Array, x: Array) -> None:
    # Always shifted: x - log(sum(exp(x))) would lose the digits that x and the sum share.
    e = scratch(4, x.shape, x.dtype)
    np.subtract(x, axis_max(x, axis), out=y)
    np.exp(y, out=e)
    np.subtract(y, np.log(axis_sum(e, axis)), out=y)


def log_softmax_grad(g: Array, y: Array, axis: int = -1) -> Array:
    """Gradient of log-softmax from its result y: g - exp(y) * sum(g), in y's dtype and C order."""
    out = empty(y.shape, y.dtype)
    if out.size:
        map_along(_log_softmax_grad_block, _axis(y, axis), out, g, y)
    return out


def _log_softmax_grad_block(axis: int, dx: Array, g: Array, y: Array) -> None:
    np.exp(y, out=dx)
    np.multiply(dx, axis_sum(g, axis), out=dx)
    np.subtract(g, dx, out=dx)
