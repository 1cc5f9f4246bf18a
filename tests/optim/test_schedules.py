"""Learning-rate schedules. Rates are torch 2.13's for the same calls, lr = 0.1, eight steps."""

# Wrong calls, fields of errors, and gradients that are there:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import tfw
from tfw import nn, optim
from tfw.optim import lr_scheduler as lrs

Make = Callable[[optim.Optimizer], Any]


def _optimizer(lr: Any = 0.1, n_groups: int = 1) -> optim.Optimizer:
    groups = [{"params": [nn.Parameter(tfw.zeros(1))]} for _ in range(n_groups)]
    return optim.SGD(groups, lr=lr, momentum=0.9)


def _rates(optimizer: optim.Optimizer, schedule: Any, n: int = 8, metrics: Any = None) -> list[Any]:
    rates = [schedule.get_last_lr()[0]]
    for i in range(n):
        optimizer.step()
        schedule.step(*([metrics[i]] if metrics else []))
        assert schedule.get_last_lr() == [g["lr"] for g in optimizer.param_groups]
        rates.append(schedule.get_last_lr()[0])
    return rates


NINTHS = [0.1, 0.09, 0.081, 0.0729, 0.06561, 0.059049, 0.0531441, 0.04782969, 0.043046721]
CASES: dict[str, tuple[Make, list[float]]] = {
    "lambda": (lambda o: lrs.LambdaLR(o, lambda k: 0.9**k), NINTHS),
    "multiplicative": (
        lambda o: lrs.MultiplicativeLR(o, lambda k: 1 - k / 10),
        [0.1, 0.09, 0.072, 0.0504, 0.03024, 0.01512, 0.006048, 0.0018144, 0.00036288],
    ),
    "step": (lambda o: lrs.StepLR(o, 3), [0.1] * 3 + [0.01] * 3 + [0.001] * 3),
    "multistep": (
        lambda o: lrs.MultiStepLR(o, [2, 5, 5, 7], gamma=0.5),
        [0.1, 0.1, 0.05, 0.05, 0.05, 0.0125, 0.0125, 0.00625, 0.00625],
    ),
    "constant": (lambda o: lrs.ConstantLR(o, 0.25, 4), [0.025] * 4 + [0.1] * 5),
    "linear": (
        lambda o: lrs.LinearLR(o, 0.1, 0.8, 6),
        [0.01, 0.065 / 3, 0.1 / 3, 0.045, 0.17 / 3, 0.205 / 3, 0.08, 0.08, 0.08],
    ),
    "exponential": (lambda o: lrs.ExponentialLR(o, 0.9), NINTHS),
    "cosine": (
        lambda o: lrs.CosineAnnealingLR(o, 3, eta_min=0.01),
        [0.1, 0.0775, 0.0325, 0.01, 0.0325, 0.0775, 0.1, 0.0775, 0.0325],
    ),
    "restarts": (
        lambda o: lrs.CosineAnnealingWarmRestarts(o, 2, 2, 0.01),
        [
            0.1,
            0.055,
            0.1,
            0.086819805153,
            0.055,
            0.023180194847,
            0.1,
            0.096574578963,
            0.086819805153,
        ],
    ),
    "sequential": (
        lambda o: lrs.SequentialLR(
            o, [lrs.LinearLR(o, 0.1, total_iters=4), lrs.CosineAnnealingLR(o, 8)], [4]
        ),
        [0.01, 0.0325, 0.055, 0.0775, 0.1, 0.096193976626, 0.085355339059, 0.069134171618, 0.05],
    ),
    "chained": (
        lambda o: lrs.ChainedScheduler([lrs.ConstantLR(o, 0.1, 2), lrs.ExponentialLR(o, 0.9)]),
        [0.01, 0.009, *NINTHS[2:]],
    ),
    "one cycle": (
        lambda o: lrs.OneCycleLR(o, 0.1, total_steps=9),
        [
            *(0.004, 0.065135823523, 0.099441543545, 0.089856665935, 0.070564472899),
            *(0.046263710267, 0.022872995316, 0.006089296976, 4e-07),
        ],
    ),
    "one cycle of three phases": (
        lambda o: lrs.OneCycleLR(
            o, 0.1, epochs=3, steps_per_epoch=3, three_phase=True, anneal_strategy="linear"
        ),
        [
            *(0.004, 0.060470588235, 0.083058823529, 0.026588235294, 0.003478313043),
            *(0.002608834783, 0.001739356522, 0.000869878261, 4e-07),
        ],
    ),
}
cases = pytest.mark.parametrize(("make", "expected"), CASES.values(), ids=CASES.keys())


