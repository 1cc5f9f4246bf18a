"""Random tensors, from Philox counters indexed by element (formulas: runtime/cpu/random.py)."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import FLOATING, dtype
from tfw.errors import ArgumentError, DtypeError, ShapeError
from tfw.ops import philox_reference
from tfw.ops.convert import to
from tfw.ops.creation import host_tensor, place, sizes
from tfw.ops.generator import Generator, default_generator
from tfw.registry import Call, primitive
from tfw.runtime.cpu import random
from tfw.runtime.thread_state import state
from tfw.shapes import CPU, Shape, Spec, contiguous, device
from tfw.tensor import Tensor

# ---- primitives without tensor inputs: everything random is explicit in seed and offset


def _spec(size: Shape, seed: int, offset: int, dtype: dtype, device: device) -> Spec:
    return contiguous(size, dtype, device)


def _uniform_rule(size: Shape, seed: int, offset: int, dtype: dtype, device: device) -> Any:
    return random.uniform(seed, offset, math.prod(size), dtype.numpy).reshape(size)


@primitive(
    numpy=_uniform_rule,
    infer=_spec,
    random=True,
    hidden=True,
    method=False,
    differentiable=False,
    shown="rand",
)
def uniform_at(size: Any, seed: int, offset: int, dtype: Any, device: Any) -> Tensor:
    """Uniform numbers in [0, 1) from Philox calls `offset` onwards.

    Shapes: size.
    Dtypes: floating.
    Errors: none.
    Source: Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3.
    Example: used by rand.
    """
    ...


def _normal_rule(size: Shape, seed: int, offset: int, dtype: dtype, device: device) -> Any:
    wide = dtypes.accumulation(dtype).numpy
    return (
        random.normal(seed, offset, math.prod(size), wide)
        .astype(dtype.numpy, copy=False)
        .reshape(size)
    )


@primitive(
    numpy=_normal_rule,
    infer=_spec,
    random=True,
    hidden=True,
    method=False,
    differentiable=False,
    shown="randn",
)
def normal_at(size: Any, seed: int, offset: int, dtype: Any, device: Any) -> Tensor:
    """Standard normal numbers from Philox calls `offset` onwards.

    Shapes: size.
    Dtypes: floating.
    Errors: none.
    Source: Salmon et al. 2011; Box and Muller 1958.
    Example: used by randn.
    """
    ...


def _integers_rule(size: Shape, low: int, high: int, seed: int, offset: int, device: device) -> Any:
    return random.integers(seed, offset, math.prod(size), low, high).reshape(size)


def _integers_spec(
    size: Shape, low: int, high: int, seed: int, offset: int, device: device
) -> Spec:
    return contiguous(size, dtypes.int64, device)


@primitive(
    numpy=_integers_rule,
    infer=_integers_spec,
    random=True,
    hidden=True,
    method=False,
    differentiable=False,
    shown="randint",
)
def integers_at(size: Any, low: int, high: int, seed: int, offset: int, device: Any) -> Tensor:
    """Integers in [low, high) from Philox calls `offset` onwards.

    Shapes: size.
    Dtypes: int64.
    Errors: none.
    Source: Salmon et al. 2011; Lemire 2019, Fast Random Integer Generation in an Interval.
    Example: used by randint.
    """
    ...


uniform_at.reference(
    lambda size, seed, offset, dtype, device: philox_reference.uniform(
        math.prod(size), seed, offset, dtype
    ).reshape(size)
)
normal_at.reference(
    lambda size, seed, offset, dtype, device: philox_reference.normal(
        math.prod(size), seed, offset, dtype
    ).reshape(size)
)
integers_at.reference(
    lambda size, low, high, seed, offset, device: philox_reference.integers(
        math.prod(size), low, high, seed, offset
    ).reshape(size)
)

for _function in (uniform_at, normal_at):

    @_function.samples
    def _(rng: np.random.Generator) -> Iterator[Call]:
        for d in FLOATING:
            yield Call((3, 5), 11, 5, d, CPU)
        yield Call((0, 2), 11, 5, dtypes.float32, CPU)
        yield Call((), (1 << 64) - 1, (1 << 32) - 1, dtypes.float64, CPU)


@integers_at.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call((3, 5), -3, 4, 11, 5, CPU)
    yield Call((2, 0), 0, 1, 11, 5, CPU)
    yield Call((9,), 0, 1 << 32, 7, 1 << 40, CPU)


def _draws(op: Any, size: Shape, d: dtype, device: device, generator: Generator | None) -> Tensor:
    per_call = 2 if d is dtypes.float64 else 4
    if d not in FLOATING:
        raise DtypeError(
            f"dtype={d!r}",
            op=op.op.name.removesuffix("_at"),
            argument="dtype",
            value=d,
            rule="floating-point dtypes",
        )
    seed, offset = (generator or default_generator).take(-(-math.prod(size) // per_call))
    return op(size, seed, offset, d, device)


def rand(
    *size: Any,
    generator: Generator | None = None,
    dtype: dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Uniform random numbers in [0, 1).

    Shapes: size.
    Dtypes: the default dtype or `dtype`, floating.
    Errors: RuntimeError for a negative size or another dtype.
    Source: Salmon et al. 2011, Parallel Random Numbers: As Easy as 1, 2, 3.
    Example: `tfw.rand(2, 3).shape == (2, 3)`
    """
    d = dtype or dtypes.get_default_dtype()
    result = _draws(uniform_at, sizes("rand", size), d, place(device), generator)
    return result.requires_grad_() if requires_grad else result


