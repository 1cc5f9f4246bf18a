"""Tensors and arrays from a checkpoint's nodes and bytes, where `map_location` says.

Nodes come from a file and may say anything: all that they say is checked before memory is touched.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.errors import ArgumentError, CheckpointError, DeviceError
from tfw.runtime.backend import Backend, Payload, for_device
from tfw.runtime.cpu.backend import cpu
from tfw.serialization.container import ENTRY_DTYPES, MAX_DIMS, Array, Entry, is_counts
from tfw.serialization.failure import refuse_load
from tfw.serialization.memory import reach
from tfw.serialization.tree import Decoder
from tfw.shapes import contiguous, contiguous_strides, device
from tfw.tensor import Tensor, new_tensor

MapLocation = Callable[[Tensor, str], Any] | device | str | Mapping[Any, Any] | None

_NUMPY = {d.name: d for d in ENTRY_DTYPES} | {d.name: d.numpy for d in dtypes.ALL}
_BY_NAME = {d.name: d for d in dtypes.ALL}
_ENTRY_NUMPY = {name: d for d, name in ENTRY_DTYPES.items()}
_LIMIT = 1 << 62
_FIELDS = {
    "storage": str,
    "offset_bytes": int,
    "dtype": str,
    "shape": list,
    "stride": list,
    "device": str,
    "requires_grad": bool,
    "class": str,
    "attributes": object,
}


class _Layout:
    """Where a tensor's elements lie within its storage, all checked."""

    def __init__(self, fields: Mapping[str, Any], storage_bytes: int) -> None:
        for name, value in fields.items():
            kind = _FIELDS.get(name)
            if kind is None or not (kind is object or type(value) is kind):
                raise _bad(f"{name}={value!r}")
        dtype = _NUMPY.get(fields.get("dtype", ""))
        shape = fields.get("shape")
        if dtype is None or shape is None:
            raise _bad("a dtype or shape")
        if len(shape) > MAX_DIMS or not is_counts(shape):
            raise _bad(f"shape={shape}")
        strides = fields.get("stride", contiguous_strides(shape))
        if len(strides) != len(shape) or not all(
            type(s) is int and abs(s) < _LIMIT for s in strides
        ):
            raise _bad(f"stride={strides}")
        self.dtype, self.shape, self.strides = dtype, tuple(shape), tuple(strides)
        self.offset_bytes: int = fields.get("offset_bytes", 0)
        self.is_empty = 0 in self.shape
        if self.is_empty:
            return
        low, high = reach(self.shape, self.strides)
        first = self.offset_bytes + low * dtype.itemsize
        last = self.offset_bytes + (high + 1) * dtype.itemsize
        if "storage" in fields and not 0 <= first <= last <= storage_bytes:
            raise refuse_load(
                f"a tensor of shape {self.shape} and strides {self.strides} reaches outside its "
                f"memory of {storage_bytes} bytes",
                value=fields.get("storage"),
            )

    def array(self, memory: Array) -> Array:
        """Return the elements as an ndarray over the bytes of its storage."""
        steps = tuple(s * self.dtype.itemsize for s in self.strides)
        try:
            return np.ndarray(self.shape, self.dtype, memory, self.offset_bytes, steps)
        except (ValueError, OverflowError) as error:  # more elements than NumPy can address
            raise _bad(f"shape={self.shape}") from error


def _bad(what: str) -> CheckpointError:
    return refuse_load(f"the description of a tensor is not valid: {what} makes no sense")


