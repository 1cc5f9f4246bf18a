"""Distributions made from Philox words by formulas that a Triton kernel can repeat.

Each function says which words element i uses and how many Philox calls a draw takes, by which the
caller advances the offset.
"""

from __future__ import annotations

import math

import ml_dtypes
import numpy as np
from numpy.typing import DTypeLike

from .blocks import Array
from .philox import WORDS, bits, keep_mask
from .threads import parallel_for

# Digits of a uniform number: as many as the type holds below 1, so that none rounds up to 1.
_DIGITS = {
    np.dtype(np.float32): 24,
    np.dtype(np.float16): 11,
    np.dtype(ml_dtypes.bfloat16): 8,
}


def uniform(seed: int, offset: int, n: int, dtype: DTypeLike = np.float32) -> Array:
    """Uniform numbers in [0, 1), shape (n,).

    float32, float16, bfloat16: (word i >> (32 - d)) * 2^-d with d = 24, 11, 8; ceil(n / 4) calls.
    float64: ((word 2i >> 5) * 2^26 + (word 2i+1 >> 6)) * 2^-53; ceil(n / 2) calls.
    """
    dtype = np.dtype(dtype)
    out = np.empty(n, dtype)

    def block(start: int, stop: int) -> None:
        if dtype == np.float64:
            words = bits(seed, offset, 2 * (stop - start), 2 * start)
            high = (words[0::2] >> np.uint32(5)).astype(np.float64)
            high *= 2.0**26
            high += words[1::2] >> np.uint32(6)
            np.multiply(high, 2.0**-53, out=out[start:stop])
            return
        digits = _DIGITS[dtype]
        words = bits(seed, offset, stop - start, start)
        np.right_shift(words, np.uint32(32 - digits), out=words)
        # Below 2^24 a signed and an unsigned word agree, and NumPy converts signed ones faster.
        numbers = words.view(np.int32).astype(np.float32)
        np.multiply(numbers, 2.0**-digits, out=numbers)
        out[start:stop] = numbers

    parallel_for(n, WORDS, block)
    return out


def normal(seed: int, offset: int, n: int, dtype: DTypeLike = np.float32) -> Array:
    """Return standard normal numbers by Box and Muller, shape (n,), float32 or float64.

    With uniforms u as `uniform` gives them, for each pair of elements 2j and 2j + 1:
    r = sqrt(-2 log(1 - u[2j])), the results are r cos(2 pi u[2j+1]) and r sin(2 pi u[2j+1]).
    ceil(n / 4) calls in float32, ceil(n / 2) in float64.
    """
    n_pairs = -(-n // 2)
    out = uniform(seed, offset, 2 * n_pairs, dtype)

    def block(start: int, stop: int) -> None:
        pairs = out[2 * start : 2 * stop].reshape(-1, 2)
        radius = 1.0 - pairs[:, 0]
        np.log(radius, out=radius)
        np.multiply(radius, -2.0, out=radius)
        np.sqrt(radius, out=radius)
        angle = pairs[:, 1] * (2 * math.pi)
        np.multiply(radius, np.cos(angle), out=pairs[:, 0])
        np.multiply(radius, np.sin(angle), out=pairs[:, 1])

    parallel_for(n_pairs, WORDS // 2, block)
    return out[:n]


def bernoulli(seed: int, offset: int, n: int, p: float) -> Array:
    """Bool (n,), True with probability p: word i < round(p * 2^32); ceil(n / 4) calls."""
    mask = keep_mask(seed, offset, n, p)
    return np.logical_not(mask, out=mask)


def integers(seed: int, offset: int, n: int, low: int, high: int) -> Array:
    """Integers in [low, high), int64 (n,), for low < high and high - low <= 2^64.

    Up to 2^32 values: low + (word i * (high - low) >> 32); ceil(n / 4) calls. More: low + v mod
    (high - low) with v = word 2i + 2^32 * word 2i+1; ceil(n / 2) calls. The relative bias of a
    value is at most (high - low) / 2^32 and (high - low) / 2^64.
    """
    n_values = high - low
    if n_values <= 1 << 32:
        value = bits(seed, offset, n).astype(np.uint64)
        value *= np.uint64(n_values)
        value >>= np.uint64(32)
    else:
        # Little-endian: two words side by side are one 64-bit number.
        value = bits(seed, offset, 2 * n).astype("<u4", copy=False).view("<u8")
        if n_values < 1 << 64:
            value %= np.uint64(n_values)
    value += np.uint64(low % (1 << 64))
    return value.view(np.int64)
