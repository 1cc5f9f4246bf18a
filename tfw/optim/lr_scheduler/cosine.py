"""Cosine schedules: once down, or again and again."""

from __future__ import annotations

import math

from tfw.errors import ValueRangeError
from tfw.optim.lr_scheduler.base import LR, LRScheduler
from tfw.optim.optimizer import Optimizer


class CosineAnnealingLR(LRScheduler):
    """lr = eta_min + (initial lr - eta_min) * (1 + cos(pi * step / T_max)) / 2.

    Computed from the previous rate, so that other schedules may change it in between.

    Source: Loshchilov and Hutter 2017, SGDR, arXiv:1608.03983.
    Example: `CosineAnnealingLR(optimizer, T_max=1000)`
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_max: int,  # noqa: N803 - PyTorch's name
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        self.T_max = T_max
        self.eta_min = eta_min
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[LR]:
        """Return each group's rate for `last_epoch`."""
        self._warn_if_outside_step()
        step, period, low = self.last_epoch, self.T_max, self.eta_min
        if self._is_initial:
            return self._lrs()
        if self._step_count == 1 and step > 0:
            return self._closed_form()
        if (step - 1 - period) % (2 * period) == 0:
            # The previous rate is eta_min, from which no ratio leads on.
            rise = (1 - math.cos(math.pi / period)) / 2
            return [
                lr + (base - low) * rise
                for base, lr in zip(self.base_lrs, self._lrs(), strict=True)
            ]
        ratio = (1 + math.cos(math.pi * step / period)) / (
            1 + math.cos(math.pi * (step - 1) / period)
        )
        return [ratio * (lr - low) + low for lr in self._lrs()]

    def _closed_form(self) -> list[LR]:
        height = (1 + math.cos(math.pi * self.last_epoch / self.T_max)) / 2
        return [self.eta_min + (lr - self.eta_min) * height for lr in self.base_lrs]


class CosineAnnealingWarmRestarts(LRScheduler):
    """lr falls to eta_min in a cosine of T_0 steps, then again, each time T_mult times as long.

    `step(epoch)` takes fractions of an epoch, here without a warning.

    Errors: ValueError unless T_0 and T_mult are positive integers and eta_min a number.
    Source: Loshchilov and Hutter 2017, SGDR, arXiv:1608.03983.
    Example: `CosineAnnealingWarmRestarts(optimizer, T_0=100, T_mult=2)`
    """

    def __init__(
        self,
        optimizer: Optimizer,
        T_0: int,  # noqa: N803 - PyTorch's name
        T_mult: int = 1,  # noqa: N803
        eta_min: float = 0.0,
        last_epoch: int = -1,
    ) -> None:
        for name, value in (("T_0", T_0), ("T_mult", T_mult)):
            if not isinstance(value, int) or value < 1:  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ValueRangeError(
                    f"{name}={value!r}",
                    op=type(self).__name__,
                    argument=name,
                    value=value,
                    rule="a positive integer",
                )
        if not isinstance(eta_min, (float, int)):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueRangeError(
                f"eta_min={eta_min!r}",
                op=type(self).__name__,
                argument="eta_min",
                value=eta_min,
                rule="a number",
            )
        self.T_0 = T_0
        self.T_i = T_0
        self.T_mult = T_mult
        self.eta_min = eta_min
        self.T_cur: float = last_epoch
        super().__init__(optimizer, last_epoch)

    def get_lr(self) -> list[LR]:
        """Return each group's rate for the present place in the cycle."""
        self._warn_if_outside_step()
        height = (1 + math.cos(math.pi * self.T_cur / self.T_i)) / 2
        return [self.eta_min + (lr - self.eta_min) * height for lr in self.base_lrs]

    def step(self, epoch: float | None = None) -> None:
        """Take the next step, or go to a given epoch, which may be a fraction.

        Errors: ValueError for a negative epoch.
        """
        if epoch is None and self.last_epoch >= 0:
            epoch = self.last_epoch + 1
            self.T_cur += 1
            if self.T_cur >= self.T_i:
                self.T_cur %= self.T_i
                self.T_i *= self.T_mult
        else:
            epoch = 0 if epoch is None else epoch
            if epoch < 0:
                raise ValueRangeError(
                    f"epoch={epoch}",
                    op=f"{type(self).__name__}.step",
                    argument="epoch",
                    value=epoch,
                    rule="epoch >= 0",
                )
            self._go_to(epoch)
        self.last_epoch = math.floor(epoch)
        self._within_step = True
        try:
            values = self.get_lr()
        finally:
            self._within_step = False
        self._set(values)

    def _go_to(self, epoch: float) -> None:
        """Find the cycle that an epoch is in, and how far."""
        if epoch < self.T_0:
            self.T_i, self.T_cur = self.T_0, epoch
        elif self.T_mult == 1:
            self.T_cur = epoch % self.T_0
        else:
            # n full cycles take T_0 (T_mult^n - 1) / (T_mult - 1) steps.
            growth = self.T_mult - 1
            n = int(math.log(epoch / self.T_0 * growth + 1, self.T_mult))
            self.T_cur = epoch - self.T_0 * (self.T_mult**n - 1) / growth
            self.T_i = self.T_0 * self.T_mult**n
