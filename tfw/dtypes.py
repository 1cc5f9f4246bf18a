"""Element types: the `dtype` objects, type promotion and the dtype in which each is accumulated.

Promotion follows PyTorch (https://docs.pytorch.org/docs/stable/tensor_attributes.html): tensors
with dimensions outrank zero-dimensional tensors, which outrank Python numbers, unless the lower
rank is of a higher category (bool < integer < floating < complex).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import IntEnum
from functools import reduce
from typing import Any, Final, cast

import ml_dtypes
import numpy as np

from tfw.errors import ArgumentError, DtypeError

Number = bool | int | float | complex


class Category(IntEnum):
    """Rank of a dtype in promotion."""

    BOOL = 0
    INTEGER = 1
    FLOATING = 2
    COMPLEX = 3


class dtype:  # noqa: N801  PyTorch's name
    """The type of a tensor's elements; one object per type, compared by identity.

    Attributes:
        name: e.g. ``"float32"``.
        numpy: the NumPy dtype with the same bytes.
        itemsize: bytes per element.
        category: rank in promotion.
        bits: bits per element.

    """

    __slots__ = ("bits", "category", "is_signed", "itemsize", "name", "numpy")

    def __init__(self, name: str, numpy: Any, category: Category, is_signed: bool = True) -> None:
        self.name = name
        self.numpy: np.dtype[Any] = np.dtype(numpy)
        self.itemsize: int = self.numpy.itemsize
        self.bits = 8 * self.itemsize
        self.category = category
        self.is_signed = is_signed

    @property
    def is_floating_point(self) -> bool:
        """Whether this is a real floating-point type."""
        return self.category is Category.FLOATING

    @property
    def is_complex(self) -> bool:
        """Whether this is a complex type."""
        return self.category is Category.COMPLEX

    def to_real(self) -> dtype:
        """Return the dtype of this one's real part (itself unless complex)."""
        return {complex64: float32, complex128: float64}.get(self, self)

    def __repr__(self) -> str:
        return f"tfw.{self.name}"

    def __reduce__(self) -> tuple[Callable[[str], dtype], tuple[str]]:
        return by_name, (self.name,)  # the one object, so that identity holds across processes


bool_: Final = dtype("bool", np.bool_, Category.BOOL, is_signed=False)
uint8: Final = dtype("uint8", np.uint8, Category.INTEGER, is_signed=False)
int8: Final = dtype("int8", np.int8, Category.INTEGER)
int16: Final = dtype("int16", np.int16, Category.INTEGER)
int32: Final = dtype("int32", np.int32, Category.INTEGER)
int64: Final = dtype("int64", np.int64, Category.INTEGER)
float8_e4m3fn: Final = dtype("float8_e4m3fn", ml_dtypes.float8_e4m3fn, Category.FLOATING)
float8_e5m2: Final = dtype("float8_e5m2", ml_dtypes.float8_e5m2, Category.FLOATING)
float16: Final = dtype("float16", np.float16, Category.FLOATING)
bfloat16: Final = dtype("bfloat16", ml_dtypes.bfloat16, Category.FLOATING)
float32: Final = dtype("float32", np.float32, Category.FLOATING)
float64: Final = dtype("float64", np.float64, Category.FLOATING)
complex64: Final = dtype("complex64", np.complex64, Category.COMPLEX)
complex128: Final = dtype("complex128", np.complex128, Category.COMPLEX)

ALL: Final = (
    *(bool_, uint8, int8, int16, int32, int64),
    *(float8_e4m3fn, float8_e5m2, float16, bfloat16, float32, float64, complex64, complex128),
)
INTEGERS: Final = (uint8, int8, int16, int32, int64)
FLOATING: Final = (float16, bfloat16, float32, float64)
NUMERIC: Final = (*INTEGERS, *FLOATING)
REAL: Final = (bool_, *NUMERIC)
FLOAT8: Final = (float8_e4m3fn, float8_e5m2)

BY_NAME: Final = {d.name: d for d in ALL} | {
    "half": float16,
    "float": float32,
    "double": float64,
    "short": int16,
    "int": int32,
    "long": int64,
    "cfloat": complex64,
    "cdouble": complex128,
}
BY_NUMPY: Final = {d.numpy: d for d in ALL}


def by_name(name: str) -> dtype:
    """Return the dtype called `name`."""
    return BY_NAME[name]


def from_numpy(np_dtype: np.dtype[Any]) -> dtype:
    """Return the dtype with NumPy's `np_dtype` but for byte order. DtypeError if there is none."""
    found = BY_NUMPY.get(np_dtype) or BY_NUMPY.get(np_dtype.newbyteorder("="))
    if found is None:
        raise DtypeError(
            f"NumPy dtype {np_dtype} has no counterpart",
            op="dtype",
            argument="dtype",
            value=np_dtype,
            rule=", ".join(d.name for d in ALL),
        )
    return found


