"""OneCycleLR: up to a high rate and down to a very low one, momentum the other way."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from tfw.errors import ValueRangeError
from tfw.optim.lr_scheduler.base import LR, LRScheduler, assign, check_optimizer
from tfw.optim.optimizer import Optimizer
from tfw.tensor import Tensor


class _Phase(NamedTuple):
    """Part of the cycle: its last step, and the group's options that it goes between."""

    end: float
    start_lr: str
    end_lr: str
    start_momentum: str
    end_momentum: str


class OneCycleLR(LRScheduler):
    """lr rises from max_lr / div_factor to max_lr in pct_start of the steps, then falls.

    It falls to the starting lr / final_div_factor; with three_phase first to the starting lr, as
    fast as it rose. Momentum (SGD's, or Adam's beta1) goes from max_momentum to base_momentum and
    back, if cycle_momentum. Between them values follow a cosine or a line. Takes total_steps steps,
    or epochs * steps_per_epoch.

    Errors: ValueError for counts that are no positive integers or missing, pct_start outside
    [0, 1], an unknown strategy, lists of another length than the groups', an optimizer without
    momentum, or a step after the last.
    Source: Smith and Topin 2018, Super-Convergence, arXiv:1708.07120.
    Example: `OneCycleLR(optimizer, max_lr=0.1, total_steps=1000)`
    """

    def __init__(
        self,
        optimizer: Optimizer,
        max_lr: float | list[float],
        total_steps: int | None = None,
        epochs: int | None = None,
        steps_per_epoch: int | None = None,
        pct_start: float = 0.3,
        anneal_strategy: str = "cos",
        cycle_momentum: bool = True,
        base_momentum: float | list[float] = 0.85,
        max_momentum: float | list[float] = 0.95,
        div_factor: float = 25.0,
        final_div_factor: float = 1e4,
        three_phase: bool = False,
        last_epoch: int = -1,
    ) -> None:
        op = type(self).__name__
        check_optimizer(op, optimizer)
        self.total_steps = _total(op, total_steps, epochs, steps_per_epoch)
        if not isinstance(pct_start, float) or not 0.0 <= pct_start <= 1.0:  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueRangeError(
                f"pct_start={pct_start!r}",
                op=op,
                argument="pct_start",
                value=pct_start,
                rule="a float, 0 <= pct_start <= 1",
            )
        if anneal_strategy not in ("cos", "linear"):
            raise ValueRangeError(
                f"anneal_strategy={anneal_strategy!r}",
                op=op,
                argument="anneal_strategy",
                value=anneal_strategy,
                rule="'cos' or 'linear'",
            )
        self.anneal_strategy = anneal_strategy
        self.cycle_momentum = cycle_momentum
        top = pct_start * self.total_steps - 1
        last = self.total_steps - 1
        high, low = "max_momentum", "base_momentum"
        self._phases = [_Phase(top, "initial_lr", "max_lr", high, low)]
        if three_phase:
            end = 2 * pct_start * self.total_steps - 2
            self._phases.append(_Phase(end, "max_lr", "initial_lr", low, high))
            self._phases.append(_Phase(last, "initial_lr", "min_lr", high, high))
        else:
            self._phases.append(_Phase(last, "max_lr", "min_lr", low, high))
        groups = optimizer.param_groups
        rates = _per_group(op, "max_lr", max_lr, len(groups))
        if last_epoch == -1:
            for group, rate in zip(groups, rates, strict=True):
                group["initial_lr"] = rate / div_factor
                group["max_lr"] = rate
                group["min_lr"] = group["initial_lr"] / final_div_factor
        if cycle_momentum:
            self._start_momentum(optimizer, max_momentum, base_momentum, last_epoch)
        super().__init__(optimizer, last_epoch)

    def _start_momentum(
        self, optimizer: Optimizer, highest: Any, lowest: Any, last_epoch: int
    ) -> None:
        op = type(self).__name__
        defaults = optimizer.defaults
        if "momentum" not in defaults and "betas" not in defaults:
            raise ValueRangeError(
                f"{type(optimizer).__name__} has neither momentum nor betas",
                op=op,
                argument="cycle_momentum",
                value=True,
                remedy="pass cycle_momentum=False",
            )
        groups = optimizer.param_groups
        high = _per_group(op, "max_momentum", highest, len(groups))
        low = _per_group(op, "base_momentum", lowest, len(groups))
        if last_epoch == -1:
            for group, upper, lower in zip(groups, high, low, strict=True):
                _set_momentum(group, upper)
                group["max_momentum"], group["base_momentum"] = upper, lower

    def get_lr(self) -> list[LR]:
        """Return each group's rate for `last_epoch`, and set its momentum."""
        self._warn_if_outside_step()
        step = self.last_epoch
        if step > self.total_steps:
            raise ValueRangeError(
                f"step {step} of a cycle of {self.total_steps}",
                op=type(self).__name__,
                argument="total_steps",
                value=step,
                rule=f"at most {self.total_steps} steps",
            )
        start = 0.0
        phase = self._phases[0]
        for phase in self._phases:
            if step <= phase.end:
                break
            if phase is not self._phases[-1]:
                start = phase.end
        done = (step - start) / (phase.end - start)
        rates: list[LR] = []
        for group in self.optimizer.param_groups:
            rates.append(self._between(group[phase.start_lr], group[phase.end_lr], done))
            if self.cycle_momentum:
                ends = group[phase.start_momentum], group[phase.end_momentum]
                _set_momentum(group, self._between(*ends, done))
        return rates

    def _between(self, start: Any, end: Any, done: float) -> Any:
        if self.anneal_strategy == "linear":
            return (end - start) * done + start
        return end + (start - end) / 2.0 * (math.cos(math.pi * done) + 1)


def _total(op: str, total_steps: Any, epochs: Any, steps_per_epoch: Any) -> int:
    """Return the number of steps. ValueError unless it is given once, by positive integers."""
    if total_steps is None and (epochs is None or steps_per_epoch is None):
        raise ValueRangeError(
            "the length of the cycle is not given",
            op=op,
            argument="total_steps",
            rule="total_steps, or epochs and steps_per_epoch",
        )
    given = (
        [("epochs", epochs), ("steps_per_epoch", steps_per_epoch)]
        if total_steps is None
        else [("total_steps", total_steps)]
    )
    for name, value in given:
        if not isinstance(value, int) or value <= 0:
            raise ValueRangeError(
                f"{name}={value!r}", op=op, argument=name, value=value, rule="a positive integer"
            )
    return math.prod(value for _, value in given)


def _per_group(op: str, name: str, value: Any, n_groups: int) -> list[Any]:
    """Return one value per group, from one for all or a list."""
    values: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value] * n_groups  # pyright: ignore[reportUnknownArgumentType]
    if len(values) != n_groups:
        raise ValueRangeError(
            f"{name} has {len(values)} values for {n_groups} groups",
            op=op,
            argument=name,
            value=values,
        )
    return [v.clone() if isinstance(v, Tensor) else v for v in values]


def _set_momentum(group: dict[str, Any], value: Any) -> None:
    if "betas" in group:
        group["betas"] = (value, *group["betas"][1:])
    else:
        assign(group, "momentum", value)
