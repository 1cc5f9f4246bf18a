"""Filling a tensor with random numbers in place."""

from __future__ import annotations

from tfw import dtypes
from tfw.errors import AutogradError, ShapeError
from tfw.graph import LEAF
from tfw.inplace import count_change
from tfw.ops.dropout import check_probability
from tfw.ops.elementwise import mul
from tfw.ops.generator import Generator
from tfw.ops.random import _draws, normal_at, uniform_at
from tfw.runtime.thread_state import state
from tfw.tensor import Tensor

# ---- in place


def _fill_with(self: Tensor, name: str, values: Tensor) -> Tensor:
    if state.grad_enabled and self._node is LEAF:
        raise AutogradError(
            "a leaf that requires grad is being modified in place",
            op=name,
            remedy="do it under no_grad()",
        )
    self._kind.backend.copy(self._a, values._a)
    count_change(self)
    return self


def normal_(
    self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with normal numbers of the given mean and standard deviation."""
    if std < 0:
        raise ShapeError(
            f"std={std} is negative", op="normal_", argument="std", value=std, rule="std >= 0"
        )
    values = _draws(
        normal_at, tuple(self._a.shape), dtypes.accumulation(self.dtype), self.device, generator
    )
    return _fill_with(self, "normal_", mul(values, float(std)) + float(mean))


def uniform_(
    self: Tensor, a: float = 0.0, b: float = 1.0, *, generator: Generator | None = None
) -> Tensor:
    """Fill with uniform numbers in [a, b)."""
    if a > b:
        raise ShapeError(f"a={a}, b={b}", op="uniform_", argument="b", value=b, rule="a <= b")
    values = _draws(
        uniform_at, tuple(self._a.shape), dtypes.accumulation(self.dtype), self.device, generator
    )
    return _fill_with(self, "uniform_", mul(values, float(b - a)) + float(a))


def bernoulli_(self: Tensor, p: float = 0.5, *, generator: Generator | None = None) -> Tensor:
    """Fill with 1 with probability p, else 0."""
    check_probability("bernoulli_", p)
    values = _draws(uniform_at, tuple(self._a.shape), dtypes.float32, self.device, generator)
    return _fill_with(self, "bernoulli_", values < float(p))
