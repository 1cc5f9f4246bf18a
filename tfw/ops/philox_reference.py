"""Random numbers as the papers define them, in Python integers: references of the random ops."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import dtype

_LOW = 0xFFFFFFFF


def words(seed: int, offset: int, n: int) -> list[int]:
    """Return the first n words of Philox-4x32-10 from call `offset` on (Salmon et al. 2011)."""
    found: list[int] = []
    for call in range(offset, offset + -(-n // 4)):
        c = [call & _LOW, call >> 32, 0, 0]
        k0, k1 = seed & _LOW, seed >> 32
        for _ in range(10):
            a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
            c = [b >> 32 ^ c[1] ^ k0, b & _LOW, a >> 32 ^ c[3] ^ k1, a & _LOW]
            k0, k1 = k0 + 0x9E3779B9 & _LOW, k1 + 0xBB67AE85 & _LOW
        found += c
    return found[:n]


def uniform(n: int, seed: int, offset: int, d: dtype) -> Any:
    """Return n numbers in [0, 1): the leading bits of a word, of two words for float64."""
    if d is dtypes.float64:
        pairs = words(seed, offset, 2 * n)
        high, low = pairs[0::2], pairs[1::2]
        return np.array(
            [((a >> 5) * 2**26 + (b >> 6)) / 2**53 for a, b in zip(high, low, strict=True)]
        )
    digits = {dtypes.float32: 24, dtypes.float16: 11, dtypes.bfloat16: 8}[d]
    return np.array([(w >> (32 - digits)) / 2**digits for w in words(seed, offset, n)])


def normal(n: int, seed: int, offset: int, d: dtype) -> Any:
    """Return n normal numbers by Box and Muller (1958) from pairs of uniform ones."""
    u = uniform(2 * -(-n // 2), seed, offset, dtypes.accumulation(d))
    found: list[float] = []
    for a, b in zip(u[0::2], u[1::2], strict=True):
        radius = math.sqrt(-2 * math.log(1 - a))
        found += [radius * math.cos(2 * math.pi * b), radius * math.sin(2 * math.pi * b)]
    return np.array(found[:n])


def integers(n: int, low: int, high: int, seed: int, offset: int) -> Any:
    """Return n integers in [low, high): a word times the number of values, cut (Lemire 2019)."""
    return np.array([low + (w * (high - low) >> 32) for w in words(seed, offset, n)])


def kept(n: int, p: float, seed: int, offset: int) -> Any:
    """Return which of n elements dropout keeps: those whose word is at least p * 2^32."""
    return np.array([w >= round(p * 2**32) for w in words(seed, offset, n)])
