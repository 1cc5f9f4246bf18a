"""Views: the same memory at another shape. One layout rule per op serves every device.

A layout rule maps a Spec to (shape, strides, offset), strides and offset in elements; on the CPU NumPy's
own view is taken, which the tests hold against the rule. Sources: elementary.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfw.errors import ArgumentError, DimError, LayoutError, OutOfRangeError, ShapeError
from tfw.fastpath import Fast
from tfw.graph import Extent
from tfw.ops.convert import contiguous
from tfw.registry import OPS, Call, Reject, op, primitive
from tfw.shapes import (
    Shape,
    Spec,
    as_int,
    as_shape,
    check_view,
    elementwise_strides,
    expand_strides,
    infer_size,
    normalize_dim,
    normalize_dims,
    view_strides,
)
from tfw.tensor import Tensor

Layout = tuple[Shape, Shape, int]


def _flat(sizes: Any) -> tuple[Any, ...]:
    """Return sizes given as `f(2, 3)`, `f((2, 3))` or `f(2)` as one tuple."""
    if not isinstance(sizes, (tuple, list)):
        return (sizes,)
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        return tuple(sizes[0])
    return tuple(sizes)


# ---- reshape and view


def _view_layout(x: Spec, shape: Any) -> Layout:
    to = infer_size("view", as_shape("view", _flat(shape), "shape"), x.numel)
    return to, check_view("view", x.shape, x.strides, to), 0


@primitive(
    layout=_view_layout,
    fast=Fast("view", np.ndarray.reshape),
    varargs="shape",
)
def view(input: Tensor, shape: Any) -> Tensor:
    """The same memory at another shape; one size may be -1.

    Shapes: shape holds as many elements as input.
    Dtypes: all.
    Errors: RuntimeError if the sizes do not fit, or if only a copy has that shape.
    Source: elementary.
    Example: `tfw.arange(6).view(2, 3).shape == (2, 3)`
    """
    ...


view.vjp(input=lambda g, input_spec: reshape(g, input_spec.shape))


@view.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), (2, 6))
    yield Call(rng.standard_normal((3, 4)), (2, -1, 1))
    yield Call(rng.standard_normal(()), (1, 1))


view.reference(lambda a, shape: np.reshape(a, shape))


@view.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), (4,)), ShapeError, argument="shape")
    yield Reject(Call(np.ones((2, 3)), (-1, -1)), ShapeError, argument="shape")
    yield Reject(Call(np.ones((2, 3)).T, (6,)), LayoutError, argument="shape")
    yield Reject(Call(np.ones((2, 3)), (2.5,)), ArgumentError, argument="shape")


@op(fast=Fast("view", np.ndarray.reshape, viewed_as=view), varargs="shape")
def reshape(input: Tensor, shape: Any) -> Tensor:
    """The elements at another shape: a view where one exists, else a copy; one size may be -1.

    Shapes: shape holds as many elements as input.
    Dtypes: all.
    Errors: RuntimeError if the sizes do not fit.
    Source: elementary.
    Example: `tfw.arange(6).reshape(3, -1).shape == (3, 2)`
    """
    spec = input._kind.backend.spec(input._a)
    to = infer_size("reshape", as_shape("reshape", _flat(shape), "shape"), spec.numel)
    if view_strides(spec.shape, spec.strides, to) is None:
        input = contiguous(input)
    return view(input, to)


@reshape.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), (2, 6))
    yield Call(rng.standard_normal((3, 4)).T, (-1,))


reshape.reference(lambda a, shape: np.reshape(a, shape))


@reshape.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), (4,)), ShapeError, argument="shape")
    yield Reject(Call(np.ones((2, 3)), (-1, 4)), ShapeError, argument="shape")


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """The dims from start_dim to end_dim as one; a view where one exists.

    Shapes: (..., d1, ..., dk, ...) to (..., d1 * ... * dk, ...).
    Dtypes: all.
    Errors: IndexError for a dim out of range, RuntimeError if start_dim comes after end_dim.
    Source: elementary.
    Example: `tfw.flatten(tfw.zeros(2, 3, 4), 1).shape == (2, 12)`
    """
    shape = input._a.shape
    first = normalize_dim("flatten", start_dim, len(shape), shape, "start_dim")
    last = normalize_dim("flatten", end_dim, len(shape), shape, "end_dim")
    if first > last:
        raise ShapeError(
            f"start_dim={start_dim} comes after end_dim={end_dim}",
            op="flatten",
            argument="start_dim",
            value=start_dim,
        )
    if first == last and shape:
        return input
    return reshape(input, (*shape[:first], math.prod(shape[first : last + 1]), *shape[last + 1 :]))


# ---- the order of dims


def _transpose_layout(x: Spec, dim0: int, dim1: int) -> Layout:
    d0 = normalize_dim("transpose", dim0, x.ndim, x.shape, "dim0")
    d1 = normalize_dim("transpose", dim1, x.ndim, x.shape, "dim1")
    order = list(range(x.ndim))
    if order:
        order[d0], order[d1] = d1, d0
    return tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order), 0


@primitive(
    layout=_transpose_layout,
    fast=Fast("view", np.ndarray.swapaxes, any_layout=True),
)
def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """The tensor with two dims exchanged; a view.

    Shapes: input's with sizes dim0 and dim1 exchanged.
    Dtypes: all.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.zeros(2, 3).transpose(0, 1).shape == (3, 2)`
    """
    ...


transpose.vjp(input=lambda g, dim0, dim1: transpose(g, dim0, dim1))


@transpose.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), 0, 1)
    yield Call(rng.standard_normal((2, 3, 4)), -1, 0)
    yield Call(rng.standard_normal(()), 0, -1)


transpose.reference(lambda a, dim0, dim1: np.swapaxes(a, dim0, dim1) if a.ndim else a)


@transpose.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), 0, 2), DimError, argument="dim1", value=2)
    yield Reject(Call(np.ones((2, 3)), "a", 1), ArgumentError, argument="dim0")


def t(input: Tensor) -> Tensor:
    """The transpose of a tensor of at most two dims; a view.

    Shapes: (m, n) to (n, m); (n,) and () unchanged.
    Dtypes: all.
    Errors: RuntimeError for more than two dims.
    Source: elementary.
    Example: `tfw.t(tfw.zeros(2, 3)).shape == (3, 2)`
    """
    if input._a.ndim > 2:
        raise ShapeError(
            f"input has shape {tuple(input._a.shape)}",
            op="t",
            argument="input",
            rule="at most two dims",
            remedy="use transpose(dim0, dim1) or .mT",
        )
    return transpose(input, 0, 1) if input._a.ndim == 2 else view(input, input._a.shape)


def _permute_layout(x: Spec, dims: Any) -> Layout:
    given = _flat(dims)
    order = [normalize_dim("permute", d, x.ndim, x.shape, "dims") for d in given]
    if sorted(order) != list(range(x.ndim)):
        raise ShapeError(
            f"dims={given} is no order of the dims of shape {x.shape}",
            op="permute",
            argument="dims",
            value=given,
            rule=f"each of 0 to {x.ndim - 1} once",
        )
    return tuple(x.shape[d] for d in order), tuple(x.strides[d] for d in order), 0


@primitive(layout=_permute_layout, varargs="dims")
def permute(input: Tensor, dims: Any) -> Tensor:
    """The tensor with its dims in another order; a view.

    Shapes: input's sizes in the order of dims.
    Dtypes: all.
    Errors: RuntimeError unless dims names each dim once, IndexError for one out of range.
    Source: elementary.
    Example: `tfw.zeros(2, 3, 4).permute(2, 0, 1).shape == (4, 2, 3)`
    """
    ...


def _permute_grad(g: Tensor, dims: Any) -> Tensor:
    order = [d % g._a.ndim for d in _flat(dims)]
    return permute(g, tuple(sorted(range(len(order)), key=order.__getitem__)))


permute.vjp(input=_permute_grad)


@permute.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((2, 3, 4)), (2, 0, -2))


permute.reference(lambda a, dims: np.transpose(a, dims))


@permute.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), (0, 0)), ShapeError, argument="dims")
    yield Reject(Call(np.ones((2, 3)), (0, 2)), DimError, argument="dims", value=2)


# ---- sizes of one


def _expand_layout(x: Spec, size: Any) -> Layout:
    sizes = as_shape("expand", _flat(size))
    lead = len(sizes) - x.ndim
    shape = tuple(x.shape[i - lead] if n == -1 and i >= lead else n for i, n in enumerate(sizes))
    if (
        lead < 0
        or min(shape, default=0) < 0
        or any(n not in (1, m) for n, m in zip(x.shape, shape[lead:], strict=True))
    ):
        raise ShapeError(
            f"size={sizes} does not fit a tensor of shape {x.shape}",
            op="expand",
            argument="size",
            value=sizes,
            rule="the tensor's own sizes (or -1) at the end, any size where it has 1 or no dim",
        )
    return shape, expand_strides(x.shape, x.strides, shape), 0


def _expand_numpy(a: Any, *size: Any) -> Any:
    """NumPy's constructor on row-major memory: a tenth of broadcast_to's time."""
    sizes = _flat(size)
    lead = len(sizes) - a.ndim
    if lead < 0:
        raise ValueError
    shape, strides = list(sizes), [0] * lead
    for i, (n, stride) in enumerate(zip(a.shape, a.strides, strict=True), lead):
        wanted = shape[i]
        if wanted == n or wanted == -1:
            shape[i] = n
            strides.append(stride)
        elif n == 1:
            strides.append(0)
        else:
            raise ValueError
    if min(shape) < 0:
        raise ValueError
    return np.ndarray(shape, a.dtype, a, 0, strides)


@primitive(layout=_expand_layout, fast=Fast("view", _expand_numpy), varargs="size")
def expand(input: Tensor, size: Any) -> Tensor:
    """The tensor repeated along dims of size 1, without using memory; -1 keeps a size.

    Shapes: size, whose last sizes are input's where those are not 1.
    Dtypes: all.
    Errors: RuntimeError if the sizes do not fit.
    Source: elementary.
    Example: `tfw.ones(2, 1).expand(2, 3).shape == (2, 3)`
    """
    ...


expand.vjp(input=lambda g, input_spec: OPS["sum_to_size"].function(g, input_spec.shape))


@expand.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 1)), (2, -1, 4))
    yield Call(rng.standard_normal(()), (2,))


expand.reference(
    lambda a, size: np.broadcast_to(
        a, [a.shape[i - len(size)] if n == -1 else n for i, n in enumerate(size)]
    )
)


@expand.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(3), (4,)), ShapeError, argument="size", value=(4,))
    yield Reject(Call(np.ones((2, 3)), (3,)), ShapeError, argument="size")
    yield Reject(Call(np.ones(3), (-1, 3)), ShapeError, argument="size")


def _unsqueeze_layout(x: Spec, dim: int) -> Layout:
    d = normalize_dim("unsqueeze", dim, x.ndim + 1, x.shape)
    stride = x.shape[d] * x.strides[d] if d < x.ndim else 1
    return (
        (*x.shape[:d], 1, *x.shape[d:]),
        (*x.strides[:d], stride, *x.strides[d:]),
        0,
    )


@primitive(layout=_unsqueeze_layout)
def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """The tensor with a new dim of size 1 at `dim`; a view.

    Shapes: input's with 1 inserted.
    Dtypes: all.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.zeros(3).unsqueeze(0).shape == (1, 3)`
    """
    ...


unsqueeze.vjp(input=lambda g, input_spec: view_like(g, input_spec))


def view_like(g: Tensor, spec: Extent) -> Tensor:
    """Return a gradient at the shape that the input of a view op had."""
    return reshape(g, spec.shape)


@unsqueeze.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), 1)
    yield Call(rng.standard_normal((3, 4)), -1)


unsqueeze.reference(lambda a, dim: np.expand_dims(a, dim))


@unsqueeze.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(3), 2), DimError, argument="dim", value=2)


def _squeeze_layout(x: Spec, dim: Any) -> Layout:
    dims = (
        range(x.ndim)
        if dim is None
        else normalize_dims("squeeze", dim, x.shape)
        if dim != ()
        else ()
    )
    kept = [i for i in range(x.ndim) if not (i in dims and x.shape[i] == 1)]
    return tuple(x.shape[i] for i in kept), tuple(x.strides[i] for i in kept), 0


@primitive(layout=_squeeze_layout)
def squeeze(input: Tensor, dim: Any = None) -> Tensor:
    """The tensor without its dims of size 1, or without `dim` (an int or several) if it is 1; a view.

    Shapes: input's with 1s removed.
    Dtypes: all.
    Errors: IndexError for a dim out of range.
    Source: elementary.
    Example: `tfw.zeros(1, 3, 1).squeeze().shape == (3,)`
    """
    ...


squeeze.vjp(input=lambda g, input_spec: view_like(g, input_spec))


@squeeze.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((1, 3, 1)))
    yield Call(rng.standard_normal((1, 3, 1)), -1)
    yield Call(rng.standard_normal((1, 3, 1)), (0, 1))


squeeze.reference(
    lambda a, dim: a.reshape(
        [
            n
            for i, n in enumerate(a.shape)
            if n != 1 or (dim is not None and i not in np.atleast_1d(dim) % a.ndim)
        ]
    )
)


@squeeze.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((1, 3)), 2), DimError, argument="dim", value=2)


# ---- parts


def _sizes(op: str, dim_size: int, sections: Any) -> list[int]:
    """Return the sizes that `split` cuts a dim into."""
    if isinstance(sections, (list, tuple)):
        result = [as_int(op, n, "split_size_or_sections") for n in sections]
        if builtins.sum(result) != dim_size or min(result, default=0) < 0:
            raise ShapeError(
                f"sections {result} do not add up to size {dim_size}",
                op=op,
                argument="split_size_or_sections",
                value=result,
            )
        return result
    step = as_int(op, sections, "split_size_or_sections")
    if step < 0 or (step == 0 and dim_size):
        raise ShapeError(
            f"split_size_or_sections={step} cannot cut size {dim_size}",
            op=op,
            argument="split_size_or_sections",
            value=step,
            rule="a positive size, or a list of sizes",
        )
    if not dim_size:
        return [0]
    return [min(step, dim_size - at) for at in range(0, dim_size, step)]


def _split_layout(x: Spec, split_size_or_sections: Any, dim: int) -> list[Layout]:
    if not x.ndim:
        raise ShapeError("a 0-d tensor cannot be split", op="split", argument="tensor")
    d = normalize_dim("split", dim, x.ndim, x.shape)
    layouts: list[Layout] = []
    at = 0
    for n in _sizes("split", x.shape[d], split_size_or_sections):
        layouts.append(((*x.shape[:d], n, *x.shape[d + 1 :]), x.strides, at * x.strides[d]))
        at += n
    return layouts


def _split_spec(x: Spec, split_size_or_sections: Any, dim: int) -> tuple[Spec, ...]:
    return tuple(
        x._replace(shape=shape, strides=strides)
        for shape, strides, _ in _split_layout(x, split_size_or_sections, dim)
    )


@primitive(layout=_split_layout, infer=_split_spec, views=True)
def split(tensor: Tensor, split_size_or_sections: Any, dim: int = 0) -> tuple[Tensor, ...]:
    """Consecutive parts along a dim, each of a given size (the last may be smaller) or of listed sizes; views.

    Shapes: each part has tensor's shape but for `dim`.
    Dtypes: all.
    Errors: RuntimeError if listed sizes do not add up, IndexError for a dim out of range.
    Source: elementary.
    Example: `[p.shape[0] for p in tfw.zeros(5).split(2)] == [2, 2, 1]`
    """
    ...


def _split_grad(
    grads: Sequence[Tensor | None], tensor_spec: Extent, split_size_or_sections: Any, dim: int
) -> Tensor:
    d = dim % len(tensor_spec.shape)
    parts: list[Tensor] = []
    first = next(g for g in grads if g is not None)
    sizes = _sizes("split", tensor_spec.shape[d], split_size_or_sections)
    for i, n in enumerate(sizes):
        g = grads[i] if i < len(grads) else None
        if g is None:
            shape = (*tensor_spec.shape[:d], n, *tensor_spec.shape[d + 1 :])
            g = zeros_of(shape, first)
        parts.append(g)
    return OPS["cat"].function(parts, d)


split.vjp(tensor=_split_grad)


def zeros_of(shape: Shape, like: Tensor) -> Tensor:
    """Return zeros of a shape, of `like`'s dtype and device."""
    return expand(OPS["zero_of"].function(like), shape)


