"""Softmax, GELU, erf, layer norm, losses, embedding gradient: against SciPy and float64 formulas.

Gradients are checked against closed forms written out in float64, never against the code under
test. `layouts` supplies each input as C-ordered, transposed, reversed, strided and expanded memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from scipy import special as sp

from tfw.runtime.cpu import activations, elementwise, embedding, losses, norm, softmax, special

Array = np.ndarray[Any, np.dtype[Any]]
DTYPES = [np.float32, np.float64, np.float16, ml_dtypes.bfloat16]
# One rounding to the type, and for float32 a few more on the way.
TOLERANCE = {np.float32: 1e-6, np.float64: 1e-14, np.float16: 1e-3, ml_dtypes.bfloat16: 8e-3}


def close(actual: Array, expected: Array, dtype: Any, slack: float = 1.0) -> None:
    tolerance = slack * TOLERANCE[dtype]
    assert actual.dtype == dtype
    np.testing.assert_allclose(actual.astype(np.float64), expected, rtol=tolerance, atol=tolerance)


def layouts(x: Array) -> list[Array]:
    """Return arrays equal to x (2 or more axes) in other memory layouts."""
    transposed = np.ascontiguousarray(x.T).T
    reversed_ = np.ascontiguousarray(x[::-1, ::-1])[::-1, ::-1]
    gaps = np.repeat(x, 2, axis=-1)[..., ::2]
    return [x, transposed, reversed_, gaps]


def draw(*shape: int, dtype: Any = np.float64, seed: int = 0, scale: float = 1.0) -> Array:
    return (scale * np.random.default_rng(seed).standard_normal(shape)).astype(dtype)


SHAPES = [
    (4, 8),
    (1, 1),
    (3, 0),
    (0, 3),
    (700, 131),
    (5, 2, 3),
    (2, 37, 50),
    (3, 200, 2),
    (70000, 3),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_softmax(shape: tuple[int, ...], dtype: Any) -> None:
    x, g = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype, seed=1)
    for axis in range(-1, len(shape) - 1):
        if not x.size:
            assert softmax.softmax(x, axis).shape == shape
            assert softmax.log_softmax_grad(g, x, axis).shape == shape
            continue
        x64, g64 = x.astype(np.float64), g.astype(np.float64)
        y, log_y = sp.softmax(x64, axis), sp.log_softmax(x64, axis)
        for view in layouts(x):
            close(softmax.softmax(view, axis), y, dtype)
            close(softmax.log_softmax(view, axis), log_y, dtype)
        rounded, log_rounded = y.astype(dtype), log_y.astype(dtype)
        y, p = rounded.astype(np.float64), np.exp(log_rounded.astype(np.float64))
        dx = y * (g64 - (g64 * y).sum(axis, keepdims=True))
        dlog = g64 - p * g64.sum(axis, keepdims=True)
        for view in layouts(g):
            close(softmax.softmax_grad(view, rounded, axis), dx, dtype)
            # sum(g) is as large as the square root of the axis.
            close(softmax.log_softmax_grad(view, log_rounded, axis), dlog, dtype, 8)


@pytest.mark.parametrize("n", [5, 5000])
def test_softmax_special_values(n: int) -> None:
    rows = np.zeros((6, n), np.float32)
    rows[0] = -np.inf
    rows[1, 1] = np.inf
    rows[2, 2] = np.nan
    rows[3, 3] = -np.inf
    rows[4] = 1e30
    rows[5] = [-200.0, 100.0, *[-3e38] * (n - 2)]
    for axis, x in ((-1, rows), (0, rows.T.copy())):
        y = softmax.softmax(x, axis)
        y = y if axis else y.T
        assert np.isnan(y[:3]).all()
        np.testing.assert_allclose(y[3], np.where(np.arange(n) == 3, 0, 1 / (n - 1)), rtol=1e-6)
        np.testing.assert_allclose(y[4], 1 / n, rtol=1e-6)
        assert y[5].tolist()[:3] == [0, 1, 0]
        log_y = softmax.log_softmax(x, axis)
        log_y = log_y if axis else log_y.T
        assert np.isnan(log_y[:3]).all()
        assert log_y[3, 3] == -np.inf
        assert log_y[5].tolist()[:3] == [-300, 0, np.float32(-3e38)]


def test_softmax_keeps_relative_accuracy_of_small_terms() -> None:
    x = np.array([[-39.0, 39.0], [-39.0, -39.0], [60.0, -20.0]], np.float32)
    np.testing.assert_allclose(softmax.softmax(x), sp.softmax(x.astype(float), -1), rtol=1e-5)


@pytest.mark.parametrize(("dtype", "atol"), [(np.float32, 2e-7), (np.float64, 4e-16)])
def test_erf(dtype: Any, atol: float) -> None:
    x = np.concatenate([np.linspace(-7, 7, 200001), np.geomspace(1e-30, 1, 999)]).astype(dtype)
    expected = sp.erf(x.astype(np.float64))
    y = special.erf(x)
    assert y.dtype == dtype
    np.testing.assert_allclose(y, expected, rtol=0, atol=atol)
    np.testing.assert_allclose(y, expected, rtol=8e-7 if dtype is np.float32 else 7e-16, atol=0)
    out = x.copy()
    assert special.erf(out, out) is out
    np.testing.assert_array_equal(out, y)


def test_erf_special_values() -> None:
    for dtype in (np.float32, np.float64):
        x = np.array([0.0, -0.0, np.inf, -np.inf, np.nan, 3e38, -3e38], dtype)
        y = special.erf(x)
        np.testing.assert_array_equal(y, np.array([0, 0, 1, -1, np.nan, 1, -1], dtype))
        assert np.signbit(y[1])
    assert special.erf(np.empty((0, 3))).shape == (0, 3)


def _gelu(x: Array) -> tuple[Array, Array]:
    cdf = sp.ndtr(x)
    return x * cdf, cdf + x * np.exp(-x * x / 2) / np.sqrt(2 * np.pi)


def _gelu_tanh(x: Array) -> tuple[Array, Array]:
    c = np.sqrt(2 / np.pi)
    t = np.tanh(c * (x + 0.044715 * x**3))
    slope = c * (1 + 3 * 0.044715 * x**2)
    return x * (1 + t) / 2, (1 + t) / 2 + x * (1 - t * t) * slope / 2


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (0, 4), (7, 13), (300, 401)])
@pytest.mark.parametrize(("form", "oracle"), [("none", _gelu), ("tanh", _gelu_tanh)])
def test_gelu(shape: tuple[int, ...], dtype: Any, form: Any, oracle: Callable[..., Any]) -> None:
    x, g = draw(*shape, dtype=dtype, scale=2), draw(*shape, dtype=dtype, seed=1)
    y, slope = oracle(x.astype(np.float64))
    for view in layouts(x):
        result = activations.gelu(view, form)
        close(result, y, dtype)
        # The tanh form multiplies what 1 + tanh has rounded away by the cubic's slope.
        close(activations.gelu_grad(g, view, form), g.astype(np.float64) * slope, dtype, 8)
        if form == "none":
            y_again, slope_again = activations.gelu_and_slope(view)
            close(y_again, y, dtype)
            close(slope_again, slope, dtype)
    assert activations.gelu(x.T, form).strides == x.T.strides


def test_gelu_expanded_input() -> None:
    x = np.broadcast_to(np.array([[1.0], [-2.0]], np.float32), (2, 5))
    close(activations.gelu(x), _gelu(x.astype(np.float64))[0], np.float32)


NORM_CASES = [
    ((6, 8), 1),
    ((3, 4, 5), 2),
    ((2, 3, 4), 3),
    ((0, 4), 1),
    ((1, 1), 1),
    ((900, 129), 1),
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("shape", "n_axes"), NORM_CASES)
@pytest.mark.parametrize("affine", [True, False])
def test_layer_norm(shape: tuple[int, ...], n_axes: int, dtype: Any, affine: bool) -> None:
    x, g = draw(*shape, dtype=dtype), draw(*shape, dtype=dtype, seed=1)
    tail = shape[len(shape) - n_axes :]
    w = draw(*tail, dtype=dtype, seed=2) if affine else None
    b = draw(*tail, dtype=dtype, seed=3) if affine else None
    axes = tuple(range(-n_axes, 0))
    x64, g64 = x.astype(np.float64), g.astype(np.float64)
    w64 = np.ones(tail) if w is None else w.astype(np.float64)
    mean = x64.mean(axes, keepdims=True)
    rstd = 1 / np.sqrt(x64.var(axes, keepdims=True) + 1e-5)
    hat = (x64 - mean) * rstd
    y64 = hat * w64 + (0 if b is None else b.astype(np.float64))
    h = g64 * w64
    dx64 = rstd * (h - h.mean(axes, keepdims=True) - hat * (h * hat).mean(axes, keepdims=True))
    lead = tuple(range(len(shape) - n_axes))
    statistics = np.float64 if dtype is np.float64 else np.float32
    for view in layouts(x):
        y, m, r = norm.layer_norm(view, n_axes, w, b)
        close(y, y64, dtype, 8)
        close(m, mean, statistics)
        close(r, rstd, statistics, 8)
        dx, dw, db = norm.layer_norm_grad(g, view, m, r, w, n_axes)
        assert dx is not None
        assert dw is not None
        assert db is not None
        # A row of one element has variance 0 and rstd 316, which multiplies the rounding.
        close(dx, dx64, dtype, 8 if x.size > 1 else 400)
        close(dw, (g64 * hat).sum(lead), dtype, 40)
        close(db, g64.sum(lead), dtype, 40)
        assert norm.layer_norm_grad(g, view, m, r, w, n_axes, (False, False, True))[0] is None


def test_layer_norm_with_a_large_mean() -> None:
    x = draw(5, 64) * 1e-2
    y, _, _ = norm.layer_norm((x + 1000).astype(np.float32), 1)
    shifted = (x + 1000).astype(np.float32).astype(np.float64)
    centred = shifted - shifted.mean(-1, keepdims=True)
    expected = centred / np.sqrt(centred.var(-1, keepdims=True) + 1e-5)
    np.testing.assert_allclose(y, expected, atol=0.02)


CROSS_ENTROPY = [
    {},
    {"label_smoothing": 0.1},
    {"weight": True},
    {"weight": True, "label_smoothing": 0.3, "ignore_index": 2},
]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(6, 5), (1, 3), (0, 4), (2048, 96)])
@pytest.mark.parametrize("options", CROSS_ENTROPY)
def test_cross_entropy(shape: tuple[int, int], dtype: Any, options: dict[str, Any]) -> None:
    n, c = shape
    x, g = draw(n, c, dtype=dtype, scale=3), draw(n, seed=1).astype(dtype)
    t = np.random.default_rng(2).integers(0, c, n)
    ignore = options.get("ignore_index", -100)
    if ignore < 0 < n:
        t[n // 2] = ignore
    options = dict(options)
    w64 = np.ones(c)
    if options.pop("weight", False):
        options["weight"] = np.abs(draw(c, seed=3)).astype(dtype)
        w64 = options["weight"].astype(np.float64)
    s = options.get("label_smoothing", 0.0)
    x64, g64, valid = x.astype(np.float64), g.astype(np.float64), t != ignore
    log_p, safe = sp.log_softmax(x64, -1) if n else x64, np.where(valid, t, 0)
    coefficient = s / c * w64 + (1 - s) * np.eye(c)[safe] * w64
    loss64 = np.where(valid, -(coefficient * log_p).sum(-1), 0)
    p = np.exp(log_p)
    row = np.where(valid, g64, 0)[:, None]
    dx64 = row * (p * coefficient.sum(-1, keepdims=True) - coefficient)
    computed = np.float64 if dtype is np.float64 else np.float32
    for view in layouts(x):
        loss, lse = losses.cross_entropy(view, t, **options)
        close(loss, loss64, computed, 4)
        close(lse, sp.logsumexp(x64, axis=-1) if n else np.empty(0), computed)
        close(losses.cross_entropy_grad(g, view, t, lse, **options), dx64, dtype, 8)


def test_cross_entropy_far_from_zero_and_bad_targets() -> None:
    x = np.array([[10000.0, 10001.0]], np.float32)
    loss, _ = losses.cross_entropy(x, np.array([0]))
    np.testing.assert_allclose(loss, np.log1p(np.exp(1)), rtol=1e-6)
    loss, _ = losses.cross_entropy(np.array([[-np.inf, 0.0]], np.float32), np.array([0]))
    assert loss[0] == np.inf
    for bad in (-1, 2):
        with pytest.raises(IndexError, match=rf"target\[0\]={bad} is out of range for 2"):
            losses.cross_entropy(x, np.array([bad]))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("n", "d", "rows"), [(0, 3, 4), (1, 1, 1), (500, 7, 9), (300, 5, 70000)])
def test_embedding_grad(n: int, d: int, rows: int, dtype: Any) -> None:
    g = draw(n, d, dtype=dtype)
    indices = np.random.default_rng(1).integers(0, rows, n)
    for padding in (None, 0):
        expected = np.zeros((rows, d))
        kept = indices != padding if padding is not None else np.ones(n, bool)
        np.add.at(expected, indices[kept], g.astype(np.float64)[kept])
        close(embedding.embedding_grad(g, indices, rows, padding), expected, dtype, 10)
    g = g.copy()
    if n == 500:
        g[3] = np.inf
        spoiled = embedding.embedding_grad(g, indices, rows)
        assert np.isfinite(np.delete(spoiled.astype(float), indices[3], axis=0)).all()


@pytest.mark.parametrize("n", [3, 300_001])
def test_threaded_ufunc(n: int) -> None:
    a, b = draw(2, n), draw(n, seed=1)
    out = np.empty((2, n))
    np.testing.assert_array_equal(elementwise.threaded_ufunc(np.add, (a, b), out), a + b)
    np.testing.assert_array_equal(elementwise.threaded_ufunc(np.multiply, (a, 3.0), out), a * 3)
    np.testing.assert_array_equal(
        elementwise.threaded_ufunc(np.subtract, (a, a[:, ::-1]), out), a - a[:, ::-1]
    )
    across = np.empty((n, 2)).T
    np.testing.assert_array_equal(elementwise.threaded_ufunc(np.add, (a, across), across), across)
    zero_d = np.empty(())
    assert elementwise.threaded_ufunc(np.add, (1.0, 2.0), zero_d) == 3
