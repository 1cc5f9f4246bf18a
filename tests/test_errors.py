"""Bad input: the named error, of the class PyTorch raises, with its fields; nothing corrupted."""

from __future__ import annotations

import copy
import math
import pickle
import re
import threading
from collections.abc import Callable
from typing import Any, cast

import numpy as np
import pytest

import tfw
from tfw import errors
from tfw.errors import (
    AnomalyError,
    ArgumentError,
    AutogradError,
    DeviceError,
    DimError,
    DtypeError,
    LayoutError,
    NoKernelError,
    OutOfRangeError,
    ShapeError,
    TfwError,
    ValueRangeError,
    VersionError,
)

ALL = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, TfwError)
]

# What PyTorch raises for the same fault: `except` lines written for it must catch ours.
BASES: dict[type[TfwError], type[Exception]] = {
    ShapeError: RuntimeError,
    DtypeError: RuntimeError,
    DeviceError: RuntimeError,
    LayoutError: RuntimeError,
    AutogradError: RuntimeError,
    VersionError: RuntimeError,
    AnomalyError: RuntimeError,
    DimError: IndexError,
    OutOfRangeError: IndexError,
    ArgumentError: TypeError,
    ValueRangeError: ValueError,
    NoKernelError: NotImplementedError,
}


def _x(*shape: int, dtype: Any = None) -> tfw.Tensor:
    return tfw.zeros(*shape, dtype=dtype or tfw.float32)


def _meta(*shape: int) -> tfw.Tensor:
    return tfw.zeros(*shape, device="meta")


_ONE: Any = 1

