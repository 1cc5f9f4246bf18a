"""Optimizer steps in place: one call for all parameters of a group.

The bodies define the arithmetic; on the CPU fused, threaded loops replace them. Gradients flow
through the bodies: with gradients enabled, a step on tensors that have a history is recorded.

Unlike other ops these write their inputs and return nothing; `sgd_step` and `adam_step` call them
and count the changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfw import dispatch as _dispatch
from tfw import dtypes
from tfw.dtypes import FLOATING, Number
from tfw.errors import ArgumentError
from tfw.inplace import count_change
from tfw.ops.convert import clone, to
from tfw.ops.elementwise import add, div, maximum, mul, neg, pow, sqrt, sub
from tfw.registry import Call, Op, Reject, op
from tfw.runtime.cpu import optim as cpu
from tfw.runtime.thread_state import state
from tfw.tensor import Tensor

Tensors = Sequence[Tensor]


def _columns(tensors: Sequence[Any], n_columns: int) -> list[Sequence[Any]]:
    """Cut a flat list into as many equal parts."""
    n = len(tensors) // n_columns
    return [tensors[i * n : (i + 1) * n] for i in range(n_columns)]


def _alike(parameters: Sequence[Any], *columns: Sequence[Any]) -> bool:
    """Return whether parameters and their state share a layout without gaps, as loops need it."""
    return all(p.flags.forc for p in parameters) and all(
        p.strides == s.strides
        for column in columns
        for p, s in zip(parameters, column, strict=True)
    )


def _run(op: Op, lr: Tensor | float, tensors: list[Tensor], attrs: tuple[Any, ...]) -> None:
    """Call a step; on the CPU, where nothing is recorded or intercepted, its rule directly."""
    if _dispatch.intercept is None and not state.grad_enabled:
        payloads = [t._a for t in tensors]
        rate = lr._a if isinstance(lr, Tensor) else lr
        on_cpu = all(a.__class__ is np.ndarray for a in payloads)
        on_cpu = on_cpu and (rate is lr or rate.__class__ is np.ndarray)
        if on_cpu and state.run(op.rules["cpu"], rate, payloads, *attrs) is not NotImplemented:
            return
    op.function(lr, tensors, *attrs)


def _read(x: Tensor) -> Tensor:
    """Return a tensor soon to be overwritten, widened; a copy where backward may need it."""
    wide = to(x, dtypes.accumulation(x.dtype))
    return clone(wide) if wide is x and state.grad_enabled else wide


def _scalar(lr: Any) -> float:
    return float(lr.item() if hasattr(lr, "item") else lr)


# ---- SGD


@op(dtypes={"tensors": FLOATING}, hidden=True, method=False, computes=False)
def sgd_step_(
    lr: Tensor | Number,
    tensors: Sequence[Tensor],
    momentum: float,
    dampening: float,
    nesterov: bool,
    weight_decay: float,
    maximize: bool,
    first: bool,
) -> tuple[()]:
    """SGD, in place: b = m b + (1 - d) g, or g if first; p -= lr (g + m b if nesterov else b).

    g is the gradient (its negative if maximize) plus weight_decay * p, m the momentum, d the
    dampening; without momentum p -= lr g.

    Shapes: tensors holds n parameters, n gradients and, with momentum, n buffers; lr ().
    Dtypes: floating; half types compute in float32 and round once.
    Errors: RuntimeError if devices differ.
    Source: Sutskever et al. 2013, On the importance of initialization and momentum in deep
        learning.
    Example: used by optim.SGD.
    """
    parameters, gradients, *rest = _columns(tensors, 3 if momentum else 2)
    buffers = rest[0] if rest else [None] * len(parameters)
    for p, g, buffer in zip(parameters, gradients, buffers, strict=True):
        value, step = _read(p), to(g, dtypes.accumulation(p.dtype))
        if maximize:
            step = neg(step)
        if weight_decay:
            step = add(step, mul(value, weight_decay))
        if buffer is not None:
            fresh = step
            if not first:
                fresh = add(mul(_read(buffer), momentum), mul(step, 1 - dampening))
            buffer.copy_(fresh)
            step = add(step, mul(fresh, momentum)) if nesterov else fresh
        p.copy_(sub(value, mul(step, lr)))
    return ()


@sgd_step_.numpy
def _(
    lr: Any,
    tensors: Any,
    momentum: float,
    dampening: float,
    nesterov: bool,
    weight_decay: float,
    maximize: bool,
    first: bool,
) -> Any:
    parameters, gradients, *buffers = _columns(tensors, 3 if momentum else 2)
    if not _alike(parameters, *buffers):
        return NotImplemented
    cpu.sgd_step(
        parameters,
        gradients,
        buffers[0] if buffers else (),
        lr=_scalar(lr),
        momentum=momentum,
        dampening=dampening,
        nesterov=nesterov,
        weight_decay=weight_decay,
        maximize=maximize,
        first=first,
    )
    return ()


@sgd_step_.reference
def _(
    lr: float,
    tensors: Any,
    momentum: float,
    dampening: float,
    nesterov: bool,
    weight_decay: float,
    maximize: bool,
    first: bool,
) -> Any:
    parameters, gradients, *rest = _columns(tensors, 3 if momentum else 2)
    values: list[Any] = []
    buffers: list[Any] = []
    for i, (p, g) in enumerate(zip(parameters, gradients, strict=True)):
        step = -g if maximize else g
        if weight_decay:
            step = step + weight_decay * p
        if momentum:
            b = step if first else momentum * rest[0][i] + (1 - dampening) * step
            buffers.append(b)
            step = step + momentum * b if nesterov else b
        values.append(p - lr * step)
    return [*values, *gradients, *buffers]


@sgd_step_.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    draw = rng.standard_normal
    yield Call(0.1, [draw((3, 4)), draw((3, 4))], 0.0, 0.0, False, 0.01, False, False)
    yield Call(
        0.1,
        [draw(5), draw(2), draw(5), draw(2), draw(5), draw(2)],
        0.9,
        0.1,
        False,
        0.0,
        True,
        False,
    )


@sgd_step_.rejects
def _() -> Iterator[Reject]:
    yield Reject(
        Call(0.1, [np.ones(2), 1.0], 0.0, 0.0, False, 0.0, False, False),
        ArgumentError,
        argument="tensors",
    )


def sgd_step(
    parameters: Tensors,
    gradients: Tensors,
    buffers: Tensors,
    *,
    lr: Tensor | float,
    momentum: float,
    dampening: float,
    nesterov: bool,
    weight_decay: float,
    maximize: bool,
    first: bool,
) -> None:
    """Take one SGD step of several parameters; `buffers` is empty without momentum."""
    tensors = [*parameters, *gradients, *buffers]
    attrs = (momentum, dampening, nesterov, weight_decay, maximize, first)
    _run(sgd_step_.op, lr, tensors, attrs)
    _count(parameters, buffers)


# ---- Adam


@op(dtypes={"tensors": FLOATING}, hidden=True, method=False, computes=False)
def adam_step_(
    lr: Tensor | Number,
    tensors: Sequence[Tensor],
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    amsgrad: bool,
    maximize: bool,
) -> tuple[()]:
    """Adam in place: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr m^ / (sqrt v^ + eps).

    m^ = m / (1 - b1^t), v^ = v / (1 - b2^t), t counts steps, this one included; with amsgrad the
    largest v so far takes v's place in v^. Weight decay is added to the gradient, or, decoupled,
    p *= 1 - lr * weight_decay first. maximize turns the gradient's sign.

    Shapes: tensors holds n each of parameters, gradients, m, v, with amsgrad the largest v, and t
    of shape (); lr ().
    Dtypes: floating; half types compute in float32 and round once; t float32.
    Errors: RuntimeError if devices differ.
    Source: Kingma and Ba 2015, arXiv:1412.6980; Reddi et al. 2018, On the Convergence of Adam
        and Beyond; Loshchilov and Hutter 2019, Decoupled Weight Decay Regularization,
        arXiv:1711.05101.
    Example: used by optim.Adam and optim.AdamW.
    """
    columns = _columns(tensors, 6 if amsgrad else 5)
    for p, g, m, v, *largest, t in zip(*columns, strict=True):
        t.add_(1)
        count = to(t, dtypes.float64)  # 1 - b2^t loses half its digits in float32
        value, gradient = _read(p), to(g, dtypes.accumulation(p.dtype))
        if maximize:
            gradient = neg(gradient)
        if decoupled:
            value = mul(
                value,
                sub(1.0, mul(lr, weight_decay))
                if isinstance(lr, Tensor)
                else 1 - lr * weight_decay,
            )
        elif weight_decay:
            gradient = add(gradient, mul(value, weight_decay))
        mean = add(mul(_read(m), beta1), mul(gradient, 1 - beta1))
        square = add(mul(_read(v), beta2), mul(mul(gradient, gradient), 1 - beta2))
        m.copy_(mean)
        v.copy_(square)
        if largest:
            square = maximum(_read(largest[0]), square)
            largest[0].copy_(square)
        root = sqrt(div(square, sub(1.0, pow(beta2, count))))
        size = div(lr, sub(1.0, pow(beta1, count)))
        p.copy_(sub(value, mul(div(mean, add(root, eps)), size)))
    return ()


@adam_step_.numpy
def _(
    lr: Any,
    tensors: Any,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    amsgrad: bool,
    maximize: bool,
) -> Any:
    parameters, gradients, means, squares, *largest, counts = _columns(tensors, 6 if amsgrad else 5)
    if not _alike(parameters, means, squares, *largest):
        return NotImplemented
    for t in counts:
        t += 1
    cpu.adam_step(
        parameters,
        gradients,
        means,
        squares,
        largest[0] if largest else (),
        [int(t) for t in counts],
        lr=_scalar(lr),
        betas=(beta1, beta2),
        eps=eps,
        weight_decay=weight_decay,
        decoupled=decoupled,
        maximize=maximize,
    )
    return ()


@adam_step_.reference
def _(
    lr: float,
    tensors: Any,
    beta1: float,
    beta2: float,
    eps: float,
    weight_decay: float,
    decoupled: bool,
    amsgrad: bool,
    maximize: bool,
) -> Any:
    columns = _columns(tensors, 6 if amsgrad else 5)
    after: list[list[Any]] = [[] for _ in columns]
    for p, g, m, v, *largest, t in zip(*columns, strict=True):
        t = t + 1
        slope = -g if maximize else g
        if weight_decay and not decoupled:
            slope = slope + weight_decay * p
        m = beta1 * m + (1 - beta1) * slope
        v = beta2 * v + (1 - beta2) * slope**2
        top = [np.maximum(largest[0], v)] if amsgrad else []
        root = np.sqrt((top[0] if amsgrad else v) / (1 - beta2**t)) + eps
        p = p * (1 - lr * weight_decay if decoupled else 1) - lr * (m / (1 - beta1**t)) / root
        for column, x in zip(after, (p, g, m, v, *top, t), strict=True):
            column.append(x)
    return [x for column in after for x in column]


@adam_step_.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    p, g, m = (rng.standard_normal((3, 4)) for _ in range(3))
    v = np.abs(rng.standard_normal((3, 4)))
    yield Call(0.1, [p, g, m, v, np.array(2.0)], 0.9, 0.999, 1e-8, 0.0, False, False, False)
    yield Call(0.1, [p, g, m, v, v * 2, np.array(2.0)], 0.9, 0.999, 1e-8, 0.1, True, True, True)


@adam_step_.rejects
def _() -> Iterator[Reject]:
    call = Call(0.1, [np.ones(2), 1.0], 0.9, 0.999, 1e-8, 0.0, False, False, False)
    yield Reject(call, ArgumentError, argument="tensors")


def adam_step(
    parameters: Tensors,
    gradients: Tensors,
    means: Tensors,
    squares: Tensors,
    largest: Tensors,
    counts: Tensors,
    *,
    lr: Tensor | float,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
    decoupled: bool,
    amsgrad: bool,
    maximize: bool,
) -> None:
    """Take one Adam step of several parameters, add 1 to their counts; `largest` is amsgrad's."""
    tensors = [*parameters, *gradients, *means, *squares, *largest, *counts]
    attrs = (*betas, eps, weight_decay, decoupled, amsgrad, maximize)
    _run(adam_step_.op, lr, tensors, attrs)
    _count(parameters, means, squares, largest, counts)


def _count(*columns: Tensors) -> None:
    """Note that memory was written. With gradients enabled the body ran, which noted it itself."""
    if state.grad_enabled:
        return
    for column in columns:
        for tensor in column:
            count_change(tensor)
