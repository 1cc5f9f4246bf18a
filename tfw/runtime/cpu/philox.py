"""Philox-4x32-10 words, indexed by element: the same bits on CPU and GPU, in any block size.

Word i comes from Philox call offset + i // 4, lane i % 4. The 64-bit call number is laid out in the
counter as (low half, high half, 0, 0), the 64-bit seed in the key as (low half, high half): what
`tl.randint4x(seed, offset + i // 4)` does with an int64 offset, lane k being its k-th result.
An offset therefore counts calls, and a draw of n words advances it by ceil(n / 4).

NumPy has no 32 x 32 -> high half product, so words live in the low halves of uint64, and a round is
five passes over pairs of lanes. Writing the high halves through strided uint32 views instead saves
two of the passes but is no faster.

Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", 2011.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from .blocks import Array, scratch
from .threads import parallel_for

_ROUNDS = 10
# Each belongs to one of the two lanes of a pair.
_MULTIPLIERS = np.array([[0xCD9E8D57], [0xD2511F53]], np.uint64)
_KEY_STEPS = np.array([[0x9E3779B9], [0xBB67AE85]], np.uint64)
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
# Philox calls and words per block: three buffers of 512 KiB. Smaller ones are 10% faster on one
# thread but do not scale to two, which then wait for the GIL at every pass.
_CALLS = 1 << 15
WORDS = 4 * _CALLS
# Draws of up to this many words are small.
_SMALL = 1 << 10


def philox_rounds(even: Array, odd: Array, key: Array) -> None:
    """Turn counters into words in place: lanes 0 and 2 in even (2, n), lanes 1 and 3 in odd (2, n).

    All are uint64 with their high halves zero; key is (2, 1). Uses buffer 0.
    """
    products = scratch(0, even.shape, np.uint64)
    for _ in range(_ROUNDS):
        np.multiply(even[::-1], _MULTIPLIERS, out=products)
        np.right_shift(products, _HALF, out=even)
        np.bitwise_xor(even, odd, out=even)
        np.bitwise_xor(even, key, out=even)
        np.bitwise_and(products, _LOW, out=odd)
        key = (key + _KEY_STEPS) & _LOW


def _calls(seed: int, first: int, n: int) -> tuple[Array, Array, Array, Array]:
    """Return the four lanes of Philox calls first ... first + n - 1, in buffers 1 and 2."""
    even, odd = scratch(1, (2, n), np.uint64), scratch(2, (2, n), np.uint64)
    even[0] = np.arange(n, dtype=np.uint64)
    # uint64 addition wraps as the counter should.
    np.add(even[0], np.uint64(first % (1 << 64)), out=even[0])
    np.right_shift(even[0], _HALF, out=odd[0])
    np.bitwise_and(even[0], _LOW, out=even[0])
    even[1] = odd[1] = 0
    key = np.array([[seed & 0xFFFFFFFF], [(seed >> 32) & 0xFFFFFFFF]], np.uint64)
    philox_rounds(even, odd, key)
    return even[0], odd[0], even[1], odd[1]


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


# Small draws are cut from blocks of this many words, which are kept: words depend on nothing but
# the seed and their number, and a hundred NumPy calls cost the same for 8 words as for thousands.
_KEPT_WORDS = 1 << 13


@lru_cache(maxsize=8)
def _kept(seed: int, number: int) -> Array:
    """Return words number * _KEPT_WORDS onwards of the seed's stream; do not write to them."""
    calls = _KEPT_WORDS // 4
    out = np.empty((calls, 4), np.uint32)
    _fill(out, seed, number * calls, 0, None)
    return out.reshape(-1)


def _few(seed: int, first: int, n: int) -> Array | None:
    """Return n words of the stream from word `first` if one kept block holds them; read only."""
    number, at = divmod(first, _KEPT_WORDS)
    if at + n > _KEPT_WORDS:
        return None
    return _kept(seed, number)[at : at + n]


def bits(seed: int, offset: int, n: int, start: int = 0) -> Array:
    """Random words number start ... start + n - 1 of (seed, offset), uint32 (n,)."""
    if n <= _SMALL:
        few = _few(seed, 4 * offset + start, n)
        if few is not None:
            return few.copy()
    first, last = start // 4, -(-(start + n) // 4)
    out = np.empty((last - first, 4), np.uint32)
    _fill(out, seed, offset, first, None)
    return out.reshape(-1)[start - 4 * first :][:n]


def keep_mask(seed: int, offset: int, n: int, p: float, start: int = 0) -> Array:
    """Dropout mask, bool (n,): True with probability 1 - p, where word >= round(p * 2^32)."""
    threshold = round(math.ldexp(p, 32))
    if n <= _SMALL and threshold < 1 << 32:
        few = _few(seed, 4 * offset + start, n)
        if few is not None:
            return np.greater_equal(few, np.uint32(threshold))
    first, last = start // 4, -(-(start + n) // 4)
    out = np.empty((last - first, 4), np.bool_)
    _fill(out, seed, offset, first, threshold)
    return out.reshape(-1)[start - 4 * first :][:n]
