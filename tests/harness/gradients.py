"""Gradients of an op against central differences in float64, to second order, and against jvps."""

from __future__ import annotations

from typing import Any

import numpy as np

import tfw
from harness.calls import Case, call, differentiable, from_array, is_floating
from tfw import autograd
from tfw.tensor import Tensor

Array = np.ndarray[Any, Any]

_STEP = 1e-5


class Projection:
    """The function sum(v * op(x)) of all differentiable inputs x, with v random and fixed."""

    def __init__(self, case: Case, rng: np.random.Generator) -> None:
        self.case, self.rng = case, rng
        self.reached = differentiable(case.op)
        self.x = [np.array(x) for name, x in case.arrays() if self.moves(name, x)]
        outputs = self._outputs([from_array(x) for x in self.x])
        self.v = [self.draw(y.shape) for y in outputs]

    def moves(self, name: str, x: Array) -> bool:
        """Return whether the op has a gradient with respect to an array."""
        return is_floating(x) and name in self.reached

    def draw(self, shape: tuple[int, ...]) -> Array:
        """Return normal numbers; an ndarray also without dims."""
        return np.asarray(self.rng.standard_normal(shape))

    def _outputs(self, inputs: list[Tensor]) -> list[Tensor]:
        """Return the floating-point results for the given inputs in place of the sample's."""
        left = iter(inputs)
        args = self.case.change(
            self.case.label, lambda n, x: next(left) if self.moves(n, x) else from_array(x)
        ).args
        result = call(self.case.op, args)
        found = result if isinstance(result, tuple) else (result,)
        return [y for y in found if y.is_floating_point()]

    def value(self, inputs: list[Tensor], v: list[Tensor]) -> Tensor:
        """Return the projected value, recorded."""
        total = tfw.zeros((), dtype=tfw.float64)
        for y, w in zip(self._outputs(inputs), v, strict=True):
            total = total + (y.to(tfw.float64) * w).sum()
        return total

    def leaves(self, x: list[Array] | None = None) -> list[Tensor]:
        """Return fresh leaves at x."""
        return [from_array(np.array(a)).requires_grad_() for a in (self.x if x is None else x)]

    def cotangents(self) -> list[Tensor]:
        """Return v as tensors."""
        return [from_array(np.array(w)) for w in self.v]

    # ---- first order

    def gradients(self) -> list[Array | None]:
        """Return the gradient of each input; None for one that the result does not depend on."""
        x = self.leaves()
        value = self.value(x, self.cotangents())
        if not value.requires_grad:
            return [None] * len(x)
        found = autograd.grad(value, x, allow_unused=True)
        for g, leaf in zip(found, x, strict=True):
            assert g is None or (g.shape, g.dtype) == (leaf.shape, leaf.dtype), (
                f"gradient of shape {tuple(g.shape)} and {g.dtype} for an input of shape "
                f"{tuple(leaf.shape)} and {leaf.dtype}"
            )
        return [None if g is None else np.array(g._a) for g in found]

    def plain(self, x: list[Array]) -> float:
        """Return the value at x, unrecorded."""
        with tfw.no_grad():
            return self.value([from_array(np.array(a)) for a in x], self.cotangents()).item()

    # ---- second order: the gradient of the projected gradient

    def projected_gradient(
        self, x: list[Array], w: list[Array], grad: bool = False
    ) -> tuple[float, list[Array | None], list[Array | None]]:
        """Return sum(w * gradient) at x and, if asked, its own gradients in x and in v."""
        leaves = self.leaves(x)
        v = [t.requires_grad_() for t in self.cotangents()]
        first = autograd.grad(self.value(leaves, v), leaves, create_graph=True, allow_unused=True)
        total = tfw.zeros((), dtype=tfw.float64)
        for g, direction in zip(first, w, strict=True):
            if g is not None:
                total = total + (g * from_array(np.array(direction))).sum()
        none: list[Array | None] = [None] * len(leaves)
        if not grad or not total.requires_grad:
            return total.item(), none, [None] * len(v)
        found = autograd.grad(total, [*leaves, *v], allow_unused=True)
        arrays = [None if g is None else np.array(g._a) for g in found]
        return total.item(), arrays[: len(leaves)], arrays[len(leaves) :]


