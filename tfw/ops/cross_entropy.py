"""Cross-entropy of logits, and its gradient."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import FLOATING
from tfw.errors import ArgumentError, DtypeError, OutOfRangeError, ShapeError, ValueRangeError
from tfw.fastpath import Fast
from tfw.ops.compare import eq, ne, where
from tfw.ops.convert import to
from tfw.ops.creation import arange
from tfw.ops.elementwise import add, div, exp, mul, neg, sub
from tfw.ops.expand import unsqueeze
from tfw.ops.loss import check_reduction, legacy_reduction, reduced
from tfw.ops.movement import permute, reshape
from tfw.ops.reduce import sum
from tfw.ops.softmax import log_softmax
from tfw.registry import Call, Reject, fresh, op, primitive
from tfw.runtime.cpu import losses as cpu
from tfw.runtime.cpu.blocks import COMPUTED, SMALL
from tfw.shapes import Spec, normalize_dim
from tfw.tensor import Tensor

# ---- cross-entropy of rows


def _rows_spec(
    x: Spec,
    target: Spec,
    weight: Spec | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> tuple[Spec, ...]:
    if x.ndim != 2 or target.shape != x.shape[:1]:
        # PyTorch has a ValueError for batches that differ, a RuntimeError for all else.
        kind = ValueRangeError if x.ndim == 2 and target.ndim < 2 else ShapeError
        raise kind(
            f"input of shape {x.shape} and target of shape {target.shape}",
            op="cross_entropy",
            argument="target",
            value=target.shape,
            rule="input (N, C) and target (N,)",
        )
    if weight is not None and weight.shape != x.shape[1:]:
        raise ShapeError(
            f"weight has shape {weight.shape} for {x.shape[1]} classes",
            op="cross_entropy",
            argument="weight",
            value=weight.shape,
        )
    wide = dtypes.accumulation(x.dtype)
    loss = fresh(x, target.shape if reduction == "none" else (), x.dtype)
    return loss, fresh(x, target.shape, wide), fresh(x, (), wide)


def _rows(
    x: Any, target: Any, weight: Any, ignore_index: int, label_smoothing: float, reduction: str
) -> tuple[Any, Any, Any]:
    if (
        x.ndim != 2
        or target.shape != x.shape[:1]
        or (weight is not None and weight.shape != x.shape[1:])
    ):
        raise ValueError
    if (
        reduction == "mean"
        and weight is None
        and not label_smoothing
        and ignore_index < 0  # then a target to ignore is no class
        and 0 < x.size <= SMALL
        and x.dtype in COMPUTED
    ):
        few = cpu.mean_cross_entropy_small(x, target)
        if few is not None:
            return few
    loss, lse = cpu.cross_entropy(x, target, weight, ignore_index, label_smoothing)
    total = np.ones((), loss.dtype)
    if reduction == "mean":
        if weight is None:
            count = len(target) - np.count_nonzero(target == ignore_index)
        else:
            count = weight[target[target != ignore_index]].sum(dtype=loss.dtype)
        total = np.asarray(count, loss.dtype)
    if reduction != "none":
        loss = np.asarray(np.add.reduce(loss) / total)
    return loss.astype(x.dtype, copy=False), lse, total


@primitive(
    numpy=_rows,
    infer=_rows_spec,
    fast=Fast("direct", needs={"target": dtypes.int64}, outputs=(None, None, None)),
    outputs=("loss", "lse", "total"),
    dtypes={"input": FLOATING, "target": (dtypes.int64,), "weight": FLOATING},
    computes=False,  # keeps lse in float32 itself
    hidden=True,
    method=False,
    autocast="float32",
    shown="cross_entropy",
)
def cross_entropy_rows(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
    reduction: str,
) -> tuple[Tensor, Tensor, Tensor]:
    """Cross-entropy of rows of logits, with logsumexp and the mean's divisor for its gradient.

    loss = (1 - s) w[t] (lse - x[t]) + s / C sum(w (lse - x)), 0 where t is ignore_index; weight
    gets no gradient.

    Shapes: input (N, C), target (N,), weight (C,); loss (N,) or (), lse (N,), total ().
    Dtypes: input floating, target int64; lse and total are float32 for half types.
    Errors: IndexError for a target that is no class.
    Source: elementary; smoothing: Szegedy et al. 2016, arXiv:1512.00567.
    Example: used by cross_entropy.
    """
    ...


def _rows_grad_rule(
    grad: Any,
    x: Any,
    target: Any,
    lse: Any,
    total: Any,
    weight: Any,
    ignore_index: int,
    label_smoothing: float,
) -> Any:
    rows = np.broadcast_to((grad / total).astype(lse.dtype, copy=False), lse.shape)
    return cpu.cross_entropy_grad(rows, x, target, lse, weight, ignore_index, label_smoothing)


@op(
    numpy=_rows_grad_rule,
    infer=lambda grad, x, *_: fresh(x, x.shape),
    dtypes={
        **dict.fromkeys(("grad", "input", "lse", "total", "weight"), FLOATING),
        "target": (dtypes.int64,),
    },
    computes=False,
    hidden=True,
    method=False,
)
def cross_entropy_grad(
    grad: Tensor,
    input: Tensor,
    target: Tensor,
    lse: Tensor,
    total: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor:
    """Gradient of cross_entropy_rows: grad / total * (softmax - the target's distribution).

    Shapes: grad () or (N,), input (N, C).
    Dtypes: floating, target int64.
    Errors: none beyond those of its ops.
    Source: elementary.
    Example: used by gradients.
    """
    wide = lse.dtype
    x = to(input, wide)
    n_classes = input._a.shape[1]
    scale = div(to(grad, wide), total)
    valid = ne(target, ignore_index)
    scale = where(valid, scale, 0.0)
    hit = eq(unsqueeze(target, 1), arange(n_classes, device=input.device))
    onehot = to(hit, wide)
    if weight is None:
        aim = add(mul(onehot, 1 - label_smoothing), label_smoothing / max(1, n_classes))
    else:
        w = to(weight, wide)
        aim = mul(add(mul(onehot, 1 - label_smoothing), label_smoothing / max(1, n_classes)), w)
    p = exp(sub(x, unsqueeze(lse, 1)))
    slope = sub(mul(p, sum(aim, 1, True)), aim)
    return to(mul(unsqueeze(scale, 1), slope), input.dtype)


def _rows_vjp(
    g_loss: Tensor | None,
    g_lse: Tensor | None,
    input: Tensor,
    target: Tensor,
    lse: Tensor,
    total: Tensor,
    weight: Tensor | None,
    ignore_index: int,
    label_smoothing: float,
) -> Tensor | None:
    gx = None
    if g_loss is not None:
        gx = cross_entropy_grad(
            g_loss, input, target, lse, total, weight, ignore_index, label_smoothing
        )
    if g_lse is not None:  # in second derivatives
        p = exp(sub(to(input, lse.dtype), unsqueeze(lse, 1)))
        part = to(mul(unsqueeze(g_lse, 1), p), input.dtype)
        gx = part if gx is None else add(gx, part)
    return gx


cross_entropy_rows.vjp(input=_rows_vjp)


def cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    size_average: Any = None,
    ignore_index: int = -100,
    reduce: Any = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> Tensor:
    """Cross-entropy of logits against class numbers or probabilities: -sum(p * log_softmax(x)).

    The mean divides by the weights of the targets that count.

    Shapes: input (C,), (N, C) or (N, C, d1, ...); target input's without C, or input's own for
        probabilities.
    Dtypes: input floating; target int64 for class numbers, floating for probabilities.
    Errors: IndexError for a target that is no class, RuntimeError if shapes do not fit, ValueError
        for label_smoothing outside [0, 1] or an unknown reduction.
    Source: elementary; smoothing: Szegedy et al. 2016, arXiv:1512.00567.
    Example: `nn.functional.cross_entropy(tfw.zeros(1, 1), tfw.tensor([0])).item() == 0.0`
    """
    if size_average is not None or reduce is not None:
        reduction = legacy_reduction(size_average, reduce)
    check_reduction("cross_entropy", reduction)
    if not 0.0 <= label_smoothing <= 1.0:
        raise ValueRangeError(
            f"label_smoothing={label_smoothing}",
            op="cross_entropy",
            argument="label_smoothing",
            value=label_smoothing,
            rule="0 <= label_smoothing <= 1",
        )
    for name, x in (("input", input), ("target", target)):
        if not isinstance(x, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"{name} must be a Tensor, not {type(x).__name__}",
                op="cross_entropy",
                argument=name,
            )
    if target.dtype.is_floating_point and target._a.shape == input._a.shape:
        return _cross_entropy_probabilities(input, target, weight, reduction, label_smoothing)
    if input._a.ndim == 2:
        return cross_entropy_rows(input, target, weight, ignore_index, label_smoothing, reduction)[
            0
        ]
    if not input._a.ndim:
        raise ShapeError("input has no classes dim", op="cross_entropy", argument="input")
    if input._a.ndim == 1:
        rows, targets = unsqueeze(input, 0), reshape(target, (1,))
        if target._a.ndim:
            _rows_mismatch(input, target)
    else:
        shape = input._a.shape
        if target._a.shape != (shape[0], *shape[2:]):
            _rows_mismatch(input, target)
        rows = reshape(permute(input, (0, *range(2, len(shape)), 1)), (-1, shape[1]))
        targets = reshape(target, (-1,))
    loss = cross_entropy_rows(rows, targets, weight, ignore_index, label_smoothing, reduction)[0]
    return reshape(loss, target._a.shape) if reduction == "none" else loss


def _rows_mismatch(input: Tensor, target: Tensor) -> None:
    raise ShapeError(
        f"input of shape {tuple(input._a.shape)} and target of shape {tuple(target._a.shape)}",
        op="cross_entropy",
        argument="target",
        value=tuple(target._a.shape),
        rule="(N, C, d1, ...) with (N, d1, ...) class numbers or (N, C, d1, ...) probabilities",
    )


def _cross_entropy_probabilities(
    input: Tensor, target: Tensor, weight: Tensor | None, reduction: str, label_smoothing: float
) -> Tensor:
    dim = normalize_dim("cross_entropy", min(1, input._a.ndim - 1), input._a.ndim, input._a.shape)
    n_classes = input._a.shape[dim]
    if label_smoothing:
        target = add(mul(target, 1 - label_smoothing), label_smoothing / n_classes)
    logs = log_softmax(input, dim)
    if weight is not None:
        logs = mul(logs, reshape(weight, (n_classes, *[1] * (input._a.ndim - 1 - dim))))
    loss = neg(sum(mul(target, logs), dim))
    if reduction == "mean":
        n = loss._a.size
        return div(sum(loss), float(n))
    return reduced(loss, reduction)


def _rows_reference(
    x: Any, target: Any, weight: Any, ignore_index: int, s: float, reduction: str
) -> Any:
    n_classes = x.shape[1]
    w = np.ones(n_classes) if weight is None else weight
    top = x.max(1, initial=-np.inf)
    lse = np.log(np.exp(x - top[:, None]).sum(1)) + top
    losses, total = [], 0.0
    for row, t, z in zip(x, target, lse, strict=True):
        if t == ignore_index:
            losses.append(0.0)
            continue
        smooth = s / max(1, n_classes) * (w * (z - row)).sum()
        losses.append((1 - s) * w[t] * (z - row[t]) + smooth)
        total += w[t]
    loss = np.array(losses)
    if reduction == "mean":
        return loss.sum() / total, lse, total
    return (loss.sum() if reduction == "sum" else loss), lse, 1.0


cross_entropy_rows.reference(_rows_reference)


@cross_entropy_rows.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.standard_normal((4, 5))
    t = np.array([0, 4, -100, 2])
    yield Call(x, t, None, -100, 0.0, "mean")
    yield Call(x, t, np.abs(rng.standard_normal(5)), -100, 0.1, "sum")
    yield Call(x, np.array([1, 1, 3, 0]), np.abs(rng.standard_normal(5)), 3, 0.2, "none")


@cross_entropy_rows.rejects
def _() -> Iterator[Reject]:
    x = np.ones((2, 3))
    yield Reject(
        Call(x, np.array([0, 3]), None, -100, 0.0, "mean"), OutOfRangeError, argument="target"
    )
    yield Reject(
        Call(x, np.array([0, -1]), None, -100, 0.0, "mean"), OutOfRangeError, argument="target"
    )
    yield Reject(
        Call(x, np.array([0]), None, -100, 0.0, "mean"), ValueRangeError, argument="target"
    )
    yield Reject(
        Call(x, np.zeros((2, 3), int), None, -100, 0.0, "mean"), ShapeError, argument="target"
    )
    yield Reject(
        Call(x, np.array([0, 1]), np.ones(2), -100, 0.0, "mean"), ShapeError, argument="weight"
    )
    yield Reject(
        Call(x, np.array([0.0, 1.0]), None, -100, 0.0, "mean"), DtypeError, argument="target"
    )


@cross_entropy_grad.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.standard_normal((4, 5))
    lse = np.log(np.exp(x).sum(1))
    t = np.array([0, 4, -100, 2])
    yield Call(np.array(1.5), x, t, lse, np.array(3.0), None, -100, 0.0)
    yield Call(
        rng.standard_normal(4), x, t, lse, np.array(1.0), np.abs(rng.standard_normal(5)), -100, 0.1
    )


def _rows_grad_reference(
    g: Any, x: Any, target: Any, lse: Any, total: Any, weight: Any, ignore_index: int, s: float
) -> Any:
    n_classes = x.shape[1]
    w = np.ones(n_classes) if weight is None else weight
    rows = np.broadcast_to(g / total, target.shape)
    result = np.zeros(x.shape)
    for i, t in enumerate(target):
        if t != ignore_index:
            aim = s / max(1, n_classes) * w
            aim[t] += (1 - s) * w[t]
            result[i] = rows[i] * (aim.sum() * np.exp(x[i] - lse[i]) - aim)
    return result


cross_entropy_grad.reference(_rows_grad_reference)
