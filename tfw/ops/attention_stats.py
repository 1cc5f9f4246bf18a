"""Attention and the logsumexp of its scores; the matrix of scores is not kept for backward."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import FLOATING
from tfw.errors import DtypeError, ShapeError
from tfw.ops import philox_reference
from tfw.ops.compare import eq, ge, where
from tfw.ops.convert import contiguous, to
from tfw.ops.creation import arange
from tfw.ops.dropout import dropout_at
from tfw.ops.elementwise import add, exp, log, mul, sub
from tfw.ops.expand import unsqueeze
from tfw.ops.extreme import amax
from tfw.ops.matmul import matmul
from tfw.ops.movement import reshape, transpose
from tfw.ops.reduce import sum
from tfw.registry import Call, Reject, fresh, op
from tfw.runtime.cpu import attention as cpu
from tfw.shapes import Spec, broadcast_shapes, contiguous_strides
from tfw.tensor import Tensor


def stored(x: Spec) -> Spec:
    """Return x's Spec with heads side by side in memory, as (B, L, H, E)."""
    b, h, n, width = x.shape
    s = contiguous_strides((b, n, h, width))
    return x._replace(strides=(s[0], s[2], s[1], s[3]))


def attention_spec(
    query: Spec,
    key: Spec,
    value: Spec,
    mask: Spec | None,
    is_causal: bool,
    scale: float,
    dropout_p: float,
    seed: int,
    offset: int,
) -> tuple[Spec, Spec]:
    """Return the Specs of attention and of logsumexp; raise the named errors."""
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 4:
            raise ShapeError(
                f"{name} has shape {x.shape}",
                op=NAME,
                argument=name,
                value=x.shape,
                rule="at least two dims",
            )
        if x.dtype is not query.dtype:
            raise DtypeError(
                f"query is {query.dtype!r}, {name} is {x.dtype!r}",
                op=NAME,
                argument=name,
                value=x.dtype,
            )
        if x.shape[:2] != query.shape[:2]:
            raise ShapeError(
                f"query has batch and heads {query.shape[:2]}, {name} has {x.shape[:2]}",
                op=NAME,
                argument=name,
                value=x.shape,
            )
    if key.shape[3] != query.shape[3] or key.shape[2] != value.shape[2]:
        raise ShapeError(
            f"query {query.shape}, key {key.shape} and value {value.shape} do not fit",
            op=NAME,
            argument="key",
            value=key.shape,
            rule="query (..., L, E), key (..., S, E), value (..., S, Ev)",
        )
    scores = (*query.shape[:3], key.shape[2])
    if mask is not None:
        if mask.dtype is not dtypes.bool_ and mask.dtype is not query.dtype:
            raise DtypeError(
                f"attn_mask is {mask.dtype!r}",
                op=NAME,
                argument="attn_mask",
                value=mask.dtype,
                rule=f"bool or {query.dtype!r}",
            )
        broadcast_shapes(NAME, scores, mask.shape, names=("the scores", "attn_mask"))
        if mask.ndim > 4:
            raise ShapeError(
                f"attn_mask has shape {mask.shape}",
                op=NAME,
                argument="attn_mask",
                value=mask.shape,
            )
    b, h, n = query.shape[:3]
    # Heads lie side by side, as the next layer reads them.
    out = stored(fresh(query, (b, h, n, value.shape[3])))
    return out, fresh(query, (b, h, n), dtypes.accumulation(query.dtype))


NAME = "scaled_dot_product_attention"
SLOTS: dict[str, Any] = {
    "dtypes": {"query": FLOATING, "key": FLOATING, "value": FLOATING},
    "computes": False,  # computes in float32 and keeps lse there itself
    "hidden": True,
    "method": False,
    "random": True,
    "autocast": "half",
}


@op(infer=attention_spec, outputs=("out", "lse"), **SLOTS, shown="scaled_dot_product_attention")
def attention_stats(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float,
    dropout_p: float,
    seed: int,
    offset: int,
) -> tuple[Tensor, Tensor]:
    """Attention and the logsumexp of its scores: dropout(softmax(scale q k^T + mask)) v.

    Key j is hidden from query i where the mask forbids it, or where is_causal and j > i. A query
    that sees no key gives zeros.

    Shapes: query (B, H, L, E), key (B, H, S, E), value (B, H, S, Ev), mask broadcasts to (B, H, L,
        S);
    out (B, H, L, Ev), lse (B, H, L).
    Dtypes: floating, equal; mask bool or the same; lse is float32 for half types.
    Errors: RuntimeError if shapes or dtypes do not fit.
    Source: Vaswani et al. 2017, arXiv:1706.03762; blocks: Dao et al. 2022, arXiv:2205.14135.
    Example: used by scaled_dot_product_attention.
    """
    scores = masked_scores(query, key, attn_mask, is_causal, scale)
    top = amax(scores, -1, True)
    top = where(eq(top, -math.inf), 0.0, top)
    e = exp(sub(scores, top))
    total = sum(e, -1, True)
    lse = reshape(add(log(total), top), scores._a.shape[:3])
    weights = mul(e, 1.0 / where(eq(total, 0), 1.0, total))
    if dropout_p:
        weights = dropout_at(weights, dropout_p, seed, offset)
    out = matmul(weights, to(value, weights.dtype))
    return side_by_side(to(out, query.dtype)), lse


