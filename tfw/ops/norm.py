"""Layer normalisation and its gradient."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import FLOATING
from tfw.errors import DtypeError, ShapeError
from tfw.fastpath import Fast
from tfw.ops.convert import contiguous, to
from tfw.ops.elementwise import add, div, mul, sqrt, sub
from tfw.ops.reduce import mean, sum
from tfw.registry import Call, Reject, fresh, op
from tfw.runtime.cpu import norm as cpu
from tfw.shapes import Shape, Spec
from tfw.tensor import Tensor


def _normalized(normalized_shape: Any) -> Shape:
    return (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)


def _layer_norm_spec(
    x: Spec, weight: Spec | None, bias: Spec | None, normalized_shape: Any, eps: float
) -> tuple[Spec, Spec, Spec]:
    shape = _normalized(normalized_shape)
    if not shape or x.shape[x.ndim - len(shape) :] != shape:
        raise ShapeError(
            f"input of shape {x.shape} does not end in normalized_shape={shape}",
            op="layer_norm",
            argument="normalized_shape",
            value=shape,
        )
    for name, p in (("weight", weight), ("bias", bias)):
        if p is not None and p.shape != shape:
            raise ShapeError(
                f"{name} has shape {p.shape}, normalized_shape is {shape}",
                op="layer_norm",
                argument=name,
                value=p.shape,
            )
    lead = (*x.shape[: x.ndim - len(shape)], *(1,) * len(shape))
    stats = fresh(x, lead, dtypes.accumulation(x.dtype))
    return fresh(x, x.shape), stats, stats


def _layer_norm_rule(x: Any, weight: Any, bias: Any, normalized_shape: Any, eps: float) -> Any:
    shape = _normalized(normalized_shape)
    if not shape or x.shape[x.ndim - len(shape) :] != shape:
        raise ValueError
    if (weight is not None and weight.shape != shape) or (bias is not None and bias.shape != shape):
        raise ValueError
    return cpu.layer_norm(x, len(shape), weight, bias, eps)


@op(
    numpy=_layer_norm_rule,
    fast=Fast("direct", outputs=(None, None, None), any_layout=True),
    infer=_layer_norm_spec,
    outputs=("y", "mean", "rstd"),
    dtypes=FLOATING,
    computes=False,  # keeps its statistics in float32 itself
    hidden=True,
    method=False,
    autocast="float32",
    shown="layer_norm",
)
def layer_norm_stats(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> tuple[Tensor, Tensor, Tensor]:
    """Layer norm and its statistics: y = (x - mean) * rstd * weight + bias.

    Shapes: input (..., *normalized_shape), weight and bias normalized_shape; mean and rstd keep the
    normalised dims at size 1.
    Dtypes: floating; the statistics are float32 for half types.
    Errors: RuntimeError if the shapes do not fit.
    Source: Ba, Kiros and Hinton 2016, Layer Normalization, arXiv:1607.06450.
    Example: used by layer_norm.
    """
    shape = _normalized(normalized_shape)
    dims = tuple(range(-len(shape), 0))
    x = to(input, dtypes.accumulation(input.dtype))
    m = mean(x, dims, True)
    centred = sub(x, m)
    rstd = div(1.0, sqrt(add(mean(mul(centred, centred), dims, True), eps)))
    y = mul(centred, rstd)
    if weight is not None:
        y = mul(y, weight)
    if bias is not None:
        y = add(y, bias)
    return to(y, input.dtype), m, rstd


def _grad_spec(
    g: Spec, x: Spec, mean: Spec, rstd: Spec, weight: Spec | None, n_dims: int
) -> tuple[Spec, Spec, Spec]:
    stat_shape = (*x.shape[: x.ndim - n_dims], *(1,) * n_dims)
    for name, s, shape in (
        ("grad", g, x.shape),
        ("mean", mean, stat_shape),
        ("rstd", rstd, stat_shape),
        *((("weight", weight, x.shape[x.ndim - n_dims :]),) if weight is not None else ()),
    ):
        if s.shape != shape or n_dims > x.ndim:
            raise ShapeError(
                f"{name} has shape {s.shape} for an input of shape {x.shape}",
                op="layer_norm_grad",
                argument=name,
                value=s.shape,
                rule=str(shape),
            )
    parameter = fresh(x, x.shape[x.ndim - n_dims :])
    return fresh(x, x.shape), parameter, parameter


def _grad_rule(g: Any, x: Any, mean: Any, rstd: Any, weight: Any, n_dims: int) -> Any:
    lead = x.ndim - n_dims
    if (
        lead < 0
        or g.shape != x.shape
        or not mean.shape == rstd.shape == (*x.shape[:lead], *(1,) * n_dims)
        or (weight is not None and weight.shape != x.shape[lead:])
    ):
        raise ValueError
    return cpu.layer_norm_grad(g, x, mean, rstd, weight, n_dims)


@op(
    outputs=("grad_input", "grad_weight", "grad_bias"),
    infer=_grad_spec,
    dtypes=FLOATING,
    computes=False,
    hidden=True,
    method=False,
    numpy=_grad_rule,
)
def layer_norm_grad(
    grad: Tensor, input: Tensor, mean: Tensor, rstd: Tensor, weight: Tensor | None, n_dims: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of layer norm's input, weight and bias.

    With xhat = (x - mean) * rstd and h = grad * weight: grad_input = rstd * (h - mean(h) -
    xhat * mean(h * xhat)), grad_weight = sum(grad * xhat), grad_bias = sum(grad).

    Shapes: grad and input equal; mean and rstd as layer_norm_stats gives them.
    Dtypes: floating.
    Errors: RuntimeError for another dtype.
    Source: elementary.
    Example: used by gradients.
    """
    wide = dtypes.accumulation(input.dtype)
    dims = tuple(range(-n_dims, 0))
    g, x = to(grad, wide), to(input, wide)
    xhat = mul(sub(x, mean), rstd)
    h = g if weight is None else mul(g, weight)
    inner = sub(h, add(_mean(h, dims), mul(xhat, _mean(mul(h, xhat), dims))))
    rows = tuple(range(g._a.ndim - n_dims))
    over = mul(g, xhat)
    return (
        contiguous(to(mul(rstd, inner), input.dtype)),
        to(sum(over, rows) if rows else over, input.dtype),
        to(sum(g, rows) if rows else g, input.dtype),
    )


