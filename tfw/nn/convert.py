"""Moving a module: its parameters, gradients and buffers to another device or dtype, in place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from tfw import dtypes
from tfw.autograd import no_grad
from tfw.dtypes import dtype
from tfw.errors import ArgumentError
from tfw.nn.members import Members
from tfw.ops.convert import as_device
from tfw.ops.creation import empty_like
from tfw.shapes import device
from tfw.tensor import Tensor

M = TypeVar("M", bound="Convertible")
Conversion = Callable[[Tensor], Tensor]


class _Once:
    """A conversion that gives one result for one tensor, so that what was shared stays shared."""

    def __init__(self, function: Conversion) -> None:
        self.function = function
        self._done: dict[int, tuple[Tensor, Tensor]] = {}

    def __call__(self, tensor: Tensor) -> Tensor:
        # The tensor is kept with its result: its id must not be taken by another one meanwhile.
        found = self._done.get(id(tensor))
        if found is None:
            found = self._done[id(tensor)] = (tensor, self.function(tensor))
        return found[1]

    def visited(self, tensor: Tensor) -> bool:
        """Return whether the tensor was converted already."""
        return id(tensor) in self._done


class Convertible(Members):
    """The part of Module that converts its tensors.

    A Parameter stays the same object with new memory, so optimizers and ties stay valid, on every
    device. (PyTorch makes a new Parameter when a module goes to the meta device, and converts a
    buffer that two modules share into two.)
    """

    def _apply(self: M, fn: Conversion, recurse: bool = True) -> M:
        """Replace each parameter, its gradient and each buffer by `fn` of it, each once."""
        once = fn if isinstance(fn, _Once) else _Once(fn)
        if recurse:
            for module in self.children():
                module._apply(once)
        with no_grad():
            for parameter in self._parameters.values():
                if parameter is None or once.visited(parameter):
                    continue
                parameter.data = once(parameter)
                if parameter.grad is not None:
                    parameter.grad.data = once.function(parameter.grad)
            for name, buffer in self._buffers.items():
                if buffer is not None:
                    self._buffers[name] = once(buffer)
        return self

    def to(
        self: M,
        *args: Any,
        device: Any = None,
        dtype: dtype | None = None,
        non_blocking: bool = False,
    ) -> M:
        """Move all tensors to a device and floating-point ones to a dtype, in place.

        Forms: `to(device)`, `to(dtype)`, `to(device, dtype)`, `to(tensor)`, each with
        non_blocking last: copies from pinned host memory then do not wait.

        Errors: TypeError for an integer dtype or an argument that is none of these, RuntimeError
        if the device is not available.
        Example: `nn.Linear(2, 3).to(tfw.float64).weight.dtype == tfw.float64`
        """
        for value in args:
            if isinstance(value, dtypes.dtype):
                dtype = value
            elif isinstance(value, Tensor):
                device, dtype = value.device, value.dtype
            elif isinstance(value, bool):
                non_blocking = value
            elif value is not None:
                device = _device(value)
        if dtype is not None and dtype.category < dtypes.Category.FLOATING:
            raise ArgumentError(
                f"dtype={dtype!r} cannot hold parameters",
                op="Module.to",
                argument="dtype",
                value=dtype,
                rule="floating-point and complex dtypes",
            )

        def convert(tensor: Tensor) -> Tensor:
            real = tensor.dtype.category >= dtypes.Category.FLOATING
            return tensor.to(
                device=device, dtype=dtype if real else None, non_blocking=non_blocking
            )

        return self._apply(convert)

    def type(self: M, dst_type: dtype | str) -> M:
        """Convert all parameters and buffers, integer ones too, to a dtype, in place."""
        return self._apply(lambda t: t.type(dst_type))

    def cpu(self: M) -> M:
        """Move all parameters and buffers to the CPU, in place."""
        return self._apply(lambda t: t.cpu())

    def cuda(self: M, device: Any = None) -> M:
        """Move all parameters and buffers to a CUDA device, in place."""
        return self._apply(lambda t: t.cuda(device))

    def float(self: M) -> M:
        """Convert floating-point parameters and buffers to float32, in place."""
        return self._to_real(dtypes.float32)

    def double(self: M) -> M:
        """Convert floating-point parameters and buffers to float64, in place."""
        return self._to_real(dtypes.float64)

    def half(self: M) -> M:
        """Convert floating-point parameters and buffers to float16, in place."""
        return self._to_real(dtypes.float16)

    def bfloat16(self: M) -> M:
        """Convert floating-point parameters and buffers to bfloat16, in place."""
        return self._to_real(dtypes.bfloat16)

    def _to_real(self: M, wanted: dtype) -> M:
        return self._apply(lambda t: t.to(dtype=wanted) if t.is_floating_point() else t)

    def to_empty(self: M, *, device: Any, recurse: bool = True) -> M:
        """Move to a device without copying: parameters and buffers get memory with any contents."""
        return self._apply(lambda t: empty_like(t, device=device), recurse=recurse)


def _device(value: Any) -> device:
    if not isinstance(value, (str, int, device)):
        raise ArgumentError(
            f"{value!r} is no device, dtype or tensor", op="Module.to", argument="args", value=value
        )
    return as_device(value)
