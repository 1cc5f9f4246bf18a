"""Schedules made of schedules: one after another, or all at once."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Any

from tfw.errors import ArgumentError, ValueRangeError
from tfw.optim.lr_scheduler.base import LRScheduler, assign, current
from tfw.optim.lr_scheduler.plateau import ReduceLROnPlateau
from tfw.optim.optimizer import Optimizer


class _Combined(LRScheduler):
    """A schedule that leaves the rates to others."""

    _schedulers: list[LRScheduler]

    def _take(self, optimizer: Optimizer | None, schedulers: Sequence[Any]) -> None:
        """Keep the schedules. ValueError unless all belong to one optimizer."""
        op = type(self).__name__
        if not schedulers:
            raise ValueRangeError(
                "schedulers is empty", op=op, argument="schedulers", value=schedulers
            )
        for i, scheduler in enumerate(schedulers):
            if not hasattr(scheduler, "optimizer"):
                raise ArgumentError(
                    f"schedulers[{i}] is a {type(scheduler).__name__}",
                    op=op,
                    argument="schedulers",
                    value=scheduler,
                    rule="an LRScheduler",
                )
            if isinstance(scheduler, ReduceLROnPlateau):
                raise ValueRangeError(
                    f"schedulers[{i}] is a ReduceLROnPlateau, whose step() needs a metric",
                    op=op,
                    argument="schedulers",
                    value=scheduler,
                )
        chosen = schedulers[0].optimizer if optimizer is None else optimizer
        for i, scheduler in enumerate(schedulers):
            if scheduler.optimizer is not chosen:
                raise ValueRangeError(
                    f"schedulers[{i}] belongs to another optimizer",
                    op=op,
                    argument="schedulers",
                    value=scheduler,
                    rule="all belong to one optimizer",
                )
        self.optimizer = chosen
        self._schedulers = list(schedulers)

    def state_dict(self) -> dict[str, Any]:
        """Return the state of all schedules, but not the optimizer."""
        state = super().state_dict()
        state["_schedulers"] = [s.state_dict() for s in self._schedulers]
        return state

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        super().load_state_dict({k: v for k, v in state_dict.items() if k != "_schedulers"})
        for scheduler, saved in zip(self._schedulers, state_dict["_schedulers"], strict=True):
            scheduler.load_state_dict(saved)


class SequentialLR(_Combined):
    """The first schedule up to the first milestone, then the second from its start, and so on.

    Errors: ValueError unless there is one milestone fewer than schedules and all belong to the
    optimizer, or for a ReduceLROnPlateau; TypeError for what is no schedule.
    Example: `SequentialLR(optimizer, [warmup, cosine], milestones=[100])`
    """

    def __init__(
        self,
        optimizer: Optimizer,
        schedulers: list[LRScheduler],
        milestones: list[int],
        last_epoch: int = -1,
    ) -> None:
        self._take(optimizer, schedulers)
        if len(milestones) != len(schedulers) - 1:
            raise ValueRangeError(
                f"{len(milestones)} milestones for {len(schedulers)} schedules",
                op=type(self).__name__,
                argument="milestones",
                value=milestones,
                rule="one fewer than schedules",
            )
        self._milestones = milestones
        self.last_epoch = last_epoch + 1
        # The schedules' constructors took their first steps: take those back, then let only the
        # schedule that comes first take its own.
        for group in optimizer.param_groups:
            assign(group, "lr", group["initial_lr"])
        _undo(self)
        first = self._schedulers[bisect_right(milestones, 0)]
        first._initial_step()
        self._last_lr = first.get_last_lr()

    def step(self) -> None:  # type: ignore[override]
        """Take the next step."""
        self.last_epoch += 1
        i = bisect_right(self._milestones, self.last_epoch)
        scheduler = self._schedulers[i]
        if i > 0 and self._milestones[i - 1] == self.last_epoch:
            scheduler._update_lr(0)
        else:
            scheduler.step()
        self._last_lr = scheduler.get_last_lr()


def _undo(scheduler: LRScheduler) -> None:
    """Take back one step of each schedule inside."""
    if isinstance(scheduler, _Combined):
        for inner in scheduler._schedulers:
            _undo(inner)
    else:
        scheduler.last_epoch -= 1


class ChainedScheduler(_Combined):
    """All schedules at once: each step takes one of every schedule, in order.

    Errors: ValueError unless there is a schedule and all belong to one optimizer, or for a
    ReduceLROnPlateau; TypeError for what is no schedule.
    Example: `ChainedScheduler([ConstantLR(optimizer), ExponentialLR(optimizer, 0.9)])`
    """

    def __init__(
        self, schedulers: Sequence[LRScheduler], optimizer: Optimizer | None = None
    ) -> None:
        self._take(optimizer, schedulers)
        self._last_lr = current(self.optimizer)

    def step(self) -> None:  # type: ignore[override]
        """Take one step of every schedule."""
        for scheduler in self._schedulers:
            scheduler.step()
        self._last_lr = current(self.optimizer)
