"""Anomaly mode points at the forward line and finds NaN."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from twins import refused, twin

import tfw
from tfw.errors import AnomalyError, VersionError


def _text(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))


def test_error_in_backward_shows_the_forward_line() -> None:
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    with tfw.autograd.detect_anomaly():
        y = tfw.exp(x)  # the line to be shown
        y.mul_(2.0)
        y.add_(1.0)
        with pytest.raises(VersionError) as raised:
            tfw.autograd.backward(tfw.exp(y).sum() + _modified_later(x))
    shown = _text(raised.value)
    assert "recorded by the forward pass here" in shown
    assert "result = tfw.exp(x)  # modified below" in shown
    assert "fastpath.py" not in shown.split("forward pass here")[1]


def _modified_later(x: tfw.Tensor) -> tfw.Tensor:
    result = tfw.exp(x)  # modified below
    total = result.sum()
    with tfw.no_grad():
        result.zero_()
    return total


def test_nan_is_found_where_it_arises() -> None:
    x = tfw.tensor([0.0, 1.0], requires_grad=True)
    with tfw.autograd.detect_anomaly():
        y = tfw.sqrt(x)  # slope inf at 0
        loss = (y * 0.0).sum()
        with pytest.raises(
            AnomalyError, match="SqrtBackward0 gave NaN in the gradient of its input 0"
        ) as raised:
            loss.backward()
    assert "y = tfw.sqrt(x)  # slope inf at 0" in _text(raised.value)
    assert x.grad is None


def test_without_the_mode_no_line_is_kept_and_nan_passes() -> None:
    x = tfw.tensor([0.0, 1.0], requires_grad=True)
    y = tfw.sqrt(x)
    assert y.grad_fn is not None
    assert y.grad_fn.trace is None
    (y * 0.0).sum().backward()
    assert x.grad is not None
    assert x.grad[0].item() != x.grad[0].item()


def test_graph_recorded_outside_the_mode_says_so() -> None:
    x = tfw.tensor([0.0, 1.0], requires_grad=True)
    loss = (tfw.sqrt(x) * 0.0).sum()
    with tfw.autograd.detect_anomaly(), pytest.raises(AnomalyError) as raised:
        loss.backward()
    assert "no forward line is known" in _text(raised.value)


def test_function_is_shown_by_its_own_name() -> None:
    class Bad(tfw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * float("nan")

    x = tfw.tensor(1.0, requires_grad=True)
    with tfw.autograd.detect_anomaly(), pytest.raises(AnomalyError, match="BadBackward gave NaN"):
        Bad.apply(x).backward()


@twin([[float("nan"), 0.0], "RuntimeError"])
def test_check_nan_can_be_left_out(t: Any) -> Any:
    x = t.tensor([0.0, 4.0], requires_grad=True)
    with t.autograd.detect_anomaly(check_nan=False):
        (t.sqrt(x) * 0.0).sum().backward()
    found = x.grad
    x.grad = None
    with t.autograd.set_detect_anomaly(True):
        error = refused(lambda: (t.sqrt(x) * 0.0).sum().backward())
    return found, error


@twin([False, True, False, True, False, True, False])
def test_switching(t: Any) -> Any:
    on = t.is_anomaly_enabled
    seen = [on()]
    t.autograd.set_detect_anomaly(True)
    seen.append(on())
    t.autograd.set_detect_anomaly(False)
    seen.append(on())
    with t.autograd.detect_anomaly():
        seen.append(on())
        with t.autograd.set_detect_anomaly(False):
            seen.append(on())
        seen.append(on())
    return [*seen, on()]


@twin([float("inf"), 1.0])
def test_inf_is_no_nan(t: Any) -> Any:
    x = t.tensor([0.0, 1.0], requires_grad=True)
    with t.autograd.detect_anomaly():
        t.log(x).sum().backward()
    return x.grad
