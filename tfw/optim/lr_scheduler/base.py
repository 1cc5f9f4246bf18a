"""LRScheduler: what all schedules share."""

from __future__ import annotations

import warnings
from typing import Any

from tfw.errors import ArgumentError, TfwError
from tfw.optim.optimizer import Optimizer
from tfw.tensor import Tensor

LR = Any  # a number, or a 0-d tensor where the group has one


class ResumeError(TfwError, KeyError):
    """A group without `initial_lr` where a schedule is to go on from a later step."""

    def __str__(self) -> str:
        return str(self.args[0])  # KeyError would print its repr


def check_optimizer(op: str, optimizer: Any) -> None:
    """Raise TypeError unless it is an Optimizer."""
    if not isinstance(optimizer, Optimizer):
        raise ArgumentError(
            f"optimizer is a {type(optimizer).__name__}",
            op=op,
            argument="optimizer",
            value=optimizer,
            rule="an Optimizer",
        )


def current(optimizer: Optimizer, key: str = "lr") -> list[Any]:
    """Return an option of every group, tensors as copies that do not follow the group's."""
    values = [group[key] for group in optimizer.param_groups]
    return [v.clone() if isinstance(v, Tensor) else v for v in values]


def assign(group: dict[str, Any], key: str, value: Any) -> None:
    """Set an option of a group; a tensor is written in place, so that captured graphs see it."""
    if isinstance(group[key], Tensor):
        group[key].fill_(value.item() if isinstance(value, Tensor) else value)
    else:
        group[key] = value


class LRScheduler:
    """Base of schedules: each `step()`, after the optimizer's, sets the groups' learning rates.

    A subclass defines `get_lr()`, which returns one rate per group for `self.last_epoch`. The first
    step, number 0, is taken by the constructor; each group's rate before it becomes its
    `initial_lr`.

    Args:
        optimizer: whose learning rates are set.
        last_epoch: number of steps taken already, less one; -1 at the start.

    Errors: TypeError if optimizer is none, KeyError to go on from a later step with groups that
    have no `initial_lr`.

    """

    last_epoch: int
    _last_lr: list[LR]
    _step_count = 0
    _is_initial = False
    _within_step = False

    def __init__(self, optimizer: Optimizer, last_epoch: int = -1) -> None:
        check_optimizer(type(self).__name__, optimizer)
        self.optimizer = optimizer
        for i, group in enumerate(optimizer.param_groups):
            if last_epoch == -1:
                lr = group["lr"]
                group.setdefault("initial_lr", lr.clone() if isinstance(lr, Tensor) else lr)
            elif "initial_lr" not in group:
                raise ResumeError(
                    f"last_epoch={last_epoch}, but group {i} has no 'initial_lr'",
                    op=type(self).__name__,
                    argument="last_epoch",
                    value=last_epoch,
                    remedy="load the optimizer's state first, or use last_epoch=-1 to start",
                )
        self.base_lrs: list[LR] = current(optimizer, "initial_lr")
        self.last_epoch = last_epoch
        self._initial_step()

    def _initial_step(self) -> None:
        self._step_count = 0
        self._is_initial = True
        try:
            self.step()
        finally:
            self._is_initial = False

    def get_lr(self) -> list[LR]:
        """Return each group's rate for `last_epoch`; called by `step`. See `get_last_lr`."""
        raise NotImplementedError

    def get_last_lr(self) -> list[LR]:
        """Return each group's rate as the last step set it."""
        return self._last_lr

    def step(self, epoch: int | None = None) -> None:
        """Take the next step of the schedule; call it after the optimizer's `step`.

        With `epoch`, deprecated, jump to that step, by the closed form where the schedule has one.
        """
        if self._step_count == 1 and not self.optimizer._opt_called:
            warnings.warn(
                f"{type(self).__name__}.step() is called before the optimizer's step(): the first "
                "value of the schedule is never used",
                stacklevel=2,
            )
        self._step_count += 1
        if epoch is not None:
            warn_epoch()
        self._update_lr(epoch)

    def _update_lr(self, epoch: int | None = None) -> None:
        self._within_step = True
        try:
            if epoch is None:
                self.last_epoch += 1
                values = self.get_lr()
            else:
                self.last_epoch = epoch
                values = self._closed_form()
        finally:
            self._within_step = False
        self._set(values)

    def _closed_form(self) -> list[LR]:
        """Return the rates for `last_epoch` whatever came before; subclasses may define it."""
        return self.get_lr()

    def _set(self, values: list[LR]) -> None:
        for group, value in zip(self.optimizer.param_groups, values, strict=True):
            assign(group, "lr", value)
        self._last_lr = current(self.optimizer)

    def _warn_if_outside_step(self) -> None:
        """Warn a caller of `get_lr` who wants `get_last_lr`."""
        if not self._within_step:
            warnings.warn(
                "get_lr() computes the next rate; use get_last_lr() to see the present one",
                stacklevel=3,
            )

    def _lrs(self) -> list[Any]:
        return current(self.optimizer)

    def state_dict(self) -> dict[str, Any]:
        """Return all of the schedule's state but the optimizer."""
        hidden = ("optimizer", "_within_step", "_is_initial")
        return {key: value for key, value in self.__dict__.items() if key not in hidden}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self.__dict__.update(state_dict)


def warn_epoch() -> None:
    """Warn of the deprecated argument of `step`."""
    warnings.warn(
        "the epoch argument of step() is deprecated: call step() once per step", stacklevel=3
    )