@cases
def test_rates(make: Make, expected: list[float]):
    optimizer = _optimizer()
    assert _rates(optimizer, make(optimizer)) == pytest.approx(expected, abs=2e-12)


@cases
def test_state_dict_resumes(make: Make, expected: list[float]):
    first, second = _optimizer(), _optimizer()
    schedule = make(first)
    _rates(first, schedule, 3)
    again = make(second)
    again.load_state_dict(schedule.state_dict())
    second.load_state_dict(first.state_dict())
    assert _rates(second, again, 5) == pytest.approx(expected[3:], abs=2e-12)


@cases
def test_a_tensor_rate_is_written_in_place(make: Make, expected: list[float]):
    optimizer = _optimizer(tfw.tensor(0.1, dtype=tfw.float64))
    rate = optimizer.param_groups[0]["lr"]
    schedule = make(optimizer)
    for _ in range(3):
        optimizer.step()
        schedule.step()
    assert optimizer.param_groups[0]["lr"] is rate
    assert rate.item() == pytest.approx(expected[3], abs=2e-12)
    assert schedule.get_last_lr()[0] is not rate


@pytest.mark.parametrize(
    "make",
    [
        lambda o, k: lrs.LambdaLR(o, lambda n: 0.9**n, k),
        lambda o, k: lrs.LinearLR(o, 0.1, total_iters=10, last_epoch=k),
        lambda o, k: lrs.CosineAnnealingLR(o, 10, last_epoch=k),
    ],
)
def test_resuming_by_last_epoch(make: Any):
    first, second = _optimizer(), _optimizer()
    schedule = make(first, -1)
    _rates(first, schedule, 4)
    second.load_state_dict(first.state_dict())
    again = make(second, 3)
    assert again.last_epoch == 4
    assert again.get_last_lr() == pytest.approx(schedule.get_last_lr(), abs=1e-15)
    with pytest.raises(KeyError, match="initial_lr") as caught:
        make(_optimizer(), 3)
    assert caught.value.argument == "last_epoch"


def test_lambda_per_group_and_saved_attributes():
    class Factor:
        def __init__(self) -> None:
            self.base = 0.5

        def __call__(self, step: int) -> float:
            return self.base**step

    optimizer = _optimizer(n_groups=2)
    factor = Factor()
    schedule = lrs.LambdaLR(optimizer, [factor, lambda k: 1.0])
    optimizer.step()
    schedule.step()
    assert schedule.get_last_lr() == [0.05, 0.1]
    state = schedule.state_dict()
    assert state["lr_lambdas"] == [{"base": 0.5}, None]
    factor.base = 0.9
    schedule.load_state_dict(state)
    assert factor.base == 0.5
    assert state["lr_lambdas"] == [{"base": 0.5}, None]


METRICS = [1, 0.9, 0.9, 0.9, 0.9, 0.95, 0.8, 0.8]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"patience": 1}, [0.1] * 4 + [0.01] * 2 + [0.001] * 3),
        (
            {
                **{"mode": "max", "factor": 0.5, "patience": 0, "cooldown": 1, "min_lr": 0.03},
                **{"threshold_mode": "abs", "threshold": 0.05},
            },
            [0.1, 0.1, 0.05, 0.05] + [0.03] * 5,
        ),
    ],
)
def test_plateau(options: dict[str, Any], expected: list[float]):
    optimizer = _optimizer()
    schedule = lrs.ReduceLROnPlateau(optimizer, **options)
    assert _rates(optimizer, schedule, metrics=METRICS) == pytest.approx(expected, abs=1e-15)


def test_plateau_takes_tensors_and_needs_a_minimum_per_group():
    optimizer = _optimizer()
    schedule = lrs.ReduceLROnPlateau(optimizer, patience=0, min_lr=[0.01])
    schedule.step(tfw.tensor(1.0))
    optimizer.add_param_group({"params": [nn.Parameter(tfw.zeros(1))]})
    with pytest.raises(RuntimeError, match="1 minimal rates for 2 groups"):
        schedule.step(2.0)


def test_one_cycle_turns_momentum_the_other_way():
    expected = [0.95, 0.886316850496, 0.850558458689, 0.860143374639, 0.879435644843]
    optimizer = _optimizer()
    schedule = lrs.OneCycleLR(optimizer, 0.1, total_steps=9)
    momenta = [optimizer.param_groups[0]["momentum"]]
    for _ in range(4):
        optimizer.step()
        schedule.step()
        momenta.append(optimizer.param_groups[0]["momentum"])
    assert momenta == pytest.approx(expected, abs=1e-12)
    adam = optim.Adam([nn.Parameter(tfw.zeros(1))])
    lrs.OneCycleLR(adam, 0.1, total_steps=9)
    assert adam.param_groups[0]["betas"] == (0.95, 0.999)


