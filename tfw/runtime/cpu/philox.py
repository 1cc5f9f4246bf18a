"""Philox-4x32-10 words, indexed by element: the same bits on CPU and GPU, in any block size.

Word i comes from Philox call offset + i // 4, lane i % 4. The 64-bit call number is laid out in the
counter as (low half, high half, 0, 0), the 64-bit seed in the key as (low half, high half): what
`tl.randint4x(seed, offset + i // 4)` does with an int64 offset, lane k being its k-th result.
An offset therefore counts calls, and a draw of n words advances it by ceil(n / 4).

NumPy has no 32 x 32 -> high half product, so words live in the low halves of uint64 and a round is
ten passes over memory, bound by the second-level cache. Stacking the lanes in one array, or writing
the high halves through strided uint32 views to save four of the passes, is no faster.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

import math

import numpy as np

from .blocks import Array, scratch
from .threads import parallel_for

_ROUNDS = 10
_MULTIPLIERS = (np.uint64(0xD2511F53), np.uint64(0xCD9E8D57))
_KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
# Philox calls per block: six buffers of 128 KiB.
_CALLS = 1 << 14


def philox_rounds(counter: tuple[Array, Array, Array, Array], key: tuple[int, int]) -> None:
    """Turn four uint64 arrays, their high halves zero, into the four words of each call in place.

    Uses buffers 0 and 1.
    """
    c0, c1, c2, c3 = counter
    p0, p1 = scratch(0, c0.shape, np.uint64), scratch(1, c0.shape, np.uint64)
    k0, k1 = key
    for _ in range(_ROUNDS):
        np.multiply(c0, _MULTIPLIERS[0], out=p0)
        np.multiply(c2, _MULTIPLIERS[1], out=p1)
        np.right_shift(p1, _HALF, out=c0)
        np.bitwise_xor(c0, c1, out=c0)
        np.bitwise_xor(c0, np.uint64(k0), out=c0)
        np.right_shift(p0, _HALF, out=c2)
        np.bitwise_xor(c2, c3, out=c2)
        np.bitwise_xor(c2, np.uint64(k1), out=c2)
        np.bitwise_and(p1, _LOW, out=c1)
        np.bitwise_and(p0, _LOW, out=c3)
        k0 = (k0 + _KEY_STEPS[0]) & 0xFFFFFFFF
        k1 = (k1 + _KEY_STEPS[1]) & 0xFFFFFFFF


def _calls(seed: int, first: int, n: int) -> tuple[Array, Array, Array, Array]:
    """Return the four lanes of Philox calls first ... first + n - 1, in buffers 2 to 5."""
    c0, c1, c2, c3 = (scratch(slot, (n,), np.uint64) for slot in (2, 3, 4, 5))
    c0[:] = np.arange(n, dtype=np.uint64)
    # uint64 addition wraps as the counter should.
    np.add(c0, np.uint64(first % (1 << 64)), out=c0)
    np.right_shift(c0, _HALF, out=c1)
    np.bitwise_and(c0, _LOW, out=c0)
    c2.fill(0)
    c3.fill(0)
    philox_rounds((c0, c1, c2, c3), (seed & 0xFFFFFFFF, (seed >> 32) & 0xFFFFFFFF))
    return c0, c1, c2, c3


def _fill(out: Array, seed: int, offset: int, first_call: int, threshold: int | None) -> None:
    """Fill out (calls, 4) with words, or with word >= threshold."""

    def block(start: int, stop: int) -> None:
        lanes = _calls(seed, offset + first_call + start, stop - start)
        for lane, words in enumerate(lanes):
            if threshold is None:
                out[start:stop, lane] = words
            else:
                np.greater_equal(words, np.uint64(threshold), out=out[start:stop, lane])

    parallel_for(len(out), _CALLS, block)


def bits(seed: int, offset: int, n: int, start: int = 0) -> Array:
    """Random words number start ... start + n - 1 of (seed, offset), uint32 (n,)."""
    first, last = start // 4, -(-(start + n) // 4)
    out = np.empty((last - first, 4), np.uint32)
    _fill(out, seed, offset, first, None)
    return out.reshape(-1)[start - 4 * first :][:n]


def keep_mask(seed: int, offset: int, n: int, p: float, start: int = 0) -> Array:
    """Dropout mask, bool (n,): True with probability 1 - p, where word >= round(p * 2^32)."""
    first, last = start // 4, -(-(start + n) // 4)
    out = np.empty((last - first, 4), np.bool_)
    _fill(out, seed, offset, first, round(math.ldexp(p, 32)))
    return out.reshape(-1)[start - 4 * first :][:n]
