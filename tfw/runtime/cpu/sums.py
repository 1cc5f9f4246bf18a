"""Sums over leading or trailing axes, as products with ones.

`np.add.reduce` takes 0.30 ns per element of (2048, 128) along either axis and BLAS 0.08. Rows are
summed in pieces whose sums are added, so that long columns lose fewer bits as well.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np

from . import blas
from .axis import ones
from .blocks import COMPUTED, block_size, rows_per_block
from .elementwise import THREADED_SIZE
from .memory import Array
from .threads import parallel_for

# Below this size one call of NumPy is faster.
_MANY = 1 << 11
# Additions in a row at most, before sums are added to sums.
_CHAIN = 1 << 12

_reduce: Any = np.add.reduce


def sum_axes(a: Array, dim: int | tuple[int, ...] | None, keepdim: bool) -> Any:
    """Sum an array in C order over dim, None being all of it, in its dtype."""
    if a.size >= _MANY and a.dtype in COMPUTED:
        if dim is None:
            if a.size >= THREADED_SIZE and not keepdim:
                return _sum_all(a.reshape(-1))
        elif kind := _position(a.ndim, dim):
            leading, n_axes = kind
            cut = n_axes if leading else a.ndim - n_axes
            lead, rest = a.shape[:cut], a.shape[cut:]
            x = a.reshape(math.prod(lead), math.prod(rest))
            if leading:
                return _sum_columns(x).reshape((1,) * cut + rest if keepdim else rest)
            if x.shape[1] <= _CHAIN:
                return _sum_rows(x).reshape(lead + (1,) * n_axes if keepdim else lead)
    # Positional arguments take a third less time.
    return _reduce(a, dim, None, None, keepdim)


@lru_cache(maxsize=4096)
def _position(ndim: int, dim: int | tuple[int, ...]) -> tuple[bool, int] | None:
    """Return whether dim names the leading axes, not the trailing ones, and how many; else None."""
    dims = (dim,) if isinstance(dim, int) else dim
    if not all(-ndim <= d < ndim for d in dims):
        return None  # NumPy raises
    chosen = sorted({d % ndim for d in dims})
    n = len(chosen)
    if n != len(dims) or n == ndim:
        return None
    if chosen == list(range(n)):
        return True, n
    return (False, n) if chosen == list(range(ndim - n, ndim)) else None


def _sum_all(x: Array) -> Array:
    grain = block_size(x.size)
    partial = np.empty(-(-x.size // grain), x.dtype)

    def block(start: int, stop: int) -> None:
        partial[start // grain] = _reduce(x[start:stop])

    parallel_for(x.size, grain, block)
    return _reduce(partial)


def _sum_columns(x: Array) -> Array:
    n_rows, n_columns = x.shape
    one = ones(_CHAIN, x.dtype)
    if x.size < THREADED_SIZE and n_rows <= _CHAIN:
        total = np.empty(n_columns, x.dtype)
        with blas.one_thread:
            one[:n_rows].dot(x, total)
        return total
    grain = min(_CHAIN, rows_per_block(n_rows, n_columns))
    partial = np.empty((-(-n_rows // grain), n_columns), x.dtype)

    def block(start: int, stop: int) -> None:
        one[: stop - start].dot(x[start:stop], partial[start // grain])

    parallel_for(n_rows, grain, block)
    return _reduce(partial, 0) if len(partial) <= _CHAIN else _sum_columns(partial)


def _sum_rows(x: Array) -> Array:
    n_rows, n_columns = x.shape
    one = ones(_CHAIN, x.dtype)[:n_columns]
    total = np.empty(n_rows, x.dtype)
    if x.size < THREADED_SIZE:
        with blas.one_thread:
            x.dot(one, total)
        return total

    def block(start: int, stop: int) -> None:
        x[start:stop].dot(one, total[start:stop])

    parallel_for(n_rows, rows_per_block(n_rows, n_columns), block)
    return total
