"""What runs otherwise for large arrays, beside NumPy's own functions on the same numbers."""

from __future__ import annotations

import itertools

import ml_dtypes
import numpy as np
import pytest

import tfw
from tfw.runtime.cpu import elementwise, memory
from tfw.runtime.cpu.choice import choose
from tfw.runtime.cpu.join import concatenate
from tfw.runtime.cpu.matmul import dot
from tfw.runtime.cpu.sums import sum_axes

LARGE = elementwise.THREADED_SIZE + 3


@pytest.mark.parametrize("n", [7, 5000, LARGE])
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "u1", "?", "c16", ml_dtypes.bfloat16])
def test_choose(n: int, dtype: str | type) -> None:
    rng = np.random.default_rng(0)
    mask = rng.random(n) > 0.5
    a, b = (rng.standard_normal(n).astype(dtype) for _ in range(2))
    a[:3] = 0
    numbers = a[:1].reshape(()), b[-1:].reshape(())
    for x, y in itertools.product((a, numbers[0], a[::-1]), (b, numbers[1])):
        got, want = choose(mask, x, y), np.where(mask, x, y)
        assert got.dtype == want.dtype
        assert got.tobytes() == want.tobytes()  # bits, so that -0.0 and NaN count


def test_choice_lets_nothing_of_the_other_side_through() -> None:
    mask = np.arange(LARGE) % 2 == 0
    got = choose(mask, np.full(LARGE, 2.0), np.full(LARGE, np.nan))
    assert (got[::2] == 2).all()
    assert np.isnan(got[1::2]).all()


@pytest.mark.parametrize("shape", [(40, 3, 50), (5000, 300), (300, 5000), (LARGE,), (9000, 40)])
@pytest.mark.parametrize("keepdim", [False, True])
def test_sums_over_any_axes(shape: tuple[int, ...], keepdim: bool) -> None:
    a = np.random.default_rng(0).standard_normal(shape)
    for n in range(1, len(shape) + 1):
        for dims in itertools.combinations(range(len(shape)), n):
            got, want = sum_axes(a, dims, keepdim), a.sum(dims, keepdims=keepdim)
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-9)
    np.testing.assert_allclose(sum_axes(a, None, False), a.sum(), rtol=1e-10, atol=1e-9)


def test_long_columns_do_not_stop_at_the_last_whole_float() -> None:
    # One after the other, float32 stays at 2^24 = 16777216: 2^24 + 1 is not a float32.
    n = 2**24 + 4096
    assert sum_axes(np.ones((n, 1), np.float32), 0, False) == n


@pytest.mark.parametrize(
    ("m", "n", "k"),
    [(2, 90_001, 5), (1, 4096, 512), (4096, 1, 512), (513, 2049, 17), (700, 30, 9)],
)
def test_products_cut_along_either_side(m: int, n: int, k: int) -> None:
    rng = np.random.default_rng(0)
    a, b, bias = rng.standard_normal((m, k)), rng.standard_normal((k, n)), rng.standard_normal(n)
    want = a @ b + bias
    for x, y in ((a, b), (np.asfortranarray(a), b), (a, np.asfortranarray(b))):
        np.testing.assert_allclose(dot(x, y, bias), want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_concatenation(axis: int) -> None:
    shape = [LARGE // 64, 8, 8]
    parts = [np.random.default_rng(i).standard_normal(shape) for i in range(3)]
    parts[1] = np.asfortranarray(parts[1])
    np.testing.assert_array_equal(concatenate(parts, axis), np.concatenate(parts, axis))


def test_elementwise_functions_of_large_tensors() -> None:
    a = np.random.default_rng(0).standard_normal((600, 500)).astype(np.float32)
    row = a[0].copy()
    x = tfw.from_numpy(a)
    np.testing.assert_array_equal((x + tfw.from_numpy(row)).numpy(), a + row)
    np.testing.assert_array_equal((x * 3.0).numpy(), a * np.float32(3))
    np.testing.assert_array_equal((x > 0).numpy(), a > 0)
    np.testing.assert_array_equal(x.relu().numpy(), np.maximum(a, 0))
    np.testing.assert_array_equal((x.clone().add_(x)).numpy(), a + a)


def test_in_place_on_overlapping_memory_that_no_view_tells_of() -> None:
    a = np.arange(LARGE + 1, dtype=np.float64)
    want = a[1:] + a[:-1]
    x, y = tfw.from_numpy(a[1:]), tfw.from_numpy(a[:-1])
    np.testing.assert_array_equal(x.add_(y).numpy(), want)


def test_large_arrays_begin_at_a_page() -> None:
    for shape in ((1 << 16,), (300, 400)):
        assert memory.empty(shape, np.float32).ctypes.data % 4096 == 0
    assert memory.empty((0, 5), np.float32).shape == (0, 5)