_default: list[dtype] = [float32]


def get_default_dtype() -> dtype:
    """Return the dtype of floating-point tensors made without one (float32 at the start)."""
    return _default[0]


def set_default_dtype(d: dtype) -> None:
    """Set the dtype of floating-point tensors made without one. TypeError unless it is floating."""
    if type(d) is not dtype or d not in FLOATING:
        raise ArgumentError(
            f"d={d!r} is not a floating-point dtype",
            op="set_default_dtype",
            argument="d",
            value=d,
            rule=", ".join(repr(f) for f in FLOATING),
        )
    _default[0] = d


def of_scalar(value: Number) -> dtype:
    """Return a Python number's dtype: bool, int64, the default dtype or its complex partner."""
    if isinstance(value, (bool, np.bool_)):
        return bool_
    if isinstance(value, (int, np.integer)):
        return int64
    if isinstance(value, (float, np.floating)):
        return _default[0]
    return complex128 if _default[0] is float64 else complex64


def accumulation(d: dtype) -> dtype:
    """Return the dtype in which values of `d` are computed: float32 for half types, else `d`."""
    return float32 if d.category is Category.FLOATING and d.itemsize < 4 else d


def _promote(a: dtype, b: dtype) -> dtype:
    if a.category > b.category:
        a, b = b, a
    if a.category < b.category:
        if b.category is Category.COMPLEX and a is float64:
            return complex128
        return b
    if a.category is Category.INTEGER and uint8 in (a, b):  # the one unsigned type
        other = b if a is uint8 else a
        return int16 if other is int8 else other
    if a.itemsize == b.itemsize:  # float16 with bfloat16: neither holds the other
        return float32
    return a if a.itemsize > b.itemsize else b


_PROMOTED: dict[tuple[dtype, dtype], dtype] = {
    (a, b): a if a is b else _promote(a, b)
    for a in ALL
    for b in ALL
    if a is b or (a not in FLOAT8 and b not in FLOAT8)
}


def promote_types(type1: dtype, type2: dtype) -> dtype:
    """Return the smallest dtype that both promote to. float8 types promote with nothing else."""
    try:
        return _PROMOTED[type1, type2]
    except KeyError:
        raise DtypeError(
            f"{type1!r} and {type2!r} have no common dtype",
            op="promote_types",
            argument="type2",
            value=type2,
            remedy="convert explicitly with .to(dtype)",
        ) from None


def result_type(
    dims: Iterable[dtype], zero_dims: Iterable[dtype], numbers: Iterable[Number]
) -> dtype:
    """Promote by PyTorch's three ranks: tensors with dims, zero-dim tensors, Python numbers."""
    ranks = (list(dims), list(zero_dims), [of_scalar(n) for n in numbers])
    promoted = [reduce(promote_types, rank) for rank in ranks if rank]
    if not promoted:
        raise DtypeError("no operand has a dtype", op="result_type", argument="tensors")
    result = promoted[0]
    for lower in promoted[1:]:
        if lower.category > result.category:
            result = promote_types(result, lower)
    return result


def can_cast(from_: dtype, to: dtype) -> bool:
    """Return whether PyTorch lets a result of `from_` be written into `to`: no lower category."""
    return to.category >= from_.category


class finfo:  # noqa: N801  PyTorch's name
    """Limits of a floating-point dtype: bits, eps, max, min, tiny, smallest_normal, resolution."""

    def __init__(self, type: dtype | None = None) -> None:
        d = type or get_default_dtype()
        if d.category < Category.FLOATING:
            raise ArgumentError(
                f"type={d!r} is not a floating-point dtype; use iinfo", op="finfo", argument="type"
            )
        info = cast("np.finfo[Any]", ml_dtypes.finfo(d.numpy))  # which knows NumPy's too
        self.dtype = d.name
        self.bits = d.to_real().bits
        self.eps, self.max, self.min = float(info.eps), float(info.max), float(info.min)
        self.tiny = self.smallest_normal = float(info.smallest_normal)
        self.resolution = float(info.resolution)


class iinfo:  # noqa: N801  PyTorch's name
    """Limits of an integer dtype: bits, max, min."""

    def __init__(self, type: dtype) -> None:
        if type.category is not Category.INTEGER:
            raise ArgumentError(
                f"type={type!r} is not an integer dtype; use finfo", op="iinfo", argument="type"
            )
        info = np.iinfo(type.numpy)
        self.dtype = type.name
        self.bits, self.max, self.min = type.bits, int(info.max), int(info.min)
