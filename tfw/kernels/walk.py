"""How an elementwise kernel walks over its tensors: dims merged and ordered, one of four ways.

Only layouts are looked at here, no dtypes but for their size, and no expressions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from tfw.runtime.cuda.plan import VECTOR_BYTES
from tfw.shapes import Shape, expand_strides, is_dense

# Every operand is one run of memory, or one element for all: a block is a range of offsets.
FLAT: Final = "flat"
# Innermost dims are runs of memory (or repeat one element) that start on vector boundaries: blocks
# are rows x columns, and what repeats along a row is loaded once for it.
ROWS: Final = "rows"
# An operand runs along another dim than the result: blocks are square, to read both in runs.
TILE: Final = "tile"
# Anything else: a block is a range of the result's offsets, of which every index is computed.
GATHER: Final = "gather"

_MANY = 16  # a dim this long is worth a side of a tile
_WIDE = 2**31 - 2**20  # from here a block's offsets might pass 32 bits


class Walk(NamedTuple):
    """A way through the elements.

    Attributes:
        mode: FLAT, ROWS, TILE or GATHER.
        sizes: of the merged dims, innermost of the result first.
        layouts: strides of each distinct layout, in the same order of dims.
        forms: of each layout, a letter per dim (0: repeats, 1: steps by one, s: another stride), or
            "c" if it is one run of memory in this order of dims.
        operands: for each operand, which layout it has.
        row: for TILE, the dim that is the tile's other side.
        wide: whether offsets need 64 bits.

    """

    mode: str
    sizes: Shape
    layouts: tuple[Shape, ...]
    forms: tuple[str, ...]
    operands: tuple[int, ...]
    row: int
    wide: bool


def plan_walk(shape: Shape, operands: Sequence[tuple[Shape, Shape]], itemsize: int) -> Walk:
    """Choose the way through `shape` for operands, each (shape, strides); the last is the result.

    `itemsize` is the smallest of the operands' dtypes: it decides how long a vector is.
    """
    last = operands[-1]
    if last[0] == shape and operands.count(last) == len(operands) and is_dense(*last):
        n = math.prod(shape)
        return Walk(FLAT, (n,), ((1,),), ("c",), (0,) * len(operands), 0, n >= _WIDE)
    seen = [o[1] if o[0] == shape else expand_strides(*o, shape) for o in operands]
    sizes, strides = merge_dims(shape, seen)
    layouts = tuple(dict.fromkeys(strides))
    forms = tuple([_form(sizes, layout) for layout in layouts])
    numbers = tuple([layouts.index(s) for s in strides])
    reach = math.prod(sizes)
    for layout in layouts:
        reach = max(reach, sum([(n - 1) * abs(s) for n, s in zip(sizes, layout, strict=True)]))
    mode, row = _choose(sizes, layouts, max(VECTOR_BYTES // itemsize, 1))
    return Walk(mode, sizes, layouts, forms, numbers, row, reach >= _WIDE)


def merge_dims(shape: Shape, operands: Sequence[Shape]) -> tuple[Shape, list[Shape]]:
    """Order dims by the result's strides, innermost first; merge those that are one in all."""
    dims = [(abs(s[-1]), n, s) for n, s in zip(shape, zip(*operands, strict=True), strict=True)]
    dims = sorted([d for d in dims if d[1] != 1])
    sizes: list[int] = []
    merged: list[Shape] = []  # for each dim, the operands' strides
    for _, n, strides in dims:
        if sizes and strides == tuple([s * sizes[-1] for s in merged[-1]]):
            sizes[-1] *= n
        else:
            sizes.append(n)
            merged.append(strides)
    if not sizes:
        sizes, merged = [1], [(1,) * len(operands)]
    return tuple(sizes), [*zip(*merged, strict=True)]


def _form(sizes: Shape, layout: Shape) -> str:
    step = 1
    for n, s in zip(sizes, layout, strict=True):
        if s != step:
            return "".join("0" if s == 0 else "1" if s == 1 else "s" for s in layout)
        step *= n
    return "c"


def _choose(sizes: Shape, layouts: tuple[Shape, ...], vector: int) -> tuple[str, int]:
    inner = [layout[0] for layout in layouts]
    if all(s in (0, 1) for s in inner):
        if len(sizes) == 1:
            return FLAT, 0
        aligned = all(s % vector == 0 for layout in layouts if layout[0] == 1 for s in layout[1:])
        return (ROWS, 0) if sizes[0] % vector == 0 and aligned else (GATHER, 0)
    for layout in layouts:
        if layout[0] not in (0, 1) and 1 in layout and sizes[0] >= _MANY:
            row = layout.index(1)
            if sizes[row] >= _MANY:
                return TILE, row
    return GATHER, 0
