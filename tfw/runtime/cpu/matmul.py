"""Matrix products over our own threads.

Large products are cut into rows, one BLAS thread each; small ones OpenBLAS does not cut either.
That its idle threads take the core our pool needs is a guess: see docs/how-it-works.md, "The CPU".
"""

from __future__ import annotations

import math

import numpy as np

from .blocks import Array
from .threads import parallel_for

# Up to this many multiply-adds OpenBLAS runs on one thread by itself.
_SMALL = 1 << 18
# Pieces of a large product, by its size alone: results do not depend on the number of threads.
_PIECES = 4
# Fewer rows than this make two pieces: BLAS is slower on short ones.
_MANY_ROWS = 1024


def dot(a: Array, b: Array, bias: Array | None = None) -> Array:
    """Product of two matrices (m, k) and (k, n), plus a row (n,) if given, in C order."""
    (m, k), n = a.shape, b.shape[1]
    if m * n * k <= _SMALL or m < _PIECES:
        y = a.dot(b)
        if bias is not None:
            y += bias
        return y
    y = np.empty((m, n), a.dtype)

    def rows(start: int, stop: int) -> None:
        # Not np.dot, which copies rows of a transposed matrix.
        part = np.matmul(a[start:stop], b, out=y[start:stop])
        if bias is not None:
            part += bias

    parallel_for(m, -(-m // (_PIECES if m >= _MANY_ROWS else 2)), rows)
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
    y = np.empty((n, a.shape[-2], b.shape[-1]), a.dtype)

    def products(start: int, stop: int) -> None:
        np.matmul(left[start:stop], right[start:stop], out=y[start:stop])

    parallel_for(n, -(-n // _PIECES), products)
    return y.reshape(*batch, *y.shape[1:])
