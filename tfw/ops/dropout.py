"""Dropout, whose mask is drawn again in backward instead of being kept."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw.dtypes import FLOATING
from tfw.errors import DtypeError, ValueRangeError
from tfw.fastpath import Fast
from tfw.ops import philox_reference
from tfw.ops.generator import default_generator
from tfw.registry import Call, Reject, like, primitive
from tfw.runtime.cpu import philox
from tfw.tensor import Tensor

# ---- dropout


def check_probability(op: str, p: float) -> None:
    """Raise ValueError unless 0 <= p <= 1."""
    if not 0.0 <= p <= 1.0:
        raise ValueRangeError(
            f"p={p} is no probability", op=op, argument="p", value=p, rule="0 <= p <= 1"
        )


def _dropout_rule(x: Any, p: float, seed: int, offset: int) -> Any:
    keep = philox.keep_mask(seed, offset, x.size, p).reshape(x.shape)
    y = np.multiply(x, keep, out=np.empty_like(x))
    if p < 1:
        np.multiply(y, x.dtype.type(1 / (1 - p)), out=y)
    return y


@primitive(
    numpy=_dropout_rule,
    fast=Fast("unary"),
    infer=like("input"),
    dtypes=FLOATING,
    random=True,
    hidden=True,
    method=False,
    shown="dropout",
)
def dropout_at(input: Tensor, p: float, seed: int, offset: int) -> Tensor:
    """Input with each element zeroed with probability p and the others divided by 1 - p.

    Element i (in row-major order) is kept where Philox word i >= p * 2^32, so that backward draws
    the same mask again instead of keeping it.

    Shapes: input's.
    Dtypes: floating.
    Errors: RuntimeError for another dtype.
    Source: Srivastava et al. 2014, Dropout.
    Example: used by dropout.
    """
    ...


dropout_at.vjp(input=lambda g, p, seed, offset: dropout_at(g, p, seed, offset))


def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    """In training each element is 0 with probability p, else divided by 1 - p; else input itself.

    Shapes: input's.
    Dtypes: floating.
    Errors: ValueError unless 0 <= p <= 1.
    Source: Srivastava et al. 2014, Dropout: A Simple Way to Prevent Neural Networks from
        Overfitting.
    Example: `nn.functional.dropout(tfw.ones(2), 0.5, training=False).tolist() == [1.0, 1.0]`
    """
    check_probability("dropout", p)
    if not training or p == 0:
        return input
    seed, offset = default_generator.take(-(-input._a.size // 4))
    if inplace:
        from tfw.inplace import dispatch_inplace

        return dispatch_inplace(dropout_at.op, (input, p, seed, offset))
    return dropout_at(input, p, seed, offset)


dropout_at.reference(
    lambda x, p, seed, offset: (
        x * philox_reference.kept(x.size, p, seed, offset).reshape(x.shape) / ((1 - p) or 1)
    )
)


@dropout_at.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((5, 7)), 0.3, 11, 5)
    yield Call(rng.standard_normal((5, 7)), 1.0, 11, 5)


@dropout_at.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(2, np.int64), 0.3, 0, 0), DtypeError, argument="input")
