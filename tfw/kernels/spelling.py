"""How dtypes, numbers and conversions are spelled in Triton source."""

from __future__ import annotations

import math
from typing import Any

from tfw import dtypes
from tfw.dtypes import Category, accumulation, dtype
from tfw.errors import DtypeError

_TRITON_TYPES = {
    dtypes.bool_: "tl.int1",
    dtypes.uint8: "tl.uint8",
    dtypes.int8: "tl.int8",
    dtypes.int16: "tl.int16",
    dtypes.int32: "tl.int32",
    dtypes.int64: "tl.int64",
    dtypes.float8_e4m3fn: "tl.float8e4nv",
    dtypes.float8_e5m2: "tl.float8e5",
    dtypes.float16: "tl.float16",
    dtypes.bfloat16: "tl.bfloat16",
    dtypes.float32: "tl.float32",
    dtypes.float64: "tl.float64",
}


def triton_type(d: dtype) -> str:
    """Return the name by which Triton knows a dtype. DtypeError if it does not."""
    if d not in _TRITON_TYPES:
        raise DtypeError(
            f"{d!r} has no kernel",
            op="emit",
            value=d,
            rule=", ".join(t.name for t in _TRITON_TYPES),
        )
    return _TRITON_TYPES[d]


def literal(value: Any, d: dtype) -> str:
    """Return a number as source text of its dtype's category."""
    if d is dtypes.bool_:
        return str(bool(value))
    if d.category is Category.INTEGER:
        return str(int(value)) if value >= 0 else f"({int(value)})"
    value = float(value)
    if not math.isfinite(value):
        return f'float("{value}")'
    return repr(value) if math.copysign(1.0, value) > 0 else f"({value!r})"


def converted(text: str, source: dtype, target: dtype) -> str:
    """Return a value converted: rounded to the target's digits, in the type it is computed in."""
    if target is dtypes.bool_:
        return text if source is dtypes.bool_ else f"{text} != 0"
    wide, computed = accumulation(target), accumulation(source)
    if target.category is Category.FLOATING:
        if computed is not wide:
            text = f"{text}.to({triton_type(wide)})"
        if wide is not target and source is not target:
            text = f"{text}.to({triton_type(target)}).to({triton_type(wide)})"
        return text
    if source.category is Category.FLOATING and target.itemsize < 4:
        # By way of int32, so that values out of range wrap as they do on the CPU.
        text = f"{text}.to(tl.int32)"
    return text if source is target else f"{text}.to({triton_type(target)})"
