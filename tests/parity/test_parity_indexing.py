"""x[index] and x[index] = value against PyTorch and NumPy on a large random family of indices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from harness.compare import comparable, layout_of

import tfw

SHAPES = [(4,), (3, 4), (2, 3, 4), (2, 1, 3, 2), ()]


class Indices:
    """Random indices for one shape: ints, slices, None, Ellipsis, bools, arrays, masks, mixed."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def draw(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        """Return an index as a tuple whose arrays are NumPy's."""
        rng = self.rng
        index: list[Any] = []
        d = 0
        joint = [(), (1,), (2,), (2, 1), (1, 3)][int(rng.integers(5))]
        used_dots = False
        while d < len(shape) and rng.random() < 0.9:
            kind = rng.choice(["int", "slice", "all", "none", "dots", "array", "mask", "bool"])
            n = shape[d]
            if kind == "none":
                index.append(None)
                continue
            if kind == "dots":
                if not used_dots:
                    index.append(Ellipsis)
                    used_dots = True
                    d += int(rng.integers(0, len(shape) - d + 1))
                continue
            if kind == "bool":
                if rng.random() < 0.3:
                    index.append(bool(rng.random() < 0.7))
                continue
            if kind == "mask":
                k = int(rng.integers(1, len(shape) - d + 1))
                mask = np.zeros(shape[d : d + k], bool)
                # As many hits as the index arrays broadcast with.
                hits = max(joint[-1:], default=1) if len(joint) < 2 else 1
                mask.reshape(-1)[rng.permutation(mask.size)[:hits]] = True
                index.append(mask)
                d += k
                continue
            if kind == "int":
                index.append(int(rng.integers(-n, n)))
            elif kind == "slice":
                start, stop = (
                    None if rng.random() < 0.3 else int(rng.integers(-n - 1, n + 2)) for _ in "ab"
                )
                step = None if rng.random() < 0.5 else int(rng.integers(1, 3))
                index.append(slice(start, stop, step))
            elif kind == "all":
                index.append(slice(None))
            else:
                index.append(rng.integers(-n, n, joint))
            d += 1
        return tuple(index)


def as_torch(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(torch.from_numpy(np.asarray(i)) if isinstance(i, np.ndarray) else i for i in index)


def as_tfw(index: tuple[Any, ...]) -> tuple[Any, ...]:
    return tuple(tfw.from_numpy(np.asarray(i)) if isinstance(i, np.ndarray) else i for i in index)


def data(shape: tuple[int, ...]) -> Any:
    return np.arange(1, 1 + int(np.prod(shape)), dtype=np.float64).reshape(shape)


@pytest.mark.parametrize("shape", SHAPES)
def test_reading(shape: tuple[int, ...]) -> None:
    indices = Indices(len(shape))
    n_views, faults = 0, []
    for _ in range(600):
        index = indices.draw(shape)
        x, t = tfw.from_numpy(data(shape)), torch.from_numpy(data(shape))
        try:
            wanted = t[as_torch(index)]
        except (IndexError, RuntimeError, ValueError, TypeError) as error:
            try:
                x[as_tfw(index)]
            except type(error):
                pass
            except Exception as ours:
                faults.append(f"{index}: {type(ours).__name__}, PyTorch's {error!r}")
            else:
                faults.append(f"{index}: taken, PyTorch says {error!r}")
            continue
        try:
            found = x[as_tfw(index)]
        except Exception as error:
            faults.append(f"{index}: {error!r}, PyTorch gives {tuple(wanted.shape)}")
            continue
        if not np.array_equal(found.numpy(), wanted.numpy()):
            faults.append(f"{index}: {tuple(found.shape)}, PyTorch's {tuple(wanted.shape)}")
        shares = wanted._base is not None
        expected = comparable(tuple(wanted.shape), wanted.stride(), found.dtype)
        if layout_of(found) != expected:
            faults.append(f"{index}: {layout_of(found)}, PyTorch's {expected}")
        if found.numel() and shares != np.shares_memory(found._a, x._a):
            faults.append(f"{index}: view {not shares}, PyTorch's {shares}")
        n_views += shares
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:12]])
    assert n_views > 50


