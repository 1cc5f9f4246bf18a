"""Shapes, strides, devices and the rules that ops share, against hand-worked values and NumPy."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tfw
from tfw.errors import ArgumentError, DeviceError, DimError, LayoutError, ShapeError
from tfw.shapes import (
    Size,
    Spec,
    as_int,
    as_shape,
    broadcast_shapes,
    check_view,
    contiguous,
    contiguous_strides,
    device,
    elementwise_strides,
    expand_strides,
    infer_size,
    is_contiguous,
    is_dense,
    may_overlap,
    normalize_dim,
    normalize_dims,
    view_strides,
)

SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)


def test_size_is_a_tuple_that_counts() -> None:
    size = tfw.zeros(2, 3, 4).shape
    assert isinstance(size, Size)
    assert size == (2, 3, 4)
    assert size.numel() == 24
    assert Size(()).numel() == 1
    assert isinstance(size[1:], Size)
    assert size[1:] == (3, 4)
    assert size[-1] == 4
    joined = size.__add__((5,))
    assert isinstance(joined, Size)
    assert joined == (2, 3, 4, 5)
    assert repr(size) == "tfw.Size([2, 3, 4])"
    n, *rest = size
    assert (n, rest) == (2, [3, 4])


# ---- devices


def test_device_forms() -> None:
    assert device("cuda:1") == device("cuda", 1)
    assert device("cuda") != device("cuda", 0)
    assert (device("cuda:3").type, device("cuda:3").index) == ("cuda", 3)
    assert (str(device("cuda", 2)), str(device("cpu"))) == ("cuda:2", "cpu")
    assert repr(device("cuda:1")) == "device(type='cuda', index=1)"
    assert repr(device("meta")) == "device(type='meta')"
    assert device(device("cuda:1")) == device("cuda:1")
    assert len({device("cpu"), device("cpu"), device("meta")}) == 2
    assert pickle.loads(pickle.dumps(device("cuda:1"))) == device("cuda:1")


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:x", "cuda:-1", "", "CPU"])
def test_device_that_is_none(name: str) -> None:
    with pytest.raises(DeviceError, match="names no device") as raised:
        device(name)
    assert (raised.value.argument, raised.value.value) == ("type", name)
    assert isinstance(raised.value, RuntimeError)


def test_device_of_another_type() -> None:
    with pytest.raises(ArgumentError):
        device(1)  # pyright: ignore[reportArgumentType]
    with pytest.raises(DeviceError):
        device("cuda:1", 2)


# ---- layouts


@given(SHAPES)
def test_contiguous_strides_are_numpys(shape: tuple[int, ...]) -> None:
    found = contiguous_strides(shape)
    wanted = tuple(s // 8 for s in np.empty([max(n, 1) for n in shape]).strides)
    assert found == wanted
    assert is_contiguous(shape, found)
    spec = contiguous(shape, tfw.float32, device("cpu"))
    assert (spec.numel, spec.ndim) == (int(np.prod(shape)), len(shape))
    assert spec.is_contiguous


@given(SHAPES, st.randoms(use_true_random=False))
def test_contiguity_density_and_overlap_are_numpys(shape: tuple[int, ...], random: Any) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)
    a = np.empty(shape).transpose(order)
    strides = tuple(s // 8 for s in a.strides)
    if 0 not in shape:
        assert is_contiguous(a.shape, strides) == a.flags.c_contiguous
        assert is_dense(a.shape, strides)
        assert not may_overlap(a.shape, strides)
    repeated = np.broadcast_to(np.empty(()), a.shape)
    steps = tuple(s // 8 for s in repeated.strides)
    assert may_overlap(a.shape, steps) == (a.size > 1)


def test_gaps_are_not_dense() -> None:
    assert not is_dense((2, 3), (4, 1))
    assert not is_contiguous((2, 3), (4, 1))
    assert is_contiguous((1, 3), (99, 1))
    assert not may_overlap((2, 3), (4, 1))
    assert may_overlap((3, 3), (1, 1))
    assert Spec((2, 3), (1, 2), tfw.float32, device("cpu")).is_contiguous is False


def test_elementwise_layouts_worked_by_hand() -> None:
    shape = (2, 3, 4, 5)
    channels_last = (60, 1, 15, 3)
    assert elementwise_strides(shape, [(shape, channels_last)]) == channels_last
    both = [(shape, channels_last), (shape, (60, 20, 5, 1))]
    assert elementwise_strides(shape, both) == channels_last
    with_bias = [(shape, channels_last), ((3, 1, 1), (1, 1, 1))]
    assert elementwise_strides(shape, with_bias) == channels_last
    gaps = [(shape, tuple(2 * s for s in channels_last))]
    assert elementwise_strides(shape, gaps) == channels_last
    assert elementwise_strides((2, 3), [((2, 3), (0, 0))]) == (3, 1)


# ---- broadcasting


@settings(max_examples=200)
@given(SHAPES, SHAPES)
def test_broadcasting_is_numpys(a: tuple[int, ...], b: tuple[int, ...]) -> None:
    try:
        wanted = np.broadcast_shapes(a, b)
    except ValueError:
        with pytest.raises(ShapeError, match="add: shapes do not broadcast"):
            broadcast_shapes("add", a, b)
        return
    assert broadcast_shapes("add", a, b) == wanted
    for shape in (a, b):
        x = np.broadcast_to(np.empty(shape), wanted)
        strides = contiguous_strides(shape)
        ours = expand_strides(shape, strides, wanted)
        if x.size:
            theirs = tuple(s // 8 for s in x.strides)
            differ = [i for i, n in enumerate(wanted) if n > 1 and ours[i] != theirs[i]]
            assert not differ


def test_broadcasting_names_what_differs() -> None:
    with pytest.raises(ShapeError) as raised:
        broadcast_shapes("where", (2, 3), (4,), (1,), names=("condition", "input", "other"))
    assert str(raised.value) == (
        "where: shapes do not broadcast: condition (2, 3) and input (4,) and other (1,) differ at "
        "dim -1 (3 against 4)\n  allowed: sizes that are equal, or one of them 1"
    )


# ---- dims and sizes


def test_dims() -> None:
    assert normalize_dim("sum", -1, 3, (2, 3, 4)) == 2
    assert normalize_dim("sum", 0, 0, ()) == 0
    assert normalize_dim("sum", np.int64(1), 2, (2, 3)) == 1  # pyright: ignore[reportArgumentType]
    assert normalize_dims("sum", None, (2, 3)) == (0, 1)
    assert normalize_dims("sum", (), (2, 3)) == (0, 1)
    assert normalize_dims("sum", [-1, 0], (2, 3)) == (1, 0)
    with pytest.raises(DimError) as raised:
        normalize_dim("softmax", 2, 2, (4, 7))
    assert str(raised.value) == (
        "softmax: dim=2 is out of range for a tensor of shape (4, 7)\n  allowed: -2 <= dim <= 1"
    )
    assert (raised.value.op, raised.value.argument, raised.value.value) == ("softmax", "dim", 2)
    with pytest.raises(ShapeError, match="twice"):
        normalize_dims("sum", (0, -2), (2, 3))


@pytest.mark.parametrize("value", [True, 1.0, "1", None])
def test_what_is_no_integer(value: Any) -> None:
    with pytest.raises(ArgumentError, match="not an integer"):
        as_int("chunk", value, "chunks")


def test_shapes_as_users_give_them() -> None:
    assert as_shape("zeros", (2, 3)) == (2, 3)
    assert as_shape("zeros", ((2, 3),)) == (2, 3)
    assert as_shape("zeros", ([2, np.int32(3)],)) == (2, 3)
    assert as_shape("zeros", ()) == ()


def test_infer_size() -> None:
    assert infer_size("view", (2, -1), 6) == (2, 3)
    assert infer_size("view", (), 1) == ()
    assert infer_size("view", (0, 3), 0) == (0, 3)
    for shape, n in (((4,), 6), ((-1, -1), 6), ((-2, 3), 6), ((4, -1), 6), ((-1, 0), 0)):
        with pytest.raises(ShapeError):
            infer_size("view", shape, n)


# ---- views


def test_views_worked_by_hand() -> None:
    assert view_strides((2, 3, 4), (12, 4, 1), (6, 4)) == (4, 1)
    assert view_strides((2, 3, 4), (12, 4, 1), (2, 2, 6)) == (12, 6, 1)
    assert view_strides((3, 2), (1, 3), (6,)) is None
    assert view_strides((4, 2), (4, 1), (2, 2, 2)) == (8, 4, 1)
    assert view_strides((4, 2), (4, 1), (8,)) is None
    assert view_strides((2, 3), (0, 0), (6,)) == (0,)
    assert view_strides((0, 3), (3, 1), (3, 0)) == (1, 1)
    with pytest.raises(LayoutError, match="reshape"):
        check_view("view", (3, 2), (1, 3), (6,))


@settings(max_examples=200)
@given(SHAPES, st.randoms(use_true_random=False))
def test_views_show_the_same_elements(shape: tuple[int, ...], random: Any) -> None:
    order = list(range(len(shape)))
    random.shuffle(order)
    a = np.arange(int(np.prod(shape))).reshape(shape).transpose(order)
    to = list(a.shape)
    k = random.randrange(len(to) + 1)
    to = (*to[:k], int(np.prod(to[k:])))
    strides = view_strides(a.shape, tuple(s // 8 for s in a.strides), to)
    if strides is not None and a.size:
        seen = np.lib.stride_tricks.as_strided(a, to, tuple(8 * s for s in strides))
        np.testing.assert_array_equal(seen, a.reshape(to))