# (call, error, op, argument, value of the field `value` or ...)
Bad = tuple[Any, ...]
BAD: dict[str, Bad] = {
    "shapes that do not broadcast": (
        *(lambda: _x(2, 3) + _x(4), ShapeError, "add", "shape"),
        ...,
    ),
    "inner sizes of a product": (
        *(lambda: _x(2, 3) @ _x(4, 5), ShapeError, "matmul"),
        "other",
        ...,
    ),
    "reshape to another count": (
        *(lambda: _x(2, 3).reshape(4), ShapeError, "reshape"),
        "shape",
        ...,
    ),
    "view that needs a copy": (*(lambda: _x(2, 3).T.view(6), LayoutError, "view"), "shape", ...),
    "expand of a size above 1": (*(lambda: _x(3).expand(4), ShapeError, "expand"), "size", (4,)),
    "cat of unlike shapes": (
        *(lambda: tfw.cat([_x(2, 3), _x(2, 2)]), ShapeError, "cat", "tensors"),
        (2, 2),
    ),
    "sections that do not add up": (
        *(lambda: _x(5).split([2, 2]), ShapeError, "split", "split_size_or_sections"),
        ...,
    ),
    "dim past the end": (*(lambda: _x(2, 3).sum(2), DimError, "sum", "dim"), 2),
    "dim before the start": (*(lambda: tfw.softmax(_x(2), -2), DimError, "softmax", "dim"), -2),
    "dim of a transpose": (*(lambda: _x(2, 3).transpose(0, 5), DimError, "transpose", "dim1"), 5),
    "index past the end": (*(lambda: _x(2, 3)[2], OutOfRangeError, "index", "index"), 2),
    "index in the second dim": (*(lambda: _x(2, 3)[0, -4], OutOfRangeError, "index", "index"), -4),
    "too many indices": (*(lambda: _x(2)[0, 0], OutOfRangeError, "index", "index"), ...),
    "index in an array": (
        *(lambda: _x(3)[tfw.tensor([0, 3])], OutOfRangeError, "index", "indices"),
        3,
    ),
    "floating index": (*(lambda: _x(3)[tfw.tensor([0.0])], OutOfRangeError, "index", "index"), ...),
    "backward step": (*(lambda: _x(3)[::-1], ValueRangeError, "index", "step"), -1),
    "integers where floats are needed": (
        *(lambda: tfw.softmax(_x(2, dtype=tfw.int64), 0), DtypeError, "softmax", "input"),
        tfw.int64,
    ),
    "condition that is no bool": (
        *(lambda: tfw.where(_x(2), _x(2), _x(2)), DtypeError, "where", "condition"),
        tfw.float32,
    ),
    "result that cannot be stored": (
        *(lambda: _x(2, dtype=tfw.int64).add_(0.5), DtypeError, "add_", "dtype"),
        tfw.float32,
    ),
    "bool subtracted": (
        *(lambda: _x(2, dtype=tfw.bool) - _x(2, dtype=tfw.bool), DtypeError, "sub", "input"),
        tfw.bool,
    ),
    "devices that differ": (*(lambda: _x(2) + _meta(2), DeviceError, "add", "other"), ...),
    "no such device": (*(lambda: _x(2).to("gpu"), DeviceError, "device"), ..., ...),
    "values of a meta tensor": (*(lambda: _meta(2).tolist(), DeviceError, "meta"), "", ...),
    "data-dependent shape on meta": (
        *(lambda: _meta(2).nonzero(), NoKernelError, "nonzero"),
        "",
        ...,
    ),
    "no tensor at all": (*(lambda: tfw.exp("a"), ArgumentError, "exp", "input"), "a"),
    "grad mode that is no bool": (
        *(lambda: tfw.set_grad_enabled(_ONE), ArgumentError, "set_grad_enabled", "mode"),
        1,
    ),
    "probability above 1": (
        *(lambda: tfw.dropout(_x(2), 1.5, True), ValueRangeError, "dropout", "p"),
        1.5,
    ),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_raises_the_named_error(case: str) -> None:
    call, error, op, argument, value = BAD[case]
    with pytest.raises(error) as raised:
        call()
    found = cast(TfwError, raised.value)
    assert type(found) is error
    assert isinstance(found, BASES[error])
    assert found.op == op
    if argument is not ...:
        assert found.argument == argument
    if value is not ...:
        assert found.value == value
    _has_the_form(found)


def _has_the_form(error: TfwError) -> None:
    """Op first, then what is wrong; then what is allowed and what to do, a line each."""
    first, *rest = str(error).split("\n")
    assert first == f"{error.op}: {error.message}"
    expected = [("  allowed: ", error.rule), ("  remedy: ", error.remedy)]
    assert rest == [prefix + text for prefix, text in expected if text]
    assert not re.search(r"<built-in|ufunc|ndarray|operands could not", str(error))


@pytest.mark.parametrize("case", BAD)
def test_error_survives_pickling(case: str) -> None:
    with pytest.raises(TfwError) as raised:
        BAD[case][0]()
    for again in (pickle.loads(pickle.dumps(raised.value)), copy.copy(raised.value)):
        assert type(again) is type(raised.value)
        assert str(again) == str(raised.value)
        fields = ("op", "argument", "value", "rule", "remedy", "message")
        assert [getattr(again, f) for f in fields] == [getattr(raised.value, f) for f in fields]


@pytest.mark.parametrize("error", ALL, ids=lambda e: e.__name__)
def test_every_class_has_the_form_and_a_documented_fault(error: type[TfwError]) -> None:
    full = error("what is wrong", op="op", argument="a", value=3, rule="a < 3", remedy="give less")
    assert str(full) == "op: what is wrong\n  allowed: a < 3\n  remedy: give less"
    assert str(error("what is wrong")) == "what is wrong"
    assert error.__doc__
    if error is not TfwError:
        assert any(b.__module__ == "builtins" and b is not Exception for b in error.__mro__[1:-3])


def test_error_crosses_a_process_border_with_its_notes_and_extras() -> None:
    error = VersionError("changed", op="mul", argument="x", value=2)
    error.add_note("the forward line")
    again = pickle.loads(pickle.dumps(error))
    assert again.__notes__ == ["the forward line"]
    assert again.value == 2


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.add_(_x(5)),
        lambda x: x.add_(_x(3, 2, 3)),
        lambda x: x.copy_(_x(4)),
        lambda x: x.masked_fill_(_x(2, 3), 1.0),
        lambda x: x.masked_fill_(tfw.ones(4, dtype=tfw.bool), 1.0),
        lambda x: x.__setitem__((0, 3), 1.0),
        lambda x: x.__setitem__(tfw.tensor([0, 2]), 1.0),
        lambda x: x.__setitem__((slice(None), tfw.tensor([0, 5])), 1.0),
        lambda x: x.__setitem__(0, _x(4)),
        lambda x: x.mul_("a"),
        lambda x: x.mul_(_meta(2, 3)),
        lambda x: x.div_(None),
        lambda x: tfw.add(_x(2, 3), _x(2, 3), out=x[0]),
        lambda x: tfw.add(_x(2, 3), _x(4), out=x),
        lambda x: x.T[1:].add_(x.T[:-1]),
    ],
)
def test_a_refused_change_leaves_memory_and_version_alone(change: Callable[[Any], Any]) -> None:
    x = tfw.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    with pytest.raises((TfwError, TypeError)):
        change(x)
    assert x.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]
    assert x._version == 0


