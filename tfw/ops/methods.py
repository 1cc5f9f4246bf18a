"""Methods of Tensor that are no ops of their own: conversions, other names, new tensors.

`attach` gives Tensor everything that no op attaches itself; `tensor.pyi` lists it all.
"""

from __future__ import annotations

from typing import Any

from tfw import dtypes
from tfw.errors import ArgumentError
from tfw.ops import (
    compare,
    convert,
    creation,
    extreme,
    index,
    matmul,
    movement,
    nonzero,
    parts,
    random_fill,
    softmax,
    sort,
)
from tfw.ops.convert import as_device, to
from tfw.ops.data import tensor
from tfw.ops.expand import expand
from tfw.ops.movement import permute, reshape, transpose, view
from tfw.tensor import Tensor


def cpu(self: Tensor) -> Tensor:
    """Return the tensor on the CPU; itself if it is there."""
    return to(self, "cpu")


def cuda(self: Tensor, device: Any = None, non_blocking: bool = False) -> Tensor:
    """Return the tensor on a CUDA device, the current one by default; itself if it is there."""
    return to(self, "cuda" if device is None else as_device(device))


def type_as(self: Tensor, other: Tensor) -> Tensor:
    """Return the tensor with other's dtype."""
    return to(self, other.dtype)


def to_float(self: Tensor) -> Tensor:
    """Return the tensor as float32."""
    return to(self, dtypes.float32)


def to_double(self: Tensor) -> Tensor:
    """Return the tensor as float64."""
    return to(self, dtypes.float64)


def to_half(self: Tensor) -> Tensor:
    """Return the tensor as float16."""
    return to(self, dtypes.float16)


def to_bfloat16(self: Tensor) -> Tensor:
    """Return the tensor as bfloat16."""
    return to(self, dtypes.bfloat16)


def to_long(self: Tensor) -> Tensor:
    """Return the tensor as int64."""
    return to(self, dtypes.int64)


def to_int(self: Tensor) -> Tensor:
    """Return the tensor as int32."""
    return to(self, dtypes.int32)


def to_short(self: Tensor) -> Tensor:
    """Return the tensor as int16."""
    return to(self, dtypes.int16)


def to_bool(self: Tensor) -> Tensor:
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


def reversed_dims(self: Tensor) -> Tensor:
    """Return the tensor with its dims reversed; a view."""
    return permute(self, tuple(reversed(range(self._a.ndim))))


def matrix_transpose(self: Tensor) -> Tensor:
    """Return the tensor with its last two dims exchanged; a view."""
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


def item_type(input: Tensor, dtype: Any = None) -> Any:
    """The dtype's PyTorch type name if no dtype is given, else the tensor converted to it.

    Shapes: input's.
    Dtypes: all.
    Errors: TypeError for an unknown name.
    Source: elementary.
    Example: `tfw.ones(2).type(tfw.float64).dtype == tfw.float64`
    """
    if dtype is None:
        return f"tfw.{_TYPE_NAMES[input.dtype]}"
    if isinstance(dtype, str):
        names = {f"{module}.{n}": d for d, n in _TYPE_NAMES.items() for module in ("tfw", "torch")}
        if dtype not in names:
            raise ArgumentError(
                f"dtype={dtype!r} names no tensor type", op="type", argument="dtype", value=dtype
            )
        dtype = names[dtype]
    return to(input, dtype)


_TYPE_NAMES = {
    dtypes.float32: "FloatTensor",
    dtypes.float64: "DoubleTensor",
    dtypes.float16: "HalfTensor",
    dtypes.bfloat16: "BFloat16Tensor",
    dtypes.int64: "LongTensor",
    dtypes.int32: "IntTensor",
    dtypes.int16: "ShortTensor",
    dtypes.int8: "CharTensor",
    dtypes.uint8: "ByteTensor",
    dtypes.bool_: "BoolTensor",
}


def _placed(x: Tensor, options: dict[str, Any]) -> dict[str, Any]:
    """Return options with x's dtype and device where they say nothing."""
    dtype, device = options.get("dtype"), options.get("device")
    return {**options, "dtype": dtype or x.dtype, "device": x.device if device is None else device}


def attach() -> None:
    """Give Tensor the methods above and those functions of other files that are methods too."""
    for function in (
        *(cpu, cuda, type_as, view_as, reshape_as, expand_as),
        *(new_zeros, new_ones, new_empty, new_full, new_tensor),
        *(convert.contiguous, convert.to, convert.copy_, convert.fill_, convert.zero_),
        *(extreme.max, extreme.min, sort.sort, sort.argsort, sort.topk, nonzero.nonzero),
        *(matmul.mm, matmul.bmm, softmax.softmax, softmax.log_softmax),
        *(movement.flatten, movement.t, parts.chunk),
        *(random_fill.normal_, random_fill.uniform_, random_fill.bernoulli_),
    ):
        setattr(Tensor, function.__name__, function)
    renamed: dict[str, Any] = {
        "__getitem__": index.getitem,
        "__setitem__": index.setitem,
        "T": property(reversed_dims),
        "bfloat16": to_bfloat16,
        "bool": to_bool,
        "double": to_double,
        "float": to_float,
        "half": to_half,
        "int": to_int,
        "long": to_long,
        "mT": property(matrix_transpose),
        "short": to_short,
        "type": item_type,
        "where": compare.where_method,
    }
    for name, member in renamed.items():
        setattr(Tensor, name, member)
