"""Philox words against Random123's published vectors; distributions against their moments."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from scipy import stats

from tfw.runtime.cpu import philox, random
from tfw.runtime.cpu.threads import get_num_threads, set_num_threads

# Random123 1.14, tests/kat_vectors, philox4x32 10: counter, key, result.
KAT = [
    ("00000000 00000000 00000000 00000000", "00000000 00000000",
     "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
    ("ffffffff ffffffff ffffffff ffffffff", "ffffffff ffffffff",
     "408f276d 41c83b0e a20bc7c6 6d5451fd"),
    ("243f6a88 85a308d3 13198a2e 03707344", "a4093822 299f31d0",
     "d16cfe09 94fdcceb 5001e420 24126ea1"),
]  # fmt: skip


def _hex(words: str) -> list[int]:
    return [int(w, 16) for w in words.split()]


def _philox(counter: list[int], key: list[int]) -> list[int]:
    """Philox-4x32-10 in Python integers, as the paper writes it."""
    c, (k0, k1) = counter, key
    for _ in range(10):
        a, b = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(b >> 32) ^ c[1] ^ k0, b & 0xFFFFFFFF, (a >> 32) ^ c[3] ^ k1, a & 0xFFFFFFFF]
        k0, k1 = (k0 + 0x9E3779B9) & 0xFFFFFFFF, (k1 + 0xBB67AE85) & 0xFFFFFFFF
    return c


@pytest.mark.parametrize(("counter", "key", "result"), KAT)
def test_published_vectors(counter: str, key: str, result: str) -> None:
    assert _philox(_hex(counter), _hex(key)) == _hex(result)
    lanes = np.repeat(np.array(_hex(counter), np.uint64)[:, None], 3, axis=1)
    even, odd = lanes[0::2].copy(), lanes[1::2].copy()
    philox.philox_rounds(even, odd, np.array(_hex(key), np.uint64)[:, None])
    lanes[0::2], lanes[1::2] = even, odd
    assert lanes.tolist() == [[w] * 3 for w in _hex(result)]


@pytest.mark.parametrize("seed", [0, 1, 0x123456789ABCDEF0, 2**64 - 1])
@pytest.mark.parametrize("offset", [0, 5, 2**32 - 2, 2**40 + 3])
def test_seed_and_offset_are_laid_out_as_tritons(seed: int, offset: int) -> None:
    words = philox.bits(seed, offset, 14)
    key = [seed & 0xFFFFFFFF, seed >> 32]
    expected = [
        w
        for call in range(offset, offset + 4)
        for w in _philox([call & 0xFFFFFFFF, call >> 32, 0, 0], key)
    ]
    assert words.dtype == np.uint32
    assert words.tolist() == expected[:14]


@pytest.mark.parametrize(("start", "n"), [(0, 0), (0, 1), (1, 2), (3, 6), (65530, 17), (7, 70001)])
def test_any_range_gives_the_same_words(start: int, n: int) -> None:
    whole = philox.bits(3, 9, 80000)
    np.testing.assert_array_equal(philox.bits(3, 9, n, start), whole[start : start + n])
    keep = philox.keep_mask(3, 9, n, 0.25, start)
    np.testing.assert_array_equal(keep, whole[start : start + n] >= 2**30)
    np.testing.assert_array_equal(philox.bits(3, 10, 8), whole[4:12])


def test_threads_do_not_change_the_words() -> None:
    before = get_num_threads()
    results = []
    for n in (1, 3):
        set_num_threads(n)
        results.append(random.normal(1, 2, 300001))
    set_num_threads(before)
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
def test_uniform_keeps_leading_digits(dtype: type) -> None:
    digits = {np.float32: 24, np.float16: 11, ml_dtypes.bfloat16: 8}[dtype]
    u = random.uniform(5, 1, 100003, dtype)
    words = philox.bits(5, 1, 100003).astype(np.float64)
    assert u.dtype == dtype
    expected = np.floor(words / 2 ** (32 - digits)) / 2**digits
    np.testing.assert_array_equal(u.astype(np.float64), expected)
    assert u.max() < 1


def test_uniform_float64_uses_two_words() -> None:
    u = random.uniform(5, 1, 70001, np.float64)
    words = philox.bits(5, 1, 140002).astype(np.int64)
    assert u[7] == ((words[14] >> 5) * 2**26 + (words[15] >> 6)) / 2**53
    assert stats.kstest(u, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [1, 2, 65537, 200001])
def test_normal(dtype: type, n: int) -> None:
    z = random.normal(11, 0, n, dtype)
    u = random.uniform(11, 0, n + 1, dtype).astype(np.float64)
    i = np.arange(0, n - 1, 2)
    radius = np.sqrt(-2 * np.log1p(-u[i]))
    tolerance = 2e-6 if dtype is np.float32 else 1e-14
    np.testing.assert_allclose(z[i], radius * np.cos(2 * np.pi * u[i + 1]), atol=tolerance)
    np.testing.assert_allclose(z[i + 1], radius * np.sin(2 * np.pi * u[i + 1]), atol=tolerance)
    assert z.dtype == dtype
    if n > 1e5:
        assert stats.kstest(z, "norm").pvalue > 1e-3


def test_bernoulli_rate_and_limits() -> None:
    assert abs(random.bernoulli(1, 0, 400000, 0.3).mean() - 0.3) < 0.003
    assert random.bernoulli(1, 0, 1000, 1.0).all()
    assert not random.bernoulli(1, 0, 1000, 0.0).any()
    assert not philox.keep_mask(1, 0, 1000, 1.0).any()
    assert philox.keep_mask(1, 0, 1000, 0.0).all()


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3, 9), (0, 2**32), (-(2**62), 2**62 + 1), (-(2**63), 2**63)]
)
def test_integers_cover_their_range_evenly(low: int, high: int) -> None:
    values = random.integers(2, 3, 60000, low, high)
    assert values.dtype == np.int64
    assert int(values.min()) >= low
    assert int(values.max()) < high
    bins = min(12, high - low)
    which = [(int(v) - low) * bins // (high - low) for v in values]
    counts = np.bincount(which, minlength=bins)
    assert stats.chisquare(counts).pvalue > 1e-3 if bins > 1 else counts[0] == 60000