@pytest.mark.parametrize("shape", SHAPES)
def test_writing(shape: tuple[int, ...]) -> None:
    indices = Indices(10 + len(shape))
    faults = []
    for k in range(500):
        index = indices.draw(shape)
        x, t = tfw.from_numpy(data(shape)), torch.from_numpy(data(shape))
        try:
            part = t[as_torch(index)]
        except (IndexError, RuntimeError, ValueError, TypeError):
            continue
        value: Any = -7.5
        if k % 3:
            # PyTorch leaves open which of two writes to one place stays: one value for all.
            target = tuple(part.shape) if k % 3 == 1 else tuple(part.shape)[1:]
            target = (1, *target) if k % 6 == 1 else target
            value = np.full(target, -3.25)
        t[as_torch(index)] = torch.from_numpy(value) if isinstance(value, np.ndarray) else value
        try:
            x[as_tfw(index)] = tfw.from_numpy(value) if isinstance(value, np.ndarray) else value
        except Exception as error:
            faults.append(f"{index} = {np.shape(value)}: {error!r}")
            continue
        if not np.array_equal(x.numpy(), t.numpy()):
            faults.append(f"{index} = {np.shape(value)}: other elements than PyTorch's")
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:12]])


def test_reading_as_numpy_where_all_three_agree() -> None:
    indices = Indices(77)
    n = 0
    for _ in range(600):
        index = indices.draw((2, 3, 4))
        try:
            wanted = data((2, 3, 4))[index]
            same = np.array_equal(
                torch.from_numpy(data((2, 3, 4)))[as_torch(index)].numpy(), wanted
            )
        except (IndexError, ValueError, RuntimeError, TypeError):
            continue
        if same:
            found = tfw.from_numpy(data((2, 3, 4)))[as_tfw(index)]
            np.testing.assert_array_equal(found.numpy(), wanted, err_msg=str(index))
            n += 1
    assert n > 300


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_gradients_of_reading_and_writing(shape: tuple[int, ...]) -> None:
    indices = Indices(50 + len(shape))
    faults = []
    for k in range(150):
        index = indices.draw(shape)
        x = tfw.from_numpy(data(shape)).requires_grad_()
        t = torch.from_numpy(data(shape)).requires_grad_()
        try:
            wanted = t[as_torch(index)]
        except (IndexError, RuntimeError, ValueError, TypeError):
            continue
        if k % 2:
            wanted.square().sum().backward()
            (x[as_tfw(index)] * x[as_tfw(index)]).sum().backward()
        else:
            u = t * 2
            u[as_torch(index)] = (wanted.detach() * 3).requires_grad_()
            u.square().sum().backward()
            y = x * 2
            y[as_tfw(index)] = (x[as_tfw(index)].detach() * 3).requires_grad_()
            (y * y).sum().backward()
        g = np.zeros(shape) if x.grad is None else x.grad.numpy()
        if not np.allclose(g, t.grad.numpy(), rtol=1e-12):
            faults.append(f"{index} ({'read' if k % 2 else 'written'})")
    assert not faults, "\n".join([f"{len(faults)} faults", *faults[:12]])


BAD: list[Any] = [
    "a",
    1.5,
    (0, 0, 0),
    3,
    -4,
    slice(None, None, -1),
    [0, 5],
]


@pytest.mark.parametrize("index", BAD, ids=str)
def test_error_classes(index: Any) -> None:
    x, t = tfw.from_numpy(data((3, 4))), torch.from_numpy(data((3, 4)))
    try:
        wanted = t[index]
    except Exception as error:
        with pytest.raises(type(error)):
            x[index]
    else:
        np.testing.assert_array_equal(x[index].numpy(), wanted.numpy())
