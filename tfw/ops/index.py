"""x[index] and x[index] = value: an index of any kind, taken apart into views and arrays."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import INTEGERS
from tfw.errors import ArgumentError, OutOfRangeError
from tfw.inplace import dispatch_inplace
from tfw.ops.convert import contiguous, copy, to
from tfw.ops.movement import permute, reshape
from tfw.ops.nonzero import nonzero
from tfw.ops.take import _BASIC, as_tuple, combined_shape, put_at, slice_view, take_at
from tfw.tensor import Tensor

# ---- x[index] and x[index] = value


def _is_basic(index: Any) -> bool:
    if isinstance(index, tuple):
        return all(isinstance(i, _BASIC) and not isinstance(i, bool) for i in index)
    return isinstance(index, _BASIC) and not isinstance(index, bool)


def _prepared(x: Tensor, index: Any) -> tuple[Tensor, list[Tensor], list[int]]:
    """Split an index into its basic part, taken as a view of x, and arrays with their dims."""
    elements: list[Any] = []
    for e in as_tuple(index) if not isinstance(index, list) else (index,):
        if isinstance(e, (list, np.ndarray, range)) or (
            isinstance(e, np.generic) and not isinstance(e, np.integer)
        ):
            from tfw.ops.data import as_tensor

            e = as_tensor(list(e) if isinstance(e, range) else e, device=x.device)
            if not e._a.size and e.dtype.is_floating_point:
                e = to(e, dtypes.int64)
        if isinstance(e, Tensor):
            if not e._a.ndim and e.dtype in INTEGERS:
                e = int(e.item())
            elif e.dtype not in (dtypes.bool_, *INTEGERS):
                raise OutOfRangeError(
                    f"a tensor of {e.dtype!r} is no index",
                    op="index",
                    argument="index",
                    rule="integers or bool",
                )
        elif isinstance(e, np.integer):
            e = int(e)
        elif not isinstance(e, (bool, *_BASIC)):
            raise (ArgumentError if isinstance(e, str) else OutOfRangeError)(
                f"{e!r} is no index",
                op="index",
                argument="index",
                value=e,
                rule="integers, slices, None, Ellipsis, arrays or tensors of integers or bool",
            )
        elements.append(e)
    return _split_index(x, elements)


def _mask_indices(x: Tensor, mask: Tensor, d: int) -> list[Tensor]:
    shape = x._a.shape[d : d + mask._a.ndim]
    if mask._a.shape != shape:
        raise OutOfRangeError(
            f"a mask of shape {tuple(mask._a.shape)} does not match {tuple(shape)} at dim {d} of "
            f"shape {tuple(x._a.shape)}",
            op="index",
            argument="index",
        )
    hits = nonzero(mask)
    return [slice_view(hits, (slice(None), i)) for i in range(mask._a.ndim)]


def _split_index(x: Tensor, elements: list[Any]) -> tuple[Tensor, list[Tensor], list[int]]:
    used = sum(
        e._a.ndim if isinstance(e, Tensor) and e.dtype is dtypes.bool_ else 1
        for e in elements
        if e is not None and e is not Ellipsis and not isinstance(e, bool)
    )
    if used > x._a.ndim:
        raise OutOfRangeError(
            f"{used} indices for a tensor of shape {tuple(x._a.shape)}",
            op="index",
            argument="index",
        )
    if Ellipsis not in [e for e in elements if not isinstance(e, Tensor)]:
        elements = [*elements, Ellipsis]
    basic: list[Any] = []
    arrays: list[tuple[int, Any]] = []  # (dim of the view, index array)
    source = 0  # dim of x that comes next
    out = 0  # dim of the view that comes next
    for e in elements:
        if e is None or isinstance(e, bool):
            basic.append(None)
            if isinstance(e, bool):
                from tfw.ops.creation import arange

                arrays.append((out, arange(int(e), device=x.device)))
            out += 1
        elif e is Ellipsis:
            n = x._a.ndim - used
            basic.extend([slice(None)] * n)
            source, out = source + n, out + n
        elif isinstance(e, Tensor):
            if e.dtype is dtypes.bool_:
                if not e._a.ndim:
                    from tfw.ops.creation import arange

                    basic.append(None)
                    arrays.append((out, arange(int(e.item()), device=x.device)))
                    out += 1
                    continue
                parts = _mask_indices(x, e, source)
            else:
                parts = [e]
            for part in parts:
                arrays.append((out, part))
                basic.append(slice(None))
                source, out = source + 1, out + 1
        elif isinstance(e, slice):
            basic.append(e)
            source, out = source + 1, out + 1
        else:
            basic.append(e)
            source += 1
    plain = all(isinstance(e, slice) and e == slice(None) for e in basic)
    part = x if plain else slice_view(x, tuple(basic))
    return part, [a for _, a in arrays], [d for d, _ in arrays]


def _result_order(ndim: int, dims: list[int], n_index: int) -> list[int] | None:
    """Return the permutation that puts the indexed dims where NumPy and PyTorch have them.

    They stay in place if the arrays were adjacent, else they come first, where `take_at` puts them.
    """
    if dims != list(range(dims[0], dims[0] + len(dims))) or not dims[0]:
        return None
    before = list(range(n_index, n_index + dims[0]))
    return [*before, *range(n_index), *range(n_index + dims[0], ndim - len(dims) + n_index)]


def getitem(self: Tensor, index: Any) -> Tensor:
    """x[index]: a view for ints, slices, None and Ellipsis, a copy for arrays and masks."""
    if index.__class__ is int or index.__class__ is slice or _is_basic(index):
        return slice_view(self, index)
    part, arrays, dims = _prepared(self, index)
    if not arrays:
        return part
    result = take_at(part, arrays, tuple(dims))
    order = _result_order(part._a.ndim, dims, result._a.ndim - part._a.ndim + len(dims))
    return result if order is None else contiguous(permute(result, order))


def setitem(self: Tensor, index: Any, value: Any) -> None:
    """x[index] = value: value is converted and broadcast to the indexed part."""
    from tfw.ops.creation import full

    if not isinstance(value, Tensor):
        if not isinstance(value, (bool, int, float, complex, np.generic)):
            raise ArgumentError(
                f"cannot assign a {type(value).__name__} to part of a tensor",
                op="setitem",
                argument="value",
                value=value,
                rule="a number or a tensor",
            )
        value = full((), value, dtype=self.dtype, device=self.device)
    if _is_basic(index):
        _assign(slice_view(self, index), value)
        return
    part, arrays, dims = _prepared(self, index)
    if not arrays:
        _assign(part, value)
        return
    value = to(value, self.device, self.dtype)
    target = combined_shape("setitem", [tuple(a._a.shape) for a in arrays])
    value = _without_leading_ones(value, part._a.ndim - len(dims) + len(target))
    order = _result_order(part._a.ndim, dims, len(target))
    if order is not None:
        value = _bring_front(value, dims[0], len(target), len(order))
    dispatch_inplace(put_at.op, (part, value, arrays, tuple(dims), False))


def _bring_front(value: Tensor, at: int, n_index: int, ndim: int) -> Tensor:
    """Reorder a value's dims from the order of x[index] to that of `take_at`."""
    value = (
        reshape(value, (1,) * (ndim - value._a.ndim) + tuple(value._a.shape))
        if value._a.ndim < ndim
        else value
    )
    if value._a.ndim > ndim:
        return value  # refused by put_at, which names the shapes
    return permute(value, [*range(at, at + n_index), *range(at), *range(at + n_index, ndim)])


def _assign(part: Tensor, value: Tensor) -> None:
    dispatch_inplace(copy.op, (part, _without_leading_ones(value, part._a.ndim)))


def _without_leading_ones(value: Tensor, ndim: int) -> Tensor:
    """Drop leading dims of size 1 beyond ndim, as NumPy and PyTorch do when a value is assigned."""
    while value._a.ndim > ndim and value._a.shape[0] == 1:
        value = slice_view(value, 0)
    return value
