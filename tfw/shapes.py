"""Shapes, strides, devices, and the rules that every op shares: broadcasting, dims, views, layouts.

Strides are counted in elements, never in bytes. Nothing here touches memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple, SupportsIndex, overload

from tfw.dtypes import dtype
from tfw.errors import ArgumentError, DeviceError, DimError, LayoutError, ShapeError

Shape = tuple[int, ...]
_item = tuple[int, ...].__getitem__
DEVICE_TYPES = ("cpu", "cuda", "meta")


class Size(tuple[int, ...]):
    """A tensor's shape: a tuple that can also say how many elements it holds."""

    __slots__ = ()

    def numel(self) -> int:
        """Return the product of the sizes."""
        return math.prod(self)

    @overload
    def __getitem__(self, key: SupportsIndex, /) -> int: ...
    @overload
    def __getitem__(self, key: slice, /) -> Size: ...
    def __getitem__(self, key: SupportsIndex | slice, /) -> int | Size:
        item = _item(self, key)
        return Size(item) if isinstance(item, tuple) else item

    def __add__(self, other: tuple[int, ...], /) -> Size:  # type: ignore[override]
        return Size(tuple(self) + tuple(other))

    def __repr__(self) -> str:
        return f"tfw.Size({list(self)})"


class device:  # noqa: N801  PyTorch's name
    """Where a tensor lives: a type (``cpu``, ``cuda``, ``meta``) and an index or None.

    Errors: RuntimeError (DeviceError) for a string that names no device.
    Example: ``device("cuda:1") == device("cuda", 1)``
    """

    __slots__ = ("index", "type")

    def __init__(self, type: str | device, index: int | None = None) -> None:
        if isinstance(type, device):
            self.type, self.index = type.type, type.index
            return
        if not isinstance(type, str):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"type={type!r} is no string", op="device", argument="type")
        name, colon, number = type.partition(":")
        if (
            name not in DEVICE_TYPES
            or (colon and not number.isdecimal())
            or (colon and index is not None)
        ):
            raise DeviceError(
                f"{type!r} names no device",
                op="device",
                argument="type",
                value=type,
                rule=", ".join(DEVICE_TYPES) + ", or with an index as in 'cuda:0'",
            )
        self.type = name
        self.index = int(number) if colon else index

    def __eq__(self, other: object) -> bool:
        return isinstance(other, device) and (self.type, self.index) == (other.type, other.index)

    def __hash__(self) -> int:
        return hash((self.type, self.index))

    def __str__(self) -> str:
        return self.type if self.index is None else f"{self.type}:{self.index}"

    def __repr__(self) -> str:
        index = "" if self.index is None else f", index={self.index}"
        return f"device(type={self.type!r}{index})"

    def __reduce__(self) -> tuple[type[device], tuple[str, int | None]]:
        return device, (self.type, self.index)


CPU = device("cpu")
META = device("meta")


