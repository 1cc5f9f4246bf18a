"""Methods of Tensor that are short for an op: conversions, other names, new tensors.

The class is never instantiated: its members are attached to Tensor, and `tensor.pyi` lists them.
"""

from __future__ import annotations

from typing import Any

from tfw import dtypes
from tfw.ops import creation, index, movement, parts, random_fill
from tfw.ops.convert import as_device, to
from tfw.ops.data import tensor
from tfw.ops.expand import expand
from tfw.ops.movement import permute, reshape, transpose, view
from tfw.tensor import Tensor


class Methods:
    """What is attached to Tensor."""

    def cpu(self: Tensor) -> Tensor:
        """Return the tensor on the CPU; itself if it is there."""
        return to(self, "cpu")

    def cuda(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
        """Return the tensor on a CUDA device, the current one by default; itself if it is there."""
        return to(self, "cuda" if device is None else as_device(device))

    def type_as(self: Tensor, other: Tensor) -> Tensor:
        """Return the tensor with other's dtype."""
        return to(self, other.dtype)

    def float(self: Tensor) -> Tensor:
        """Return the tensor as float32."""
        return to(self, dtypes.float32)

    def double(self: Tensor) -> Tensor:
        """Return the tensor as float64."""
        return to(self, dtypes.float64)

    def half(self: Tensor) -> Tensor:
        """Return the tensor as float16."""
        return to(self, dtypes.float16)

    def bfloat16(self: Tensor) -> Tensor:
        """Return the tensor as bfloat16."""
        return to(self, dtypes.bfloat16)

    def long(self: Tensor) -> Tensor:
        """Return the tensor as int64."""
        return to(self, dtypes.int64)

    def int(self: Tensor) -> Tensor:
        """Return the tensor as int32."""
        return to(self, dtypes.int32)

    def short(self: Tensor) -> Tensor:
        """Return the tensor as int16."""
        return to(self, dtypes.int16)

    def bool(self: Tensor) -> Tensor:
        """Return the tensor as bool: whether each element is nonzero."""
        return to(self, dtypes.bool_)

    def view_as(self: Tensor, other: Tensor) -> Tensor:
        """Return a view with other's shape."""
        return view(self, other._a.shape)

    def reshape_as(self: Tensor, other: Tensor) -> Tensor:
        """Return the elements at other's shape."""
        return reshape(self, other._a.shape)

    def expand_as(self: Tensor, other: Tensor) -> Tensor:
        """Return the tensor repeated to other's shape, without using memory."""
        return expand(self, other._a.shape)

    @property
    def T(self: Tensor) -> Tensor:  # noqa: N802  PyTorch's name
        """The tensor with its dims reversed; a view."""
        return permute(self, tuple(reversed(range(self._a.ndim))))

    @property
    def mT(self: Tensor) -> Tensor:  # noqa: N802
        """The tensor with its last two dims exchanged; a view."""
        return transpose(self, -2, -1)

    def new_zeros(self: Tensor, *size: Any, **options: Any) -> Tensor:
        """Return zeros with this tensor's dtype and device unless told otherwise."""
        return creation.zeros(*size, **_placed(self, options))

    def new_ones(self: Tensor, *size: Any, **options: Any) -> Tensor:
        """Return ones with this tensor's dtype and device unless told otherwise."""
        return creation.ones(*size, **_placed(self, options))

    def new_empty(self: Tensor, *size: Any, **options: Any) -> Tensor:
        """Return undefined values with this tensor's dtype and device unless told otherwise."""
        return creation.empty(*size, **_placed(self, options))

    def new_full(self: Tensor, size: Any, fill_value: Any, **options: Any) -> Tensor:
        """Return one value everywhere with this tensor's dtype and device unless told otherwise."""
        return creation.full(size, fill_value, **_placed(self, options))

    def new_tensor(self: Tensor, data: Any, **options: Any) -> Tensor:
        """Return a copy of data with this tensor's dtype and device unless told otherwise."""
        return tensor(data, **_placed(self, options))


def _placed(x: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """Return options with x's dtype and device where they say nothing."""
    dtype, device = options.get("dtype"), options.get("device")
    return {**options, "dtype": dtype or x.dtype, "device": x.device if device is None else device}


def attach() -> None:
    """Make the members above, indexing and filling with random numbers methods of Tensor."""
    for name, member in vars(Methods).items():
        if not name.startswith("__"):
            setattr(Tensor, name, member)
    for function in (random_fill.normal_, random_fill.uniform_, random_fill.bernoulli_):
        setattr(Tensor, function.__name__, function)
    for function in (movement.flatten, movement.t, parts.chunk):
        setattr(Tensor, function.__name__, function)
    for name, function in (("__getitem__", index.getitem), ("__setitem__", index.setitem)):
        setattr(Tensor, name, function)
