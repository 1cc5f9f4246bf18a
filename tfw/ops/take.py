"""Basic indices (a view), arrays of indices (a copy), writing at indices; nonzero."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfw.dtypes import INTEGERS
from tfw.errors import DtypeError, OutOfRangeError, ShapeError, ValueRangeError
from tfw.fastpath import Fast
from tfw.graph import Extent
from tfw.ops.movement import Layout
from tfw.ops.parts import view_scatter, zeros_of
from tfw.registry import Call, Reject, fresh, primitive
from tfw.shapes import Spec, as_int, broadcast_shapes, elementwise_strides
from tfw.tensor import Tensor

_BASIC = (int, slice, type(None), type(Ellipsis))


# ---- basic: ints, slices, None and Ellipsis give a view


def as_tuple(index: Any) -> tuple[Any, ...]:
    """Return an index as a tuple of its elements."""
    return index if isinstance(index, tuple) else (index,)


def _full_index(x_ndim: int, shape: Any, index: tuple[Any, ...]) -> list[Any]:
    """Return the index with its Ellipsis (or an implied one) written out as slices."""
    used = sum(i is not None and i is not Ellipsis for i in index)
    if used > x_ndim:
        raise OutOfRangeError(
            f"{used} indices for a tensor of shape {tuple(shape)}",
            op="index",
            argument="index",
            value=index,
            rule=f"at most {x_ndim}",
        )
    dots = [i for i, e in enumerate(index) if e is Ellipsis]
    if len(dots) > 1:
        raise OutOfRangeError("more than one Ellipsis", op="index", argument="index", value=index)
    at = dots[0] if dots else len(index)
    return [*index[:at], *[slice(None)] * (x_ndim - used), *index[at + 1 :]]


def _index_layout(x: Spec, index: Any) -> Layout:
    shape: list[int] = []
    strides: list[int] = []
    offset, d = 0, 0
    for e in _full_index(x.ndim, x.shape, as_tuple(index)):
        if e is None:
            shape.append(1)
            strides.append(strides_after(x, d))
            continue
        n, stride = x.shape[d], x.strides[d]
        if isinstance(e, slice):
            if e.step is not None and as_int("index", e.step, "step") <= 0:
                raise ValueRangeError(
                    f"step={e.step} is not positive", op="index", argument="step", value=e.step
                )
            start, stop, step = e.indices(n)
            shape.append(max(0, -((start - stop) // step)))
            strides.append(stride * step)
            offset += start * stride if shape[-1] else 0
        else:
            i = as_int("index", e, "index")
            if not -n <= i < n:
                raise OutOfRangeError(
                    f"index {i} is out of bounds for dim {d} of shape {x.shape}",
                    op="index",
                    argument="index",
                    value=i,
                    rule=f"{-n} <= index <= {n - 1}",
                )
            offset += i % n * stride
        d += 1
    return tuple(shape), tuple(strides), offset


def strides_after(x: Spec, d: int) -> int:
    """Return the stride of a new dim of size 1 before dim d."""
    return x.shape[d] * x.strides[d] if d < x.ndim else 1


def _slice_rule(a: Any, index: Any) -> Any:
    """Take NumPy's own view; negative steps, which PyTorch refuses, go to the layout rule."""
    if index.__class__ is int:
        return a[index, ...]
    if index.__class__ is slice:
        if index.step is not None and index.step <= 0:
            raise ValueError
        return a[index]
    for e in index:
        if e.__class__ is slice and e.step is not None and e.step <= 0:
            raise ValueError
    return a[index] if Ellipsis in index else a[(*index, ...)]


@primitive(
    layout=_index_layout,
    fast=Fast("view", _slice_rule, any_layout=True),
    hidden=True,
    method=False,
    shown="index",
)
def slice_view(input: Tensor, index: Any) -> Tensor:
    """The part of input at a basic index: ints, slices, None and Ellipsis; a view.

    Shapes: by the index.
    Dtypes: all.
    Errors: IndexError for an index out of bounds or too many of them, ValueError for a step that is
        not positive.
    Source: elementary.
    Example: `tfw.arange(4)[1:3].tolist() == [1, 2]`
    """
    ...


