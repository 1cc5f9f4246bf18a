"""Checks of options that several optimizers share."""

from __future__ import annotations

from typing import Any

from tfw.errors import TfwError, ValueRangeError
from tfw.tensor import Tensor


class OptionError(TfwError, RuntimeError):
    """Options that exclude each other."""


def check(op: str, name: str, value: Any, holds: bool, rule: str) -> None:
    """Raise ValueError unless an option's value is allowed."""
    if not holds:
        raise ValueRangeError(f"{name}={value!r}", op=op, argument=name, value=value, rule=rule)


def check_lr(op: str, lr: Any) -> None:
    """Raise ValueError unless a learning rate is a number or one-element tensor, 0 or more."""
    if isinstance(lr, Tensor):
        check(op, "lr", tuple(lr.shape), lr.numel() == 1, "a number, or a tensor of one element")
    check(op, "lr", lr, float(lr) >= 0.0, "lr >= 0")


def check_implementation(op: str, foreach: Any, fused: Any, differentiable: bool) -> None:
    """Raise RuntimeError for choices of implementation that PyTorch refuses to combine."""
    other = "foreach" if foreach else "differentiable" if differentiable else ""
    if fused and other:
        raise OptionError(
            f"fused=True excludes {other}=True",
            op=op,
            argument="fused",
            value=fused,
            rule=f"one of fused and {other}",
        )


def as_lr(lr: Any) -> Any:
    """Return a group's learning rate as a step takes it: a number or a 0-d tensor."""
    return lr.reshape(()) if isinstance(lr, Tensor) and lr.ndim else lr


def by_device(parameters: list[Tensor]) -> list[list[Tensor]]:
    """Return the parameters that have gradients, in lists that each live on one device."""
    ready = [p for p in parameters if p.grad is not None]
    if not ready:
        return []
    first = ready[0].device
    if all(p.device is first for p in ready):
        return [ready]
    groups: dict[Any, list[Tensor]] = {}
    for p in ready:
        groups.setdefault(p.device, []).append(p)
    return list(groups.values())
