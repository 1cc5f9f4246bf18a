"""Steps of SGD, Adam and AdamW: values, layouts, dtypes, gradients through a step, resuming.

P0 = [1, -2]; before step k = 1, 2, 3, 4 the gradient is p * k - 0.5. Results are torch 2.13's in
float64 for the options in the key.
"""

# Wrong calls, fields of errors, and gradients that are there:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tfw
from tfw import nn, optim
from tfw.ops.optim_steps import adam_step_, sgd_step_

Make = Callable[[Any], optim.Optimizer]

CASES: dict[str, tuple[Make, list[float]]] = {
    "sgd": (lambda p: optim.SGD(p, lr=0.1), [0.4202, -0.487]),
    "sgd decay maximize": (
        lambda p: optim.SGD(p, lr=0.1, weight_decay=0.1, maximize=True),
        [2.00998556, -4.96750447],
    ),
    "sgd momentum": (lambda p: optim.SGD(p, lr=0.1, momentum=0.9), [-0.01, 0.8]),
    "sgd dampening": (
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, dampening=0.2, weight_decay=0.05),
        [0.0972288051, 0.5523316122],
    ),
    "sgd nesterov maximize": (
        lambda p: optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True, maximize=True),
        [4.53721532, -13.1237626],
    ),
    "adam": (lambda p: optim.Adam(p, lr=0.1), [0.6166716705, -1.6063042943]),
    "adam decay": (
        lambda p: optim.Adam(p, lr=0.1, betas=(0.8, 0.9), eps=1e-3, weight_decay=0.1),
        [0.6113727289, -1.6040906097],
    ),
    "adam amsgrad maximize": (
        lambda p: optim.Adam(p, lr=0.1, amsgrad=True, maximize=True),
        [1.3715738652, -2.3893941127],
    ),
    "adamw": (
        lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.1),
        [0.5823189469, -1.5329728087],
    ),
    "adamw amsgrad": (
        lambda p: optim.AdamW(p, lr=0.1, weight_decay=0.1, amsgrad=True),
        [0.5823189469, -1.5329728087],
    ),
}
cases = pytest.mark.parametrize(("make", "expected"), CASES.values(), ids=CASES.keys())
makers = pytest.mark.parametrize("make", [make for make, _ in CASES.values()], ids=CASES.keys())


def _steps(p: Any, optimizer: optim.Optimizer, first: int = 1, last: int = 4) -> None:
    for k in range(first, last + 1):
        p.grad = p.detach() * k - 0.5
        optimizer.step()


def _start(dtype: Any = tfw.float64) -> nn.Parameter:
    return nn.Parameter(tfw.tensor([1.0, -2.0], dtype=dtype))


@cases
def test_values(make: Make, expected: list[float]):
    p = _start()
    _steps(p, make([p]))
    np.testing.assert_allclose(p.detach().numpy(), expected, rtol=0, atol=1e-9)


@cases
def test_values_of_the_definition(make: Make, expected: list[float], monkeypatch: Any):
    monkeypatch.delitem(sgd_step_.op.rules, "cpu")
    monkeypatch.delitem(adam_step_.op.rules, "cpu")
    monkeypatch.setattr(
        "tfw.ops.optim_steps._run", lambda op, lr, ts, attrs: op.function(lr, ts, *attrs)
    )
    p = _start()
    _steps(p, make([p]))
    np.testing.assert_allclose(p.detach().numpy(), expected, rtol=0, atol=1e-9)


@makers
@pytest.mark.parametrize("layout", ["transposed", "every other", "transposed gradient", "0-d"])
def test_layouts(make: Make, layout: str):
    """A parameter of any layout moves as a dense one with the same values does."""
    values = tfw.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, -1.0]], dtype=tfw.float64)
    gradient = values * 0.3 - 0.1
    if layout == "0-d":
        values, gradient = values[0, 0].clone(), gradient[0, 0].clone()
    dense = nn.Parameter(values.clone())
    odd = nn.Parameter(values.clone())
    if layout == "transposed":
        odd = nn.Parameter(values.t().contiguous().t())
    elif layout == "every other":
        room = tfw.zeros(2, 6, dtype=tfw.float64)
        room[:, ::2] = values
        odd = nn.Parameter(room[:, ::2])
    a, b = make([dense]), make([odd])
    for _ in range(3):
        dense.grad = gradient.clone()
        odd.grad = (
            gradient.t().contiguous().t() if layout == "transposed gradient" else gradient.clone()
        )
        a.step()
        b.step()
    np.testing.assert_allclose(odd.detach().numpy(), dense.detach().numpy(), rtol=1e-12)


