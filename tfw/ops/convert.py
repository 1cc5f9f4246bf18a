"""Copies and conversions: clone, contiguous, dtype and device. Sources: elementary."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import dtype
from tfw.errors import ArgumentError, ShapeError
from tfw.registry import Call, Reject, like, primitive
from tfw.runtime import backend as backends
from tfw.shapes import Spec, contiguous_strides, device, elementwise_strides
from tfw.tensor import Tensor

PRESERVE, CONTIGUOUS = "preserve", "contiguous"


def _clone(backend: Any, x: Any, memory_format: str) -> Any:
    spec: Spec = backend.spec(x)
    strides = (
        contiguous_strides(spec.shape)
        if memory_format == CONTIGUOUS
        else elementwise_strides(spec.shape, [(spec.shape, spec.strides)])
    )
    copy = backend.empty(spec._replace(strides=strides))
    backend.copy(copy, x)
    return copy


@primitive(generic=_clone, infer=like("input"), computes=False)
def clone(input: Tensor, *, memory_format: str = PRESERVE) -> Tensor:
    """A copy in memory of its own; gradients flow back to input.

    Shapes: input's. The layout is input's too if it is dense, or row-major for "contiguous".
    Dtypes: all.
    Errors: TypeError if input is no tensor.
    Source: elementary.
    Example: `tfw.ones(2).clone().tolist() == [1.0, 1.0]`
    """
    ...


clone.vjp(input=lambda g: g)
clone.reference(lambda a, memory_format: a)


@clone.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)))


@clone.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call("a"), ArgumentError, argument="input")


def contiguous(input: Tensor) -> Tensor:
    """The tensor in row-major memory: itself if it is so already, else a copy.

    Shapes: input's.
    Dtypes: all.
    Errors: none.
    Source: elementary.
    Example: `tfw.zeros(2, 3).T.contiguous().stride() == (2, 1)`
    """
    return input if input._kind.form != "strided" else clone(input, memory_format=CONTIGUOUS)


def _to_dtype(backend: Any, x: Any, dtype: dtype) -> Any:
    spec: Spec = backend.spec(x)
    strides = elementwise_strides(spec.shape, [(spec.shape, spec.strides)])
    copy = backend.empty(spec._replace(dtype=dtype, strides=strides))
    backend.copy(copy, x)
    return copy


def _to_dtype_spec(x: Spec, dtype: dtype) -> Spec:
    return x._replace(
        dtype=dtype, strides=elementwise_strides(x.shape, [(x.shape, x.strides)]), aligned=True
    )


@primitive(
    generic=_to_dtype, infer=_to_dtype_spec, hidden=True, method=False, computes=False, shown="to"
)
def to_dtype(input: Tensor, dtype: dtype) -> Tensor:
    """A copy converted to another dtype; floating to integer cuts towards zero.

    Shapes: input's.
    Dtypes: all.
    Errors: TypeError if input is no tensor.
    Source: elementary.
    Example: `tfw.full((1,), 2.7).to(tfw.int64).tolist() == [2]`
    """
    ...


to_dtype.vjp(input=lambda g, input_spec: to(g, input_spec.kind.dtype))
to_dtype.reference(lambda a, dtype: np.asarray(a).astype(dtype.numpy))


@to_dtype.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    for d in (dtypes.float64, dtypes.float16, dtypes.int32, dtypes.bool_):
        yield Call(rng.standard_normal((3, 4)) * 10, d)


@to_dtype.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call("a", dtypes.float64), ArgumentError, argument="input")


def _to_device(backend: Any, x: Any, device: device) -> Any:
    target = backends.for_device(device)
    if target.device_type == "meta":
        spec: Spec = backend.spec(x)
        strides = elementwise_strides(spec.shape, [spec[:2]])
        return target.empty(spec._replace(strides=strides, device=device))
    host = backend.to_host(x)
    # The CPU backend's host array is the payload itself: `to` promises a copy.
    return target.from_host(host.copy("K") if target is backend else host, device)


@primitive(generic=_to_device, hidden=True, method=False, computes=False, shown="to")
def to_device(input: Tensor, device: device) -> Tensor:
    """A copy on another device.

    Shapes: input's.
    Dtypes: all.
    Errors: RuntimeError if the device is not available.
    Source: elementary.
    Example: `tfw.ones(2).to("meta").device.type == "meta"`
    """
    ...


to_device.reference(lambda a, device: a)


@to_device.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), backends.device("cpu"))


@to_device.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call("a", backends.device("cpu")), ArgumentError, argument="input")


to_device.vjp(input=lambda g, input_spec: to(g, input_spec.kind.device))


def as_device(d: Any) -> device:
    """Return a device given as one, as a string or as a CUDA index."""
    if isinstance(d, device):
        return d
    return device("cuda", d) if isinstance(d, int) else device(d)


def to(
    input: Tensor,
    *args: Any,
    dtype: Any = None,
    device: Any = None,
    non_blocking: bool = False,
    copy: bool = False,
    memory_format: Any = None,
) -> Tensor:
    """The tensor with another dtype, device or both; itself if nothing changes and copy is False.

    Forms: `to(dtype)`, `to(device)`, `to(device, dtype)`, `to(other)`.

    Shapes: input's.
    Dtypes: all.
    Errors: RuntimeError if the device is not available, TypeError for another argument.
    Source: elementary.
    Example: `tfw.ones(2).to(tfw.int64).dtype == tfw.int64`
    """
    for argument in args:
        if isinstance(argument, dtypes.dtype):
            dtype = argument
        elif isinstance(argument, Tensor):
            dtype, device = argument.dtype, argument.device
        elif isinstance(argument, bool):
            # positional non_blocking, then copy
            copy = (
                argument
                if argument is args[-1] and sum(isinstance(a, bool) for a in args) > 1
                else copy
            )
        elif argument is not None:
            if not isinstance(argument, (str, int, backends.device)):
                raise ArgumentError(
                    f"{argument!r} is neither a dtype, a device nor a tensor",
                    op="to",
                    argument="args",
                )
            device = argument
    result = input
    if dtype is not None and dtype is not input._kind.dtype:
        result = to_dtype(result, dtype)
    if device is not None:
        target = as_device(device)
        current = input._kind.device
        if target != current and not (target.type == current.type and target.index is None):
            result = to_device(result, target)
    return clone(result) if copy and result is input else result


def copy_(self: Tensor, src: Tensor, non_blocking: bool = False) -> Tensor:
    """Write src, converted and broadcast, into self."""
    from tfw.inplace import dispatch_inplace

    if not isinstance(src, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"src must be a Tensor, not {type(src).__name__}", op="copy_", argument="src"
        )
    return dispatch_inplace(copy.op, (self, src))


def _copied(backend: Any, x: Any, src: Any) -> Any:
    spec: Spec = backend.spec(x)
    result = backend.empty(
        spec._replace(strides=elementwise_strides(spec.shape, [(spec.shape, spec.strides)]))
    )
    source: Spec = backend.spec(src)
    lead = len(spec.shape) - len(source.shape)
    if lead < 0 or any(
        n not in (1, m) for n, m in zip(source.shape, spec.shape[lead:], strict=True)
    ):
        raise ShapeError(
            f"src of shape {source.shape} does not broadcast to {spec.shape}",
            op="copy_",
            argument="src",
            value=source.shape,
        )
    backend.copy(result, src)
    return result


@primitive(generic=_copied, hidden=True, method=False, computes=False, shown="copy_")
def copy(input: Tensor, src: Tensor) -> Tensor:
    """Src at input's shape and dtype; its in-place form is `Tensor.copy_`.

    Shapes: src broadcasts to input's shape.
    Dtypes: all; src is converted.
    Errors: RuntimeError if src does not broadcast to input.
    Source: elementary.
    Example: `tfw.zeros(2).copy_(tfw.ones(2)).tolist() == [1.0, 1.0]`
    """
    ...


def _copy_grad(g: Tensor, src_spec: Any) -> Tensor:
    from tfw.registry import OPS

    g = to(g, src_spec.kind.dtype)
    return g if g._a.shape == src_spec.shape else OPS["sum_to_size"].function(g, src_spec.shape)


copy.reference(lambda x, src: np.broadcast_to(src, x.shape))


@copy.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), rng.standard_normal((3, 4)))
    yield Call(rng.standard_normal((3, 4)), rng.standard_normal(4))


@copy.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones((2, 3)), np.ones(2)), ShapeError, argument="src", value=(2,))
    yield Reject(Call(np.ones(3), np.ones((1, 3))), ShapeError, argument="src", value=(1, 3))


copy.vjp(input=lambda g: filled_like(g, 0), src=_copy_grad)


def _number_fill(backend: Any, x: Any, value: Any) -> Any:
    spec: Spec = backend.spec(x)
    result = backend.empty(
        spec._replace(strides=elementwise_strides(spec.shape, [(spec.shape, spec.strides)]))
    )
    backend.fill(result, value)
    return result


@primitive(
    generic=_number_fill,
    infer=like("input"),
    writes_one_value=True,
    hidden=True,
    method=False,
    computes=False,
    shown="fill_",
)
def filled_like(input: Tensor, value: Any) -> Tensor:
    """A tensor laid out as input with one value everywhere.

    Shapes: input's.
    Dtypes: all.
    Errors: TypeError if input is no tensor.
    Source: elementary.
    Example: `tfw.full_like(tfw.zeros(2), 3.0).tolist() == [3.0, 3.0]`
    """
    ...


filled_like.vjp(input=lambda g: filled_like(g, 0))
filled_like.reference(lambda a, value: np.full_like(a, value))


@filled_like.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)), 2.0)


@filled_like.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call("a", 2.0), ArgumentError, argument="input")


def _zero_of(backend: Any, x: Any) -> Any:
    result = backend.empty(backend.spec(x)._replace(shape=(), strides=()))
    backend.fill(result, 0)
    return result


@primitive(generic=_zero_of, hidden=True, method=False, computes=False, differentiable=False)
def zero_of(input: Tensor) -> Tensor:
    """A 0-d zero of input's dtype and device; expanded, it fills in for a gradient that is absent.

    Shapes: ().
    Dtypes: all.
    Errors: TypeError if input is no tensor.
    Source: elementary.
    Example: used by gradients.
    """
    ...


zero_of.reference(lambda a: np.zeros(()))


@zero_of.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)))


@zero_of.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call("a"), ArgumentError, argument="input")


def fill_(self: Tensor, value: Any) -> Tensor:
    """Write one value everywhere: a number or a 0-d tensor."""
    from tfw.inplace import dispatch_inplace

    if isinstance(value, Tensor):
        if value._a.ndim:
            raise ShapeError(
                f"value has shape {tuple(value._a.shape)}",
                op="fill_",
                argument="value",
                rule="a number or a 0-d tensor",
            )
        return dispatch_inplace(copy.op, (self, value))
    return dispatch_inplace(filled_like.op, (self, value))


def zero_(self: Tensor) -> Tensor:
    """Write zero everywhere."""
    return fill_(self, 0)
