"""Scaled dot-product attention and its gradient; the score matrix never exists as a whole.

Work is cut into groups of (batch, head) pairs, spread over threads, and into blocks of query rows;
one block of scores stays in the cache between its products. The gradient computes the scores again
from logsumexp, so forward keeps nothing of size L x S. What is constant along a row of scores is
subtracted inside the matrix product: a further column of q holds it, one of k holds 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from .axis import axis_max, ones
from .blocks import Array, compute_dtype, scratch
from .memory import empty
from .philox import keep_mask
from .threads import get_num_threads, parallel_for

# Weights need no shift by the row's maximum, the dearest pass of all, where their sum comes out
# between these bounds: exp has not overflowed, and what it has flushed to zero is negligible.
_SUMS = {np.dtype(np.float32): (1e-17, 1e30), np.dtype(np.float64): (1e-100, 1e200)}
# Scores per block: 1 MiB in float32. Two threads meet at the GIL less often than with smaller
# blocks: the GPT's gradient takes 6.0, 6.0, 3.8 ms with 2^16, 2^17, 2^18.
_SCORES = 1 << 18
# Up to this many keys the causal bias is added over their whole width.
_WIDE_BIAS = 512


@dataclass(frozen=True, slots=True)
class AttentionRule:
    """Which scores count and how: everything of attention but its tensors.

    mask broadcasts to (B, H, L, S): False or -inf forbids a key, other floats add to the scores.
    causal forbids key j for query i where j > i. scale multiplies the scores; 1 / sqrt(E) if None.
    dropout_p zeroes weights by philox.keep_mask(seed, offset) over the elements of (B, H, L, S).
    """

    mask: Array | None = None
    causal: bool = False
    scale: float | None = None
    dropout_p: float = 0.0
    seed: int = 0
    offset: int = 0

    def factor(self, width: int) -> float:
        """Return the number that multiplies q . k, for q of width E."""
        return 1 / math.sqrt(max(1, width)) if self.scale is None else self.scale


@lru_cache(64)
def _causal_bias(shape: tuple[int, int], first_masked: int, dtype: np.dtype[Any]) -> Array:
    """Return 0 and, from column row + first_masked on, -inf; do not write to it."""
    return np.triu(np.full(shape, -np.inf, dtype), first_masked)


class _Block:
    """What a group of batches and heads needs to mask its scores, block of rows by block."""

    def __init__(self, rule: AttentionRule, shape: tuple[int, ...], group: tuple[slice, slice]):
        self.rule, self.shape, self.group = rule, shape, group
        self.lead = (group[0].stop - group[0].start, group[1].stop - group[1].start)

    def rows(self, step: int) -> list[tuple[slice, int]]:
        """Return each block's query rows and how many keys they may see."""
        n_queries, n_keys = self.shape[2:]
        starts = range(0, n_queries, step)
        rows = [slice(start, min(n_queries, start + step)) for start in starts]
        return [(r, min(n_keys, r.stop) if self.rule.causal else n_keys) for r in rows]

    def add_bias(self, scores: Array, rows: slice, n_keys: int) -> None:
        """Add the mask and the causal mask to scores (b, h, rows, n_keys)."""
        if self.rule.causal and n_keys > rows.start:
            # Adding zeros to the keys before the diagonal as well keeps the inner loop long.
            start = 0 if n_keys <= _WIDE_BIAS else rows.start
            size = (rows.stop - rows.start, n_keys - start)
            bias = _causal_bias(size, rows.start - start + 1, scores.dtype)
            scores[..., start:] += bias
        mask = self._mask_part(rows, n_keys)
        if mask is not None:
            if mask.dtype == np.bool_:
                table = np.array([-np.inf, 0.0], scores.dtype)
                mask = table.take(mask.view(np.uint8))
            np.add(scores, mask, out=scores, casting="unsafe")

    def _mask_part(self, rows: slice, n_keys: int) -> Array | None:
        """Return the mask for these rows; axes of length 1 stay: a small mask is converted once."""
        mask = self.rule.mask
        if mask is None:
            return None
        wanted = (*self.group, rows, slice(0, n_keys))
        mask = mask.reshape((1,) * (4 - mask.ndim) + mask.shape)
        axes = zip(wanted, mask.shape, strict=True)
        return mask[tuple(s if n > 1 else slice(None) for s, n in axes)]

    def hide(self, scores: Array, rows: slice[int, int], n_keys: int) -> None:
        """Write -inf where a key is hidden: NaN or inf there would outlast an added -inf."""
        if self.rule.causal and n_keys > rows.start:
            later = np.arange(n_keys) > np.arange(rows.start, rows.stop)[:, None]
            np.copyto(scores, -np.inf, where=later)
        mask = self._mask_part(rows, n_keys)
        if mask is not None and mask.dtype == np.bool_:
            np.copyto(scores, -np.inf, where=~mask)

    def drop(self, weights: Array, rows: slice, n_keys: int) -> None:
        """Zero the weights that dropout drops; their scaling is the caller's."""
        n_heads, n_queries, row_length = self.shape[1:]
        n = rows.stop - rows.start
        if n == n_queries and (self.lead[1] == n_heads or self.lead[0] == 1):
            # Whole heads that follow each other: one draw, where many small ones cost more calls.
            first = (self.group[0].start * n_heads + self.group[1].start) * n * row_length
            count = self.lead[0] * self.lead[1] * n * row_length
            keep = keep_mask(self.rule.seed, self.rule.offset, count, self.rule.dropout_p, first)
            weights *= keep.reshape(*self.lead, n, row_length)[..., :n_keys]
            return
        for b in range(self.lead[0]):
            for h in range(self.lead[1]):
                head = (self.group[0].start + b) * n_heads + self.group[1].start + h
                first = (head * n_queries + rows.start) * row_length
                keep = keep_mask(
                    self.rule.seed, self.rule.offset, n * row_length, self.rule.dropout_p, first
                )
                weights[b, h] *= keep.reshape(n, row_length)[:, :n_keys]

    def weigh(self, weights: Array, q: Array, keys: Array, rows: slice, n_keys: int) -> Array:
        """Write exp(scores) into weights; return the sums over the keys, (b, h, rows)."""
        np.matmul(q[:, :, rows], keys[..., :n_keys], out=weights)
        self.add_bias(weights, rows, n_keys)
        np.exp(weights, out=weights)
        sums = weights.reshape(-1, n_keys).dot(ones(n_keys, weights.dtype))
        return sums.reshape(weights.shape[:3])

    def weigh_shifted(
        self, weights: Array, q: Array, keys: Array, rows: slice, n_keys: int
    ) -> tuple[Array, Array]:
        """Write exp(scores - shift) into weights; return the shifts and the sums over the keys."""
        np.matmul(q[:, :, rows], keys[..., :n_keys], out=weights)
        self.add_bias(weights, rows, n_keys)
        self.hide(weights, rows, n_keys)
        flat = weights.reshape(-1, n_keys)
        shift = axis_max(flat, -1)
        shift[shift == -np.inf] = 0  # no key at all: the weights stay 0
        np.subtract(flat, shift, out=flat)
        np.exp(flat, out=flat)
        shape = weights.shape[:3]
        return shift.reshape(shape), flat.dot(ones(n_keys, flat.dtype)).reshape(shape)


