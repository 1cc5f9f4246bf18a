"""Scaled dot-product attention and its gradient; the matrix of scores is not kept for backward."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import FLOATING
from tfw.errors import DtypeError, ShapeError, ValueRangeError
from tfw.ops import philox_reference
from tfw.ops.convert import contiguous, to
from tfw.ops.creation import arange
from tfw.ops.elementwise import add, eq, exp, ge, log, mul, sub, where
from tfw.ops.matmul import matmul
from tfw.ops.movement import expand, reshape, transpose, unsqueeze
from tfw.ops.random import check_probability, default_generator, dropout_at
from tfw.ops.reduce import amax, sum, sum_to_size
from tfw.registry import Call, Reject, fresh, op
from tfw.runtime.cpu import attention as cpu
from tfw.shapes import Spec, broadcast_shapes, contiguous_strides
from tfw.tensor import Tensor


def _stored(x: Spec) -> Spec:
    """Return x's Spec with heads side by side in memory, as (B, L, H, E)."""
    b, h, n, width = x.shape
    s = contiguous_strides((b, n, h, width))
    return x._replace(strides=(s[0], s[2], s[1], s[3]))


def _spec(
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
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x.ndim != 4:
            raise ShapeError(
                f"{name} has shape {x.shape}",
                op=_NAME,
                argument=name,
                value=x.shape,
                rule="at least two dims",
            )
        if x.dtype is not query.dtype:
            raise DtypeError(
                f"query is {query.dtype!r}, {name} is {x.dtype!r}",
                op=_NAME,
                argument=name,
                value=x.dtype,
            )
        if x.shape[:2] != query.shape[:2]:
            raise ShapeError(
                f"query has batch and heads {query.shape[:2]}, {name} has {x.shape[:2]}",
                op=_NAME,
                argument=name,
                value=x.shape,
            )
    if key.shape[3] != query.shape[3] or key.shape[2] != value.shape[2]:
        raise ShapeError(
            f"query {query.shape}, key {key.shape} and value {value.shape} do not fit",
            op=_NAME,
            argument="key",
            value=key.shape,
            rule="query (..., L, E), key (..., S, E), value (..., S, Ev)",
        )
    scores = (*query.shape[:3], key.shape[2])
    if mask is not None:
        if mask.dtype is not dtypes.bool_ and mask.dtype is not query.dtype:
            raise DtypeError(
                f"attn_mask is {mask.dtype!r}",
                op=_NAME,
                argument="attn_mask",
                value=mask.dtype,
                rule=f"bool or {query.dtype!r}",
            )
        broadcast_shapes(_NAME, scores, mask.shape, names=("the scores", "attn_mask"))
        if mask.ndim > 4:
            raise ShapeError(
                f"attn_mask has shape {mask.shape}",
                op=_NAME,
                argument="attn_mask",
                value=mask.shape,
            )
    b, h, n = query.shape[:3]
    # Heads lie side by side, as the next layer reads them.
    out = _stored(fresh(query, (b, h, n, value.shape[3])))
    return out, fresh(query, (b, h, n), dtypes.accumulation(query.dtype))


_NAME = "scaled_dot_product_attention"
_SLOTS: dict[str, Any] = {
    "dtypes": {"query": FLOATING, "key": FLOATING, "value": FLOATING},
    "computes": False,  # computes in float32 and keeps lse there itself
    "hidden": True,
    "method": False,
    "random": True,
    "autocast": "half",
}


@op(infer=_spec, outputs=("out", "lse"), **_SLOTS)
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

    Key j is hidden from query i where the mask forbids it, or where is_causal and j > i. A query that
    sees no key gives zeros.

    Shapes: query (B, H, L, E), key (B, H, S, E), value (B, H, S, Ev), mask broadcasts to (B, H, L, S);
    out (B, H, L, Ev), lse (B, H, L).
    Dtypes: floating, equal; mask bool or the same; lse is float32 for half types.
    Errors: RuntimeError if shapes or dtypes do not fit.
    Source: Vaswani et al. 2017, arXiv:1706.03762; blocks: Dao et al. 2022, arXiv:2205.14135.
    Example: used by scaled_dot_product_attention.
    """
    scores = _scores(query, key, attn_mask, is_causal, scale)
    top = amax(scores, -1, True)
    top = where(eq(top, -math.inf), 0.0, top)
    e = exp(sub(scores, top))
    total = sum(e, -1, True)
    lse = reshape(add(log(total), top), scores._a.shape[:3])
    weights = mul(e, 1.0 / where(eq(total, 0), 1.0, total))
    if dropout_p:
        weights = dropout_at(weights, dropout_p, seed, offset)
    out = matmul(weights, to(value, weights.dtype))
    return _side_by_side(to(out, query.dtype)), lse


def _side_by_side(x: Tensor) -> Tensor:
    """Return (B, H, L, E) in memory as (B, L, H, E)."""
    return transpose(contiguous(transpose(x, 1, 2)), 1, 2)


def _scores(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float
) -> Tensor:
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


def _rule(
    mask: Any, is_causal: bool, scale: float, p: float, seed: int, offset: int
) -> cpu.AttentionRule:
    return cpu.AttentionRule(mask, is_causal, scale, p, seed, offset)


def _fit(q: Any, k: Any, v: Any, mask: Any) -> bool:
    """Return whether arrays are what `_spec` takes."""
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
    if not _fit(q, k, v, mask):
        raise ValueError
    return cpu.attention(q, k, v, _rule(mask, *attrs))


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
    out, stat = _spec(query, key, value, mask, *attrs[:-1])
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
    return (*map(_stored, (query, key, value)), fresh(query, shape))


@op(infer=_grad_spec, outputs=("grad_query", "grad_key", "grad_value", "grad_mask"), **_SLOTS)
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
        _side_by_side(to(mul(matmul(ds, k), scale), d)),
        _side_by_side(to(mul(matmul(transpose(ds, -2, -1), q), scale), d)),
        _side_by_side(to(matmul(transpose(dropped, -2, -1), g), d)),
        to(gm, d),
    )


def _weights(
    query: Tensor, key: Tensor, mask: Tensor | None, is_causal: bool, scale: float, lse: Tensor
) -> Tensor:
    """Return the softmax weights from logsumexp; zeros for a query that sees no key."""
    column = unsqueeze(where(eq(lse, -math.inf), math.inf, lse), -1)
    return exp(sub(_scores(query, key, mask, is_causal, scale), column))


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
        _fit(q, k, v, mask)
        and g.shape == out.shape == (*q.shape[:3], v.shape[3])
        and lse.shape == q.shape[:3]
    ):
        raise ValueError
    rule = _rule(mask, is_causal, scale, p, seed, offset)
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


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """Attention: dropout(softmax(scale q k^T + mask)) v, with scale 1 / sqrt(E) by default.

    A bool mask says which keys a query sees, a floating one is added to the scores; is_causal hides
    key j from query i where j > i. A query that sees no key gives zeros. With enable_gqa, groups of
    query heads share a key head.

    Shapes: query (..., L, E), key (..., S, E), value (..., S, Ev), mask broadcasts to (..., L, S),
    result (..., L, Ev); leading dims broadcast.
    Dtypes: floating, equal; computed in float32 for half types.
    Errors: RuntimeError if shapes or dtypes do not fit, or a mask comes with is_causal; ValueError
        unless 0 <= dropout_p <= 1.
    Source: Vaswani et al. 2017, Attention Is All You Need, arXiv:1706.03762.
    Example: `nn.functional.scaled_dot_product_attention(*[tfw.ones(1, 2)] * 3).tolist() == [[1.0, 1.0]]`
    """
    check_probability(_NAME, dropout_p)
    if attn_mask is not None and is_causal:
        raise ShapeError(
            "attn_mask and is_causal are both given",
            op=_NAME,
            argument="is_causal",
            rule="one of the two",
        )
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x._a.ndim < 2:
            raise ShapeError(
                f"{name} has shape {tuple(x._a.shape)}",
                op=_NAME,
                argument=name,
                rule="at least two dims",
            )
    if enable_gqa:
        key, value = _repeat_heads(query, key, "key"), _repeat_heads(query, value, "value")
    lead = query._a.shape[:-2]
    if not lead == key._a.shape[:-2] == value._a.shape[:-2]:
        lead = broadcast_shapes(
            _NAME, lead, key._a.shape[:-2], value._a.shape[:-2], names=("query", "key", "value")
        )
        query, key, value = (expand(x, (*lead, *x._a.shape[-2:])) for x in (query, key, value))
    n, s = query._a.shape[-2], key._a.shape[-2]
    mask = attn_mask
    if len(lead) != 2:
        batch = (math.prod(lead[:-1]), lead[-1]) if lead else (1, 1)
        query, key, value = (reshape(x, (*batch, *x._a.shape[-2:])) for x in (query, key, value))
        if mask is not None and mask._a.ndim > 2:
            mask = reshape(expand(mask, (*lead, n, s)), (*batch, n, s))
    width = query._a.shape[-1]
    if scale is None:
        scale = 1 / math.sqrt(width) if width else 1.0
    seed = offset = 0
    if dropout_p:
        seed, offset = default_generator.take(-(-math.prod(query._a.shape[:3]) * s // 4))
    out = attention_stats(
        query, key, value, mask, is_causal, float(scale), dropout_p, seed, offset
    )[0]
    return out if len(lead) == 2 else reshape(out, (*lead, *out._a.shape[-2:]))


def _repeat_heads(query: Tensor, x: Tensor, name: str) -> Tensor:
    if query._a.ndim < 3 or x._a.ndim < 3 or query._a.shape[-3] % max(x._a.shape[-3], 1):
        raise ValueRangeError(
            f"query of shape {tuple(query._a.shape)} and {name} of shape {tuple(x._a.shape)}",
            op=_NAME,
            argument=name,
            value=tuple(x._a.shape),
            rule="query heads a multiple of key heads",
        )
    *lead, heads, n, width = x._a.shape
    times = query._a.shape[-3] // heads
    return reshape(
        expand(unsqueeze(x, -3), (*lead, heads, times, n, width)), (*lead, heads * times, n, width)
    )


def _reference(
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


attention_stats.reference(_reference)


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
    if needs_mask:
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
        y, lse = _reference(q, k, v, mask, is_causal, 0.5, p, 7, 3)
        needs_mask = mask is not None and mask.dtype != np.bool_
        g = draw(y.shape)
        yield Call(g, q, k, v, y, lse, mask, is_causal, 0.5, p, 7, 3, needs_mask)


@attention_grad.rejects
def _() -> Iterator[Reject]:
    q, lse = np.ones((1, 1, 2, 3)), np.ones((1, 1, 2))
    rest = (None, False, 1.0, 0.0, 0, 0, False)
    yield Reject(Call(q, q.astype(int), q, q, q, lse, *rest), DtypeError, argument="query")
