"""New tensors: from data, filled, counted. Sources: elementary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import Category, dtype
from tfw.errors import ArgumentError, ShapeError, ValueRangeError
from tfw.ops.convert import as_device, filled_like, to
from tfw.runtime import backend as backends
from tfw.runtime.thread_state import state
from tfw.shapes import CPU, Shape, as_shape, contiguous, device, elementwise_strides
from tfw.tensor import Tensor, new_tensor

_default_device = CPU


def set_default_device(device: Any) -> None:
    """Set the device of tensors made without one; None means cpu.

    Shapes: none.
    Dtypes: none.
    Errors: RuntimeError for a string that names no device.
    Source: elementary.
    Example: `tfw.set_default_device('cpu') is None`
    """
    global _default_device
    _default_device = CPU if device is None else as_device(device)


def get_default_device() -> device:
    """Return the device of tensors made without one (cpu at the start).

    Shapes: none.
    Dtypes: none.
    Errors: none.
    Source: elementary.
    Example: `tfw.get_default_device().type == 'cpu'`
    """
    return _default_device


def place(device: Any) -> device:
    """Return the device that an argument names, or the default."""
    return _default_device if device is None else as_device(device)


def sizes(op: str, size: Sequence[Any]) -> Shape:
    """Return a shape given as `f(2, 3)` or `f((2, 3))`; RuntimeError for a negative size."""
    shape = as_shape(op, size)
    if min(shape, default=0) < 0:
        raise ShapeError(
            f"size={shape} has a negative size",
            op=op,
            argument="size",
            value=shape,
            rule="sizes >= 0",
        )
    return shape


def finish(payload: Any, backend: Any, requires_grad: bool) -> Tensor:
    """Wrap a new payload."""
    result = new_tensor(payload, backend.kind(payload))
    return result.requires_grad_() if requires_grad else result


def host_tensor(array: Any, device: Any, requires_grad: bool = False) -> Tensor:
    """Return a tensor with an ndarray's values, which it may own, on a device."""
    target = place(device)
    backend = backends.for_device(target)
    return finish(backend.from_host(array, target), backend, requires_grad)


# ---- from data


def _array(op: str, data: Any, d: dtype | None) -> Any:
    """Return a fresh ndarray of nested sequences, numbers or arrays, with PyTorch's choice of dtype."""
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
    return state.run(array.astype, d.numpy)


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
    """Return the dtype that NumPy values within nested sequences ask for, if all leaves are NumPy's."""
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
    """Data as a tensor, without a copy where it is a tensor or an ndarray of that dtype and device already.

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
    Errors: TypeError for another type, RuntimeError for a dtype that tfw lacks, ValueError for another byte order.
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


# ---- filled


def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor with one value everywhere.

    Shapes: size.
    Dtypes: bool, int64 or the default dtype by the value, or `dtype`.
    Errors: RuntimeError for a negative size.
    Source: elementary.
    Example: `tfw.full((2,), 7).tolist() == [7, 7]`
    """
    target = place(device)
    backend = backends.for_device(target)
    value = fill_value.item() if isinstance(fill_value, Tensor) else fill_value
    size = (size,) if isinstance(size, int) else size
    payload = backend.empty(
        contiguous(sizes("full", tuple(size)), dtype or dtypes.of_scalar(value), target)
    )
    backend.fill(payload, value)
    return finish(payload, backend, requires_grad)


