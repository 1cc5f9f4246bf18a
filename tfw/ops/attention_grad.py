"""The gradient of attention."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw.errors import DtypeError, ShapeError
from tfw.ops import philox_reference
from tfw.ops.attention_stats import (
    SLOTS,
    attention_reference,
    attention_rule,
    attention_spec,
    attention_stats,
    fit,
    masked_scores,
    side_by_side,
    stored,
)
from tfw.ops.compare import eq, where
from tfw.ops.convert import to
from tfw.ops.dropout import dropout_at
from tfw.ops.elementwise import add, exp, mul, sub
from tfw.ops.expand import unsqueeze
from tfw.ops.matmul import matmul
from tfw.ops.movement import transpose
from tfw.ops.reduce import sum, sum_to_size
from tfw.registry import Call, Reject, fresh, op
from tfw.runtime.cpu import attention as cpu
from tfw.shapes import Spec
from tfw.tensor import Tensor


def _grad_spec(
    grad: Spec,
    query: Spec,
    key: Spec,
    value: Spec,
    y: Spec,
    lse: Spec,
    mask: Spec | None,
    *attrs: Any,
) -> tuple[Spec, ...]:
    out, stat = attention_spec(query, key, value, mask, *attrs[:-1])
    for name, x, wanted in (("grad", grad, out), ("y", y, out), ("lse", lse, stat)):
        if x.shape != wanted.shape:
            raise ShapeError(
                f"{name} has shape {x.shape}",
                op="attention_grad",
                argument=name,
                value=x.shape,
                rule=str(wanted.shape),
            )
    shape = mask.shape if mask is not None and attrs[-1] else ()
    return (*map(stored, (query, key, value)), fresh(query, shape))


@op(infer=_grad_spec, outputs=("grad_query", "grad_key", "grad_value", "grad_mask"), **SLOTS)
def attention_grad(
    grad: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    y: Tensor,
    lse: Tensor,
    attn_mask: Tensor | None,
    is_causal: bool,
    scale: float,
    dropout_p: float,
    seed: int,
    offset: int,
    needs_mask: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of attention's query, key, value and added mask (a 0-d zero unless needs_mask).

    With P = exp(scores - lse) and D its dropout: dv = D^T grad, ds = P * (dropout(grad v^T) -
    sum(grad * y)), dq = scale ds k, dk = scale ds^T q.

    Shapes: grad and y (B, H, L, Ev), others as attention_stats.
    Dtypes: floating.
    Errors: none beyond those of its ops.
    Source: Dao et al. 2022, FlashAttention, arXiv:2205.14135.
    Example: used by gradients.
    """
    wide = lse.dtype
    g, q, k, v = to(grad, wide), to(query, wide), to(key, wide), to(value, wide)
    p = _weights(query, key, attn_mask, is_causal, scale, lse)
    dropped = dropout_at(p, dropout_p, seed, offset) if dropout_p else p
    gp = matmul(g, transpose(v, -2, -1))
    if dropout_p:
        gp = dropout_at(gp, dropout_p, seed, offset)
    ds = mul(p, sub(gp, sum(mul(g, to(y, wide)), -1, True)))
    d = query.dtype
    gm = sum(ds[:0])
    if needs_mask and attn_mask is not None:
        gm = to(sum_to_size(ds, attn_mask._a.shape), d)
    return (
        side_by_side(to(mul(matmul(ds, k), scale), d)),
        side_by_side(to(mul(matmul(transpose(ds, -2, -1), q), scale), d)),
        side_by_side(to(matmul(transpose(dropped, -2, -1), g), d)),
        to(gm, d),
    )


def _weights(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float, lse: Tensor
) -> Tensor:
    """Return the softmax weights from logsumexp; zeros for a query that sees no key."""
    column = unsqueeze(where(eq(lse, -math.inf), math.inf, lse), -1)
    return exp(sub(masked_scores(query, key, mask, is_causal, scale), column))


@attention_grad.numpy
def _(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    out: Any,
    lse: Any,
    mask: Any,
    is_causal: bool,
    scale: float,
    p: float,
    seed: int,
    offset: int,
    needs_mask: bool,
) -> Any:
    if not (
        fit(q, k, v, mask)
        and g.shape == out.shape == (*q.shape[:3], v.shape[3])
        and lse.shape == q.shape[:3]
    ):
        raise ValueError
    rule = attention_rule(mask, is_causal, scale, p, seed, offset)
    gq, gk, gv, gm = cpu.attention_grad(g, q, k, v, out, lse, rule, needs_mask)
    return gq, gk, gv, np.zeros((), q.dtype) if gm is None else gm.astype(q.dtype, copy=False)


