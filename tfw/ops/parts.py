"""Views of parts along a dim, and writing a view back into its parent. Sources: elementary."""

from __future__ import annotations

import builtins
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfw.errors import DimError, OutOfRangeError, ShapeError
from tfw.graph import Extent
from tfw.ops.expand import expand
from tfw.ops.movement import Layout, transpose
from tfw.registry import OPS, Call, Reject, primitive
from tfw.shapes import (
    Shape,
    Spec,
    as_int,
    elementwise_strides,
    normalize_dim,
)
from tfw.tensor import Tensor

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
    """Consecutive parts along a dim, of one size (the last may be less) or of listed sizes; views.

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
    """A copy of input with src where a view op looks: what changing a view in place did.

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
    yield Reject(Call(x, x, transpose.op, (0, 1), -1), ShapeError, argument="src", value=(2, 3))
    yield Reject(Call(x, x, split.op, (1, 0), 2), OutOfRangeError, argument="index", value=2)