def _is_normal(sums: Array) -> bool:
    low, high = _SUMS[sums.dtype]
    return bool(low < sums.min() and sums.max() < high)


def _for_groups(
    rule: AttentionRule, shape: tuple[int, int, int, int], body: Callable[[_Block, int], None]
) -> None:
    """Call body(block, rows per step) for groups of heads that together fill the cache."""
    n_batches, n_heads, n_queries, n_keys = shape
    # 64 rows, so that causal skips most of what is masked; long rows still fill a matrix product.
    # With dropout more: its words lie side by side for whole heads only.
    wanted = 64 if rule.causal and not rule.dropout_p else 128
    step = min(n_queries, max(16, min(wanted, _SCORES // (4 * n_keys))))
    heads_per_thread = -(-n_batches * n_heads // get_num_threads())
    heads = max(1, min(heads_per_thread, _SCORES // (step * n_keys)))
    batch_step, head_step = max(1, heads // n_heads), min(n_heads, heads)
    n_head_groups = -(-n_heads // head_step)

    def groups(start: int, stop: int) -> None:
        for i in range(start, stop):
            b, h = i // n_head_groups * batch_step, i % n_head_groups * head_step
            batches = slice(b, min(n_batches, b + batch_step))
            body(_Block(rule, shape, (batches, slice(h, min(n_heads, h + head_step)))), step)

    parallel_for(-(-n_batches // batch_step) * n_head_groups, 1, groups)


def _take(x: Array, group: tuple[slice, slice], slot: int) -> Array:
    """Return a group's part of x, a view that BLAS reads in place; a copy if half precision."""
    part = x[group]
    dtype = compute_dtype(x.dtype)
    if part.dtype == dtype:
        return part
    copy = scratch(slot, part.shape, dtype)
    np.copyto(copy, part)
    return copy


def _extend(x: Array, factor: float, column: Array | float, slot: int) -> Array:
    """Return [x * factor, column] along the last axis."""
    width = x.shape[-1]
    result = scratch(slot, (*x.shape[:-1], width + 1), compute_dtype(x.dtype))
    np.multiply(x, factor, out=result[..., :width])
    result[..., width] = column
    return result


def _transpose(x: Array, slot: int, extra_rows: int = 0) -> Array:
    """Return x (b, h, n, e) as (b, h, e + extra_rows, n) in C order, the extra rows 1.

    OpenBLAS multiplies small matrices twice as fast when the right one is not transposed.
    """
    b, h, n, width = x.shape
    result = scratch(slot, (b, h, width + extra_rows, n), compute_dtype(x.dtype))
    np.copyto(result[:, :, :width], x.swapaxes(2, 3))
    result[:, :, width:] = 1
    return result


def _output(x: Array, shape: tuple[int, int, int, int]) -> Array:
    """Return (B, H, L, E) laid out as (B, L, H, E): merging the heads afterwards copies nothing."""
    b, h, n, e = shape
    return empty((b, n, h, e), x.dtype).transpose(0, 2, 1, 3)


def attention(q: Array, k: Array, v: Array, rule: AttentionRule) -> tuple[Array, Array]:
    """Attention softmax(scale * q k^T + mask) v; returns (out, logsumexp of the scores).

    q (B, H, L, E), k (B, H, S, E), v (B, H, S, Ev), out (B, H, L, Ev) stored as (B, L, H, Ev) in
    q's dtype, logsumexp (B, H, L) in the computation dtype. A query whose keys are all masked gives
    zeros and logsumexp -inf.
    """
    n_batches, n_heads, n_queries, width = q.shape
    n_keys, dtype = k.shape[2], compute_dtype(q.dtype)
    shape = (n_batches, n_heads, n_queries, n_keys)
    out = _output(q, (*shape[:3], v.shape[3]))
    lse = np.full(shape[:3], -np.inf, dtype)
    if not math.prod(shape):
        out[...] = 0
        return out, lse
    factor = rule.factor(width)

    def group(block: _Block, step: int) -> None:
        q_part, v_part = _take(q, block.group, 8), _take(v, block.group, 9)
        scaled = scratch(10, q_part.shape, dtype)
        np.multiply(q_part, factor, out=scaled)
        keys = _transpose(k[block.group], 11)
        for rows, n in block.rows(step):
            weights = scratch(12, (*block.lead, rows.stop - rows.start, n), dtype)
            shift, total = 0.0, block.weigh(weights, scaled, keys, rows, n)
            if not _is_normal(total):
                shift, total = block.weigh_shifted(weights, scaled, keys, rows, n)
            lse[block.group][:, :, rows] = np.log(total) + shift
            if rule.dropout_p:
                block.drop(weights, rows, n)
                total *= 1 - rule.dropout_p
            # Nothing to divide where every key is masked or dropped.
            total[total == 0] = np.inf
            mixed = scratch(13, (*total.shape, v.shape[3]), dtype)
            np.matmul(weights, v_part[:, :, :n], out=mixed)
            out_rows = out[block.group][:, :, rows]
            np.divide(mixed, total[..., None], out=out_rows, casting="unsafe")

    _for_groups(rule, shape, group)
    return out, lse


def attention_grad(
    g: Array,
    q: Array,
    k: Array,
    v: Array,
    out: Array,
    lse: Array,
    rule: AttentionRule,
    needs_mask: bool = False,
) -> tuple[Array, Array, Array, Array | None]:
    """Gradients (dq, dk, dv, dmask) of attention for the upstream gradient g (B, H, L, Ev).

    With P = exp(scores - logsumexp) and delta = sum(g * out): dv = P^T g, ds = P * (g v^T - delta),
    dq = scale * ds k, dk = scale * ds^T q, dmask = ds summed to the mask's shape. dmask is None
    unless needs_mask.
    """
    n_batches, n_heads, n_queries, width = q.shape
    n_keys, value_width, dtype = k.shape[2], v.shape[3], compute_dtype(q.dtype)
    shape = (n_batches, n_heads, n_queries, n_keys)
    dq = _output(q, q.shape)
    dk, dv = _output(k, k.shape), _output(v, v.shape)
    ds_all = np.zeros(shape, dtype) if needs_mask else None
    factor = rule.factor(width)
    dropped = rule.dropout_p > 0
    # p = 1 drops every weight, whatever the factor.
    kept = 1 / (1 - rule.dropout_p) if rule.dropout_p < 1 else 0.0

    def group(block: _Block, step: int) -> None:
        here = block.group
        k_part, g_part = _take(k, here, 8), _take(g, here, 9)
        delta = np.einsum("bhle,bhle->bhl", g_part, _take(out, here, 10))
        # A row without keys has logsumexp -inf; +inf makes all its weights 0.
        row_lse = np.where(lse[here] == -np.inf, np.inf, lse[here])
        q_more = _extend(q[here], factor, -row_lse, 11)
        g_more = _extend(g_part, kept, 0.0 if dropped else -delta, 12)
        keys, values = _transpose(k_part, 13, 1), _transpose(v[here], 14, 1)
        queries, upstream = q_more[..., :width], g_more[..., :value_width]
        sums = scratch(15, k_part.shape, dtype), scratch(16, v[here].shape, dtype)
        for total in sums:
            total.fill(0)
        for rows, n in block.rows(step):
            score_shape = (*block.lead, rows.stop - rows.start, n)
            weights, ds = scratch(17, score_shape, dtype), scratch(18, score_shape, dtype)
            np.matmul(q_more[:, :, rows], keys[..., :n], out=weights)
            block.add_bias(weights, rows, n)
            np.exp(weights, out=weights)
            np.matmul(g_more[:, :, rows], values[..., :n], out=ds)
            if dropped:
                block.drop(ds, rows, n)
                np.subtract(ds, delta[:, :, rows, None], out=ds)
            np.multiply(ds, weights, out=ds)
            if dropped:
                block.drop(weights, rows, n)
            for total, left, right in zip(sums, (ds, weights), (queries, upstream), strict=True):
                product = scratch(19, (*block.lead, n, right.shape[-1]), dtype)
                np.matmul(left.swapaxes(2, 3), right[:, :, rows], out=product)
                total[:, :, :n] += product
            dq_rows = scratch(19, (*score_shape[:3], width), dtype)
            np.matmul(ds, k_part[:, :, :n], out=dq_rows)
            np.multiply(dq_rows, factor, out=dq[here][:, :, rows], casting="unsafe")
            if ds_all is not None:
                ds_all[here][:, :, rows, :n] = ds
        np.copyto(dk[here], sums[0], casting="unsafe")
        np.copyto(dv[here], sums[1], casting="unsafe")

    if math.prod(shape):
        _for_groups(rule, shape, group)
    else:
        for gradient in (dq, dk, dv):
            gradient[...] = 0
    return dq, dk, dv, None if ds_all is None else _sum_to_mask(ds_all, rule.mask)


def _sum_to_mask(ds: Array, mask: Array | None) -> Array | None:
    """Sum ds (B, H, L, S) over the axes along which the mask was broadcast."""
    if mask is None:
        return None
    shape = (1,) * (4 - mask.ndim) + mask.shape
    axes = tuple(axis for axis in range(4) if shape[axis] == 1 != ds.shape[axis])
    return ds.sum(axis=axes, keepdims=True).reshape(mask.shape).astype(mask.dtype, copy=False)
