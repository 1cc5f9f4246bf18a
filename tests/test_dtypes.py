"""dtypes: promotion against hand-worked rows of PyTorch's table, limits, casts, NumPy's dtypes."""

from __future__ import annotations

import copy
import pickle

import ml_dtypes
import numpy as np
import pytest

import tfw
from tfw import dtypes
from tfw.errors import ArgumentError, DtypeError

# Rows of the table of torch.promote_types in PyTorch's documentation, dtypes in this order:
ORDER = ("u1", "i1", "i2", "i4", "i8", "f2", "f4", "f8", "b1", "bf")
ROWS = {
    "u1": "u1 i2 i2 i4 i8 f2 f4 f8 u1 bf",
    "i1": "i2 i1 i2 i4 i8 f2 f4 f8 i1 bf",
    "i4": "i4 i4 i4 i4 i8 f2 f4 f8 i4 bf",
    "f2": "f2 f2 f2 f2 f2 f2 f4 f8 f2 f4",
    "f8": "f8 f8 f8 f8 f8 f8 f8 f8 f8 f8",
    "b1": "u1 i1 i2 i4 i8 f2 f4 f8 b1 bf",
    "bf": "bf bf bf bf bf f4 f4 f8 bf bf",
}
NAMES = {
    **{"u1": tfw.uint8, "i1": tfw.int8, "i2": tfw.int16, "i4": tfw.int32, "i8": tfw.int64},
    **{"f2": tfw.float16, "f4": tfw.float32, "f8": tfw.float64, "b1": tfw.bool, "bf": tfw.bfloat16},
}


@pytest.mark.parametrize("row", ROWS)
def test_promotion(row: str) -> None:
    a = NAMES[row]
    for column, wanted in zip(ORDER, ROWS[row].split(), strict=True):
        b = NAMES[column]
        assert tfw.promote_types(a, b) is NAMES[wanted], (row, column)
        assert tfw.promote_types(b, a) is NAMES[wanted], (column, row)


def test_promotion_of_complex_and_float8() -> None:
    assert tfw.promote_types(tfw.complex64, tfw.float64) is tfw.complex128
    assert tfw.promote_types(tfw.complex64, tfw.bfloat16) is tfw.complex64
    assert tfw.promote_types(tfw.float8_e5m2, tfw.float8_e5m2) is tfw.float8_e5m2
    with pytest.raises(DtypeError, match="no common dtype"):
        tfw.promote_types(tfw.float8_e5m2, tfw.float32)


def test_ranks_of_operands() -> None:
    """Tensors with dims outrank 0-d ones, which outrank numbers, within one category."""
    half, whole = tfw.ones(1, dtype=tfw.float16), tfw.ones(1, dtype=tfw.int32)
    assert (half + 2.0).dtype is tfw.float16
    assert (half + tfw.tensor(2.0, dtype=tfw.float64)).dtype is tfw.float16
    assert (tfw.tensor(1, dtype=tfw.int8) + 300).dtype is tfw.int8
    assert (whole + 2.5).dtype is tfw.float32
    assert (whole + tfw.tensor(2.5, dtype=tfw.float64)).dtype is tfw.float64
    assert (whole + True).dtype is tfw.int32
    assert (tfw.tensor(True) + 1).dtype is tfw.int64
    assert (whole / whole).dtype is tfw.float32
    assert dtypes.result_type([], [tfw.float16], [2.5]) is tfw.float16
    with pytest.raises(DtypeError):
        dtypes.result_type([], [], [])


def test_default_dtype() -> None:
    assert tfw.get_default_dtype() is tfw.float32
    tfw.set_default_dtype(tfw.float64)
    try:
        assert tfw.tensor(1.5).dtype is tfw.float64
        assert tfw.zeros(1).dtype is tfw.float64
        assert (tfw.ones(1, dtype=tfw.int64) * 0.5).dtype is tfw.float64
    finally:
        tfw.set_default_dtype(tfw.float32)
    with pytest.raises(ArgumentError):
        tfw.set_default_dtype(tfw.int32)


def test_casts() -> None:
    assert tfw.can_cast(tfw.float64, tfw.float16)
    assert tfw.can_cast(tfw.int64, tfw.int8)
    assert tfw.can_cast(tfw.bool, tfw.uint8)
    assert not tfw.can_cast(tfw.float16, tfw.int64)
    assert not tfw.can_cast(tfw.uint8, tfw.bool)
    assert not tfw.can_cast(tfw.complex64, tfw.float64)


@pytest.mark.parametrize("d", dtypes.ALL, ids=repr)
def test_objects(d: tfw.dtype) -> None:
    assert pickle.loads(pickle.dumps(d)) is d
    assert copy.deepcopy(d) is d
    assert dtypes.from_numpy(d.numpy) is d
    assert dtypes.from_numpy(d.numpy.newbyteorder(">")) is d
    assert d.itemsize * 8 == d.bits
    assert repr(d) == f"tfw.{d.name}"
    wide = dtypes.accumulation(d)
    assert wide is (tfw.float32 if d.is_floating_point and d.itemsize < 4 else d)


def test_numpy_dtypes_without_counterpart() -> None:
    for unknown in (np.uint16, np.dtype("U3"), np.dtype(object), np.longdouble):
        with pytest.raises(DtypeError):
            dtypes.from_numpy(np.dtype(unknown))


def test_limits() -> None:
    half = tfw.finfo(tfw.float16)
    assert (half.bits, half.max, half.eps, half.tiny) == (16, 65504.0, 2.0**-10, 2.0**-14)
    brain = tfw.finfo(tfw.bfloat16)
    assert (brain.bits, brain.eps) == (16, 2.0**-7)
    assert brain.max == float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    assert tfw.finfo().dtype == "float32"
    assert tfw.finfo(tfw.float64).eps == 2.0**-52
    assert tfw.finfo(tfw.complex64).bits == 32
    byte = tfw.iinfo(tfw.uint8)
    assert (byte.bits, byte.min, byte.max) == (8, 0, 255)
    assert tfw.iinfo(tfw.int64).max == 2**63 - 1
    with pytest.raises(ArgumentError):
        tfw.iinfo(tfw.float32)
    with pytest.raises(ArgumentError):
        tfw.finfo(tfw.int32)