def _mean(x: Tensor, dims: tuple[int, ...]) -> Tensor:
    return mean(x, dims, True)


@layer_norm_stats.joint_vjp("input", "weight", "bias")
def _(
    g_y: Tensor | None,
    g_mean: Tensor | None,
    g_rstd: Tensor | None,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    normalized_shape: Any,
    needs: Any,
) -> tuple[Tensor | None, ...]:
    shape = _normalized(normalized_shape)
    gx = gw = gb = None
    if g_y is not None:
        gx, gw, gb = layer_norm_grad(g_y, input, mean, rstd, weight, len(shape))
    # The statistics have gradients of their own only in second derivatives.
    n = math.prod(shape)
    if g_mean is not None:
        part = to(div(mul(g_mean, _ones_like(input)), float(n)), input.dtype)
        gx = part if gx is None else add(gx, part)
    if g_rstd is not None:
        cube = mul(mul(rstd, rstd), mul(rstd, g_rstd))
        part = to(div(mul(cube, sub(mean, to(input, mean.dtype))), float(n)), input.dtype)
        gx = part if gx is None else add(gx, part)
    return (
        gx if needs[0] else None,
        gw if needs[1] else None,
        gb if needs[2] else None,
    )


def _ones_like(x: Tensor) -> Tensor:
    from tfw.ops.convert import filled_like

    return filled_like(x.detach(), 1)


def layer_norm(
    input: Tensor,
    normalized_shape: Any,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Layer norm over the last dims: (x - mean) / sqrt(var + eps) * weight + bias.

    Shapes: input (..., *normalized_shape), weight and bias normalized_shape.
    Dtypes: floating; computed in float32 for half types.
    Errors: RuntimeError if the shapes do not fit or the dtype is an integer.
    Source: Ba, Kiros and Hinton 2016, Layer Normalization, arXiv:1607.06450.
    Example: `nn.functional.layer_norm(tfw.ones(2, 3), (3,)).tolist() == [[0.0] * 3] * 2`
    """
    return layer_norm_stats(input, normalized_shape, weight, bias, eps)[0]


def _reference(x: Any, weight: Any, bias: Any, normalized_shape: Any, eps: float) -> Any:
    axes = tuple(range(-len(_normalized(normalized_shape)), 0))
    m = x.mean(axes, keepdims=True)
    rstd = 1 / np.sqrt(x.var(axes, keepdims=True) + eps)
    y = (x - m) * rstd
    if weight is not None:
        y = y * weight
    return (y if bias is None else y + bias), m, rstd


layer_norm_stats.reference(_reference)


@layer_norm_stats.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    draw = rng.standard_normal
    yield Call(draw((3, 5)), (5,), draw(5), draw(5))
    yield Call(draw((2, 3, 4)), (3, 4))
    yield Call(draw((2, 3, 4)), (4,), draw(4))


@layer_norm_stats.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), (4,)), ShapeError, argument="normalized_shape", value=(4,))
    yield Reject(Call(np.ones((2, 3)), (3,), np.ones(2)), ShapeError, argument="weight")
    yield Reject(Call(np.ones((2, 3)), (3,), np.ones(3), np.ones(2)), ShapeError, argument="bias")
    yield Reject(Call(np.ones((2, 3), np.int64), (3,)), DtypeError, argument="input")


def _grad_reference(g: Any, x: Any, m: Any, rstd: Any, weight: Any, n_dims: int) -> Any:
    axes = tuple(range(-n_dims, 0))
    xhat = (x - m) * rstd
    h = g if weight is None else g * weight
    gx = rstd * (h - h.mean(axes, keepdims=True) - xhat * (h * xhat).mean(axes, keepdims=True))
    rows = tuple(range(g.ndim - n_dims))
    return gx, (g * xhat).sum(rows), g.sum(rows)


layer_norm_grad.reference(_grad_reference)


@layer_norm_grad.rejects
def _() -> Iterator[Reject]:
    g, stat = np.ones((2, 3)), np.ones((2, 1))
    yield Reject(Call(g.astype(int), g, stat, stat, None, 1), DtypeError, argument="grad")
    yield Reject(Call(g[0], g, stat, stat, None, 1), ShapeError, argument="grad", value=(3,))
    yield Reject(Call(g, g, stat, stat, np.ones(2), 1), ShapeError, argument="weight")


@layer_norm_grad.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    draw = rng.standard_normal
    yield Call(draw((3, 5)), draw((3, 5)), draw((3, 1)), np.abs(draw((3, 1))) + 0.5, draw(5), 1)
    yield Call(
        draw((2, 3, 4)), draw((2, 3, 4)), draw((2, 1, 1)), np.abs(draw((2, 1, 1))) + 0.5, None, 2
    )
