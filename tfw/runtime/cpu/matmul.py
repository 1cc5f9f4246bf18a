"""Matrix products over our own threads.

Large products are cut into pieces, one BLAS thread each; small ones OpenBLAS does not cut either.
Its own threads are a tenth faster, but wait for 2^26 cycles after a product in a loop that yields,
on the core that our pool needs: a product on two threads of the pool, right after one of theirs,
takes as long as on one thread.
"""

from __future__ import annotations

import math

import numpy as np

from . import blas
from .blocks import Array
from .memory import empty
from .threads import parallel_for

# Up to this many multiply-adds OpenBLAS runs on one thread by itself; times a vector, up to the
# second number.
_SMALL = 1 << 18
_SMALL_VECTOR = 9216
# Rows or columns of a piece, at least two pieces; by size alone, so that results do not depend on
# the number of threads.
_PIECE = 512
# Pieces begin where BLAS's own tiles do.
_TILE = 16
# Groups of products in a batch.
_GROUPS = 4


def dot(a: Array, b: Array, bias: Array | None = None) -> Array:
    """Product of two matrices (m, k) and (k, n), plus a row (n,) if given, in C order."""
    (m, k), n = a.shape, b.shape[1]
    if m * n * k <= _SMALL:
        if min(m, n) > 1 or m * n * k <= _SMALL_VECTOR:
            y = a.dot(b)
        else:
            with blas.one_thread:
                y = a.dot(b)
        if bias is not None:
            y += bias
        return y
    y = empty((m, n), a.dtype)

    # Not np.dot, which copies rows of a transposed matrix.
    def rows(start: int, stop: int) -> None:
        part = np.matmul(a[start:stop], b, out=y[start:stop])
        if bias is not None:
            part += bias

    def columns(start: int, stop: int) -> None:
        part = np.matmul(a, b[:, start:stop], out=y[:, start:stop])
        if bias is not None:
            part += bias[start:stop]

    # BLAS copies the matrix that is not cut once for each piece: cut the larger one.
    side = max(m, n)
    grain = -(-side // max(2, side // _PIECE) // _TILE) * _TILE
    parallel_for(side, grain, rows if m >= n else columns)
    return y


def matmul(a: Array, b: Array) -> Array:
    """Products of the last two axes, the leading ones broadcast; vectors as in `numpy.matmul`."""
    if a.ndim == b.ndim == 2:
        return dot(a, b)
    if b.ndim == 2 and a.ndim > 2 and a.size:
        # One product of all rows: NumPy would make one for each leading index.
        return dot(a.reshape(-1, a.shape[-1]), b).reshape(*a.shape[:-1], b.shape[1])
    batch = a.shape[:-2]
    if a.ndim < 3 or batch != b.shape[:-2] or a.shape[-1] != b.shape[-2]:
        return np.matmul(a, b)
    work = math.prod(a.shape) * b.shape[-1]
    if work <= _SMALL:
        return np.matmul(a, b)
    n = math.prod(batch)
    left, right = a.reshape(n, *a.shape[-2:]), b.reshape(n, *b.shape[-2:])
    y = empty((n, a.shape[-2], b.shape[-1]), a.dtype)

    def products(start: int, stop: int) -> None:
        np.matmul(left[start:stop], right[start:stop], out=y[start:stop])

    parallel_for(n, -(-n // _GROUPS), products)
    return y.reshape(*batch, *y.shape[1:])