slice_view.vjp(
    input=lambda g, input_spec, index: view_scatter(
        zeros_of(input_spec.shape, g), g, slice_view.op, (index,), -1
    )
)
slice_view.reference(lambda a, index: a[index])


@slice_view.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.standard_normal((4, 3, 2))
    yield Call(x, 1)
    yield Call(x, slice(1, None, 2))
    yield Call(x, (Ellipsis, None, -1))
    yield Call(x, (slice(None, -1), 2, slice(0, 9)))


@slice_view.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), 2), OutOfRangeError, argument="index", value=2)
    yield Reject(Call(np.ones((2, 3)), (0, 0, 0)), OutOfRangeError, argument="index")
    yield Reject(Call(np.ones((2, 3)), slice(None, None, -1)), ValueRangeError, argument="step")


# ---- by arrays and masks


def combined_shape(op: str, shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the shape to which index arrays broadcast. IndexError if they do not."""
    try:
        return broadcast_shapes(op, *shapes)
    except ShapeError as error:
        raise OutOfRangeError(
            f"index arrays of shapes {', '.join(map(str, shapes))} do not broadcast",
            op=op,
            argument="indices",
        ) from error


def _arrays_first(ndim: int, dims: Sequence[int]) -> list[int]:
    """Return the order of input's dims with the indexed ones first."""
    return [*dims, *[d for d in range(ndim) if d not in dims]]


def _take_spec(x: Spec, indices: Sequence[Spec], dims: tuple[int, ...]) -> Spec:
    if len(dims) > x.ndim:
        raise OutOfRangeError(
            f"{len(dims)} indices for a tensor of shape {x.shape}", op="index", argument="indices"
        )
    shape = combined_shape("index", [i.shape for i in indices])
    return fresh(x, (*shape, *[n for d, n in enumerate(x.shape) if d not in dims]))


def _check_bounds(
    op: str, indices: Sequence[Any], shape: Sequence[int], dims: Sequence[int]
) -> None:
    for i, d in zip(indices, dims, strict=True):
        n = shape[d]
        if i.size and (i.min() < -n or i.max() >= n):
            bad = int(i.min()) if i.min() < -n else int(i.max())
            raise OutOfRangeError(
                f"index {bad} is out of bounds for dim {d} of size {n}",
                op=op,
                argument="indices",
                value=bad,
                rule=f"{-n} <= index <= {n - 1}",
            )


def _take(x: Any, indices: list[Any], dims: tuple[int, ...]) -> Any:
    _check_bounds("index", indices, x.shape, dims)
    x = x.transpose(_arrays_first(x.ndim, dims))
    return np.ascontiguousarray(x[tuple(indices)])


@primitive(
    numpy=_take,
    infer=_take_spec,
    hidden=True,
    method=False,
    computes=False,
    dtypes={"indices": INTEGERS},
    shown="index",
)
def take_at(input: Tensor, indices: Sequence[Tensor], dims: tuple[int, ...]) -> Tensor:
    """Elements of input where arrays of indices, one for each of dims, point.

    Shapes: the broadcast shape of indices, then input's other dims.
    Dtypes: input any, indices integers; negative ones count from the end.
    Errors: IndexError for an index out of bounds or indices that do not broadcast.
    Source: elementary.
    Example: `tfw.arange(4)[tfw.tensor([3, -4])].tolist() == [3, 0]`
    """
    ...


take_at.vjp(
    input=lambda g, input_spec, indices, dims: put_at(
        zeros_of(input_spec.shape, g), g, indices, dims, True
    )
)
take_at.reference(lambda x, indices, dims: x.transpose(_arrays_first(x.ndim, dims))[tuple(indices)])


@take_at.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.standard_normal((4, 3, 2))
    yield Call(x, [np.array([0, 3, -1, 0])], (0,))
    yield Call(x, [np.array([[0], [1]]), np.array([1, 0, 1])], (0, 2))


@take_at.rejects
def _() -> Iterator[Reject]:
    x = np.ones((4, 3))
    yield Reject(Call(x, [np.array([4])], (0,)), OutOfRangeError, argument="indices", value=4)
    yield Reject(Call(x, [np.array([0, 1]), np.array([0, 1, 2])], (0, 1)), OutOfRangeError)
    yield Reject(Call(x, [np.array([1.0])], (0,)), DtypeError)


def _put_spec(
    x: Spec, values: Spec, indices: Sequence[Spec], dims: tuple[int, ...], accumulate: bool
) -> Spec:
    target = _take_spec(x, indices, dims).shape
    if (
        broadcast_shapes("index_put", values.shape, target, names=("values", "the indexed part"))
        != target
    ):
        raise ShapeError(
            f"values of shape {values.shape} do not broadcast to the indexed part's {target}",
            op="index_put",
            argument="values",
            value=values.shape,
        )
    return x._replace(strides=elementwise_strides(x.shape, [(x.shape, x.strides)]))


def _put(x: Any, values: Any, indices: list[Any], dims: tuple[int, ...], accumulate: bool) -> Any:
    _check_bounds("index_put", indices, x.shape, dims)
    result = x.copy("K")
    moved = result.transpose(_arrays_first(x.ndim, dims))
    if accumulate:
        np.add.at(moved, tuple(indices), values)
    else:
        moved[tuple(indices)] = values
    return result


@primitive(
    numpy=_put,
    infer=_put_spec,
    hidden=True,
    method=False,
    dtypes={"indices": INTEGERS},
    shown="index_put",
)
def put_at(
    input: Tensor,
    values: Tensor,
    indices: Sequence[Tensor],
    dims: tuple[int, ...],
    accumulate: bool,
) -> Tensor:
    """A copy of input with values where arrays of indices point, or with them added there.

    Shapes: input's; values broadcast to the indexed part's shape.
    Dtypes: input any, values the same, indices integers.
    Errors: IndexError for an index out of bounds, RuntimeError if the shapes do not fit.
    Source: elementary.
    Example: used by `x[index] = values`.
    """
    ...


put_at.vjp(
    input=lambda g, values_spec, indices, dims, accumulate: (
        g if accumulate else put_at(g, zeros_of(values_spec.shape, g), indices, dims, False)
    ),
    values=lambda g, values_spec, indices, dims: reshape_to(take_at(g, indices, dims), values_spec),
)


def _put_reference(x: Any, values: Any, indices: Any, dims: Any, accumulate: bool) -> Any:
    result = np.array(x)
    moved = result.transpose(_arrays_first(result.ndim, dims))
    spots = np.broadcast_arrays(*indices)
    values = np.broadcast_to(values, (*spots[0].shape, *moved.shape[len(dims) :]))
    for at in np.ndindex(spots[0].shape):
        spot = tuple(int(s[at]) for s in spots)
        moved[spot] = moved[spot] + values[at] if accumulate else values[at]
    return result


put_at.reference(_put_reference)


def reshape_to(g: Tensor, spec: Extent) -> Tensor:
    """Return a gradient summed to the shape of an operand that was broadcast."""
    from tfw.registry import OPS

    return g if g._a.shape == spec.shape else OPS["sum_to_size"].function(g, spec.shape)


@put_at.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    x = rng.standard_normal((4, 3))
    yield Call(x, rng.standard_normal((2, 3)), [np.array([0, 3])], (0,), False)
    yield Call(x, rng.standard_normal(3), [np.array([0, 0, -1])], (0,), True)


@put_at.rejects
def _() -> Iterator[Reject]:
    x = np.ones((4, 3))
    yield Reject(Call(x, np.ones(3), [np.array([4])], (0,), False), OutOfRangeError, value=4)
    yield Reject(Call(x, np.ones(2), [np.array([0])], (0,), False), ShapeError)
