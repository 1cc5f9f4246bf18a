"""Functions for use inside kernels, where Triton's own are approximate or take too few dtypes.

An op's Triton expression may call them as `device.divide(...)`. Source: elementary.
"""

from __future__ import annotations

import triton
import triton.language as tl
from triton.language.extra import libdevice


@triton.jit
def divide(a, b):
    """Quotient, rounded as IEEE 754 asks; Triton's `/` is off by up to 2 units in float32."""
    return tl.div_rn(a, b) if a.dtype == tl.float32 else a / b


@triton.jit
def sqrt(x):
    """Square root, rounded as IEEE 754 asks; `tl.sqrt` is approximate in float32."""
    return tl.sqrt_rn(x) if x.dtype == tl.float32 else tl.sqrt(x)


@triton.jit
def exp(x):
    """Exponential within 2 units in the last place; `tl.exp` loses |x| units in float32."""
    return libdevice.exp(x)


@triton.jit
def power(base, exponent):
    """Power of any dtype; an integer to a negative power is 0 unless the base is 1 or -1."""
    if base.dtype.is_floating():
        result = libdevice.pow(base, exponent)
    else:
        result = _integer_power(base, exponent)
    return result


@triton.jit
def _integer_power(base, exponent):
    """Multiply the squares of base that the bits of exponent ask for."""
    zero = base * 0 + exponent * 0
    result, square, bits = zero + 1, base + zero, exponent + zero
    for _ in range(base.dtype.primitive_bitwidth):
        result = tl.where((bits & 1) != 0, result * square, result)
        square = square * square
        bits = bits >> 1
    if base.dtype.is_int_signed():
        unit = tl.where(base == 1, 1, tl.where(base == -1, 1 - 2 * (exponent & 1), 0))
        result = tl.where(exponent < 0, unit.to(base.dtype), result)
    return result


@triton.jit
def sign(x):
    """Sign: -1, 0 or 1 in the dtype of x, NaN for NaN; for unsigned dtypes 0 or 1."""
    result = tl.where(x == x, (x > 0).to(x.dtype), x)
    if not x.dtype.is_int_unsigned():
        result = tl.where(x < 0, -1, result).to(x.dtype)
    return result