def zeros(
    *size: Any, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of zeros.

    Shapes: size.
    Dtypes: the default dtype or `dtype`.
    Errors: RuntimeError for a negative size.
    Source: elementary.
    Example: `tfw.zeros(2).tolist() == [0.0, 0.0]`
    """
    return full(
        sizes("zeros", size),
        0,
        dtype=dtype or dtypes.get_default_dtype(),
        device=device,
        requires_grad=requires_grad,
    )


def ones(
    *size: Any, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of ones.

    Shapes: size.
    Dtypes: the default dtype or `dtype`.
    Errors: RuntimeError for a negative size.
    Source: elementary.
    Example: `tfw.ones(2).tolist() == [1.0, 1.0]`
    """
    return full(
        sizes("ones", size),
        1,
        dtype=dtype or dtypes.get_default_dtype(),
        device=device,
        requires_grad=requires_grad,
    )


def empty(
    *size: Any, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor whose values are undefined.

    Shapes: size.
    Dtypes: the default dtype or `dtype`.
    Errors: RuntimeError for a negative size.
    Source: elementary.
    Example: `tfw.empty(2, 3).shape == (2, 3)`
    """
    target = place(device)
    backend = backends.for_device(target)
    spec = contiguous(sizes("empty", size), dtype or dtypes.get_default_dtype(), target)
    return finish(backend.empty(spec), backend, requires_grad)


def full_like(
    input: Tensor,
    fill_value: Any,
    *,
    dtype: dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor laid out as input with one value everywhere.

    Shapes: input's.
    Dtypes: input's or `dtype`.
    Errors: none.
    Source: elementary.
    Example: `tfw.full_like(tfw.zeros(2), 3.0).tolist() == [3.0, 3.0]`
    """
    if dtype is None and device is None:
        result = filled_like(input.detach(), fill_value)
    else:
        result = empty_like(input, dtype=dtype, device=device)
        result._kind.backend.fill(result._a, fill_value)
    return result.requires_grad_() if requires_grad else result


def zeros_like(
    input: Tensor, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of zeros laid out as input.

    Shapes: input's.
    Dtypes: input's or `dtype`.
    Errors: none.
    Source: elementary.
    Example: `tfw.zeros_like(tfw.ones(2)).tolist() == [0.0, 0.0]`
    """
    return full_like(input, 0, dtype=dtype, device=device, requires_grad=requires_grad)


def ones_like(
    input: Tensor, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor of ones laid out as input.

    Shapes: input's.
    Dtypes: input's or `dtype`.
    Errors: none.
    Source: elementary.
    Example: `tfw.ones_like(tfw.zeros(2)).tolist() == [1.0, 1.0]`
    """
    return full_like(input, 1, dtype=dtype, device=device, requires_grad=requires_grad)


def empty_like(
    input: Tensor, *, dtype: dtype | None = None, device: Any = None, requires_grad: bool = False
) -> Tensor:
    """A tensor laid out as input whose values are undefined.

    Shapes: input's.
    Dtypes: input's or `dtype`.
    Errors: none.
    Source: elementary.
    Example: `tfw.empty_like(tfw.zeros(2)).shape == (2,)`
    """
    target = input.device if device is None else as_device(device)
    backend = backends.for_device(target)
    spec = input._kind.backend.spec(input._a)
    strides = elementwise_strides(spec.shape, [(spec.shape, spec.strides)])
    payload = backend.empty(
        spec._replace(strides=strides, dtype=dtype or spec.dtype, device=target)
    )
    return finish(payload, backend, requires_grad)


# ---- counted


def arange(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """start, start + step, ... below end: ceil((end - start) / step) numbers; `arange(end)` starts at 0.

    Shapes: (n,).
    Dtypes: int64 if all arguments are integers, else the default dtype; or `dtype`.
    Errors: RuntimeError if step is 0 or leads away from end.
    Source: elementary.
    Example: `tfw.arange(3).tolist() == [0, 1, 2]`
    """
    if end is None:
        start, end = 0, start
    start, end, step = (x.item() if isinstance(x, Tensor) else x for x in (start, end, step))
    if step == 0 or (end - start) / step < 0 or not all(map(math.isfinite, (start, end, step))):
        raise ShapeError(
            f"start={start}, end={end}, step={step} counts nothing",
            op="arange",
            argument="step",
            value=step,
            rule="a finite step that leads from start to end",
        )
    integral = all(isinstance(x, (int, np.integer)) for x in (start, end, step))
    d = dtype or (dtypes.int64 if integral else dtypes.get_default_dtype())
    n = -((start - end) // step) if integral else math.ceil((end - start) / step)
    steps = np.arange(n)
    wide = d.numpy if d.category < Category.FLOATING and integral else np.dtype(np.float64)
    values = state.run((start + steps.astype(wide) * step).astype, d.numpy)
    return host_tensor(values, device, requires_grad)


def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """Evenly spaced numbers from start to end, both included.

    Shapes: (steps,).
    Dtypes: the default dtype or `dtype`.
    Errors: RuntimeError for a negative number of steps.
    Source: elementary.
    Example: `tfw.linspace(0, 1, 3).tolist() == [0.0, 0.5, 1.0]`
    """
    start, end = (x.item() if isinstance(x, Tensor) else x for x in (start, end))
    (n,) = sizes("linspace", (steps,))
    values = np.linspace(start, end, n).astype((dtype or dtypes.get_default_dtype()).numpy)
    return host_tensor(values, device, requires_grad)


def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: dtype | None = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Tensor:
    """The n x m identity matrix.

    Shapes: (n, m), m = n by default.
    Dtypes: the default dtype or `dtype`.
    Errors: RuntimeError for a negative size.
    Source: elementary.
    Example: `tfw.eye(2).tolist() == [[1.0, 0.0], [0.0, 1.0]]`
    """
    shape = sizes("eye", (n, n if m is None else m))
    return host_tensor(
        np.eye(*shape, dtype=(dtype or dtypes.get_default_dtype()).numpy), device, requires_grad
    )


def _new(self: Tensor, function: Any, *args: Any, **keywords: Any) -> Tensor:
    keywords["dtype"] = keywords.get("dtype") or self.dtype
    keywords["device"] = keywords.get("device") or self.device
    return function(*args, **keywords)


for _name, _function in (
    ("new_zeros", zeros),
    ("new_ones", ones),
    ("new_full", full),
    ("new_empty", empty),
    ("new_tensor", tensor),
):
    setattr(Tensor, _name, lambda self, *a, _f=_function, **k: _new(self, _f, *a, **k))