@cases
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(tfw.float32, 3e-6), (tfw.float16, 5e-3), (tfw.bfloat16, 5e-2)]
)
def test_other_dtypes(make: Make, expected: list[float], dtype: Any, tolerance: float):
    p = _start(dtype)
    optimizer = make([p])
    _steps(p, optimizer)
    np.testing.assert_allclose(
        p.detach().double().numpy(), expected, rtol=tolerance, atol=tolerance
    )
    for name, value in optimizer.state[p].items():
        assert value.dtype is (tfw.float32 if name == "step" else dtype)


@makers
def test_a_tensor_learning_rate(make: Make):
    plain, other = _start(), _start()
    a, b = make([plain]), make([other])
    b.param_groups[0]["lr"] = tfw.tensor([0.1], dtype=tfw.float64)
    _steps(plain, a)
    _steps(other, b)
    np.testing.assert_allclose(other.detach().numpy(), plain.detach().numpy(), rtol=1e-13)


@makers
def test_parameters_without_gradients_wait_their_turn(make: Make):
    late, alone = _start(), _start()
    other = nn.Parameter(tfw.ones(3, dtype=tfw.float64))
    both = make([other, late])
    for _ in range(2):
        other.grad = tfw.ones(3, dtype=tfw.float64)
        both.step()
    assert late.tolist() == [1.0, -2.0]
    assert late not in both.state or not both.state[late]
    _steps(late, both)
    _steps(alone, make([alone]))
    assert late.tolist() == alone.tolist()


@makers
def test_a_step_counts_as_a_change(make: Make):
    p = _start()
    y = (p * p).sum()
    p.grad = tfw.ones_like(p)
    make([p]).step()
    with pytest.raises(RuntimeError, match="modified"):
        y.backward()


@makers
def test_gradients_flow_through_differentiable_steps(make: Make):
    options = {
        k: v
        for k, v in make([_start()]).defaults.items()
        if k not in ("lr", "differentiable", "decoupled_weight_decay")
    }
    kind = type(make([_start()]))

    def run(p0: Any, g: Any, lr: Any) -> Any:
        p = p0.clone()
        optimizer = kind([p], lr=lr, differentiable=True, **options)
        for k in (1.0, 2.0, 3.0):
            p.grad = g * k
            optimizer.step()
        return p * p

    inputs = [([1.0, -2.0]), ([0.3, -0.5]), 0.1]
    tensors = [tfw.tensor(v, dtype=tfw.float64, requires_grad=True) for v in inputs]
    assert tfw.autograd.gradcheck(run, tensors)


@makers
@pytest.mark.parametrize("dtype", [tfw.float64, tfw.bfloat16])
def test_resuming_is_exact(make: Make, dtype: Any):
    p = _start(dtype)
    optimizer = make([p])
    _steps(p, optimizer, 1, 2)
    saved = copy.deepcopy(optimizer.state_dict())
    q = nn.Parameter(p.detach().clone())
    _steps(p, optimizer, 3, 4)
    again = make([q])
    again.load_state_dict(saved)
    _steps(q, again, 3, 4)
    assert q.tolist() == p.tolist()


@makers
def test_loading_copies(make: Make):
    p, q = _start(), _start()
    optimizer, twin = make([p]), make([q])
    _steps(p, optimizer, 1, 2)
    twin.load_state_dict(optimizer.state_dict())
    before = {k: v.tolist() for k, v in twin.state[q].items()}
    _steps(p, optimizer, 3, 4)
    assert {k: v.tolist() for k, v in twin.state[q].items()} == before


def test_meta_steps_allocate_state_only():
    p = nn.Parameter(tfw.ones(2, 3, device="meta"))
    p.grad = tfw.ones(2, 3, device="meta")
    optimizer = optim.Adam([p], amsgrad=True)
    optimizer.step()
    assert {k: (v.device.type, tuple(v.shape)) for k, v in optimizer.state[p].items()} == {
        "step": ("meta", ()),
        **dict.fromkeys(("exp_avg", "exp_avg_sq", "max_exp_avg_sq"), ("meta", (2, 3))),
    }
