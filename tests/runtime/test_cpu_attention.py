"""Attention and its gradient against the composed formula in float64."""

from __future__ import annotations

import tracemalloc
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special as sp

from tfw.runtime.cpu import philox
from tfw.runtime.cpu.attention import AttentionRule, attention, attention_grad

Array = np.ndarray[Any, np.dtype[Any]]


def oracle(q: Array, k: Array, v: Array, g: Array, rule: AttentionRule) -> list[Array]:
    """Return out, logsumexp, dq, dk, dv and ds with the whole score matrix in float64."""
    q, k, v, g = (x.astype(np.float64) for x in (q, k, v, g))
    scale = 1 / np.sqrt(q.shape[-1]) if rule.scale is None else rule.scale
    s = scale * np.einsum("bhle,bhse->bhls", q, k)
    if rule.mask is not None:
        mask = rule.mask
        added = np.where(mask, 0, -np.inf) if mask.dtype == bool else mask.astype(np.float64)
        s = np.asarray(s + added)
    if rule.causal:
        s = np.where(np.tril(np.ones(s.shape[2:], bool)), s, -np.inf)
    lse = sp.logsumexp(s, axis=-1)
    shifted: Any = s - np.where(np.isinf(lse), 0, lse)[..., None]
    p = np.exp(shifted)
    kept: Any = 1.0
    if rule.dropout_p:
        keep = philox.keep_mask(rule.seed, rule.offset, s.size, rule.dropout_p).reshape(s.shape)
        kept = keep / (1 - rule.dropout_p)
    dp = kept * np.einsum("bhle,bhse->bhls", g, v)
    ds = p * (dp - (dp * p).sum(-1, keepdims=True))
    return [
        np.einsum("bhls,bhse->bhle", p * kept, v),
        lse,
        scale * np.einsum("bhls,bhse->bhle", ds, k),
        scale * np.einsum("bhls,bhle->bhse", ds, q),
        np.einsum("bhls,bhle->bhse", p * kept, g),
        ds,
    ]


def draw(b: int, h: int, n: int, e: int, dtype: Any, seed: int) -> Array:
    """Return (B, H, N, E) as a transposed view, the layout that a projection gives."""
    x = np.random.default_rng(seed).standard_normal((b, n, h, e)).astype(dtype)
    return x.transpose(0, 2, 1, 3)


def rules(b: int, length: int, n_keys: int) -> dict[str, AttentionRule]:
    rng = np.random.default_rng(7)
    allowed = rng.random((length, n_keys)) < 0.7
    allowed[0] = False
    bias = rng.standard_normal((b, 1, length, n_keys))
    bias[:, :, -1] = -np.inf
    return {
        "plain": AttentionRule(),
        "causal": AttentionRule(causal=True),
        "boolean": AttentionRule(mask=allowed),
        "keys": AttentionRule(mask=np.arange(n_keys).reshape(1, 1, 1, -1) % 3 != 1),
        "additive": AttentionRule(mask=bias),
        "dropout": AttentionRule(dropout_p=0.3, seed=5, offset=9, causal=True, mask=allowed),
        "sharp": AttentionRule(scale=60.0),
    }


SHAPES = [
    (2, 3, 5, 7, 4, 6),
    (1, 1, 1, 1, 1, 1),
    (2, 2, 130, 130, 8, 8),
    (1, 5, 200, 70, 16, 3),
    (3, 2, 70, 200, 16, 16),
    (1, 1, 40, 5000, 8, 8),
    (40, 3, 9, 9, 4, 4),
]


@pytest.mark.parametrize("name", list(rules(1, 1, 1)))
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float64, 1e-12), (np.float32, 1e-5)])
def test_attention(shape: tuple[int, ...], name: str, dtype: Any, tolerance: float) -> None:
    b, h, length, n_keys, e, ev = shape
    rule = rules(b, length, n_keys)[name]
    sizes = ((length, e), (n_keys, e), (n_keys, ev), (length, ev))
    q, k, v, g = (draw(b, h, *size, dtype, i) for i, size in enumerate(sizes))
    expected = oracle(q, k, v, g, rule)
    additive = name == "additive"
    out, lse = attention(q, k, v, rule)
    dq, dk, dv, dmask = attention_grad(g, q, k, v, out, lse, rule, additive)
    # Scores of several hundred carry that much rounding into weights and, times scale, gradients.
    slack = 2e3 if name == "sharp" else 4.0
    for actual, value in zip((out, lse, dq, dk, dv), expected[:5], strict=True):
        assert actual.dtype == dtype
        size = np.abs(value[np.isfinite(value)]).max(initial=1.0)
        np.testing.assert_allclose(actual, value, rtol=0, atol=slack * tolerance * size)
    if additive:
        assert dmask is not None
        assert rule.mask is not None
        summed = expected[5].sum(1, keepdims=True)
        np.testing.assert_allclose(dmask, summed, rtol=0, atol=slack * tolerance)
        assert dmask.shape == rule.mask.shape
    else:
        assert dmask is None


