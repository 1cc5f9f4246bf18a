"""The meta backend: payloads have a layout and no memory. Ops on them run their shape rule only."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, cast

from tfw.dtypes import dtype
from tfw.errors import DeviceError
from tfw.runtime.backend import Backend, Runnable
from tfw.shapes import META, Shape, Spec, contiguous_strides, device


class MetaArray:
    """A layout in a storage that does not exist; `storage` is only an identity, for aliasing."""

    __slots__ = ("dtype", "ndim", "offset", "shape", "size", "storage", "strides")

    def __init__(
        self, shape: Shape, strides: Shape, dtype: dtype, offset: int = 0, storage: object = None
    ) -> None:
        self.shape, self.strides, self.dtype, self.offset = shape, strides, dtype, offset
        self.storage = object() if storage is None else storage
        self.ndim = len(shape)
        self.size = math.prod(shape)


class MetaBackend(Backend):
    """Runs nothing: each op's `infer` gives the result's layout."""

    device_type = "meta"
    payload_type = MetaArray

    def spec(self, payload: MetaArray) -> Spec:
        return Spec(payload.shape, payload.strides, payload.dtype, META)

    def empty(self, spec: Spec) -> MetaArray:
        return MetaArray(spec.shape, spec.strides, spec.dtype)

    def view(self, payload: MetaArray, shape: Shape, strides: Shape, offset: int) -> MetaArray:
        return MetaArray(shape, strides, payload.dtype, payload.offset + offset, payload.storage)

    def copy(self, target: MetaArray, source: MetaArray) -> None:
        """Write nothing: there is no memory."""

    def fill(self, target: MetaArray, value: complex) -> None:
        """Write nothing: there is no memory."""

    def from_host(self, array: Any, device: device) -> MetaArray:
        from tfw.dtypes import from_numpy

        return MetaArray(array.shape, contiguous_strides(array.shape), from_numpy(array.dtype))

    def to_host(self, payload: MetaArray) -> Any:
        raise DeviceError(
            f"a meta tensor of shape {payload.shape} has no data",
            op="meta",
            remedy="create the tensor on a device that holds data",
        )

    def run(self, op: Runnable, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        if op.infer is None:
            return NotImplemented
        specs = [
            [self.spec(e) for e in cast("list[MetaArray]", x)]
            if isinstance(x, list)
            else self.spec(x)
            if isinstance(x, MetaArray)
            else x
            for x in inputs
        ]
        result = op.infer(*specs, *attrs)
        if isinstance(result, Spec):
            return self.empty(result)
        return tuple(self.empty(s) for s in result)

    def share_memory(self, a: MetaArray, b: MetaArray) -> bool:
        return a.storage is b.storage

    def same_memory(self, a: MetaArray, b: MetaArray) -> bool:
        return a.storage is b.storage and (a.offset, a.shape, a.strides) == (
            b.offset,
            b.shape,
            b.strides,
        )


meta = MetaBackend()
