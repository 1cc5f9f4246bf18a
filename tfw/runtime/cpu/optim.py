"""Optimizer steps in place: every block goes through the cache once for all of its arithmetic.

Each function takes lists with one entry per parameter. The arrays of one parameter have one shape
and one dtype; half precision computes in float32 and rounds once. A parameter and its state are in
C order or share another order without gaps; a gradient may have any strides and is not changed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from .blocks import Array, flatten, is_small, load, memory_order, scratch, store
from .threads import parallel_for, run_quietly

# Elements per block. Smaller ones would keep a step's arrays nearer, but threads then wait for the
# GIL between passes: AdamW of 670,000 elements takes 2.9, 1.8 and 1.6 ms with 2^15, 16 and 17.
_BLOCK = 1 << 17
# Where the gradient stands among the arrays of a parameter; all others are written.
_GRADIENT = 1


def _flatten_all(arrays: Sequence[Array], number: int) -> list[Array]:
    """Return a parameter, its gradient and its state as 1-D arrays in the parameter's order."""
    order = memory_order(arrays[0])
    flat: list[Array] = []
    for i, x in enumerate(arrays):
        view = flatten(x, order)
        if view is None and i == _GRADIENT:
            view = np.ascontiguousarray(x.transpose(order)).reshape(-1)
        if view is None:
            raise ValueError(
                f"optimizer step: parameter {number} and its state differ in memory layout: "
                f"strides {arrays[0].strides} and {x.strides} for shape {x.shape}"
            )
        flat.append(view)
    return flat


def _each(body: Callable[..., object], parameters: Sequence[Sequence[Array]]) -> None:
    for i, arrays in enumerate(parameters):
        body(i, *arrays)


def _for_blocks(body: Callable[..., object], parameters: Sequence[Sequence[Array]]) -> None:
    """Call body(parameter number, *blocks) over all parameters, as one loop.

    Buffers 0 and 1 belong to the body.
    """
    if all(is_small(*arrays) for arrays in parameters):
        run_quietly(_each, body, parameters)
        return
    flat = [_flatten_all(arrays, i) for i, arrays in enumerate(parameters)]
    work = [(i, start) for i, x in enumerate(flat) for start in range(0, x[0].size, _BLOCK)]
    # Many small parameters share a chunk.
    n_elements = sum(x[0].size for x in flat)
    grain = max(1, _BLOCK * len(work) // max(1, n_elements))

    def chunk(first: int, last: int) -> None:
        for i, start in work[first:last]:
            blocks = [x[start : start + _BLOCK] for x in flat[i]]
            loaded = [load(x, slot) for slot, x in enumerate(blocks, 2)]
            body(i, *loaded)
            for j, (result, x) in enumerate(zip(loaded, blocks, strict=True)):
                if j != _GRADIENT:
                    store(result, x)

    parallel_for(len(work), grain, chunk)


def sgd_step(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    momentum_buffers: Sequence[Array],
    *,
    lr: float,
    momentum: float = 0.0,
    dampening: float = 0.0,
    nesterov: bool = False,
    weight_decay: float = 0.0,
    maximize: bool = False,
    first: bool = False,
) -> None:
    """Stochastic gradient descent with momentum m, in place, as torch.optim.SGD defines it.

    g = (-g if maximize else g) + weight_decay * p; buffer = g if first else m * buffer +
    (1 - dampening) * g; p -= lr * (g + m * buffer if nesterov else buffer). Without momentum
    momentum_buffers is empty and p -= lr * g.
    """
    sign = -1.0 if maximize else 1.0

    def body(_: int, p: Array, g: Array, buffer: Array | None = None) -> None:
        step = scratch(0, p.shape, p.dtype)
        if weight_decay:
            np.multiply(p, weight_decay * sign, out=step)
            np.add(step, g, out=step)
            g = step
        if buffer is None:
            np.multiply(g, sign * lr, out=step)
            np.subtract(p, step, out=p)
            return
        other = scratch(1, p.shape, p.dtype)
        if first:
            np.multiply(g, sign, out=buffer)
        else:
            np.multiply(buffer, momentum, out=buffer)
            np.multiply(g, sign * (1 - dampening), out=other)
            np.add(buffer, other, out=buffer)
        if nesterov:
            np.multiply(g, sign * lr, out=step)
            np.subtract(p, step, out=p)
        np.multiply(buffer, lr * momentum if nesterov else lr, out=other)
        np.subtract(p, other, out=p)

    if momentum:
        _for_blocks(body, list(zip(parameters, gradients, momentum_buffers, strict=True)))
    else:
        _for_blocks(body, list(zip(parameters, gradients, strict=True)))


def adam_step(
    parameters: Sequence[Array],
    gradients: Sequence[Array],
    exp_avgs: Sequence[Array],
    exp_avg_sqs: Sequence[Array],
    max_exp_avg_sqs: Sequence[Array],
    steps: Sequence[int],
    *,
    lr: float,
    betas: tuple[float, float] = (0.9, 0.999),
    eps: float = 1e-8,
    weight_decay: float = 0.0,
    decoupled: bool = False,
    maximize: bool = False,
) -> None:
    """Adam, in place, as torch.optim.Adam (AdamW where decoupled) defines it.

    g = -g if maximize; weight decay: p *= 1 - lr * weight_decay if decoupled, else g +=
    weight_decay * p; m = b1 * m + (1 - b1) * g; v = b2 * v + (1 - b2) * g^2; p -= lr / (1 - b1^t) *
    m / (sqrt(v' / (1 - b2^t)) + eps), with v' = v, or max(v', v) kept in max_exp_avg_sqs where that
    is not empty (amsgrad). steps holds each parameter's t, this step included.
    """
    beta1, beta2 = betas
    decay = 1 - lr * weight_decay if decoupled else 1.0
    coupled_decay = 0.0 if decoupled else weight_decay
    sign = -1.0 if maximize else 1.0

    def body(i: int, p: Array, g: Array, m: Array, v: Array, largest: Array | None = None) -> None:
        a, b = scratch(0, p.shape, p.dtype), scratch(1, p.shape, p.dtype)
        # The sign of g matters to m alone; where decay is added to g it joins with the same sign.
        if coupled_decay:
            np.multiply(p, coupled_decay * sign, out=a)
            np.add(a, g, out=a)
            g = a
        if decay != 1.0:
            np.multiply(p, decay, out=p)
        np.multiply(g, sign * (1 - beta1), out=b)
        np.multiply(m, beta1, out=m)
        np.add(m, b, out=m)
        np.multiply(g, g, out=a)
        np.multiply(a, 1 - beta2, out=a)
        np.multiply(v, beta2, out=v)
        np.add(v, a, out=v)
        if largest is None:
            largest = v
        else:
            np.maximum(largest, v, out=largest)
        # m / (sqrt(v) / c + eps) = c m / (sqrt(v) + c eps), one pass fewer.
        c = math.sqrt(1 - beta2 ** steps[i])
        np.sqrt(largest, out=a)
        np.add(a, c * eps, out=a)
        np.divide(m, a, out=a)
        np.multiply(a, lr * c / (1 - beta1 ** steps[i]), out=a)
        np.subtract(p, a, out=p)

    states: tuple[Sequence[Any], ...] = (parameters, gradients, exp_avgs, exp_avg_sqs)
    if max_exp_avg_sqs:
        states += (max_exp_avg_sqs,)
    _for_blocks(body, list(zip(*states, strict=True)))
