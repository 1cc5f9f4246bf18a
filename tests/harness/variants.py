"""Hard variants of a sample: special values, awkward shapes, layouts, integer extremes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from harness.calls import WIDE, Case, applies, differentiable, is_floating, rng_of, writes
from tfw import dtypes
from tfw.dtypes import dtype

Array = np.ndarray[Any, Any]

# Squares of these stay in range, so that a sum of squares is no overflow.
_HUGE = {2: 100.0, 4: 1e15, 8: 1e15}
_TINY = {2: 1e-6, 4: 1e-30, 8: 1e-150}
# Longer than the blocks into which the CPU kernels cut elementwise work, and odd.
_BLOCKS = (1 << 17) + 3
_LONG, _LONG_OF_MANY = 1031, 131


def _special(case: Case, x: Array) -> bool:
    """Return whether special values go into an array: floats, but no counter of steps."""
    return is_floating(x) and not (writes(case.op) and not x.ndim)


def value_variants(case: Case, itemsize: int = 4) -> Iterator[Case]:
    """Yield the case with special values in its floating-point arrays."""

    floats = [(n, x) for n, x in case.arrays() if is_floating(x)]

    def everywhere(label: str, function: Callable[[Array], Array]) -> Case:
        return case.change(label, lambda _, x: function(x) if _special(case, x) else x)

    reached = [n for n in differentiable(case.op) if any(m == n for m, _ in floats)]

    def within(name: str, label: str, function: Callable[[Array], Array]) -> Case:
        return case.change(
            f"{label} in {name}", lambda n, x: function(x) if n == name and _special(case, x) else x
        )

    def first_row(value: float) -> Callable[[Array], Array]:
        def put(x: Array) -> Array:
            x = x.copy()
            x.reshape(-1)[: x.shape[-1] if x.ndim else 1] = value
            return x

        return put

    def one(value: float) -> Callable[[Array], Array]:
        def put(x: Array) -> Array:
            x = x.copy()
            if x.size:
                x.reshape(-1)[x.size // 2] = value
            return x

        return put

    yield everywhere("equal", lambda x: np.full_like(x, 1.5))
    yield everywhere(
        "negative zero", lambda x: np.where(np.arange(x.size).reshape(x.shape) % 2, 0.0, -0.0)
    )
    if any(name in WIDE for name in case.op.inputs):
        return  # statistics no longer belong to the data whose they are
    huge, tiny = _HUGE[itemsize], _TINY[itemsize]
    yield everywhere("huge", lambda x: np.abs(x) * huge)
    yield everywhere("tiny", lambda x: x * tiny)
    for name in reached[:2]:
        yield within(name, "one NaN", one(np.nan))
        yield within(name, "one inf", one(np.inf))
        yield within(name, "one -inf", one(-np.inf))
        yield within(name, "a row of -inf", first_row(-np.inf))


def shape_variants(case: Case) -> Iterator[Case]:
    """Yield the case with one size changed wherever it occurs (0, 1, odd, long), and 0-d."""
    first = next((x for _, x in case.arrays() if x.ndim), None)
    if first is None:
        return
    rng = rng_of(case.op)

    def resized(size: int, to: int) -> Case:
        def convert(_: str, x: Array) -> Array:
            shape = tuple(to if n == size else n for n in x.shape)
            if shape == x.shape:
                return x
            return rng.choice(x.reshape(-1), shape) if x.size else np.empty(shape, x.dtype)

        return case.change(f"size {size} -> {to}", convert)

    sizes = dict.fromkeys(n for n in first.shape if n > 1)
    for size in sizes:
        yield resized(size, 0)
        yield resized(size, 1)
    for size in list(sizes)[-1:]:
        yield resized(size, 7)
        yield resized(size, _LONG if first.ndim < 3 else _LONG_OF_MANY)
    yield case.change("0-d", lambda _, x: x.reshape(-1)[0].reshape(()) if x.size else x)


def block_variants(case: Case) -> Iterator[Case]:
    """Yield the case longer than a block along its first dim."""
    first = next((x for _, x in case.arrays() if x.ndim), None)
    if first is None or not first.size:
        return
    rng = rng_of(case.op)
    size = first.shape[0]
    to = -(-_BLOCKS * size // first.size)

    def convert(_: str, x: Array) -> Array:
        if x.ndim and x.shape[0] == size:
            return rng.choice(x.reshape(-1), (to, *x.shape[1:]))
        return x

    yield case.change(f"{to} rows", convert)


# ---- layouts: the same values in other memory


def transposed(x: Array) -> Array:
    """Return the values with the order of dims in memory reversed."""
    return np.ascontiguousarray(x.T).T if x.ndim > 1 else x.copy()


def stepped(x: Array) -> Array:
    """Return the values in every second place of the last dim."""
    if not x.ndim:
        return x.copy()
    wide = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    wide[..., ::2] = x
    return wide[..., ::2]


def offset(x: Array) -> Array:
    """Return the values one element past the start of an allocation."""
    memory = np.zeros(x.size + 1, x.dtype)
    memory[1:] = x.reshape(-1)
    return memory[1:].reshape(x.shape)


def expanded(x: Array) -> Array:
    """Return the first column repeated along the last dim by a stride of 0."""
    if not x.ndim or not x.size:
        return x.copy()
    column = x[..., :1].copy()
    strides = (*column.strides[:-1], 0)
    return np.lib.stride_tricks.as_strided(column, x.shape, strides)


LAYOUTS = {"transposed": transposed, "stepped": stepped, "offset": offset, "expanded": expanded}


def layout_variants(case: Case) -> Iterator[Case]:
    """Yield the case in other layouts: all inputs alike, and the first one alone."""
    for label, function in LAYOUTS.items():
        if writes(case.op) and label == "expanded":
            continue  # one place cannot be written twice
        yield case.change(label, lambda _, x, f=function: f(x))
    seen: list[str] = []

    def first_only(name: str, x: Array) -> Array:
        seen.append(name)
        return transposed(x) if len(seen) == 1 else x

    yield case.change("first transposed", first_only)


def hard_variants(case: Case) -> list[Case]:
    """Return the variants of a sample that its op takes."""
    derived = (*value_variants(case), *shape_variants(case), *layout_variants(case))
    return [v for v in derived if applies(v)]


def extremes(case: Case, d: dtype) -> Case:
    """Return the case with the largest, smallest and smallest nonzero integers of a dtype."""
    if d is dtypes.bool_:
        values = np.array([False, True])
    else:
        info = np.iinfo(d.numpy)
        values = np.array([info.min, info.max, 0, 1, max(info.min, -1)], d.numpy)

    def convert(_: str, x: Array) -> Array:
        return np.resize(values, x.shape) if is_floating(x) else x

    return case.change(f"extremes of {d.name}", convert)
