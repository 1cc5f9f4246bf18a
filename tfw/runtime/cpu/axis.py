"""Work along one axis of an array of any rank: blocks, sums and maxima.

A block is two-dimensional. Where the axis is contiguous it lies along the block's rows (axis -1),
and where the axes after it are long it runs down the columns (axis 0): inner loops stay long.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np

from .blocks import SMALL, Array, is_small, load, rows_per_block, store, target
from .threads import parallel_for, run_quietly

# Inner loops shorter than this cost more than a transposing copy.
_SHORT = 16


@cache
def ones(n: int, dtype: np.dtype[Any]) -> Array:
    """Return a shared vector of n ones; do not write to it."""
    return np.ones(n, dtype)


@cache
def column_of_ones(n: int, dtype: np.dtype[Any]) -> Array:
    """Return a shared column (n, 1) of ones: x.dot(it) sums rows and keeps their axis."""
    return np.ones((n, 1), dtype)


@cache
def flat_starts(n_rows: int, n_columns: int) -> Array:
    """Return where each row of an (n_rows, n_columns) array starts in its flat form; read only."""
    return np.arange(n_rows) * n_columns


def row_starts(x: Array) -> Array:
    """Return where each row of a block starts in its flat form."""
    return np.arange(len(x)) * x.shape[1]


def axis_sum(x: Array, axis: int) -> Array:
    """Sum a block over its axis, which stays with length 1.

    BLAS takes 10 ns for a row of 128, `np.add.reduce` 60 ns.
    """
    if axis == 0:
        return ones(x.shape[0], x.dtype).dot(x)[None]
    return x.dot(ones(x.shape[1], x.dtype))[:, None]


def axis_dot(a: Array, b: Array, axis: int) -> Array:
    """Sum a * b over the block's axis, which stays with length 1."""
    if axis == 0:
        return np.einsum("ij,ij->j", a, b)[None]
    return np.vecdot(a, b)[:, None]


def axis_max(x: Array, axis: int) -> Array:
    """Maximum of a block over its axis, which stays with length 1; NaN wherever one is.

    Along rows `argmax` and `take` cost 40 ns for a row of 128, `np.maximum.reduce` 150 ns.
    """
    if axis == 0 or x.size <= SMALL:
        return np.maximum.reduce(x, axis=axis, keepdims=True)
    return x.reshape(-1).take(row_starts(x) + x.argmax(axis=1))[:, None]


def map_along(body: Callable[..., object], axis: int, out: Array, *inputs: Array) -> None:
    """Call `body(block_axis, out_block, *input_blocks)` on blocks that hold whole axes.

    `out` is C-contiguous, all arrays have its shape, and its size is not zero. Blocks come in the
    computation dtype. Buffers 0 to 3 belong to this function, later ones to the body.
    """
    shape = out.shape
    if is_small(out, *inputs) and axis == out.ndim - 1 >= 0:
        run_quietly(body, -1, *[x.reshape(-1, shape[-1]) for x in (out, *inputs)])
        return
    length = shape[axis] if shape else 1
    inner = math.prod(shape[axis + 1 :]) if axis >= 0 and shape else 1
    outer = out.size // (length * inner)
    arrays = [x.reshape(outer, length, inner) for x in (out, *inputs)]
    if inner == 1 and length < _SHORT:
        _map_columns(body, [x.reshape(outer, length).T[None] for x in arrays])
    elif inner >= _SHORT:
        _map_columns(body, arrays)
    else:
        _map_rows(body, [x.swapaxes(1, 2) for x in arrays])


def _map_rows(body: Callable[..., object], arrays: list[Array]) -> None:
    outer, inner, length = arrays[0].shape

    def block(start: int, stop: int) -> None:
        out = arrays[0][start:stop]
        result = target(out, 0)
        blocks = [load(x[start:stop], slot) for slot, x in enumerate(arrays[1:], 1)]
        body(-1, result.reshape(-1, length), *[x.reshape(-1, length) for x in blocks])
        store(result, out)

    parallel_for(outer, rows_per_block(outer, inner * length), block)


def _map_columns(body: Callable[..., object], arrays: list[Array]) -> None:
    outer, length, inner = arrays[0].shape
    width = rows_per_block(inner, length)
    n_widths = -(-inner // width)

    def block(start: int, stop: int) -> None:
        for i in range(start, stop):
            j = i % n_widths * width
            out = arrays[0][i // n_widths, :, j : j + width]
            result = target(out, 0)
            blocks = enumerate(arrays[1:], 1)
            body(0, result, *[load(x[i // n_widths, :, j : j + width], s) for s, x in blocks])
            store(result, out)

    parallel_for(outer * n_widths, rows_per_block(outer * n_widths, length * width), block)
