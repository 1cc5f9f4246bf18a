"""Where values are nonzero."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw.errors import ArgumentError
from tfw.ops.movement import reshape
from tfw.ops.take import slice_view
from tfw.registry import Call, Reject, primitive
from tfw.tensor import Tensor

# ---- where values are nonzero


def _nonzero_rule(a: Any) -> Any:
    if not a.ndim:
        return np.empty((int(a != 0), 0), np.int64)
    return np.argwhere(a).astype(np.int64, copy=False)


@primitive(
    numpy=_nonzero_rule,
    data_dependent=True,
    differentiable=False,
    computes=False,
    method=False,
    hidden=True,
    shown="nonzero",
)
def nonzero_rows(input: Tensor) -> Tensor:
    """Indices of the nonzero elements, one row each, in row-major order.

    Shapes: (n, input.ndim), where n depends on the values: meta tensors cannot have it.
    Dtypes: all; the result is int64.
    Errors: NotImplementedError on meta.
    Source: elementary.
    Example: `tfw.nonzero(tfw.tensor([0, 5])).tolist() == [[1]]`
    """
    ...


nonzero_rows.reference(
    lambda a: (
        np.array([at for at in np.ndindex(a.shape) if a[at]]).reshape(-1, a.ndim)
        if a.ndim
        else np.empty((int(bool(a)), 0))
    )
)


@nonzero_rows.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.integers(0, 2, (3, 4)))
    yield Call(rng.standard_normal((2, 3)) > 0)


@nonzero_rows.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call("a"), ArgumentError, argument="input")


def nonzero(input: Tensor, *, as_tuple: bool = False) -> Any:
    """Indices of the nonzero elements, one row each, or as a tuple with one tensor per dim.

    Shapes: (n, input.ndim), or input.ndim tensors (n,).
    Dtypes: all; the result is int64.
    Errors: NotImplementedError on meta, where the values are unknown.
    Source: elementary.
    Example: `tfw.nonzero(tfw.tensor([0, 5])).tolist() == [[1]]`
    """
    if not as_tuple:
        return nonzero_rows(input)
    rows = nonzero_rows(input if input._a.ndim else reshape(input, (1,)))
    return tuple(slice_view(rows, (slice(None), i)) for i in range(max(input._a.ndim, 1)))