def test_backward_on_a_freed_graph() -> None:
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    y.backward()
    with pytest.raises(AutogradError, match="second time") as raised:
        y.backward()
    assert raised.value.op == "mul"
    assert "retain_graph=True" in raised.value.remedy
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 4.0]
    _has_the_form(raised.value)


def test_in_place_on_a_needed_value() -> None:
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    h = x * 3.0
    y = (h * h).sum()
    h.add_(1.0)
    with pytest.raises(VersionError) as raised:
        y.backward()
    assert (raised.value.op, raised.value.argument, raised.value.value) == ("mul", "other", 1)
    assert "version 1, version 0 was saved" in str(raised.value)
    assert x.grad is None
    _has_the_form(raised.value)
    with pytest.raises(AutogradError, match="leaf") as refused:
        x.add_(1.0)
    assert refused.value.op == "add_"
    assert x.tolist() == [1.0, 2.0]


def test_nan_loss_in_anomaly_mode() -> None:
    x = tfw.tensor([-1.0, 2.0], requires_grad=True)
    with tfw.autograd.detect_anomaly():
        loss = tfw.log(x).sum()
        assert math.isnan(loss.item())
        (loss * 1.0).backward()  # the slope of log is a number all the same
        x.grad = None
        with pytest.raises(AnomalyError, match="gave NaN in the gradient of its input 0") as raised:
            (tfw.sqrt(x) * tfw.log(x)).sum().backward()
    assert raised.value.op == "backward"
    assert "test_errors.py" in "".join(raised.value.__notes__)
    assert x.grad is None
    assert not tfw.is_anomaly_enabled()
    _has_the_form(raised.value)


def test_errors_in_one_thread_leave_another_alone() -> None:
    results: list[Any] = []

    def work(bad: bool) -> None:
        x = tfw.ones(3, requires_grad=True)
        for _ in range(30):
            if bad:
                with pytest.raises(ShapeError):
                    _ = x + _x(4)
            (x * 2.0).sum().backward()
        results.append(None if x.grad is None else x.grad.tolist())

    threads = [threading.Thread(target=work, args=(bad,)) for bad in (True, False, True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert results == [[60.0] * 3] * 3


def test_numpy_warnings_stay_quiet_and_its_state_is_the_users() -> None:
    # The test run turns warnings into errors.
    x = tfw.tensor([0.0, -1.0, 1e38])
    values = [(x / 0.0).tolist(), tfw.log(x).tolist(), (x * 1e10).tolist(), tfw.sqrt(x).tolist()]
    assert math.isinf(values[2][2])
    with np.errstate(divide="raise"), pytest.raises(FloatingPointError):
        _ = np.ones(1) / 0.0
