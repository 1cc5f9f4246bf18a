"""Softmax and log-softmax, with their gradients as ops."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw.dtypes import FLOATING
from tfw.errors import DimError, DtypeError
from tfw.fastpath import Fast
from tfw.ops.convert import to
from tfw.ops.elementwise import exp, log, mul, sub
from tfw.ops.extreme import amax
from tfw.ops.reduce import sum
from tfw.registry import Call, Reject, fresh, op
from tfw.runtime.cpu import softmax as cpu
from tfw.shapes import Spec, normalize_dim
from tfw.tensor import Tensor


def _spec(name: str) -> Any:
    def infer(x: Spec, *args: Any) -> Spec:
        dim = args[-1]
        normalize_dim(name, dim, x.ndim, x.shape)
        return fresh(x, x.shape)

    return infer


def _rule(function: Any) -> Any:
    """Leave `dim` out of range to the shape rule, and count 0-d tensors as one element."""

    def rule(x: Any, dim: int) -> Any:
        ndim = x.ndim
        if -ndim <= dim < ndim:
            return function(x, dim)
        if ndim or not -1 <= dim < 1:
            raise IndexError
        return function(x.reshape(1), 0).reshape(())

    return rule


def _grad_rule(function: Any) -> Any:
    """`_rule` for a gradient, of two arrays."""

    def rule(grad: Any, y: Any, dim: int) -> Any:
        ndim = y.ndim
        if -ndim <= dim < ndim:
            return function(grad, y, dim)
        if ndim or not -1 <= dim < 1:
            raise IndexError
        return function(grad.reshape(1), y.reshape(1), 0).reshape(())

    return rule


@op(
    infer=_spec("softmax"),
    dtypes=FLOATING,
    hidden=True,
    method=False,
    fast=Fast("unary"),
    autocast="float32",
    numpy=_rule(cpu.softmax),
    shown="softmax",
)
def softmax_along(input: Tensor, dim: int) -> Tensor:
    """Softmax along dim: exp(x - max) / sum(exp(x - max)); a row of -inf gives NaN.

    Shapes: input's.
    Dtypes: floating; computed in float32 for half types.
    Errors: IndexError for a dim out of range.
    Source: Bridle 1990, Probabilistic Interpretation of Feedforward Classification Network Outputs.
    Example: `tfw.softmax(tfw.zeros(2), 0).tolist() == [0.5, 0.5]`
    """
    e = exp(sub(input, amax(input, dim, True))) if input._a.size else input
    return e / sum(e, dim, True)


@op(
    infer=_spec("softmax_grad"),
    dtypes=FLOATING,
    hidden=True,
    method=False,
    numpy=_grad_rule(cpu.softmax_grad),
)
def softmax_grad(grad: Tensor, y: Tensor, dim: int) -> Tensor:
    """Gradient of softmax from its result: y * (grad - sum(grad * y)).

    Shapes: grad and y equal.
    Dtypes: floating.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: used by gradients.
    """
    return mul(y, sub(grad, sum(mul(grad, y), dim, True)))


softmax_along.vjp(input=lambda g, y, dim: softmax_grad(g, y, dim))


@op(
    infer=_spec("log_softmax"),
    dtypes=FLOATING,
    hidden=True,
    method=False,
    fast=Fast("unary"),
    autocast="float32",
    numpy=_rule(cpu.log_softmax),
    shown="log_softmax",
)
def log_softmax_along(input: Tensor, dim: int) -> Tensor:
    """Logarithm of softmax along dim: x - max - log(sum(exp(x - max))).

    Shapes: input's.
    Dtypes: floating; computed in float32 for half types.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.log_softmax(tfw.zeros(1), 0).tolist() == [0.0]`
    """
    shifted = sub(input, amax(input, dim, True)) if input._a.size else input
    return sub(shifted, log(sum(exp(shifted), dim, True)))


@op(
    infer=_spec("log_softmax_grad"),
    dtypes=FLOATING,
    hidden=True,
    method=False,
    numpy=_grad_rule(cpu.log_softmax_grad),
)
def log_softmax_grad(grad: Tensor, y: Tensor, dim: int) -> Tensor:
    """Gradient of log-softmax from its result: grad - exp(y) * sum(grad).

    Shapes: grad and y equal.
    Dtypes: floating.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: used by gradients.
    """
    return sub(grad, mul(exp(y), sum(grad, dim, True)))


log_softmax_along.vjp(input=lambda g, y, dim: log_softmax_grad(g, y, dim))


def softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Softmax along dim: exp(x - max) / sum(exp(x - max)); a row of -inf gives NaN.

    Shapes: input's.
    Dtypes: floating, or converted to `dtype` first; computed in float32 for half types.
    Errors: IndexError for a dim out of range, RuntimeError for an integer dtype.
    Source: Bridle 1990, Probabilistic Interpretation of Feedforward Classification Network Outputs.
    Example: `tfw.softmax(tfw.zeros(2), 0).tolist() == [0.5, 0.5]`
    """
    return softmax_along(input if dtype is None else to(input, dtype), dim)


def log_softmax(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Logarithm of softmax along dim: x - max - log(sum(exp(x - max))).

    Shapes: input's.
    Dtypes: floating, or converted to `dtype` first; computed in float32 for half types.
    Errors: IndexError for a dim out of range, RuntimeError for an integer dtype.
    Source: elementary.
    Example: `tfw.log_softmax(tfw.zeros(1), 0).tolist() == [0.0]`
    """
    return log_softmax_along(input if dtype is None else to(input, dtype), dim)


def _softmax_reference(x: Any, dim: int) -> Any:
    e = np.exp(x - np.max(x, axis=dim, keepdims=True, initial=-np.inf))
    return e / e.sum(axis=dim, keepdims=True)


softmax_along.reference(_softmax_reference)


def _log_softmax_reference(x: Any, dim: int) -> Any:
    shifted = x - np.max(x, axis=dim, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.exp(shifted).sum(axis=dim, keepdims=True))


log_softmax_along.reference(_log_softmax_reference)
softmax_grad.reference(lambda g, y, dim: y * (g - (g * y).sum(dim, keepdims=True)))
log_softmax_grad.reference(lambda g, y, dim: g - np.exp(y) * g.sum(dim, keepdims=True))

for _function in (softmax_along, log_softmax_along):

    @_function.samples
    def _(rng: np.random.Generator) -> Iterator[Call]:
        yield Call(rng.standard_normal((4, 7)), -1)
        yield Call(rng.standard_normal((4, 7)), 0)

    @_function.rejects
    def _() -> Iterator[Reject]:
        yield Reject(Call(np.ones((4, 7)), 2), DimError, argument="dim", value=2)
        yield Reject(Call(np.ones((4, 7), np.int64), 1), DtypeError, argument="input")


for _function in (softmax_grad, log_softmax_grad):

    @_function.samples
    def _(rng: np.random.Generator) -> Iterator[Call]:
        yield Call(rng.standard_normal((4, 7)), rng.standard_normal((4, 7)), -1)
        yield Call(rng.standard_normal((4, 7)), rng.standard_normal((4, 7)), 0)

    @_function.rejects
    def _() -> Iterator[Reject]:
        yield Reject(Call(np.ones((4, 7)), np.ones((4, 7)), 2), DimError, argument="dim", value=2)
