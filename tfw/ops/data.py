"""Tensors from data: numbers, nested sequences, arrays. Sources: elementary."""

from __future__ import annotations

from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import Category, dtype
from tfw.errors import ArgumentError, ShapeError, ValueRangeError
from tfw.ops.convert import to
from tfw.ops.creation import host_tensor
from tfw.runtime import backend as backends
from tfw.runtime.thread_state import state
from tfw.shapes import CPU
from tfw.tensor import Tensor, new_tensor

# ---- from data


def _array(op: str, data: Any, d: dtype | None) -> Any:
    """Return data as a fresh ndarray, with PyTorch's choice of dtype."""
    if isinstance(data, np.ndarray):
        found = d or dtypes.from_numpy(data.dtype)
        return state.run(data.astype, found.numpy)
    if isinstance(data, np.generic):
        return state.run(np.array(data).astype, (d or dtypes.from_numpy(data.dtype)).numpy)
    if isinstance(data, (list, tuple)) and _holds_tensors(data):
        data = _tensors_to_numbers(data)
    try:
        array = np.array(data)
    except ValueError as error:
        raise ValueRangeError(
            "data is ragged: sequences of one level differ in length",
            op=op,
            argument="data",
            remedy="pad them to one length",
        ) from error
    except OverflowError as error:
        raise ValueRangeError(
            f"data does not fit any dtype: {error}", op=op, argument="data"
        ) from error
    if array.dtype == object or array.dtype.kind in "USV":
        if array.dtype == object and _is_ints(data):
            raise ValueRangeError("data has an integer outside int64", op=op, argument="data")
        raise ArgumentError(
            f"data of type {type(data).__name__} holds no numbers",
            op=op,
            argument="data",
            value=data,
        )
    if d is None:
        if array.size == 0 or array.dtype.kind == "f":
            d = dtypes.get_default_dtype()
        elif array.dtype.kind == "c":
            d = dtypes.of_scalar(1j)
        else:
            d = dtypes.bool_ if array.dtype.kind == "b" else dtypes.int64
        if isinstance(data, (list, tuple)) and _dtype_within(data) is not None:
            d = _dtype_within(data) or d
    _check_fits(op, array, d)
    return state.run(array.astype, d.numpy)


def _check_fits(op: str, array: Any, d: dtype) -> None:
    """Raise RuntimeError for numbers an integer dtype cannot hold; uint8 wraps negative ones."""
    if d.category is not Category.INTEGER or not array.size or array.dtype.kind not in "iuf":
        return
    limits = np.iinfo(d.numpy)
    low, high = (limits.min, limits.max) if d.is_signed else (-limits.max, limits.max)
    least, most = array.min().item(), array.max().item()
    if not (low <= least and most <= high):  # also for NaN
        raise ShapeError(
            f"data has a value that {d!r} cannot hold: {least if not low <= least else most}",
            op=op,
            argument="data",
            value=least if not low <= least else most,
            rule=f"{low} <= value <= {high}",
        )


def _holds_tensors(data: Any) -> bool:
    return any(
        isinstance(x, Tensor) or (isinstance(x, (list, tuple)) and _holds_tensors(x)) for x in data
    )


def _tensors_to_numbers(data: Any) -> Any:
    return [
        x.tolist()
        if isinstance(x, Tensor)
        else _tensors_to_numbers(x)
        if isinstance(x, (list, tuple))
        else x
        for x in data
    ]


def _dtype_within(data: Any) -> dtype | None:
    """Return the dtype of the NumPy values within nested sequences, if there are any."""
    while isinstance(data, (list, tuple)) and data:
        data = data[0]
    return dtypes.from_numpy(data.dtype) if isinstance(data, (np.ndarray, np.generic)) else None


def _is_ints(data: Any) -> bool:
    if isinstance(data, (list, tuple)):
        return all(_is_ints(x) for x in data)
    return isinstance(data, int)


def tensor(
    data: Any, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A new tensor with a copy of data: numbers, nested sequences, an ndarray or a tensor.

    Shapes: data's.
    Dtypes: bool, int64 or the default dtype by what data holds; an array's own; or `dtype`.
    Errors: ValueError if sequences are ragged, TypeError for data without numbers.
    Source: elementary.
    Example: `tfw.tensor([[1, 2], [3, 4]]).shape == (2, 2)`
    """
    if isinstance(data, Tensor):
        where = data.device if device is None else device
        result = to(data.detach(), where, dtype or data.dtype, copy=True)
        return result.requires_grad_() if requires_grad else result
    return host_tensor(_array("tensor", data, dtype), device, requires_grad)


def as_tensor(data: Any, dtype: dtype | None = None, device: Any = None) -> Tensor:
    """Data as a tensor; a tensor or an ndarray of that dtype and device is not copied.

    Shapes: data's.
    Dtypes: as `tensor`.
    Errors: as `tensor`.
    Source: elementary.
    Example: `tfw.as_tensor([1, 2]).dtype == tfw.int64`
    """
    if isinstance(data, np.ndarray):
        data = from_numpy(data)
    if isinstance(data, Tensor):
        return to(data, data.device if device is None else device, dtype or data.dtype)
    return tensor(data, dtype=dtype, device=device)


asarray = as_tensor


def from_numpy(ndarray: Any) -> Tensor:
    """A CPU tensor that shares an ndarray's memory.

    Shapes: the array's.
    Dtypes: those that tfw has.
    Errors: TypeError for another type, RuntimeError for a dtype that tfw lacks, ValueError for
        another byte order.
    Source: elementary.
    Example: `tfw.from_numpy(numpy.ones(2)).tolist() == [1.0, 1.0]`
    """
    if not isinstance(ndarray, np.ndarray):
        raise ArgumentError(
            f"expected an ndarray, got {type(ndarray).__name__}",
            op="from_numpy",
            argument="ndarray",
        )
    array = np.asarray(ndarray)
    dtypes.from_numpy(array.dtype)
    if not array.dtype.isnative:
        raise ValueRangeError(
            f"byte order of {array.dtype} is not this machine's",
            op="from_numpy",
            argument="ndarray",
            remedy="convert with .astype(array.dtype.newbyteorder('='))",
        )
    canonical = dtypes.from_numpy(array.dtype).numpy
    if array.dtype is not canonical:
        array = array.view(canonical)
    backend = backends.for_device(CPU)
    return new_tensor(array, backend.kind(array))
