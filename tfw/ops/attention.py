"""Scaled dot-product attention as users call it."""

from __future__ import annotations

import math

from tfw.errors import ShapeError, ValueRangeError
from tfw.ops.attention_grad import attention_stats  # with its gradient
from tfw.ops.attention_stats import NAME
from tfw.ops.dropout import check_probability
from tfw.ops.expand import expand, unsqueeze
from tfw.ops.generator import default_generator
from tfw.ops.movement import reshape
from tfw.shapes import broadcast_shapes
from tfw.tensor import Tensor


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
    Example: `nn.functional.scaled_dot_product_attention(*[tfw.ones(1, 2)] * 3).tolist() == [[1.0,
        1.0]]`
    """
    check_probability(NAME, dropout_p)
    if attn_mask is not None and is_causal:
        raise ShapeError(
            "attn_mask and is_causal are both given",
            op=NAME,
            argument="is_causal",
            rule="one of the two",
        )
    for name, x in (("query", query), ("key", key), ("value", value)):
        if x._a.ndim < 2:
            raise ShapeError(
                f"{name} has shape {tuple(x._a.shape)}",
                op=NAME,
                argument=name,
                rule="at least two dims",
            )
    if enable_gqa:
        key, value = _repeat_heads(query, key, "key"), _repeat_heads(query, value, "value")
    lead = query._a.shape[:-2]
    if not lead == key._a.shape[:-2] == value._a.shape[:-2]:
        lead = broadcast_shapes(
            NAME, lead, key._a.shape[:-2], value._a.shape[:-2], names=("query", "key", "value")
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
            op=NAME,
            argument=name,
            value=tuple(x._a.shape),
            rule="query heads a multiple of key heads",
        )
    *lead, heads, n, width = x._a.shape
    times = query._a.shape[-3] // heads
    return reshape(
        expand(unsqueeze(x, -3), (*lead, heads, times, n, width)), (*lead, heads * times, n, width)
    )
