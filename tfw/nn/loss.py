"""Losses as modules: CrossEntropyLoss, MSELoss."""

from __future__ import annotations

import warnings
from typing import Any

from tfw.nn.module import Module
from tfw.ops.cross_entropy import cross_entropy
from tfw.ops.loss import legacy_reduction, mse_loss
from tfw.tensor import Tensor


def _reduction(size_average: Any, reduce: Any, reduction: str) -> str:
    """Return the reduction, from PyTorch's two deprecated flags if one of them is given."""
    if size_average is None and reduce is None:
        return reduction
    chosen = legacy_reduction(size_average, reduce)
    warnings.warn(
        f"size_average and reduce are deprecated: pass reduction={chosen!r}", stacklevel=3
    )
    return chosen


class CrossEntropyLoss(Module):
    """Cross-entropy of logits x against classes t: -log(exp(x[t]) / sum(exp(x))), with reduction.

    The target may be class probabilities instead. The mean divides by the weights of the targets
    that count.

    Shapes: input (C,), (N, C) or (N, C, d1, ...); target input's without C, or input's own for
    probabilities; result () unless reduction="none".
    Dtypes: input floating; target int64, or floating for probabilities.
    Parameters: none; buffer `weight` (C,) if given.
    Errors: when called, IndexError for a target that is no class, RuntimeError if shapes do not
    fit, ValueError for an unknown reduction or label_smoothing outside [0, 1].
    Source: elementary; smoothing: Szegedy et al. 2016, arXiv:1512.00567.
    Example: `nn.CrossEntropyLoss()(tfw.zeros(1, 1), tfw.tensor([0])).item() == 0.0`
    """

    weight: Tensor | None

    def __init__(
        self,
        weight: Tensor | None = None,
        size_average: Any = None,
        ignore_index: int = -100,
        reduce: Any = None,
        reduction: str = "mean",
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.register_buffer("weight", weight)
        self.ignore_index = ignore_index
        self.reduction = _reduction(size_average, reduce, reduction)
        self.label_smoothing = label_smoothing

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return cross_entropy(
            input,
            target,
            weight=self.weight,
            ignore_index=self.ignore_index,
            reduction=self.reduction,
            label_smoothing=self.label_smoothing,
        )


class MSELoss(Module):
    """Squared error: mean((x - t)^2), or the sum or each with another reduction.

    Shapes: input and target broadcast; result () unless reduction="none".
    Dtypes: floating.
    Parameters: none.
    Errors: when called, RuntimeError if the shapes do not broadcast, ValueError for an unknown
    reduction.
    Source: elementary.
    Example: `nn.MSELoss()(tfw.ones(2), tfw.zeros(2)).item() == 1.0`
    """

    def __init__(
        self, size_average: Any = None, reduce: Any = None, reduction: str = "mean"
    ) -> None:
        super().__init__()
        self.reduction = _reduction(size_average, reduce, reduction)

    def forward(self, input: Tensor, target: Tensor) -> Tensor:
        """Return the loss."""
        return mse_loss(input, target, reduction=self.reduction)