class Spec(NamedTuple):
    """What is known of a tensor without its data.

    Attributes:
        shape: sizes.
        strides: elements to step along each dimension.
        dtype: element type.
        device: where it lives.
        aligned: whether the first element lies on a 16-byte boundary.

    """

    shape: Shape
    strides: Shape
    dtype: dtype
    device: device
    aligned: bool = True

    @property
    def numel(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def is_contiguous(self) -> bool:
        """Whether elements lie in row-major order without gaps."""
        return is_contiguous(self.shape, self.strides)


def contiguous(shape: Iterable[int], dtype: dtype, device: device) -> Spec:
    """Return the Spec of a fresh row-major tensor."""
    shape = tuple(shape)
    return Spec(shape, contiguous_strides(shape), dtype, device)


def contiguous_strides(shape: Sequence[int]) -> Shape:
    """Return row-major strides; a size-0 dimension counts as 1, as PyTorch does."""
    strides: list[int] = []
    step = 1
    for n in reversed(shape):
        strides.append(step)
        step *= max(n, 1)
    return tuple(reversed(strides))


def is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the layout is row-major without gaps; strides of size-1 dims do not matter."""
    if 0 in shape:
        return True
    step = 1
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n != 1:
            if stride != step:
                return False
            step *= n
    return True


def is_dense(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether the elements fill one block of memory, each once, in some order of dims."""
    if 0 in shape:
        return True
    step = 1
    for stride, n in sorted((s, n) for s, n in zip(strides, shape, strict=True) if n != 1):
        if stride != step:
            return False
        step *= n
    return True


def may_overlap(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether two indices can address one element (expanded, or an odd as_strided)."""
    if 0 in shape:
        return False
    reach = 0
    for stride, n in sorted((abs(s), n) for s, n in zip(strides, shape, strict=True) if n > 1):
        if stride <= reach:
            return True
        reach += stride * (n - 1)
    return False


def normalize_dim(op: str, dim: int, ndim: int, shape: Sequence[int], name: str = "dim") -> int:
    """Return `dim` as 0 <= dim < ndim (a 0-d tensor counts as one dim). IndexError out of range."""
    if not isinstance(dim, int) or isinstance(dim, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
        dim = as_int(op, dim, name)
    bound = max(ndim, 1)
    if not -bound <= dim < bound:
        raise DimError(
            f"{name}={dim} is out of range for a tensor of shape {tuple(shape)}",
            op=op,
            argument=name,
            value=dim,
            rule=f"{-bound} <= {name} <= {bound - 1}",
        )
    return dim % bound


def normalize_dims(
    op: str, dims: int | Sequence[int] | None, shape: Sequence[int], name: str = "dim"
) -> tuple[int, ...]:
    """Return several dims, each once; None and () mean all of them."""
    ndim = len(shape)
    if dims is None:
        return tuple(range(ndim))
    if not isinstance(dims, (tuple, list)):
        return (normalize_dim(op, dims, ndim, shape, name),)  # pyright: ignore[reportArgumentType]  checked there
    if not dims:
        return tuple(range(ndim))
    result = tuple(normalize_dim(op, d, ndim, shape, name) for d in dims)
    if len(set(result)) < len(result):
        raise ShapeError(
            f"{name}={tuple(dims)} names a dimension twice for a tensor of shape {tuple(shape)}",
            op=op,
            argument=name,
            value=tuple(dims),
            rule="each dimension at most once",
        )
    return result


def as_int(op: str, value: object, name: str) -> int:
    """Return `value` as an int; whatever has `__index__` but no bool will do, else TypeError."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ArgumentError(
            f"{name}={value!r} is a {type(value).__name__}, not an integer",
            op=op,
            argument=name,
            value=value,
        )
    return value.__index__()  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownVariableType]  hasattr just above


def as_shape(op: str, sizes: Sequence[object], name: str = "size") -> Shape:
    """Return sizes given as `f(2, 3)` or `f((2, 3))` as a tuple of ints; the caller fills in -1."""
    if len(sizes) == 1 and isinstance(sizes[0], (tuple, list)):
        sizes = sizes[0]  # pyright: ignore[reportUnknownVariableType]  elements are checked below
    return tuple(as_int(op, n, name) for n in sizes)  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]  here


def broadcast_shapes(op: str, *shapes: Shape, names: Sequence[str] = ("input", "other")) -> Shape:
    """Return the common shape under broadcasting.

    Errors: RuntimeError (ShapeError) if two sizes differ and neither is 1.
    """
    ndim = max((len(s) for s in shapes), default=0)
    result = [1] * ndim
    for shape in shapes:
        for i, n in enumerate(shape, ndim - len(shape)):
            if n != 1 and result[i] != n:
                if result[i] != 1:
                    shown = " and ".join(
                        f"{name} {s}"
                        for name, s in zip(_padded(names, len(shapes)), shapes, strict=True)
                    )
                    raise ShapeError(
                        f"shapes do not broadcast: {shown} differ at dim {i - ndim} "
                        f"({result[i]} against {n})",
                        op=op,
                        argument="shape",
                        value=shapes,
                        rule="sizes that are equal, or one of them 1",
                    )
                result[i] = n
    return tuple(result)


def _padded(names: Sequence[str], n: int) -> list[str]:
    return [names[i] if i < len(names) else f"tensor {i}" for i in range(n)]


def expand_strides(shape: Shape, strides: Shape, to: Shape) -> Shape:
    """Return the strides of a layout seen at the broadcast shape `to`: 0 along repeated dims."""
    lead = len(to) - len(shape)
    tail = tuple(
        0 if n == 1 and m != 1 else s for n, m, s in zip(shape, to[lead:], strides, strict=True)
    )
    return (0,) * lead + tail