def test_one_cycle_ends():
    optimizer = _optimizer()
    schedule = lrs.OneCycleLR(optimizer, 0.1, total_steps=2)
    _rates(optimizer, schedule, 2)
    optimizer.step()
    with pytest.raises(ValueError, match="step 3 of a cycle of 2") as caught:
        schedule.step()
    assert caught.value.argument == "total_steps"


def test_restarts_take_fractions():
    schedule = lrs.CosineAnnealingWarmRestarts(_optimizer(), 3, 2)
    rates = []
    for epoch in (0.5, 2.5, 4.0, 8.9, 9.0):
        schedule.step(epoch)
        rates.append(schedule.get_last_lr()[0])
    expected = [0.093301270189, 0.006698729811, 0.093301270189, 6.8523262e-05, 0.1]
    assert rates == pytest.approx(expected, abs=1e-12)
    with pytest.raises(ValueError, match="epoch=-1"):
        schedule.step(-1)


def test_the_order_of_steps_is_watched():
    optimizer = _optimizer()
    schedule = lrs.StepLR(optimizer, 1)
    with pytest.warns(UserWarning, match="before the optimizer"):
        schedule.step()
    optimizer.step()
    schedule.step()
    with pytest.warns(UserWarning, match="get_last_lr"):
        schedule.get_lr()
    with pytest.warns(UserWarning, match="epoch argument"):
        schedule.step(3)
    assert schedule.get_last_lr() == pytest.approx([1e-4], abs=1e-18)


@pytest.mark.parametrize(
    ("call", "error", "argument"),
    [
        (lambda o: lrs.StepLR(3, 2), TypeError, "optimizer"),
        (lambda o: lrs.LambdaLR(o, [abs, abs]), ValueError, "lr_lambda"),
        (lambda o: lrs.MultiplicativeLR(o, 3), TypeError, "lr_lambda"),
        (lambda o: lrs.ConstantLR(o, 1.5), ValueError, "factor"),
        (lambda o: lrs.LinearLR(o, 0.0), ValueError, "start_factor"),
        (lambda o: lrs.LinearLR(o, 0.5, 1.5), ValueError, "end_factor"),
        (lambda o: lrs.CosineAnnealingWarmRestarts(o, 0), ValueError, "T_0"),
        (lambda o: lrs.CosineAnnealingWarmRestarts(o, 1, 1.5), ValueError, "T_mult"),
        (lambda o: lrs.CosineAnnealingWarmRestarts(o, 1, 1, "0"), ValueError, "eta_min"),
        (lambda o: lrs.SequentialLR(o, [], []), ValueError, "schedulers"),
        (lambda o: lrs.SequentialLR(o, [3], []), TypeError, "schedulers"),
        (lambda o: lrs.SequentialLR(o, [lrs.StepLR(o, 1)], [2]), ValueError, "milestones"),
        (
            lambda o: lrs.SequentialLR(_optimizer(), [lrs.StepLR(o, 1)], []),
            ValueError,
            "schedulers",
        ),
        (lambda o: lrs.ChainedScheduler([lrs.ReduceLROnPlateau(o)]), ValueError, "schedulers"),
        (lambda o: lrs.ReduceLROnPlateau(3), TypeError, "optimizer"),
        (lambda o: lrs.ReduceLROnPlateau(o, "mean"), ValueError, "mode"),
        (lambda o: lrs.ReduceLROnPlateau(o, factor=1.0), ValueError, "factor"),
        (lambda o: lrs.ReduceLROnPlateau(o, min_lr=[1, 2]), ValueError, "min_lr"),
        (lambda o: lrs.ReduceLROnPlateau(o, threshold_mode="x"), ValueError, "threshold_mode"),
        (lambda o: lrs.OneCycleLR(o, 0.1), ValueError, "total_steps"),
        (lambda o: lrs.OneCycleLR(o, 0.1, total_steps=0), ValueError, "total_steps"),
        (
            lambda o: lrs.OneCycleLR(o, 0.1, epochs=2, steps_per_epoch=0),
            ValueError,
            "steps_per_epoch",
        ),
        (lambda o: lrs.OneCycleLR(o, 0.1, total_steps=3, pct_start=2.0), ValueError, "pct_start"),
        (lambda o: lrs.OneCycleLR(o, [0.1, 0.2], total_steps=3), ValueError, "max_lr"),
        (
            lambda o: lrs.OneCycleLR(o, 0.1, total_steps=3, anneal_strategy="x"),
            ValueError,
            "anneal_strategy",
        ),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], argument: str):
    with pytest.raises(error) as caught:
        call(_optimizer())
    assert caught.value.argument == argument
