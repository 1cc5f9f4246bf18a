"""Cross-entropy from logits, and its gradient, without keeping the probabilities."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tfw.errors import OutOfRangeError

from .axis import axis_max, axis_sum, column_of_ones, flat_starts, ones, row_starts
from .blocks import Array, compute_dtype, load, rows_per_block, scratch, store, target
from .memory import empty
from .threads import parallel_for

# Typed here since its stub wants keywords, which take longer.
_maximum: Callable[..., Array] = np.maximum.reduce


def _check_targets(targets: Array, n_classes: int, ignore_index: int) -> Array:
    """Return which rows count; raise OutOfRangeError for a target that is no class."""
    valid = targets != ignore_index
    wrong = valid & ((targets < 0) | (targets >= n_classes))
    if wrong.any():
        row = int(wrong.argmax())
        raise OutOfRangeError(
            f"target[{row}]={targets[row]} is out of range for {n_classes} classes",
            op="cross_entropy",
            argument="target",
            value=int(targets[row]),
            rule=f"0 <= target <= {n_classes - 1}, or ignore_index={ignore_index}",
        )
    return valid


def cross_entropy(
    logits: Array,
    targets: Array,
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> tuple[Array, Array]:
    """Cross-entropy (loss, lse), both (N,), per row of logits (N, C) with int64 targets (N,).

    lse = log(sum(exp(x))), s = label_smoothing, w = weight (C,) or ones, t the row's target:
    loss = (1 - s) * w[t] * (lse - x[t]) + s / C * sum(w * (lse - x)), 0 where t is ignore_index.
    Both results are in the computation dtype (float32 for half precision).
    """
    n_rows, n_classes = logits.shape
    valid = _check_targets(targets, n_classes, ignore_index)
    dtype = compute_dtype(logits.dtype)
    w = ones(n_classes, dtype) if weight is None else np.ascontiguousarray(weight, dtype)
    loss, lse = np.empty(n_rows, dtype), np.empty(n_rows, dtype)
    total_weight = w.sum()

    def block(start: int, stop: int) -> None:
        x = load(logits[start:stop], 0)
        shifted, e = scratch(1, x.shape, dtype), scratch(2, x.shape, dtype)
        largest = axis_max(x, -1)
        np.subtract(x, largest, out=shifted)
        np.exp(shifted, out=e)
        log_sum = np.log(axis_sum(e, -1)[:, 0])
        np.add(largest[:, 0], log_sum, out=lse[start:stop])
        t: Array = np.where(valid[start:stop], targets[start:stop], 0)
        picked = shifted.reshape(-1).take(t + row_starts(x))
        # log_sum - shifted keeps the digits that lse - x would lose to a large common offset.
        row_loss = log_sum - picked
        if weight is not None:
            row_loss *= w.take(t)
        if label_smoothing:
            row_loss *= 1 - label_smoothing
            smooth = log_sum * total_weight - shifted.dot(w)
            row_loss += smooth * (label_smoothing / n_classes)
        loss[start:stop] = np.where(valid[start:stop], row_loss, 0)

    if n_classes:
        parallel_for(n_rows, rows_per_block(n_rows, n_classes), block)
    return loss, lse


def mean_cross_entropy_small(logits: Array, targets: Array) -> tuple[Array, Array, Array] | None:
    """Mean cross-entropy of few rows without weights, in as few NumPy calls as can be.

    Returns (loss (), lse (N,), N ()), or None if a target is no class (ignored or wrong).
    """
    n_rows, n_classes = logits.shape
    if targets.item(targets.argmin()) < 0 or targets.item(targets.argmax()) >= n_classes:
        return None
    largest = _maximum(logits, 1, None, None, True)
    shifted = logits - largest
    log_sum = np.log(np.exp(shifted).dot(column_of_ones(n_classes, logits.dtype)))
    picked = shifted.take(targets + flat_starts(n_rows, n_classes))
    lse = (largest + log_sum).reshape(n_rows)
    loss = (log_sum.reshape(n_rows) - picked).dot(ones(n_rows, logits.dtype))
    return np.asarray(loss / n_rows, logits.dtype), lse, np.array(n_rows, logits.dtype)


def cross_entropy_grad(
    g: Array,
    logits: Array,
    targets: Array,
    lse: Array,
    weight: Array | None = None,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Array:
    """Gradient (N, C) of cross_entropy's loss for the upstream gradient g (N,).

    dx = g * (((1 - s) w[t] + s / C sum(w)) * exp(x - lse) - (1 - s) w[t] onehot(t) - s / C w), zero
    where t is ignore_index; in logits' dtype and C order.
    """
    n_rows, n_classes = logits.shape
    dtype = compute_dtype(logits.dtype)
    w = ones(n_classes, dtype) if weight is None else np.ascontiguousarray(weight, dtype)
    valid = targets != ignore_index
    smooth = np.multiply(w, label_smoothing / max(1, n_classes))
    total_smooth = smooth.sum()
    dx = empty(logits.shape, logits.dtype)

    def block(start: int, stop: int) -> None:
        out, x = dx[start:stop], load(logits[start:stop], 0)
        result = target(out, 1)
        t: Array = np.where(valid[start:stop], targets[start:stop], 0)
        g_rows = np.where(valid[start:stop], g[start:stop], 0).astype(dtype, copy=False)
        at_target = g_rows * w.take(t) * (1 - label_smoothing)
        np.subtract(x, lse[start:stop, None], out=result)
        np.exp(result, out=result)
        np.multiply(result, (at_target + g_rows * total_smooth)[:, None], out=result)
        result.reshape(-1)[t + row_starts(x)] -= at_target
        if label_smoothing:
            np.subtract(result, np.multiply.outer(g_rows, smooth), out=result)
        store(result, out)

    if n_classes:
        parallel_for(n_rows, rows_per_block(n_rows, n_classes), block)
    return dx
