"""Moving modules to other dtypes and devices."""

# Wrong calls, fields of errors, and gradients that are there:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

from typing import Any

import pytest

import tfw
from tfw import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 2)
        self.tied = self.a
        self.register_buffer("real", tfw.ones(2))
        self.register_buffer("whole", tfw.zeros(2, dtype=tfw.int64))


def test_conversion_keeps_identity_ties_and_gradients():
    net = Net()
    net.a.weight.grad = tfw.ones(2, 2)
    parameters, gradient = list(net.parameters()), net.a.weight.grad
    assert net.double() is net
    assert all(p is q for p, q in zip(net.parameters(), parameters, strict=True))
    assert net.a.weight is net.tied.weight
    assert net.a.weight.dtype is tfw.float64
    assert net.a.weight.grad is gradient
    assert gradient.dtype is tfw.float64
    assert net.real.dtype is tfw.float64
    assert net.whole.dtype is tfw.int64
    assert net.a.weight.requires_grad
    assert net.a.weight.is_leaf


def test_a_shared_buffer_stays_shared():
    a, b = nn.Module(), nn.Module()
    a.register_buffer("table", tfw.ones(2))
    b.register_buffer("table", a.table)
    both = nn.ModuleList([a, b]).half()
    assert both[0].table is both[1].table
    assert both[0].table.dtype is tfw.float16


@pytest.mark.parametrize(
    ("convert", "dtype"),
    [
        (lambda m: m.half(), tfw.float16),
        (lambda m: m.bfloat16(), tfw.bfloat16),
        (lambda m: m.double().float(), tfw.float32),
        (lambda m: m.to(tfw.float64), tfw.float64),
        (lambda m: m.to("cpu", tfw.float64), tfw.float64),
        (lambda m: m.to(tfw.device("cpu"), tfw.float64, True), tfw.float64),
        (lambda m: m.to(tfw.zeros(1, dtype=tfw.float64)), tfw.float64),
        (lambda m: m.to(device="cpu", dtype=tfw.float64, non_blocking=True), tfw.float64),
        (lambda m: m.to("cpu"), tfw.float32),
        (lambda m: m.cpu(), tfw.float32),
    ],
)
def test_forms_of_conversion(convert: Any, dtype: Any):
    net = convert(Net())
    assert {t.dtype for t in (*net.parameters(), net.real)} == {dtype}
    assert net.whole.dtype is tfw.int64


def test_type_converts_integers_too():
    assert Net().type(tfw.float64).whole.dtype is tfw.float64


def test_bad_targets():
    with pytest.raises(TypeError, match="cannot hold parameters") as caught:
        Net().to(tfw.int32)
    assert caught.value.value is tfw.int32
    with pytest.raises(TypeError, match="no device, dtype or tensor"):
        Net().to(3.5)
    with pytest.raises(RuntimeError, match="names no device"):
        Net().to("gpu")


def test_meta_keeps_the_parameters_and_to_empty_gives_memory():
    net = Net()
    weight = net.a.weight
    net.to("meta")
    assert net.a.weight is weight
    assert weight.is_meta
    assert net.a(tfw.ones(3, 2, device="meta")).shape == (3, 2)
    net.to_empty(device="cpu")
    assert net.a.weight is weight
    nn.init.ones_(net.a.weight)
    assert weight.tolist() == [[1.0, 1.0], [1.0, 1.0]]


def test_apply_by_fn_runs_once_per_tensor():
    seen: list[int] = []
    net = Net()
    net._apply(lambda t: (seen.append(id(t)), t)[1])
    assert len(seen) == len(set(seen)) == 4
