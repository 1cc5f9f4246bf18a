"""Comparisons that say where and by how much two results differ."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from tfw.runtime.thread_state import state
from tfw.tensor import Tensor

Array = np.ndarray[Any, Any]

# A result computed in float32 and rounded once is within one unit in the last place.
_UNITS = {2: 1.0, 4: 8.0, 8: 16.0}


def layout_of(x: Tensor) -> tuple[Any, ...]:
    """Return shape, strides and dtype, which every path must agree on."""
    return comparable(tuple(x.shape), x.stride(), x.dtype)


def comparable(shape: tuple[int, ...], strides: tuple[int, ...], d: Any) -> tuple[Any, ...]:
    """Return a layout without strides that address nothing: of size 1 dims and empty tensors.

    NumPy chooses those freely, and no memory access depends on them.
    """
    if 0 in shape:
        return shape, None, d
    return shape, tuple(s if n > 1 else None for n, s in zip(shape, strides, strict=True)), d


def is_float(d: np.dtype[Any]) -> bool:
    """Return whether a NumPy dtype, or one of ml_dtypes', is floating."""
    return d.kind in "fV"


def same_bits(a: Array, b: Array) -> bool:
    """Return whether two arrays hold the same bits; any NaN equals any other."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    equal = np.ascontiguousarray(a).view(unsigned) == np.ascontiguousarray(b).view(unsigned)
    if is_float(a.dtype):
        equal = equal | ((a != a) & (b != b)).reshape(equal.shape)
    return bool(equal.all())


def difference(
    actual: Array,
    expected: Any,
    *,
    relative: bool = False,
    factor: float = 1.0,
    spread: float = 0.0,
) -> str | None:
    """Return None if `actual` is `expected` (float64) rounded to its dtype, else what is wrong.

    Args:
        actual: the result.
        expected: values from outside, in float64 or integers.
        relative: hold each element to its own size, not to the largest in the tensor.
        factor: multiple of the usual tolerance, for sums of many terms.
        spread: how far the value moves when the inputs move by their own rounding.

    """
    expected = np.asarray(expected)
    if actual.shape != expected.shape:
        return f"shape {actual.shape}, expected {expected.shape}"
    if not is_float(actual.dtype):
        rounded = state.run(expected.astype, actual.dtype)
        wrong = actual != rounded
        return _first("value", wrong, actual, rounded) if wrong.any() else None
    rounded = state.run(expected.astype, actual.dtype).astype(np.float64)
    got = actual.astype(np.float64)
    if (wrong := np.isnan(got) != np.isnan(rounded)).any():
        return _first("NaN", wrong, got, rounded)
    info = ml_dtypes.finfo(actual.dtype)
    # The largest finite value and infinity are neighbours.
    edge = float(info.max) * (1 - 4 * float(info.eps))
    finite = np.isfinite(rounded) & np.isfinite(got)
    big = (np.abs(got) >= edge) & (np.abs(rounded) >= edge) & (np.sign(got) == np.sign(rounded))
    if (wrong := ~finite & ~big & ~np.isnan(got)).any():
        return _first("infinity", wrong, got, rounded)
    size = np.abs(np.where(finite, rounded, 0.0))
    scale = size if relative else np.maximum(size, size.max(initial=0.0))
    bound = _UNITS[actual.dtype.itemsize] * factor * float(info.eps) * scale
    bound = bound + float(info.smallest_subnormal) + 4 * spread
    error = np.abs(np.where(finite, got, 0.0) - np.where(finite, rounded, 0.0))
    if (wrong := finite & (error > bound)).any():
        return _first("value", wrong, got, rounded)
    return None


def _first(what: str, wrong: Any, actual: Any, expected: Any) -> str:
    at = tuple(int(i) for i in np.argwhere(wrong)[0])
    return (
        f"{what} differs at {int(wrong.sum())} of {wrong.size} places, first at {at}: "
        f"{actual[at]!r}, expected {expected[at]!r}"
    )
