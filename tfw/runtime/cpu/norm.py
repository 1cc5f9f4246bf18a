"""Layer normalisation over the trailing axes, and its gradient."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from .axis import column_of_ones, ones
from .blocks import Array, compute_dtype, is_small, load, rows_per_block, scratch, store, target
from .memory import empty
from .threads import parallel_for


def _as_vector(parameter: Array | None, x: Array) -> Array | None:
    """Return a weight or bias as one row in the computation dtype."""
    if parameter is None:
        return None
    return np.ascontiguousarray(parameter.reshape(-1), dtype=compute_dtype(x.dtype))


@cache
def _constant(value: float, dtype: np.dtype[Any]) -> Array:
    """Return a 0-d array, which NumPy takes in half the time of a number; do not write to it."""
    return np.array(value, dtype)


def _layer_norm_small(
    x: Array, n_columns: int, weight: Array | None, bias: Array | None, eps: float
) -> tuple[Array, Array, Array]:
    """Normalise rows (n, n_columns) that are few, in as few NumPy calls as can be."""
    one, count = column_of_ones(n_columns, x.dtype), _constant(n_columns, x.dtype)
    mean = x.dot(one)
    mean /= count
    y = x - mean
    # rstd = sqrt(n) / sqrt(sum of squares + n * eps): one call fewer than by the mean of squares.
    rstd = (y * y).dot(one)
    rstd += _constant(n_columns * eps, x.dtype)
    np.sqrt(rstd, rstd)
    np.divide(_constant(math.sqrt(n_columns), x.dtype), rstd, rstd)
    y *= rstd
    if weight is not None:
        y *= weight
    if bias is not None:
        y += bias
    return y, mean, rstd


def layer_norm(
    x: Array,
    n_axes: int,
    weight: Array | None = None,
    bias: Array | None = None,
    eps: float = 1e-5,
) -> tuple[Array, Array, Array]:
    """Normalise the trailing `n_axes` axes: y = (x - mean) * rstd * weight + bias.

    rstd = 1 / sqrt(mean((x - mean)^2) + eps). Returns (y, mean, rstd); the statistics keep the
    normalised axes with length 1 and are float32 for half-precision x.
    """
    if n_axes == 1 and x.ndim == 2 and x.size and is_small(x):
        return _layer_norm_small(x, x.shape[1], weight, bias, eps)
    lead, n_columns = x.shape[: x.ndim - n_axes], math.prod(x.shape[x.ndim - n_axes :])
    n_rows = math.prod(lead)
    y = empty(x.shape, x.dtype)
    dtype = compute_dtype(x.dtype)
    mean: Array = np.empty(n_rows, dtype)
    rstd: Array = np.empty(n_rows, dtype)
    w, b = _as_vector(weight, x), _as_vector(bias, x)
    x_rows, y_rows = x.reshape(n_rows, n_columns), y.reshape(n_rows, n_columns)
    # A sum of ones over n, not a mean per element: 1/n would round.
    sums = ones(n_columns, dtype)

    def block(start: int, stop: int) -> None:
        out = y_rows[start:stop]
        centred, source = target(out, 0), load(x_rows[start:stop], 1)
        m = np.divide(source.dot(sums), n_columns, out=mean[start:stop])
        r = rstd[start:stop]
        np.subtract(source, m[:, None], out=centred)
        np.divide(np.vecdot(centred, centred), n_columns, out=r)
        np.add(r, eps, out=r)
        np.sqrt(r, out=r)
        np.divide(1.0, r, out=r)
        np.multiply(centred, r[:, None], out=centred)
        if w is not None:
            np.multiply(centred, w, out=centred)
        if b is not None:
            np.add(centred, b, out=centred)
        store(centred, out)

    parallel_for(n_rows, rows_per_block(n_rows, n_columns), block)
    statistics = lead + (1,) * n_axes
    return y, mean.reshape(statistics), rstd.reshape(statistics)


def layer_norm_grad(
    g: Array,
    x: Array,
    mean: Array,
    rstd: Array,
    weight: Array | None,
    n_axes: int,
    needs: tuple[bool, bool, bool] = (True, True, True),
) -> tuple[Array | None, Array | None, Array | None]:
    """Gradients (dx, dweight, dbias) of layer_norm; those that `needs` denies are None.

    With xhat = (x - mean) * rstd and h = g * weight:
    dx = rstd * (h - mean(h) - xhat * mean(h * xhat)), dweight = sum(g * xhat), dbias = sum(g), both
    over the rows and shaped like the normalised axes, in x's dtype.
    """
    axes_shape = x.shape[x.ndim - n_axes :]
    n_columns = math.prod(axes_shape)
    n_rows = math.prod(x.shape[: x.ndim - n_axes])
    needs_x, needs_weight, needs_bias = needs
    dtype = compute_dtype(x.dtype)
    w = _as_vector(weight, x)
    ones_or_w = ones(n_columns, dtype) if w is None else w
    g_rows, x_rows = g.reshape(n_rows, n_columns), x.reshape(n_rows, n_columns)
    mean, rstd = mean.reshape(n_rows), rstd.reshape(n_rows)
    dx = empty(x.shape, x.dtype) if needs_x else None
    dx_rows = None if dx is None else dx.reshape(n_rows, n_columns)
    grain = rows_per_block(n_rows, n_columns)
    # Partial sums per block, added up in order: the same bits for any number of threads.
    partial = np.zeros((2, -(-n_rows // grain), n_columns), dtype)

    def block(start: int, stop: int) -> None:
        g_block, x_block = load(g_rows[start:stop], 0), load(x_rows[start:stop], 1)
        shape, r = x_block.shape, rstd[start:stop]
        if needs_bias:
            ones(stop - start, dtype).dot(g_block, out=partial[1, start // grain])
        if not (needs_weight or needs_x):
            return
        centred, product = scratch(2, shape, dtype), scratch(3, shape, dtype)
        np.subtract(x_block, mean[start:stop, None], out=centred)
        np.multiply(g_block, centred, out=product)
        if needs_weight:
            r.dot(product, out=partial[0, start // grain])
        if dx_rows is None:
            return
        # dx = rstd * h + slope * centred + shift, with one number of each per row.
        slope = product.dot(ones_or_w) * r * r * r / -n_columns
        shift = g_block.dot(ones_or_w) * r / -n_columns
        out = dx_rows[start:stop]
        result = target(out, 4)
        if w is None:
            np.multiply(g_block, r[:, None], out=result)
        else:
            np.multiply(g_block, w, out=result)
            np.multiply(result, r[:, None], out=result)
        np.multiply(centred, slope[:, None], out=centred)
        np.add(result, centred, out=result)
        np.add(result, shift[:, None], out=result)
        store(result, out)

    parallel_for(n_rows, grain, block)
    totals = partial.sum(axis=1).astype(x.dtype, copy=False).reshape(2, *axes_shape)
    return dx, totals[0] if needs_weight else None, totals[1] if needs_bias else None