split.reference(
    lambda a, sections, dim: np.split(
        a, np.cumsum(_sizes("split", a.shape[dim], sections))[:-1], dim
    )
)


@split.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((5, 2)), 2)
    yield Call(rng.standard_normal((2, 6)), [1, 2, 3], -1)


@split.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(5), [2, 2]), ShapeError, argument="split_size_or_sections")
    yield Reject(Call(np.ones(5), 2, 1), DimError, argument="dim", value=1)
    yield Reject(Call(np.ones(5), 0), ShapeError, argument="split_size_or_sections")


def chunk(input: Tensor, chunks: int, dim: int = 0) -> tuple[Tensor, ...]:
    """At most `chunks` equal parts along a dim (the last may be smaller); views.

    Shapes: each part has input's shape but for `dim`.
    Dtypes: all.
    Errors: RuntimeError unless chunks > 0, IndexError for a dim out of range.
    Source: elementary.
    Example: `[p.shape[0] for p in tfw.chunk(tfw.zeros(5), 2)] == [3, 2]`
    """
    shape = input._a.shape
    d = normalize_dim("chunk", dim, len(shape), shape)
    if as_int("chunk", chunks, "chunks") <= 0:
        raise ShapeError(
            f"chunks={chunks} is not positive", op="chunk", argument="chunks", value=chunks
        )
    if not shape:
        raise ShapeError("a 0-d tensor cannot be cut", op="chunk", argument="input")
    if not shape[d]:  # PyTorch keeps the number of parts of an empty dim
        return split(input, [0] * chunks, d)
    return split(input, -(-shape[d] // chunks), d)


# ---- writing a view back into its parent


def _view_scatter(backend: Any, base: Any, src: Any, view_op: Any, attrs: Any, index: int) -> Any:
    spec = backend.spec(base)
    strides = elementwise_strides(spec.shape, [spec[:2]])
    copy = backend.empty(spec._replace(strides=strides))
    backend.copy(copy, base)
    layout = view_op.layout(backend.spec(copy), *attrs)
    if index >= 0:
        if index >= len(layout):
            raise OutOfRangeError(
                f"{view_op.name} gives {len(layout)} views, none is number {index}",
                op="view_scatter",
                argument="index",
                value=index,
            )
        layout = layout[index]
    if backend.spec(src).shape != layout[0]:
        raise ShapeError(
            f"src has shape {backend.spec(src).shape}, the view {layout[0]}",
            op="view_scatter",
            argument="src",
            value=backend.spec(src).shape,
        )
    backend.copy(backend.view(copy, *layout), src)
    return copy


@primitive(generic=_view_scatter, hidden=True, method=False)
def view_scatter(input: Tensor, src: Tensor, view_op: Any, attrs: Any, index: int) -> Tensor:
    """A copy of input whose part seen by a view op holds src: what an in-place change of a view did.

    Shapes: input's; src has the shape of view_op(input, *attrs), output `index` if it has several.
    Dtypes: all.
    Errors: those of view_op.
    Source: elementary.
    Example: used by autograd when a view is modified in place.
    """
    ...


def _view_scatter_grad_input(
    g: Tensor, src_spec: Extent, view_op: Any, attrs: Any, index: int
) -> Tensor:
    return view_scatter(g, zeros_of(src_spec.shape, g), view_op, attrs, index)


def _view_scatter_grad_src(g: Tensor, view_op: Any, attrs: Any, index: int) -> Tensor:
    part = view_op.function(g, *attrs)
    return part if index < 0 else part[index]


view_scatter.vjp(input=_view_scatter_grad_input, src=_view_scatter_grad_src)


@view_scatter.reference
def _(a: Any, src: Any, view_op: Any, attrs: Any, index: int) -> Any:
    # NumPy's own view of the positions tells where src goes.
    seen = view_op.reference_rule(np.arange(a.size).reshape(a.shape), *attrs)
    result = np.array(a).reshape(-1)
    result[seen if index < 0 else seen[index]] = src
    return result.reshape(a.shape)


@view_scatter.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    draw = rng.standard_normal
    yield Call(draw((3, 4)), draw((4, 3)), transpose.op, (0, 1), -1)
    yield Call(draw((5, 2)), draw((2, 2)), split.op, (2, 0), 1)


@view_scatter.rejects
def _() -> Iterator[Reject]:
    x = np.ones((2, 3))
    yield Reject(Call(x, x, transpose.op, (0, 2), -1), DimError, argument="dim1", value=2)
    yield Reject(Call(x, x, transpose.op, (0, 1), -1), ShapeError, argument="src", value=(2, 3))
    yield Reject(Call(x, x, split.op, (1, 0), 2), OutOfRangeError, argument="index", value=2)


# ---- properties and methods of Tensor

Tensor.flatten = flatten
Tensor.t = t
Tensor.chunk = chunk
Tensor.view_as = lambda self, other: view(self, other._a.shape)
Tensor.reshape_as = lambda self, other: reshape(self, other._a.shape)
Tensor.expand_as = lambda self, other: expand(self, other._a.shape)
Tensor.T = property(lambda self: permute(self, tuple(reversed(range(self._a.ndim)))))
Tensor.mT = property(lambda self: transpose(self, -2, -1))
