"""Losses made of elementwise ops, and how losses are reduced."""

from __future__ import annotations

from typing import Any

from tfw.errors import ValueRangeError
from tfw.ops.elementwise import mul, sub
from tfw.ops.reduce import mean, sum
from tfw.tensor import Tensor

REDUCTIONS = ("mean", "sum", "none")


def check_reduction(op: str, reduction: str) -> None:
    """Raise ValueError for an unknown reduction."""
    if reduction not in REDUCTIONS:
        raise ValueRangeError(
            f"reduction={reduction!r}",
            op=op,
            argument="reduction",
            value=reduction,
            rule="'mean', 'sum' or 'none'",
        )


def reduced(loss: Tensor, reduction: str) -> Tensor:
    """Return a loss per element reduced as asked."""
    return loss if reduction == "none" else sum(loss) if reduction == "sum" else mean(loss)


def legacy_reduction(size_average: Any, reduce: Any) -> str:
    """Return the reduction that PyTorch's two deprecated flags ask for."""
    if reduce is False:
        return "none"
    return "sum" if size_average is False else "mean"


# ---- squared error


def mse_loss(
    input: Tensor,
    target: Tensor,
    size_average: Any = None,
    reduce: Any = None,
    reduction: str = "mean",
) -> Tensor:
    """Squared error: mean((input - target)^2), or its sum, or each.

    Shapes: input and target broadcast.
    Dtypes: floating.
    Errors: RuntimeError if the shapes do not broadcast, ValueError for an unknown reduction.
    Source: elementary.
    Example: `nn.functional.mse_loss(tfw.ones(2), tfw.zeros(2)).item() == 1.0`
    """
    if size_average is not None or reduce is not None:
        reduction = legacy_reduction(size_average, reduce)
    check_reduction("mse_loss", reduction)
    difference = sub(input, target)
    return reduced(mul(difference, difference), reduction)
