"""ReduceLROnPlateau: lower the rate when a metric stops improving."""

from __future__ import annotations

import math
from typing import Any, SupportsFloat

from tfw.errors import TfwError, ValueRangeError
from tfw.optim.lr_scheduler.base import LRScheduler, assign, check_optimizer, current, warn_epoch
from tfw.optim.optimizer import Optimizer


class GroupCountError(TfwError, RuntimeError):
    """More or fewer groups than minimal rates."""


class ReduceLROnPlateau(LRScheduler):
    """lr is multiplied by factor once a metric has not improved for more than `patience` steps.

    Better means below best * (1 - threshold) with mode "min" and threshold_mode "rel", below best -
    threshold with "abs", and the other way round with "max". After a reduction, `cooldown` steps
    count for nothing. lr never falls below min_lr (one for all groups, or a list), and changes of
    eps or less are left out.

    Errors: ValueError for factor >= 1, an unknown mode or a list of another length than the
    groups'; TypeError if optimizer is none.
    Example: `scheduler = ReduceLROnPlateau(optimizer, patience=3); scheduler.step(validation_loss)`
    """

    def __init__(
        self,
        optimizer: Optimizer,
        mode: str = "min",
        factor: float = 0.1,
        patience: int = 10,
        threshold: float = 1e-4,
        threshold_mode: str = "rel",
        cooldown: int = 0,
        min_lr: list[float] | float = 0,
        eps: float = 1e-8,
    ) -> None:
        op = type(self).__name__
        if factor >= 1.0:
            raise ValueRangeError(
                f"factor={factor}", op=op, argument="factor", value=factor, rule="factor < 1"
            )
        check_optimizer(op, optimizer)
        n_groups = len(optimizer.param_groups)
        self.default_min_lr: float | None = None
        if isinstance(min_lr, (list, tuple)):
            if len(min_lr) != n_groups:
                raise ValueRangeError(
                    f"{len(min_lr)} minimal rates for {n_groups} groups",
                    op=op,
                    argument="min_lr",
                    value=min_lr,
                )
            self.min_lrs = list(min_lr)
        else:
            self.default_min_lr = min_lr
            self.min_lrs = [min_lr] * n_groups
        for name, value, allowed in (
            ("mode", mode, ("min", "max")),
            ("threshold_mode", threshold_mode, ("rel", "abs")),
        ):
            if value not in allowed:
                raise ValueRangeError(
                    f"{name}={value!r}",
                    op=op,
                    argument=name,
                    value=value,
                    rule=" or ".join(repr(a) for a in allowed),
                )
        self.optimizer = optimizer
        self.mode, self.threshold, self.threshold_mode = mode, threshold, threshold_mode
        self.factor, self.patience, self.cooldown, self.eps = factor, patience, cooldown, eps
        self.last_epoch = 0
        self.best = math.inf if mode == "min" else -math.inf
        self.cooldown_counter = 0
        self.num_bad_epochs = 0
        self._last_lr = current(optimizer)

    @property
    def in_cooldown(self) -> bool:
        """Whether steps count for nothing at present."""
        return self.cooldown_counter > 0

    def step(self, metrics: SupportsFloat, epoch: int | None = None) -> None:  # type: ignore[override]
        """Take note of a metric, and lower the rates if it has not improved for long enough."""
        value = float(metrics)
        if epoch is not None:
            warn_epoch()
        self.last_epoch = self.last_epoch + 1 if epoch is None else epoch
        if self._is_better(value):
            self.best = value
            self.num_bad_epochs = 0
        else:
            self.num_bad_epochs += 1
        if self.in_cooldown:
            self.cooldown_counter -= 1
            self.num_bad_epochs = 0
        if self.num_bad_epochs > self.patience:
            self._reduce()
            self.cooldown_counter = self.cooldown
            self.num_bad_epochs = 0
        self._last_lr = current(self.optimizer)

    def _is_better(self, value: float) -> bool:
        sign = 1.0 if self.mode == "max" else -1.0
        if self.threshold_mode == "rel":
            limit = self.best * (1.0 + sign * self.threshold)
        else:
            limit = self.best + sign * self.threshold
        return value > limit if self.mode == "max" else value < limit

    def _reduce(self) -> None:
        groups = self.optimizer.param_groups
        if len(groups) != len(self.min_lrs):
            if self.default_min_lr is None:
                raise GroupCountError(
                    f"{len(self.min_lrs)} minimal rates for {len(groups)} groups",
                    op=type(self).__name__,
                    argument="min_lr",
                    value=self.min_lrs,
                    remedy="extend min_lrs when a group is added to the optimizer",
                )
            self.min_lrs = [self.default_min_lr] * len(groups)
        for group, lowest in zip(groups, self.min_lrs, strict=True):
            before = float(group["lr"])
            after = max(before * self.factor, lowest)
            if before - after > self.eps:
                assign(group, "lr", after)

    def get_lr(self) -> Any:
        """Return each group's present rate; there is no next one without a metric."""
        return self._lrs()
