"""Gradient of a table lookup: add up the rows that came from the same index."""

from __future__ import annotations

import numpy as np

from .axis import ones
from .blocks import Array, compute_dtype

# Indices that occur at least this often are summed by one BLAS call each; the rest, round by round:
# first all first occurrences, then all second ones, ...
_OFTEN = 8


def _stable_order(indices: Array, n_rows: int) -> Array:
    # NumPy sorts 16-bit integers by radix, six times as fast.
    narrow = indices.astype(np.uint16) if n_rows <= 1 << 16 else indices
    return np.argsort(narrow, kind="stable")


def embedding_grad(g: Array, indices: Array, n_rows: int, padding_idx: int | None = None) -> Array:
    """Scatter-add rows g (N, D) into a table (n_rows, D): table[indices[i]] += g[i].

    indices (N,) are integers in [0, n_rows), which the caller has checked; the row padding_idx
    stays zero. Sums run in the computation dtype, in an order that depends on the indices alone;
    the result is in g's dtype.
    """
    table = np.zeros((n_rows, g.shape[1]), g.dtype)
    if padding_idx is not None:
        kept = np.flatnonzero(indices != padding_idx)
        g, indices = g.take(kept, axis=0), indices.take(kept)
    if not indices.size or not g.size:
        return table
    dtype = compute_dtype(g.dtype)
    order = _stable_order(indices, n_rows)
    indices = indices.take(order)
    g = g.take(order, axis=0).astype(dtype, copy=False)
    starts = np.flatnonzero(np.concatenate(([True], indices[1:] != indices[:-1])))
    counts = np.diff(starts, append=len(indices))

    often = counts >= _OFTEN
    one = ones(int(counts.max()), dtype)
    total = np.empty(g.shape[1], dtype)
    for start, n in zip(starts[often].tolist(), counts[often].tolist(), strict=True):
        one[:n].dot(g[start : start + n], out=total)
        table[indices[start]] = total

    starts, counts = starts[~often], counts[~often]
    sums = g.take(starts, axis=0)
    for occurrence in range(1, int(counts.max(initial=1))):
        more = np.flatnonzero(counts > occurrence)
        sums[more] += g.take(starts[more] + occurrence, axis=0)
    table[indices.take(starts)] = sums
    return table
