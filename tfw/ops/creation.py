"""New tensors: filled, counted. Sources: elementary."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import Category, dtype
from tfw.errors import ShapeError
from tfw.ops.convert import as_device, filled_like
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
    """start, start + step, ... below end: ceil((end - start) / step) numbers; start is optional.

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