def slope(function: Any, x: list[Array], i: int, direction: Array) -> float:
    """Return the derivative of function at x as input i moves along a direction, by differences."""

    def at(step: float) -> float:
        moved = list(x)
        moved[i] = x[i] + step * direction
        return function(moved)

    return (at(_STEP) - at(-_STEP)) / (2 * _STEP)


def agree(analytic: Array | None, numerical: float, direction: Array, scale: float) -> str | None:
    """Return None if a gradient's product with a direction is the slope found by differences."""
    products = np.zeros(()) if analytic is None else analytic * direction
    found = float(products.sum())
    # Differences of values of size `scale` lose what rounding takes from them.
    bound = 1e-7 * float(np.abs(products).sum()) + 1e-9 * scale + 1e-9
    if abs(found - numerical) <= bound:
        return None
    given = "no gradient" if analytic is None else f"gradient {found:.9g}"
    return f"{given}, central differences {numerical:.9g} (allowed {bound:.1g})"


def check_first(p: Projection) -> list[str]:
    """Compare the gradient of each input with central differences."""
    faults: list[str] = []
    scale = 1 + sum(float(np.abs(w).sum()) for w in p.v)
    for i, g in enumerate(p.gradients()):
        direction = p.draw(p.x[i].shape)
        fault = agree(g, slope(p.plain, p.x, i, direction), direction, scale)
        if fault:
            faults.append(f"input {i}: {fault}")
    return faults


def check_second(p: Projection) -> list[str]:
    """Compare the gradient of the projected gradient with central differences, and J w with both.

    The derivative in v of sum(w * J^T v) is J w: the jvp by two vjps. It must be what differences
    of the op give, and sum(v * J w) = sum(w * J^T v).
    """
    faults: list[str] = []
    w = [p.draw(x.shape) for x in p.x]
    value, in_x, in_v = p.projected_gradient(p.x, w, grad=True)
    scale = 1 + sum(float(np.abs(v).sum()) for v in p.v) + abs(value)
    for i, g in enumerate(in_x):
        direction = p.draw(p.x[i].shape)
        numerical = slope(lambda x: p.projected_gradient(x, w)[0], p.x, i, direction)
        fault = agree(g, numerical, direction, scale)
        if fault:
            faults.append(f"second derivative in input {i}: {fault}")
    transposed = sum(
        float((jw * v).sum()) for jw, v in zip(in_v, p.v, strict=True) if jw is not None
    )
    if abs(transposed - value) > 1e-9 * scale:
        faults.append(f"sum(v * J w) = {transposed:.12g}, sum(w * J^T v) = {value:.12g}")
    moved = [[np.asarray(x + s * _STEP * d) for x, d in zip(p.x, w, strict=True)] for s in (1, -1)]
    with tfw.no_grad():
        up, down = ([np.array(y._a) for y in p._outputs([from_array(a) for a in m])] for m in moved)
    for k, (jw, a, b) in enumerate(zip(in_v, up, down, strict=True)):
        numerical = (a - b) / (2 * _STEP)
        error = np.abs(numerical - (0.0 if jw is None else jw)).max(initial=0.0)
        if error > 1e-7 * (1 + np.abs(numerical).max(initial=0.0)):
            faults.append(f"J w of output {k} is off by {error:.3g}")
    return faults


def check_jvp_rule(p: Projection) -> list[str]:
    """Compare the op's own forward-mode rule with the jvp by two vjps."""
    op = p.case.op
    assert op.jvp_rule is not None
    w = [p.draw(x.shape) for x in p.x]
    _, _, in_v = p.projected_gradient(p.x, w, grad=True)
    tangents = iter(from_array(d) for d in w)
    args = p.case.change(p.case.label, lambda _, x: from_array(x)).args
    inputs = [args[i] for i in op.tensor_positions]
    given = [
        next(tangents) if isinstance(x, Tensor) and x.is_floating_point() else None for x in inputs
    ]
    result = op.jvp_rule(given, *inputs, *[args[i] for i in op.attr_positions])
    found = result if isinstance(result, tuple) else (result,)
    return [
        f"jvp of output {k} differs from the vjps'"
        for k, (a, b) in enumerate(zip(found, in_v, strict=True))
        if not np.allclose(np.array(a._a), 0.0 if b is None else b, rtol=1e-10, atol=1e-12)
    ]