@attention_stats.joint_vjp("query", "key", "value", "attn_mask")
def _(
    g_out: Tensor | None,
    g_lse: Tensor | None,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None,
    out: Tensor,
    lse: Tensor,
    is_causal: bool,
    scale: float,
    dropout_p: float,
    seed: int,
    offset: int,
    needs: Any,
) -> tuple[Tensor | None, ...]:
    gq = gk = gv = gm = None
    if g_out is not None:
        gq, gk, gv, gm = attention_grad(
            g_out,
            query,
            key,
            value,
            out,
            lse,
            attn_mask,
            is_causal,
            scale,
            dropout_p,
            seed,
            offset,
            needs[3],
        )
    if g_lse is not None:  # in second derivatives: d lse = softmax weights
        ds = mul(_weights(query, key, attn_mask, is_causal, scale, lse), unsqueeze(g_lse, -1))
        part_q = to(mul(matmul(ds, to(key, ds.dtype)), scale), query.dtype)
        part_k = to(mul(matmul(transpose(ds, -2, -1), to(query, ds.dtype)), scale), key.dtype)
        gq = part_q if gq is None else add(gq, part_q)
        gk = part_k if gk is None else add(gk, part_k)
        if needs[3] and attn_mask is not None:
            part_m = to(sum_to_size(ds, attn_mask._a.shape), query.dtype)
            gm = part_m if gm is None else add(gm, part_m)
    return gq, gk, gv, gm if needs[3] else None


@attention_grad.reference
def _(
    g: Any,
    q: Any,
    k: Any,
    v: Any,
    y: Any,
    lse: Any,
    mask: Any,
    is_causal: bool,
    scale: float,
    p: float,
    seed: int,
    offset: int,
    needs_mask: bool,
) -> Any:
    s = np.einsum("bhld,bhsd->bhls", q, k) * scale
    if mask is not None:
        s = np.where(mask, s, -np.inf) if mask.dtype == np.bool_ else s + mask
    if is_causal:
        s = np.where(np.tri(s.shape[2], s.shape[3], dtype=bool), s, -np.inf)
    w = np.exp(s - np.where(lse == -np.inf, np.inf, lse)[..., None])
    kept = np.ones(w.shape)
    if p:
        kept = philox_reference.kept(w.size, p, seed, offset).reshape(w.shape) / (1 - p)
    slope = w * (kept * np.einsum("bhld,bhsd->bhls", g, v) - (g * y).sum(-1, keepdims=True))
    slope_of_mask = np.zeros(())
    if needs_mask and mask is not None:
        lead = slope.ndim - mask.ndim
        once = tuple(i for i, n in enumerate(mask.shape, lead) if n == 1)
        slope_of_mask = slope.sum(once, keepdims=True).sum(tuple(range(lead)))
    return (
        np.einsum("bhls,bhsd->bhld", slope, k) * scale,
        np.einsum("bhls,bhld->bhsd", slope, q) * scale,
        np.einsum("bhls,bhld->bhsd", w * kept, g),
        slope_of_mask,
    )


@attention_grad.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    draw = rng.standard_normal
    q, k, v = draw((2, 2, 5, 4)), draw((2, 2, 3, 4)), draw((2, 2, 3, 6))
    masks = (None, draw((1, 3)), draw((2, 1, 5, 3)) > -1)
    for mask, is_causal, p in (
        *((None, False, 0.0), (None, True, 0.25)),
        *((masks[1], False, 0.0), (masks[2], False, 0.0)),
    ):
        y, lse = attention_reference(q, k, v, mask, is_causal, 0.5, p, 7, 3)
        needs_mask = mask is not None and mask.dtype != np.bool_
        g = draw(y.shape)
        yield Call(g, q, k, v, y, lse, mask, is_causal, 0.5, p, 7, 3, needs_mask)


@attention_grad.rejects
def _() -> Iterator[Reject]:
    q, lse = np.ones((1, 1, 2, 3)), np.ones((1, 1, 2))
    rest = (None, False, 1.0, 0.0, 0, 0, False)
    yield Reject(Call(q, q.astype(int), q, q, q, lse, *rest), DtypeError, argument="query")
