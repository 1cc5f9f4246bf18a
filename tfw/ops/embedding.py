"""Embedding: rows of a table at indices, and the gradient that adds rows up."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import FLOATING
from tfw.errors import DtypeError, OutOfRangeError, ShapeError, ValueRangeError
from tfw.fastpath import Fast
from tfw.graph import Extent
from tfw.ops.compare import eq
from tfw.ops.expand import unsqueeze
from tfw.ops.mask import masked_fill
from tfw.registry import Call, Reject, fresh, primitive
from tfw.runtime.cpu.embedding import embedding_grad as _embedding_grad_numpy
from tfw.shapes import Spec
from tfw.tensor import Tensor


def _embedding_spec(input: Spec, weight: Spec, padding_idx: Any) -> Spec:
    if weight.ndim != 2:
        raise ShapeError(
            f"weight has shape {weight.shape}", op="embedding", argument="weight", rule="two dims"
        )
    if padding_idx is not None and not -weight.shape[0] <= padding_idx < weight.shape[0]:
        raise ValueRangeError(
            f"padding_idx={padding_idx} is outside weight of shape {weight.shape}",
            op="embedding",
            argument="padding_idx",
            value=padding_idx,
        )
    return fresh(weight, (*input.shape, weight.shape[1]))


def _embedding(input: Any, weight: Any, padding_idx: Any) -> Any:
    if weight.ndim != 2:
        raise ValueError
    n = weight.shape[0]
    # argmax is NumPy's fastest reduction. take() refuses what is too large, not what is negative.
    if input.size and (input.item(input.argmin()) < 0 or input.item(input.argmax()) >= n):
        bad = int(input.min()) if input.min() < 0 else int(input.max())
        raise OutOfRangeError(
            f"index {bad} is outside weight of shape {weight.shape}",
            op="embedding",
            argument="input",
            value=bad,
            rule=f"0 <= index <= {n - 1}",
        )
    return weight.take(input, axis=0)


@primitive(
    numpy=_embedding,
    infer=_embedding_spec,
    fast=Fast("direct", main="weight", needs={"input": dtypes.int64}),
    computes=False,
    method=False,
    dtypes={"input": (dtypes.int32, dtypes.int64)},
    hidden=True,
    shown="embedding",
)
def embedding_rows(input: Tensor, weight: Tensor, padding_idx: Any = None) -> Tensor:
    """Rows of weight at the indices in input; row padding_idx gets no gradient.

    Shapes: input (*), weight (V, D), result (*, D).
    Dtypes: input int32 or int64, weight any.
    Errors: IndexError for an index outside weight, RuntimeError unless weight has two dims.
    Source: elementary.
    Example: used by nn.functional.embedding.
    """
    ...


def _embedding_vjp(g: Tensor, input: Tensor, weight_spec: Extent, padding_idx: Any) -> Tensor:
    return embedding_grad(g, input, weight_spec.shape[0], padding_idx)


embedding_rows.vjp(weight=_embedding_vjp)
embedding_rows.reference(lambda input, weight, padding_idx: weight[input])


@embedding_rows.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.integers(0, 5, (2, 3)), rng.standard_normal((5, 4)))
    yield Call(np.array([0, 2, 2]), rng.standard_normal((5, 4)))


@embedding_rows.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.array([5]), np.ones((5, 2))), OutOfRangeError, argument="input", value=5)
    yield Reject(Call(np.array([-1]), np.ones((5, 2))), OutOfRangeError, argument="input", value=-1)
    yield Reject(Call(np.array([0]), np.ones(5)), ShapeError, argument="weight")
    yield Reject(Call(np.array([0.0]), np.ones((5, 2))), DtypeError, argument="input")


def _embedding_grad_spec(g: Spec, input: Spec, n_rows: int, padding_idx: Any) -> Spec:
    if g.shape[:-1] != input.shape or not g.shape:
        raise ShapeError(
            f"grad has shape {g.shape}, input {input.shape}",
            op="embedding_grad",
            argument="grad",
            value=g.shape,
            rule="grad (*, D), input (*)",
        )
    return fresh(g, (n_rows, g.shape[-1]))


def _embedding_grad_rule(g: Any, input: Any, n_rows: int, padding_idx: Any) -> Any:
    if g.shape[:-1] != input.shape or not g.ndim:
        raise ValueError
    if padding_idx is not None:
        padding_idx %= n_rows
    return _embedding_grad_numpy(
        g.reshape(input.size, g.shape[-1]), input.reshape(-1), n_rows, padding_idx
    )


@primitive(
    numpy=_embedding_grad_rule,
    infer=_embedding_grad_spec,
    hidden=True,
    method=False,
    dtypes={"grad": FLOATING, "input": (dtypes.int32, dtypes.int64)},
)
def embedding_grad(grad: Tensor, input: Tensor, n_rows: int, padding_idx: Any = None) -> Tensor:
    """Rows of grad added up at their indices: the gradient of embedding's weight.

    Shapes: grad (*, D), input (*), result (n_rows, D).
    Dtypes: grad floating, input int32 or int64.
    Errors: RuntimeError for another dtype.
    Source: elementary.
    Example: used by gradients.
    """
    ...


def _embedding_grad_vjp(g: Tensor, input: Tensor, padding_idx: Any) -> Tensor:
    rows = embedding_rows(input, g)
    if padding_idx is None:
        return rows
    return masked_fill(rows, unsqueeze(eq(input, padding_idx % g._a.shape[0]), -1), 0.0)


embedding_grad.vjp(grad=_embedding_grad_vjp)


def _embedding_grad_reference(g: Any, input: Any, n_rows: int, padding_idx: Any) -> Any:
    table = np.zeros((n_rows, g.shape[-1]))
    np.add.at(table, input, g)
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


embedding_grad.reference(_embedding_grad_reference)


@embedding_grad.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), np.array([0]), 5), ShapeError, argument="grad", value=(2, 3))
    yield Reject(Call(np.ones((1, 3), np.int64), np.array([0]), 5), DtypeError, argument="grad")


@embedding_grad.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((2, 3, 4)), np.array([[0, 1, 1], [4, 1, 0]]), 5)
    yield Call(rng.standard_normal((3, 4)), np.array([0, 1, 1]), 5, 1)