def elementwise_strides(shape: Shape, operands: Sequence[tuple[Shape, Shape]]) -> Shape:
    """Return the strides that PyTorch gives an elementwise result of `shape`.

    Operands (shape, strides) that are all row-major give row-major. Otherwise dims are ordered by
    the first operand that can tell them apart, innermost last, so a channels-last input stays
    channels-last.
    Source: the documented behaviour of `torch.empty_like(memory_format=preserve_format)` and
    TensorIterator (https://github.com/pytorch/pytorch/wiki/How-to-use-TensorIterator).
    """
    same = [o for o in operands if o[0] == shape]
    if len(same) == len(operands):
        if all(is_contiguous(*o) for o in operands):
            return contiguous_strides(shape)
        if all(o[1] == operands[0][1] for o in operands) and is_dense(*operands[0]):
            return operands[0][1]
    seen = [expand_strides(*o, shape) for o in operands]
    ndim = len(shape)
    order = list(range(ndim - 1, -1, -1))  # innermost first

    def before(d0: int, d1: int) -> int:
        """1 if d0 must lie further out than d1, -1 if further in, 0 if no operand tells."""
        for strides in seen:
            s0, s1 = strides[d0], strides[d1]
            if s0 == 0 or s1 == 0:
                continue
            if s0 != s1:
                return 1 if s0 > s1 else -1
            if shape[d0] > shape[d1]:
                return 1
        return 0

    # Insertion sort that stops at the first decided pair, as ambiguity is not transitive.
    for i in range(1, ndim):
        at = i
        for j in range(i - 1, -1, -1):
            comparison = before(order[j], order[at])
            if comparison > 0:
                order[j], order[at] = order[at], order[j]
                at = j
            elif comparison < 0:
                break
    strides = [0] * ndim
    step = 1
    for d in order:
        strides[d] = step
        step *= max(shape[d], 1)
    return tuple(strides)


def infer_size(op: str, shape: Shape, numel: int) -> Shape:
    """Return `shape` with one -1 filled in so that it holds `numel` elements.

    Errors: RuntimeError (ShapeError) if no size does that.
    """
    known = math.prod(n for n in shape if n != -1)
    holes = shape.count(-1)
    fits = known == numel if not holes else known > 0 and numel % known == 0
    if holes > 1 or any(n < -1 for n in shape) or not fits:
        raise ShapeError(
            f"shape {shape} does not fit a tensor of {numel} elements",
            op=op,
            argument="shape",
            value=shape,
            rule="sizes whose product is the number of elements, at most one of them -1",
            remedy="name the size instead of -1" if holes and not known else "",
        )
    return tuple(numel // known if n == -1 else n for n in shape) if holes else shape


def view_strides(shape: Shape, strides: Shape, to: Shape) -> Shape | None:
    """Return strides that show the same memory at shape `to`, or None if only a copy can.

    Neighbouring dims that step as one merge into a chunk; each new dim must lie within one chunk.
    """
    if math.prod(shape) == 0:
        return strides if shape == to else contiguous_strides(to)
    chunks: list[tuple[int, int]] = []  # (elements, innermost stride), outermost first
    for n, s in zip(shape, strides, strict=True):
        if n == 1:
            continue
        if chunks and chunks[-1][1] == n * s:
            chunks[-1] = (chunks[-1][0] * n, s)
        else:
            chunks.append((n, s))
    result: list[int] = []
    rest, step = chunks.pop() if chunks else (1, 1)
    for n in reversed(to):
        if n == 1:
            result.append(step)
            continue
        if rest == 1:
            if not chunks:
                return None
            rest, step = chunks.pop()
        if rest % n:
            return None
        result.append(step)
        step *= n
        rest //= n
    return tuple(reversed(result)) if rest == 1 and not chunks else None


def check_view(op: str, shape: Shape, strides: Shape, to: Shape) -> Shape:
    """Return `view_strides`, or raise LayoutError that tells to use reshape."""
    result = view_strides(shape, strides, to)
    if result is None:
        raise LayoutError(
            f"strides {strides} of shape {shape} cannot be seen as shape {to} without a copy",
            op=op,
            argument="shape",
            value=to,
            remedy="use reshape(), or contiguous() first",
        )
    return result