def randn(
    *size: Any,
    generator: Generator | None = None,
    dtype: dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Standard normal random numbers.

    Shapes: size.
    Dtypes: the default dtype or `dtype`, floating.
    Errors: RuntimeError for a negative size or another dtype.
    Source: Salmon et al. 2011; Box and Muller 1958.
    Example: `tfw.randn(2, 3).shape == (2, 3)`
    """
    d = dtype or dtypes.get_default_dtype()
    result = _draws(normal_at, sizes("randn", size), d, place(device), generator)
    return result.requires_grad_() if requires_grad else result


def rand_like(input: Tensor, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """Uniform random numbers in [0, 1) of input's shape.

    Shapes: input's.
    Dtypes: input's or `dtype`, floating.
    Errors: RuntimeError for another dtype.
    Source: Salmon et al. 2011.
    Example: `tfw.rand_like(tfw.zeros(2)).shape == (2,)`
    """
    return rand(*input._a.shape, dtype=dtype or input.dtype, device=device or input.device)


def randn_like(input: Tensor, *, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """Standard normal random numbers of input's shape.

    Shapes: input's.
    Dtypes: input's or `dtype`, floating.
    Errors: RuntimeError for another dtype.
    Source: Salmon et al. 2011; Box and Muller 1958.
    Example: `tfw.randn_like(tfw.zeros(2)).shape == (2,)`
    """
    return randn(*input._a.shape, dtype=dtype or input.dtype, device=device or input.device)


def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    generator: Generator | None = None,
    dtype: dtype | None = None,
    device: Any = None,
) -> Tensor:
    """Random integers in [low, high); `randint(high, size)` starts at 0.

    Shapes: size.
    Dtypes: int64 or `dtype`.
    Errors: RuntimeError unless low < high.
    Source: Salmon et al. 2011; Lemire 2019.
    Example: `tfw.randint(1, 2, (3,)).tolist() == [1, 1, 1]`
    """
    if size is None:
        low, high, size = 0, low, high
    if not isinstance(size, (tuple, list)):
        raise ArgumentError(f"size={size!r} is no tuple", op="randint", argument="size", value=size)
    if low >= high:
        raise ShapeError(
            f"low={low}, high={high}", op="randint", argument="high", value=high, rule="low < high"
        )
    shape = sizes("randint", tuple(size))
    per_call = 4 if high - low <= 1 << 32 else 2
    taken = (generator or default_generator).take(-(-math.prod(shape) // per_call))
    return to(integers_at(shape, low, high, *taken, place(device)), dtype or dtypes.int64)


def randperm(
    n: int, *, generator: Generator | None = None, dtype: dtype | None = None, device: Any = None
) -> Tensor:
    """The integers 0 to n - 1 in random order: the order of n random 64-bit numbers.

    Shapes: (n,).
    Dtypes: int64 or `dtype`.
    Errors: RuntimeError for a negative n.
    Source: elementary.
    Example: `sorted(tfw.randperm(4).tolist()) == [0, 1, 2, 3]`
    """
    (n,) = sizes("randperm", (n,))
    seed, offset = (generator or default_generator).take(-(-n // 2))
    keys = random.integers(seed, offset, n, 0, 1 << 64)
    order = np.argsort(keys.view(np.uint64), kind="stable").astype(np.int64, copy=False)
    return to(host_tensor(order, device), dtype or dtypes.int64)


def bernoulli(input: Tensor, *, generator: Generator | None = None) -> Tensor:
    """1 with the probability that input says, else 0.

    Shapes: input's.
    Dtypes: floating.
    Errors: RuntimeError for a probability outside [0, 1] or another dtype.
    Source: elementary.
    Example: `tfw.bernoulli(tfw.ones(2)).tolist() == [1.0, 1.0]`
    """
    from tfw.ops.compare import ge, le, logical_and, lt
    from tfw.ops.reduce import all

    if not bool(all(logical_and(ge(input, 0), le(input, 1)))):
        raise ShapeError(
            "input has a value outside [0, 1]",
            op="bernoulli",
            argument="input",
            rule="probabilities",
        )
    wide = dtypes.accumulation(input.dtype)
    u = _draws(uniform_at, tuple(input._a.shape), wide, input.device, generator)
    return to(lt(u, to(input.detach(), wide)), input.dtype)


def multinomial(
    input: Tensor,
    num_samples: int,
    replacement: bool = False,
    *,
    generator: Generator | None = None,
) -> Tensor:
    """Indices drawn from rows of weights, each weight proportional to its probability.

    Without replacement, the num_samples largest of w / E with E exponential.

    Shapes: input (C,) or (N, C), result (num_samples,) or (N, num_samples).
    Dtypes: floating; the result is int64.
    Errors: RuntimeError for negative, infinite or all-zero weights, or too many samples without
        replacement.
    Source: Efraimidis and Spirakis 2006, Weighted Random Sampling with a Reservoir.
    Example: `tfw.multinomial(tfw.tensor([0.0, 1.0]), 1).tolist() == [1]`
    """
    weights = input.detach().numpy(force=True).astype(np.float64)
    rows = weights.reshape(-1, weights.shape[-1]) if weights.ndim in (1, 2) else None
    if rows is None:
        raise ShapeError(
            f"input has shape {tuple(input._a.shape)}",
            op="multinomial",
            argument="input",
            rule="(C,) or (N, C)",
        )
    if not np.isfinite(rows).all() or (rows < 0).any() or (rows.sum(1) <= 0).any():
        raise ShapeError(
            "input has a negative, infinite or NaN weight, or a row that sums to 0",
            op="multinomial",
            argument="input",
            rule="finite weights >= 0 with a positive sum",
        )
    available = int((rows > 0).sum(1).min()) if len(rows) else 0
    if num_samples <= 0 or (not replacement and num_samples > available and len(rows)):
        raise ShapeError(
            f"num_samples={num_samples} with {available} positive weights",
            op="multinomial",
            argument="num_samples",
            value=num_samples,
            rule="1 <= num_samples <= positive weights" if not replacement else "num_samples >= 1",
        )
    source = generator or default_generator
    if replacement:
        n = len(rows) * num_samples
        u = random.uniform(*source.take(-(-n // 2)), n, np.float64).reshape(len(rows), num_samples)
        totals = np.cumsum(rows, 1)
        drawn = np.stack(
            # u * total may round up to total itself.
            [
                np.searchsorted(t, np.minimum(x * t[-1], np.nextafter(t[-1], 0)), side="right")
                for t, x in zip(totals, u, strict=True)
            ]
        )
    else:
        u = random.uniform(*source.take(-(-rows.size // 2)), rows.size, np.float64).reshape(
            rows.shape
        )
        keys = state.run(lambda: rows / -np.log1p(-u))
        keys[rows == 0] = -1
        drawn = np.argsort(-keys, 1, kind="stable")[:, :num_samples]
    return host_tensor(
        drawn.astype(np.int64).reshape(*weights.shape[:-1], num_samples), input.device
    )