def side_by_side(x: Tensor) -> Tensor:
    """Return (B, H, L, E) in memory as (B, L, H, E)."""
    return transpose(contiguous(transpose(x, 1, 2)), 1, 2)


def masked_scores(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
    """Return scale * q k^T with -inf where a key is hidden, in the computation dtype."""
    wide = dtypes.accumulation(query.dtype)
    scores = mul(matmul(to(query, wide), transpose(to(key, wide), -2, -1)), scale)
    if mask is not None:
        if mask.dtype is dtypes.bool_:
            scores = where(mask, scores, -math.inf)
        else:
            scores = add(scores, to(mask, wide))
    if is_causal:
        rows = unsqueeze(arange(scores._a.shape[2], device=query.device), 1)
        columns = arange(scores._a.shape[3], device=query.device)
        scores = where(ge(rows, columns), scores, -math.inf)
    return scores


def attention_rule(
    mask: Any, is_causal: bool, scale: float, p: float, seed: int, offset: int
) -> cpu.AttentionRule:
    """Return the attributes as the CPU kernels take them."""
    return cpu.AttentionRule(mask, is_causal, scale, p, seed, offset)


def fit(q: Any, k: Any, v: Any, mask: Any) -> bool:
    """Return whether arrays are what `attention_spec` takes."""
    if not (q.ndim == k.ndim == v.ndim == 4 and q.shape[:2] == k.shape[:2] == v.shape[:2]):
        return False
    if not (
        q.dtype == k.dtype == v.dtype and q.shape[3] == k.shape[3] and k.shape[2] == v.shape[2]
    ):
        return False
    scores = (*q.shape[:3], k.shape[2])
    return mask is None or (
        mask.dtype in (q.dtype, np.bool_)
        and mask.ndim <= 4
        and np.broadcast_shapes(mask.shape, scores) == scores
    )


@attention_stats.numpy
def _(q: Any, k: Any, v: Any, mask: Any, *attrs: Any) -> Any:
    if not fit(q, k, v, mask):
        raise ValueError
    return cpu.attention(q, k, v, attention_rule(mask, *attrs))


def attention_reference(
    q: Any,
    k: Any,
    v: Any,
    mask: Any,
    is_causal: bool,
    scale: float,
    p: float,
    seed: int,
    offset: int,
) -> Any:
    """Return attention and logsumexp in NumPy."""
    s = np.einsum("bhld,bhsd->bhls", q, k) * scale
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == np.bool_ else s + mask
    if is_causal:
        s = np.where(np.tri(s.shape[2], s.shape[3], dtype=bool), s, -np.inf)
    with np.errstate(all="ignore"):
        top = s.max(-1, keepdims=True, initial=-np.inf)
        top = np.where(top == -np.inf, 0, top)
        e = np.exp(s - top)
        total = e.sum(-1, keepdims=True)
        w = np.where(total == 0, 0, e / total)
        lse = (np.log(total) + top)[..., 0]
    if p:
        w = w * philox_reference.kept(w.size, p, seed, offset).reshape(w.shape) / (1 - p)
    return np.einsum("bhls,bhsd->bhld", w, v), lse


attention_stats.reference(attention_reference)


@attention_stats.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    draw = rng.standard_normal
    q, k, v = draw((2, 2, 3, 4)), draw((2, 2, 5, 4)), draw((2, 2, 5, 3))
    yield Call(q, k, v, None, False, 0.5, 0.0, 0, 0)
    yield Call(q, k, v, None, True, 0.5, 0.0, 0, 0)
    yield Call(q, k, v, draw((3, 5)), False, 0.3, 0.0, 0, 0)
    mask = draw((2, 1, 3, 5)) > 0
    mask[0, 0, 1] = False
    yield Call(q, k, v, mask, False, 0.5, 0.0, 0, 0)
    yield Call(q, k, v, None, True, 0.5, 0.25, 7, 3)


@attention_stats.rejects
def _() -> Iterator[Reject]:
    q, k = np.ones((1, 1, 2, 3)), np.ones((1, 1, 4, 3))
    yield Reject(Call(q, k[..., :2], k, None, False, 1.0, 0.0, 0, 0), ShapeError, argument="key")
    yield Reject(Call(q, k, k[:, :, :3], None, False, 1.0, 0.0, 0, 0), ShapeError, argument="key")
    yield Reject(Call(q, k, k, np.ones((2, 5)) > 0, False, 1.0, 0.0, 0, 0), ShapeError)
    yield Reject(
        Call(q, k, k, np.ones((2, 4), np.int64), False, 1.0, 0.0, 0, 0),
        DtypeError,
        argument="attn_mask",
    )
