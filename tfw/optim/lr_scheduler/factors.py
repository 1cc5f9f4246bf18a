"""Schedules that multiply: by a function, at certain steps, or towards a factor."""

from __future__ import annotations

import types
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, cast

from tfw.errors import ArgumentError, ValueRangeError
from tfw.optim.lr_scheduler.base import LR, LRScheduler
from tfw.optim.optimizer import Optimizer

Factor = Callable[[int], float]


class _ByFunction(LRScheduler):
    """A schedule with one function per group."""

    lr_lambdas: list[Factor]

    def __init__(
        self, optimizer: Optimizer, lr_lambda: Factor | list[Factor], last_epoch: int = -1
    ) -> None:
        n_groups = len(optimizer.param_groups)
        if isinstance(lr_lambda, (list, tuple)):
            self.lr_lambdas = list(cast("list[Factor]", lr_lambda))
        else:
            self.lr_lambdas = [lr_lambda] * n_groups
        if len(self.lr_lambdas) != n_groups:
            raise ValueRangeError(
                f"lr_lambda has {len(self.lr_lambdas)} functions for {n_groups} groups",
                op=type(self).__name__,
                argument="lr_lambda",
                value=self.lr_lambdas,
            )
        for function in self.lr_lambdas:
            if not callable(function):
                raise ArgumentError(
                    f"lr_lambda is a {type(function).__name__}",
                    op=type(self).__name__,
                    argument="lr_lambda",
                    value=function,
                    rule="a function of the step number",
                )
        super().__init__(optimizer, last_epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return all of the schedule's state but the optimizer.

        Of the functions, only the attributes of callable objects are saved, nothing of plain
        functions: pass the same ones when resuming.
        """
        state = super().state_dict()
        state["lr_lambdas"] = [
            None if isinstance(f, types.FunctionType) else dict(f.__dict__) for f in self.lr_lambdas
        ]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        attributes = state_dict["lr_lambdas"]
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "lr_lambdas"})
        for function, saved in zip(self.lr_lambdas, attributes, strict=True):
            if saved is not None:
                function.__dict__.update(saved)


class LambdaLR(_ByFunction):
    """lr = initial lr * lr_lambda(step), one function for all groups or a list with one each.

    Errors: ValueError for a list of another length than the groups', TypeError for no function.
    Example: `LambdaLR(optimizer, lambda step: 0.95**step)`
    """

    def get_lr(self) -> list[LR]:
        """Return each group's rate for `last_epoch`."""
        self._warn_if_outside_step()
        return [
            lr * function(self.last_epoch)
            for function, lr in zip(self.lr_lambdas, self.base_lrs, strict=True)
        ]


class MultiplicativeLR(_ByFunction):
    """lr = previous lr * lr_lambda(step), one function for all groups or a list with one each.

    Errors: ValueError for a list of another length than the groups', TypeError for no function.
    Example: `MultiplicativeLR(optimizer, lambda step: 0.95)`
    """

    def get_lr(self) -> list[LR]:
        """Return each group's rate for `last_epoch`."""
        self._warn_if_outside_step()
        if self._is_initial:
            return self._lrs()
        return [
            lr * function(self.last_epoch)
            for function, lr in zip(self.lr_lambdas, self._lrs(), strict=True)
        ]


class StepLR(LRScheduler):
    """lr is multiplied by gamma every step_size steps.

    Example: `StepLR(optimizer, step_size=30, gamma=0.1)`
    """

    def __init__(
        self, optimizer: Optimizer, step_size: int, gamma: float = 0.1, last_epoch: int = -1
    ) -> None:
        self.step_size = step_size
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[LR]:
        """Return each group's rate for `last_epoch`."""
        self._warn_if_outside_step()
        if self.last_epoch == 0 or self.last_epoch % self.step_size:
            return self._lrs()
        return [lr * self.gamma for lr in self._lrs()]

    def _closed_form(self) -> list[LR]:
        return [lr * self.gamma ** (self.last_epoch // self.step_size) for lr in self.base_lrs]


class MultiStepLR(LRScheduler):
    """lr is multiplied by gamma at each milestone, as often as it is listed.

    Example: `MultiStepLR(optimizer, milestones=[30, 80], gamma=0.1)`
    """

    def __init__(
        self,
        optimizer: Optimizer,
        milestones: Iterable[int],
        gamma: float = 0.1,
        last_epoch: int = -1,
    ) -> None:
        self.milestones = Counter(milestones)
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[LR]:
        """Return each group's rate for `last_epoch`."""
        self._warn_if_outside_step()
        factor = self.gamma ** self.milestones[self.last_epoch]
        return [lr * factor for lr in self._lrs()] if factor != 1.0 else self._lrs()

    def _closed_form(self) -> list[LR]:
        passed = bisect_right(sorted(self.milestones.elements()), self.last_epoch)
        return [lr * self.gamma**passed for lr in self.base_lrs]

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        super().load_state_dict(state_dict)
        # A Counter that went through a file may come back as a plain dict.
        saved = cast("dict[int, int]", state_dict["milestones"])
        self.milestones = Counter({int(k): v for k, v in saved.items()})


class ConstantLR(LRScheduler):
    """lr = factor * initial lr before step total_iters, initial lr from there on.

    Errors: ValueError unless 0 <= factor <= 1.
    Example: `ConstantLR(optimizer, factor=0.5, total_iters=4)`
    """

    def __init__(
        self,
        optimizer: Optimizer,
        factor: float = 1.0 / 3,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        _check_factor(
            type(self).__name__, "factor", factor, 0.0 <= factor <= 1.0, "0 <= factor <= 1"
        )
        self.factor = factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[LR]:
        """Return each group's rate for `last_epoch`."""
        self._warn_if_outside_step()
        if self.last_epoch == 0:
            return [lr * self.factor for lr in self._lrs()]
        if self.last_epoch != self.total_iters:
            return self._lrs()
        return [lr * (1.0 / self.factor) for lr in self._lrs()]

    def _closed_form(self) -> list[LR]:
        factor = self.factor if self.last_epoch < self.total_iters else 1.0
        return [lr * factor for lr in self.base_lrs]


class LinearLR(LRScheduler):
    """lr goes in a line from start_factor to end_factor times the initial lr, in total_iters steps.

    Errors: ValueError unless 0 < start_factor <= 1 and 0 <= end_factor <= 1.
    Example: `LinearLR(optimizer, start_factor=0.1, total_iters=100)`
    """

    def __init__(
        self,
        optimizer: Optimizer,
        start_factor: float = 1.0 / 3,
        end_factor: float = 1.0,
        total_iters: int = 5,
        last_epoch: int = -1,
    ) -> None:
        op = type(self).__name__
        _check_factor(
            op, "start_factor", start_factor, 0.0 < start_factor <= 1.0, "0 < start_factor <= 1"
        )
        _check_factor(
            op, "end_factor", end_factor, 0.0 <= end_factor <= 1.0, "0 <= end_factor <= 1"
        )
        self.start_factor = start_factor
        self.end_factor = end_factor
        self.total_iters = total_iters
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[LR]:
        """Return each group's rate for `last_epoch`."""
        self._warn_if_outside_step()
        if self.last_epoch == 0:
            return [lr * self.start_factor for lr in self._lrs()]
        if self._is_initial or self.last_epoch > self.total_iters:
            return self._lrs()
        rise = self.end_factor - self.start_factor
        before = self.total_iters * self.start_factor + (self.last_epoch - 1) * rise
        return [lr * (1.0 + rise / before) for lr in self._lrs()]

    def _closed_form(self) -> list[LR]:
        done = min(self.total_iters, self.last_epoch) / self.total_iters
        factor = self.start_factor + (self.end_factor - self.start_factor) * done
        return [lr * factor for lr in self.base_lrs]


class ExponentialLR(LRScheduler):
    """lr is multiplied by gamma every step.

    Example: `ExponentialLR(optimizer, gamma=0.99)`
    """

    def __init__(self, optimizer: Optimizer, gamma: float, last_epoch: int = -1) -> None:
        self.gamma = gamma
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[LR]:
        """Return each group's rate for `last_epoch`."""
        self._warn_if_outside_step()
        if self._is_initial:
            return self._lrs()
        return [lr * self.gamma for lr in self._lrs()]

    def _closed_form(self) -> list[LR]:
        return [lr * self.gamma**self.last_epoch for lr in self.base_lrs]


def _check_factor(op: str, name: str, value: float, holds: bool, rule: str) -> None:
    if not holds:
        raise ValueRangeError(f"{name}={value}", op=op, argument=name, value=value, rule=rule)