@pytest.mark.parametrize(("dtype", "tolerance"), [(np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)])
def test_half_precision_computes_in_float32(dtype: Any, tolerance: float) -> None:
    q, k, v, g = (draw(2, 2, 33, 8, dtype, i) for i in range(4))
    rule = AttentionRule(causal=True)
    out, lse = attention(q, k, v, rule)
    assert lse.dtype == np.float32
    grads = attention_grad(g, q, k, v, out, lse, rule)[:3]
    expected = oracle(q, k, v, g, rule)
    np.testing.assert_allclose(lse, expected[1], atol=1e-5)
    for actual, value in zip((out, *grads), [expected[0], *expected[2:5]], strict=True):
        assert actual.dtype == dtype
        np.testing.assert_allclose(
            actual.astype(np.float64), value, atol=2 * tolerance, rtol=tolerance
        )


def test_by_hand() -> None:
    # Scores 0 and log 3 give weights 1/4 and 3/4.
    q, k = np.array([[[[1.0]]]]), np.array([[[[0.0], [np.log(3)]]]])
    v = np.array([[[[4.0], [8.0]]]])
    out, lse = attention(q, k, v, AttentionRule(scale=1.0))
    np.testing.assert_allclose(out, [[[[7.0]]]])
    np.testing.assert_allclose(lse, [[[np.log(4)]]])


@pytest.mark.parametrize("shape", [(0, 2, 3, 3), (2, 0, 3, 3), (2, 2, 0, 3), (2, 2, 3, 0)])
def test_empty(shape: tuple[int, int, int, int]) -> None:
    b, h, length, n_keys = shape
    q, g = np.ones((b, h, length, 4)), np.ones((b, h, length, 4))
    k = v = np.ones((b, h, n_keys, 4))
    out, lse = attention(q, k, v, AttentionRule())
    assert not out.any()
    assert (lse == -np.inf).all()
    dq, dk, dv, _ = attention_grad(g, q, k, v, out, lse, AttentionRule())
    assert (dq.shape, dk.shape, dv.shape) == (q.shape, k.shape, v.shape)
    assert not dq.any()


def test_rows_without_keys_give_zeros() -> None:
    q = k = v = draw(1, 2, 4, 3, np.float32, 0)
    for mask in (np.zeros((4, 4), bool), np.full((4, 4), -np.inf, np.float32)):
        rule = AttentionRule(mask=mask)
        out, lse = attention(q, k, v, rule)
        assert not out.any()
        assert (lse == -np.inf).all()
        for gradient in attention_grad(np.ones_like(out), q, k, v, out, lse, rule)[:3]:
            assert not gradient.any()


def test_everything_dropped_gives_zeros() -> None:
    q = k = v = draw(1, 1, 4, 3, np.float32, 0)
    rule = AttentionRule(dropout_p=1.0)
    out, lse = attention(q, k, v, rule)
    assert not out.any()
    for gradient in attention_grad(np.ones_like(out), q, k, v, out, lse, rule)[:3]:
        assert not gradient.any()


def test_nan_stays_in_its_row() -> None:
    q, k, v = (draw(1, 1, 6, 3, np.float32, i) for i in range(3))
    q[0, 0, 2, 0] = np.nan
    out, _ = attention(q, k, v, AttentionRule())
    assert np.isnan(out[0, 0, 2]).all()
    assert np.isfinite(np.delete(out[0, 0], 2, axis=0)).all()


def test_merging_the_heads_copies_nothing() -> None:
    q = draw(2, 3, 5, 4, np.float32, 0)
    out, _ = attention(q, q, q, AttentionRule())
    assert out.transpose(0, 2, 1, 3).flags.c_contiguous


def test_memory_stays_below_the_score_matrix() -> None:
    q = draw(1, 8, 1024, 16, np.float32, 0)
    rule = AttentionRule()
    tracemalloc.start()
    out, lse = attention(q, q, q, rule)
    attention_grad(out, q, q, q, out, lse, rule)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The inputs are 0.5 MB each; one score matrix would be 32 MB: less than half of one is used.
    assert peak < 16e6