class Restorer:
    """Builds tensors over the storages of one file.

    Args:
        entries: the file's entries.
        data: the bytes of each.
        map_location: where tensors go, as `load` takes it.

    """

    def __init__(
        self, entries: list[Entry], data: Mapping[str, Array], map_location: MapLocation
    ) -> None:
        self._entries = {e.name: e for e in entries}
        self._data = data
        self._map_location = map_location
        # Tensors that share memory in the file share it afterwards, on any device.
        self._placed: dict[tuple[str, str, str], tuple[Backend, Payload]] = {}

    def restore(self, tag: str, fields: dict[str, Any], decoder: Decoder) -> Any:
        """Return the tensor or array of a node."""
        name = fields.get("storage", "")
        if "storage" in fields and (type(name) is not str or name not in self._data):
            raise _bad(f"storage={name!r}")
        memory = self._data.get(name, np.empty(0, np.uint8))
        layout = _Layout(fields, memory.nbytes)
        if tag == "ndarray":
            if not layout.is_empty and "storage" not in fields:
                raise _bad("an array without memory")
            return layout.array(memory)
        if fields["dtype"] not in _BY_NAME:
            raise _bad(f"dtype={fields['dtype']!r}")
        try:
            saved = device(fields.get("device", "cpu"))
        except DeviceError:
            raise _bad(f"device={fields['device']!r}") from None
        if "storage" in fields:
            backend, payload = self._tensor_payload(name, saved, layout)
        elif layout.is_empty or saved.type == "meta":
            backend, payload = self._without_memory(saved, layout, fields["dtype"])
        else:
            raise _bad("a tensor without memory")
        return _dress(new_tensor(payload, backend.kind(payload)), fields, decoder)

    def _target(self, location: str) -> device:
        where: Any = self._map_location
        if where is None or callable(where):
            where = location
        elif not isinstance(where, (str, device)):
            where = where.get(location, where.get(device(location), location))
        return where if isinstance(where, device) else device(where)

    def _backend(self, target: device, saved: device) -> Backend:
        try:
            return for_device(target)
        except DeviceError as error:
            raise DeviceError(
                f"the checkpoint holds tensors of {str(saved)!r}, and {error.message}",
                op="load",
                argument="map_location",
                value=str(target),
                remedy="pass map_location='cpu'",
            ) from None

    def _without_memory(self, saved: device, layout: _Layout, name: str) -> tuple[Backend, Payload]:
        # A meta tensor stays one whatever map_location says: there is nothing to move.
        target = saved if saved.type == "meta" else self._target(str(saved))
        backend = self._backend(target, saved)
        if backend is cpu:
            return backend, layout.array(np.empty(0, np.uint8))
        spec = contiguous(layout.shape, _BY_NAME[name], target)
        return backend, backend.empty(spec._replace(strides=layout.strides))

    def _tensor_payload(self, name: str, saved: device, layout: _Layout) -> tuple[Backend, Payload]:
        location = str(saved)
        if callable(self._map_location):
            backend, storage = self._mapped(name, location)
        else:
            target = self._target(location)
            backend = self._backend(target, saved)
            if backend is cpu:
                return backend, layout.array(self._data[name])
            storage = self._placed_on(backend, target, name, layout)
        if isinstance(storage, np.ndarray):
            return cpu, layout.array(storage.reshape(-1).view(np.uint8))  # pyright: ignore[reportUnknownArgumentType]  any dtype
        itemsize = backend.spec(storage).dtype.itemsize
        if itemsize != layout.dtype.itemsize or layout.offset_bytes % itemsize:
            raise _bad("an offset between elements, which only the CPU can address,")
        offset = layout.offset_bytes // itemsize
        return backend, backend.view(storage, layout.shape, layout.strides, offset)

    def _placed_on(self, backend: Backend, target: device, name: str, layout: _Layout) -> Payload:
        key = (name, str(target), layout.dtype.name)
        if key not in self._placed:
            memory = self._data[name]
            whole = memory[: memory.nbytes // layout.dtype.itemsize * layout.dtype.itemsize]
            self._placed[key] = backend, backend.from_host(whole.view(layout.dtype), target)
        return self._placed[key][1]

    def _mapped(self, name: str, location: str) -> tuple[Backend, Payload]:
        """Ask the user's function where a storage goes; it gets a flat CPU tensor, once."""
        key = (name, location, "")
        if key not in self._placed:
            typed = self._data[name].view(_ENTRY_NUMPY[self._entries[name].dtype])
            ask: Any = self._map_location
            chosen = ask(new_tensor(typed, cpu.kind(typed)), location)
            if chosen is None:
                target = device(location)
                backend = self._backend(target, target)
                self._placed[key] = backend, backend.from_host(typed, target)
            elif isinstance(chosen, Tensor) and chosen.nbytes == typed.nbytes:
                self._placed[key] = chosen._kind.backend, chosen._a
            else:
                raise ArgumentError(
                    f"map_location returned a {type(chosen).__name__} that is not the storage",
                    op="load",
                    argument="map_location",
                    rule="a function of (storage, location) that returns storage, moved, or None",
                )
        return self._placed[key]


def _dress(tensor: Tensor, fields: Mapping[str, Any], decoder: Decoder) -> Tensor:
    """Return a tensor as the class that it was, with its flag and the user's attributes."""
    attributes: Any = decoder.decode(fields["attributes"]) if "attributes" in fields else {}
    cls = fields.get("class", "Tensor")
    requires_grad = fields.get("requires_grad", False)
    if requires_grad and tensor.dtype.category < dtypes.Category.FLOATING:
        raise _bad(f"requires_grad of a tensor of {tensor.dtype!r}")
    if not isinstance(attributes, dict) or not all(
        isinstance(k, str) and k.isidentifier() and not hasattr(Tensor, k)
        for k in attributes  # pyright: ignore[reportUnknownVariableType]
    ):
        raise _bad("attributes")
    if cls != "Tensor":
        # Above this package, and not needed to load plain tensors.
        from tfw.nn.parameter import Buffer, Parameter

        if cls not in ("Parameter", "Buffer"):
            raise _bad(f"class={cls!r}")
        tensor = Buffer(tensor) if cls == "Buffer" else Parameter(tensor, requires_grad)
    tensor.__dict__.update(attributes)  # pyright: ignore[reportUnknownArgumentType]
    return tensor.requires_grad_() if requires_grad else tensor
