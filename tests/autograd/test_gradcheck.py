"""gradcheck and gradgradcheck find planted faults, and pass what is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tfw
from tfw.autograd.gradcheck import GradcheckError
from tfw.errors import AutogradError, DtypeError

gradcheck, gradgradcheck = tfw.autograd.gradcheck, tfw.autograd.gradgradcheck


def _x(*values: float) -> tfw.Tensor:
    return tfw.tensor(values, dtype=tfw.float64, requires_grad=True)


def _custom(
    forward: Callable[[Any], Any], slope: Callable[[Any, Any], Any]
) -> Callable[[tfw.Tensor], tfw.Tensor]:
    """Return x -> forward(x) whose gradient is declared to be slope(x, g)."""

    class Custom(tfw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return forward(x)

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return slope(x, g)

    return Custom.apply


RIGHT = _custom(lambda x: x * x * x, lambda x, g: 3.0 * x * x * g)
PLANTED = {
    "factor": _custom(lambda x: x * x * x, lambda x, g: 2.0 * x * x * g),
    "sign": _custom(lambda x: x * x * x, lambda x, g: -3.0 * x * x * g),
    "one element": _custom(
        lambda x: x * x * x, lambda x, g: 3.0 * x * x * g + tfw.tensor([0.0, 1e-2, 0.0])
    ),
    "the gradient given": _custom(lambda x: x * x * x, lambda x, g: 3.0 * x * x),
    "order of elements": _custom(
        lambda x: x * x * x, lambda x, g: (3.0 * x * x * g)[tfw.tensor([1, 0, 2])]
    ),
    "nan": _custom(lambda x: x * x * x, lambda x, g: 3.0 * x * x * g * float("nan")),
    "none": _custom(lambda x: x * x * x, lambda x, g: None),
}


@pytest.mark.parametrize("fault", PLANTED)
def test_planted_fault_is_found(fault: str) -> None:
    x = _x(0.5, -1.0, 2.0)
    with pytest.raises(GradcheckError):
        gradcheck(PLANTED[fault], (x,))
    assert not gradcheck(PLANTED[fault], (x,), raise_exception=False)
    assert x.tolist() == [0.5, -1.0, 2.0]


def test_right_gradients_pass() -> None:
    x, w = _x(0.5, -1.0, 2.0), tfw.tensor([[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]], dtype=tfw.float64)
    w.requires_grad_()
    assert gradcheck(RIGHT, x)
    assert gradgradcheck(RIGHT, x)
    assert gradcheck(lambda x, w: tfw.tanh(w @ x), (x, w))
    assert gradgradcheck(lambda x, w: tfw.tanh(w @ x), (x, w))
    assert gradcheck(lambda w: tfw.softmax(w, -1), (w,))
    assert gradcheck(lambda x, n: x**n, (x, 3))
    assert gradcheck(lambda w: w.transpose(0, 1)[1:], (w,))


def test_several_outputs() -> None:
    x = _x(0.5, -1.0, 2.0)
    assert gradcheck(lambda x: (x * 2.0, tfw.exp(x), (x > 0)), (x,))
    with pytest.raises(GradcheckError, match="output 1"):
        gradcheck(lambda x: (x * 2.0, PLANTED["sign"](x)), (x,))


def test_only_inputs_that_require_grad_are_varied() -> None:
    x, fixed = _x(0.5, -1.0), tfw.tensor([1.0, 2.0], dtype=tfw.float64)
    assert gradcheck(lambda x, c: x * c, (x, fixed))
    assert fixed.tolist() == [1.0, 2.0]


def test_non_contiguous_inputs() -> None:
    base = tfw.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=tfw.float64)
    x = base.T.detach().requires_grad_()
    assert not x.is_contiguous()
    assert gradcheck(lambda x: x * x, (x,))
    assert base.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def test_in_place_programs_can_be_checked() -> None:
    def program(x: tfw.Tensor) -> tfw.Tensor:
        y = x * 2.0
        y[1:] *= x[:-1]
        return y

    assert gradcheck(program, (_x(0.5, -1.0, 2.0),))
    assert gradgradcheck(program, (_x(0.5, -1.0, 2.0),))


def test_first_order_alone_does_not_show_a_wrong_second() -> None:
    # Right values, but the slope is computed from a constant: its own gradient is lost.
    lost = _custom(lambda x: x * x * x, lambda x, g: 3.0 * x.detach() * x.detach() * g)
    x = _x(0.5, -1.0, 2.0)
    assert gradcheck(lost, (x,))
    with pytest.raises(GradcheckError):
        gradgradcheck(lost, (x,))


def test_random_results_are_found() -> None:
    draws = iter(range(100))

    def drifting(x: Any, g: Any) -> Any:
        return g * (1.0 + 0.1 * next(draws))

    with pytest.raises(GradcheckError, match="two runs"):
        gradcheck(_custom(lambda x: x * 1.0, drifting), (_x(1.0, 2.0),))


def test_bad_calls() -> None:
    with pytest.raises(DtypeError, match="float64"):
        gradcheck(tfw.exp, (tfw.ones(2, requires_grad=True),))
    with pytest.raises(AutogradError, match="no input requires grad"):
        gradcheck(tfw.exp, (tfw.ones(2, dtype=tfw.float64),))
