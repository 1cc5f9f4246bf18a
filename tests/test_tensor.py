"""Tensor itself: what it tells about itself, values on the host, copies of objects."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
from twins import refused, twin

import tfw
from tfw.errors import ArgumentError, AutogradError, ShapeError


@twin(
    [
        [2, 3, 4],
        3,
        3,
        24,
        24,
        8,
        8,
        192,
        2,
        [2, 3, 4],
        3,
        4,
        [12, 4, 1],
        4,
        True,
        False,
        [1, 4, 12],
        12,
        [4, 3, 2],
        False,
        [6, 3, 1],
        True,
        False,
        False,
        False,
        "cpu",
        [0, 3],
        0,
        0,
        True,
        0,
        True,
        False,
        True,
        12,
    ]
)
def test_what_a_tensor_tells(t: Any) -> Any:
    x = t.zeros(2, 3, 4, dtype=t.float64)
    y = x.transpose(0, 2)
    empty = t.zeros(0, 3)
    return [
        *[tuple(x.shape), x.ndim, x.dim(), x.numel(), x.nelement(), x.itemsize, x.element_size()],
        *[x.nbytes, len(x), tuple(x.size()), x.size(1), x.size(-1), x.stride(), x.stride(1)],
        *[x.is_contiguous(), y.is_contiguous(), y.stride(), y.stride(-1), tuple(y.shape)],
        *[x.permute(2, 0, 1).is_contiguous(), x.permute(2, 0, 1).contiguous().stride()],
        *[x.is_floating_point(), x.is_complex(), x.is_cuda, x.is_meta, str(x.device)],
        *[tuple(empty.shape), empty.numel(), len(empty), empty.is_contiguous(), empty.nbytes],
        *[t.is_tensor(x), t.is_tensor([1]), x.shape == (2, 3, 4), x.shape[1:].numel()],
    ]


@twin(
    [
        2.5,
        3,
        True,
        1.5,
        2.5,
        2,
        -7,
        False,
        True,
        20,
        2.0,
        "3.14",
        1.5,
        [[1, 2]],
        [],
        7,
        [[], []],
        [1.0, 2.0],
        True,
    ]
)
def test_numbers_of_a_tensor(t: Any) -> Any:
    half = t.tensor(1.5, dtype=t.bfloat16)
    return [
        *[t.tensor(2.5).item(), t.tensor([[3]]).item(), t.tensor(True).item(), half.item()],
        *[float(t.tensor([2.5])), int(t.tensor(2.9)), int(t.tensor([-7])), bool(t.tensor([0.0]))],
        *[bool(t.tensor([[5]])), [10, 20, 30][t.tensor(1)], complex(t.tensor(2.0)).real],
        *[f"{t.tensor(3.14159):.2f}", half.tolist(), t.tensor([[1, 2]]).tolist()],
        *[t.zeros(0).tolist(), t.tensor(7).tolist(), t.zeros(2, 0).tolist()],
        *[[v.item() for v in t.tensor([1.0, 2.0])], 2.0 in t.tensor([1.0, 2.0])],
    ]


@twin(
    [
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "ValueError",
        "TypeError",
        "TypeError",
        "TypeError",
        "IndexError",
        "IndexError",
        "RuntimeError",
    ]
)
def test_numbers_refused(t: Any) -> Any:
    two = t.tensor([1.0, 2.0])
    return [
        refused(two.item),
        refused(lambda: bool(two)),
        refused(lambda: bool(t.zeros(0))),
        refused(lambda: float(two)),
        refused(lambda: [1, 2][two[0]]),
        refused(lambda: len(t.tensor(1.0))),
        refused(lambda: iter(t.tensor(1.0))),
        refused(lambda: two.size(1)),
        refused(lambda: two.stride(3)),
        refused(lambda: t.zeros(0).item()),
    ]


@twin(["a", "b", True, 2, True])
def test_tensors_are_keys_by_identity(t: Any) -> Any:
    a, b = t.tensor(1.0), t.tensor(1.0)
    table = {a: "a", b: "b"}
    return table[a], table[b], hash(a) == hash(a), len({a, b, a}), a is not b


@twin([[0.0, 0.0, 0.0], [9.0, 8.0, 7.0], [0.0, 0.0, 0.0], "float64"])
def test_ndarrays_share_memory(t: Any) -> Any:
    array = np.array([1.0, 2.0, 3.0], dtype=np.float32)
    x = t.from_numpy(array)
    array[0] = 9.0
    x[1] = 8.0
    back = x.numpy()
    back[2] = 7.0
    copied = t.tensor(array)
    array[:] = 0.0
    return x, copied, np.asarray(x).tolist(), np.asarray(x, dtype=np.float64).dtype.name


@twin(["RuntimeError", "RuntimeError", [1.0], [1.0]])
def test_ndarrays_refused_from_tracked_tensors(t: Any) -> Any:
    x = t.tensor([1.0], requires_grad=True)
    return (
        refused(x.numpy),
        refused(lambda: np.asarray(x)),
        x.detach().numpy().tolist(),
        x.numpy(force=True).tolist(),
    )


@twin([True, [3.0, 6.0], [2.0, 3.0]])
def test_ndarrays_and_tensors_in_one_expression(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], dtype=t.float64)
    return isinstance(x + np.float64(2.0), type(x)), x * np.float64(3.0), x + np.int64(1)


@twin([[7.0, 8.0, 9.0], [10.0, 4.0], 1, True, False, True])
def test_detach_and_data(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    d = x.detach()
    d[0] = 5.0
    x.data.mul_(2.0)
    version = x._version
    x.data = t.tensor([7.0, 8.0, 9.0])
    return x, d, version, x.requires_grad, d.requires_grad, x.is_leaf


@twin([[1.0, 2.0], [11.0, 12.0], True, True, [3.0, 3.0], False, "RuntimeError"])
def test_deepcopy(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    (x * 3.0).sum().backward()
    both: dict[str, Any] = {"a": x, "b": [x, x.detach()]}
    twin_of = copy.deepcopy(both)
    with t.no_grad():
        twin_of["a"].add_(10.0)
    y = x * 2.0
    return (
        *[x, twin_of["a"], twin_of["a"] is twin_of["b"][0], twin_of["a"].requires_grad],
        *[twin_of["a"].grad, twin_of["a"].grad is x.grad, refused(lambda: copy.deepcopy(y))],
    )


@twin([[[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]], [0.0, 0.0], 2, [[0.0, 0.0], [1.0, 1.0], [2.0, 2.0]]])
def test_iteration_gives_views(t: Any) -> Any:
    x = t.zeros(3, 2)
    for i, row in enumerate(x):
        row.fill_(float(i))
    first, *rest = x
    return x, first, len(rest), [v.tolist() for v in x]


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol: int) -> None:
    x = tfw.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=tfw.bfloat16, requires_grad=True)
    strided = tfw.arange(6).reshape(2, 3).T
    for before in (x, strided, tfw.tensor(True), tfw.zeros(0, 3), tfw.zeros(2, device="meta")):
        after = pickle.loads(pickle.dumps(before, protocol))
        assert after.dtype is before.dtype
        assert after.shape == before.shape
        assert after.device == before.device
        assert after.requires_grad == before.requires_grad
        if not before.is_meta:
            assert after.tolist() == before.tolist()


def test_pickle_keeps_what_users_put_on_a_tensor() -> None:
    x = tfw.ones(2)
    x.note = "kept"  # pyright: ignore[reportAttributeAccessIssue]  that is the point
    assert pickle.loads(pickle.dumps(x)).note == "kept"
    assert vars(copy.deepcopy(x))["note"] == "kept"


def test_a_computed_tensor_is_not_pickled() -> None:
    y = tfw.ones(2, requires_grad=True) * 2.0
    with pytest.raises(AutogradError, match=r"detach\(\)"):
        pickle.dump(y, io.BytesIO())


def test_memory_is_not_shared_by_a_pickle() -> None:
    x = tfw.ones(2)
    y = pickle.loads(pickle.dumps(x))
    y.add_(1.0)
    assert x.tolist() == [1.0, 1.0]


def test_messages_of_refused_numbers() -> None:
    with pytest.raises(ShapeError, match=r"item: .*shape \(2,\) has 2 elements, not one"):
        tfw.ones(2).item()
    with pytest.raises(ShapeError, match=r"any\(\) or all\(\)"):
        bool(tfw.ones(2))
    with pytest.raises(ArgumentError, match="0-d tensor"):
        len(tfw.ones(()))
    with pytest.raises(ArgumentError, match="integer tensor of one element"):
        _ = [1, 2][tfw.ones(())]


def test_wrong_data_and_gradients_are_refused() -> None:
    x = tfw.ones(2, requires_grad=True)
    with pytest.raises(ArgumentError):
        x.data = [1.0, 2.0]  # pyright: ignore[reportAttributeAccessIssue]
    with pytest.raises(AutogradError, match="own gradient"):
        x.grad = x


@pytest.mark.parametrize(
    ("data", "dtype"),
    [
        (2**63, None),
        (300, tfw.uint8),
        ([300], tfw.int8),
        (float("nan"), tfw.int64),
        (-256, tfw.uint8),
    ],
)
def test_numbers_that_do_not_fit(data: object, dtype: tfw.dtype | None) -> None:
    # torch 2.13: RuntimeError, "value cannot be converted to type ... without overflow"
    with pytest.raises(RuntimeError, match="cannot hold"):
        tfw.tensor(data, dtype=dtype)


def test_negative_numbers_wrap_in_uint8() -> None:
    # torch.tensor([7, -1], dtype=torch.uint8) is tensor([  7, 255], dtype=torch.uint8)
    assert tfw.tensor([7, -1], dtype=tfw.uint8).tolist() == [7, 255]
