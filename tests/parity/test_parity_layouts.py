"""Shapes, strides and dtypes against PyTorch: elementwise layouts, views, promotion."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch
from harness.compare import comparable

import tfw
from parity.twins import TORCH_DTYPES
from tfw.shapes import elementwise_strides, view_strides

Layout = tuple[tuple[int, ...], tuple[int, ...]]


def random_layout(rng: np.random.Generator, shape: tuple[int, ...]) -> Layout:
    """Return a layout of a shape: dims in any order in memory, some with gaps, some repeated."""
    strides = [0] * len(shape)
    step = 1
    for d in rng.permutation(len(shape)):
        strides[d] = step
        step *= max(shape[d], 1) + int(rng.random() < 0.2)
    if rng.random() < 0.2:
        strides = [0 if rng.random() < 0.4 else s for s in strides]
    return shape, tuple(int(s) for s in strides)


def random_operands(rng: np.random.Generator) -> list[Layout]:
    """Return one to three operands that broadcast."""
    ndim = int(rng.integers(1, 5))
    shape = tuple(int(n) for n in rng.integers(1, 5, ndim))
    operands: list[Layout] = []
    for _ in range(int(rng.integers(1, 4))):
        own = tuple(1 if rng.random() < 0.15 else n for n in shape)
        operands.append(random_layout(rng, own[int(rng.random() < 0.1) :]))
    return operands


def test_elementwise_strides_on_random_operands() -> None:
    rng = np.random.default_rng(0)
    faults: list[str] = []
    for _ in range(1500):
        operands = random_operands(rng)
        theirs = [torch.empty(4096).as_strided(*o) for o in operands]
        result = theirs[0].neg() if len(theirs) == 1 else theirs[0] + theirs[1]
        if len(theirs) == 3:
            result = torch.addcmul(*theirs)
        shape = tuple(result.shape)
        found = comparable(shape, elementwise_strides(shape, operands), None)
        wanted = comparable(shape, result.stride(), None)
        if found != wanted:
            faults.append(f"{operands}: {found[1]}, PyTorch's {wanted[1]}")
    assert not faults, "\n".join([f"{len(faults)} of 1500", *faults[:10]])


def test_views_on_random_layouts() -> None:
    rng = np.random.default_rng(1)
    n_views = 0
    for _ in range(3000):
        shape = tuple(int(n) for n in rng.choice([1, 2, 3, 4, 6], int(rng.integers(1, 5))))
        layout = random_layout(rng, shape)
        if 0 in layout[1]:
            continue
        sizes = list(shape)
        rng.shuffle(sizes)
        k = int(rng.integers(0, len(sizes)))
        to = (*sizes[:k], int(np.prod(sizes[k:]))) if rng.random() < 0.7 else tuple(sizes)
        x = torch.empty(8192).as_strided(*layout)
        try:
            wanted = comparable(to, x.view(to).stride(), None)
        except RuntimeError:
            wanted = None
        found = view_strides(*layout, to)
        assert (None if found is None else comparable(to, found, None)) == wanted, (layout, to)
        n_views += wanted is not None
    assert n_views > 500


# ---- promotion

RANKS = (lambda x: x.reshape(1), lambda x: x.reshape(()))
NUMBERS: tuple[Any, ...] = (True, 2, 2.5)


def _tensors(d: tfw.dtype, rank: Any) -> tuple[Any, Any]:
    return rank(tfw.ones(1).to(d)), rank(torch.ones(1).to(TORCH_DTYPES[d]))


@pytest.mark.parametrize("name", ["add", "mul", "div", "maximum", "eq", "pow"])
def test_dtypes_of_all_pairs(name: str) -> None:
    faults: list[str] = []
    for a, b in itertools.product(TORCH_DTYPES, TORCH_DTYPES):
        if a.is_complex or b.is_complex:
            continue
        for ranks in itertools.product(RANKS, RANKS):
            (x, t), (y, u) = _tensors(a, ranks[0]), _tensors(b, ranks[1])
            wanted = getattr(torch, name)(t, u).dtype if name != "pow" or a is not b else t.dtype
            if name == "pow" and tfw.bool in (a, b) and a is b:
                continue
            found = getattr(tfw, name)(x, y)
            if TORCH_DTYPES[found.dtype] is not wanted:
                faults.append(f"{a} {x.ndim}-d, {b} {y.ndim}-d: {found.dtype}, PyTorch's {wanted}")
    assert not faults, "\n".join(faults[:20])


@pytest.mark.parametrize("name", ["add", "mul", "div", "eq"])
def test_dtypes_with_numbers(name: str) -> None:
    faults: list[str] = []
    for d, rank, number in itertools.product(TORCH_DTYPES, RANKS, NUMBERS):
        if d.is_complex:
            continue
        x, t = _tensors(d, rank)
        found, wanted = getattr(tfw, name)(x, number), getattr(torch, name)(t, number)
        if TORCH_DTYPES[found.dtype] is not wanted.dtype:
            faults.append(f"{d} {x.ndim}-d, {number!r}: {found.dtype}, PyTorch's {wanted.dtype}")
        reflected = {"add": "__radd__", "mul": "__rmul__", "div": "__rtruediv__"}.get(name)
        if reflected is not None:
            found, wanted = getattr(x, reflected)(number), getattr(t, reflected)(number)
            if TORCH_DTYPES[found.dtype] is not wanted.dtype:
                faults.append(f"{number!r} first, {d}: {found.dtype}, PyTorch's {wanted.dtype}")
    assert not faults, "\n".join(faults[:20])


def test_promote_types() -> None:
    for a, b in itertools.product(TORCH_DTYPES, TORCH_DTYPES):
        wanted = torch.promote_types(TORCH_DTYPES[a], TORCH_DTYPES[b])
        assert TORCH_DTYPES[tfw.promote_types(a, b)] is wanted, (a, b)
        assert tfw.can_cast(a, b) == torch.can_cast(TORCH_DTYPES[a], TORCH_DTYPES[b]), (a, b)


# ---- reductions

NAN, INF = float("nan"), float("inf")
ROWS = [
    *([1.0, NAN, 3.0], [NAN, NAN, NAN], [INF, -INF, 1.0], [INF, NAN, -INF]),
    *([-INF, -INF, -INF], [0.0, -0.0, 0.0], [-0.0, -0.0, -0.0], [2.0, 2.0, 1.0]),
]
REDUCTIONS = ("sum", "mean", "amax", "amin", "argmax", "argmin", "any", "all", "max", "min")


@pytest.mark.parametrize("name", REDUCTIONS)
@pytest.mark.parametrize("dim", [None, 0, 1, -1])
def test_reductions_of_special_values(name: str, dim: int | None) -> None:
    for keepdim in (False, True) if dim is not None else (False,):
        args = () if dim is None else (dim, keepdim)
        ours = getattr(tfw.tensor(ROWS), name)(*args)
        theirs = getattr(torch.tensor(ROWS), name)(*args)
        pairs = zip(ours, theirs, strict=True) if isinstance(theirs, tuple) else [(ours, theirs)]
        for k, (y, t) in enumerate(pairs):
            assert y.stride() == t.stride() or keepdim
            assert TORCH_DTYPES[y.dtype] is t.dtype
            np.testing.assert_array_equal(y.numpy(), t.numpy(), err_msg=f"{name}({args}) {k}")


@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_of_nothing(name: str) -> None:
    for shape, args in (((0,), ()), ((2, 0), (1,)), ((2, 0), (0,)), ((0, 3), (1,)), ((0, 3), (0,))):
        try:
            theirs: Any = getattr(torch.zeros(shape), name)(*args)
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error)):
                getattr(tfw.zeros(shape), name)(*args)
            continue
        ours = getattr(tfw.zeros(shape), name)(*args)
        y, t = (ours[0], theirs[0]) if isinstance(theirs, tuple) else (ours, theirs)
        np.testing.assert_array_equal(y.numpy(), t.numpy(), err_msg=f"{name}({args}) of {shape}")
