"""`save` and `load`: nestings of Python objects and tensors in one safetensors file."""

from __future__ import annotations

import io
import json
import mmap as mapping
import os
from collections.abc import Mapping
from typing import IO, Any

import numpy as np

from tfw.errors import ArgumentError
from tfw.serialization import container
from tfw.serialization.atomic import replacing
from tfw.serialization.container import ENTRY_DTYPES, Array, Entry
from tfw.serialization.failure import refuse_load, refuse_save
from tfw.serialization.memory import Memory
from tfw.serialization.restore import MapLocation, Restorer
from tfw.serialization.tree import Decoder, Encoder
from tfw.tensor import Tensor

_TREE = "tfw.tree"


def save(obj: Any, f: str | os.PathLike[str] | IO[bytes]) -> None:
    """Save an object so that `load` gives it back, bit for bit.

    `obj` is any nesting of dict, OrderedDict, Counter, list, tuple and set around None, bool, int,
    float, complex, str, bytes, `tfw.dtype`, `tfw.device`, `tfw.Size`, tensors, parameters, and
    NumPy arrays and scalars. What shares memory shares it after loading, and what is one object
    stays one. Strides are kept, so what lies between a view's first and last element is saved too.

    A path is replaced in one step: an interrupted save leaves the old file. The file is a
    safetensors file; its tensors are named by where they lie, e.g. ``model.fc.weight``.

    Args:
        obj: what to save.
        f: a path, or a binary file opened for writing.

    Shapes: any.
    Dtypes: all.
    Errors: RuntimeError (CheckpointError) for an object that a checkpoint does not hold, naming
    where it lies; OSError (SaveError, a CheckpointError too) if the file cannot be written.
    Source: https://github.com/huggingface/safetensors#format
    Example: ``tfw.save({"model": model.state_dict(), "step": 7}, "run.tfw")``

    """
    memory = Memory()

    def place(value: Any, path: str, encoder: Encoder) -> list[Any] | None:
        if isinstance(value, Tensor):
            fields = _tensor_fields(value, path)
            if attributes := dict(value._extra()):
                fields["attributes"] = encoder.encode(attributes, path)
            memory.add_tensor(value, fields, _entry_name(path))
            return ["tensor", fields]
        if type(value) in (np.ndarray, np.memmap):
            fields = _array_fields(value, path)
            memory.add_array(value, fields, _entry_name(path))
            return ["ndarray", fields]
        return None

    try:
        tree = Encoder(place).encode(obj)
        sources = memory.sources()
        text = json.dumps({"obj": tree}, separators=(",", ":"), allow_nan=False)
    except RecursionError:
        raise refuse_save("the object is nested too deeply") from None
    metadata = {_TREE: text}
    if isinstance(f, (str, os.PathLike)):
        with replacing(f) as stream:
            container.write(stream, metadata, sources)
    elif hasattr(f, "write") and not isinstance(f, io.TextIOBase):
        container.write(f, metadata, sources)
    else:
        raise _no_file("save", f, "write")


def load(
    f: str | os.PathLike[str] | IO[bytes],
    map_location: MapLocation = None,
    *,
    weights_only: bool = True,
    mmap: bool = False,
) -> Any:
    """Load what `save` saved. No code from the file runs, whoever made it.

    Args:
        f: a path, or a binary file at the start of a checkpoint; afterwards it is at its end.
        map_location: where tensors go: a device for all; a dict from saved to wanted devices; a
            function of (storage, location) that returns the flat tensor `storage`, moved, or None
            for the default; None: where they were saved from.
        weights_only: accepted for PyTorch's sake; loading is always as safe as with True.
        mmap: map the file instead of reading it: what is not used is not read, and writing to a
            tensor does not change the file. Data is then not checked against its checksums.

    Shapes: the saved ones.
    Dtypes: the saved ones.
    Errors: RuntimeError (CheckpointError) for a file that is cut, damaged, forged, of another
    version or no checkpoint; FileNotFoundError; RuntimeError (DeviceError) for a device that is
    not there.
    Source: https://github.com/huggingface/safetensors#format
    Example: ``tfw.load("run.tfw", map_location="cpu")["step"]``

    """
    if isinstance(f, (str, os.PathLike)):
        with open(f, "rb") as stream:
            status = os.fstat(stream.fileno())
            size = status.st_size if os.path.isfile(f) else None
            metadata, entries, start = container.read_header(stream, size)
            data = _map(stream, entries, start) if mmap else container.read_data(stream, entries)
    elif mmap:
        raise ArgumentError(
            "mmap=True needs a path, f is a file object",
            op="load",
            argument="mmap",
            value=mmap,
            remedy="pass the file's path",
        )
    elif hasattr(f, "read") and not isinstance(f, io.TextIOBase):
        metadata, entries, _ = container.read_header(f, None)
        data = container.read_data(f, entries)
    else:
        raise _no_file("load", f, "read")
    return _decode(metadata, entries, data, map_location)


def _decode(
    metadata: Mapping[str, str],
    entries: list[Entry],
    data: Mapping[str, Array],
    map_location: MapLocation,
) -> Any:
    described = container.parse_json(metadata.get(_TREE, ""), "description of the contents")
    restorer = Restorer(entries, data, map_location)
    decoder = Decoder(restorer.restore)
    try:
        return decoder.decode(described.get("obj", []))
    except RecursionError:
        raise refuse_load("the checkpoint is nested too deeply") from None


def _map(stream: IO[bytes], entries: list[Entry], start: int) -> dict[str, Array]:
    """Return the bytes of all entries as copy-on-write views of the file."""
    whole = mapping.mmap(stream.fileno(), 0, access=mapping.ACCESS_COPY)
    memory = np.frombuffer(whole, np.uint8)
    return {e.name: memory[start + e.start : start + e.stop] for e in entries}


def _no_file(op: str, f: object, method: str) -> ArgumentError:
    return ArgumentError(
        f"f is a {type(f).__name__}",
        op=op,
        argument="f",
        value=f,
        rule=f"a path, or a binary file with {method}()",
    )


def _tensor_fields(tensor: Tensor, path: str) -> dict[str, Any]:
    cls = type(tensor)
    known = cls is Tensor or (cls.__module__ == "tfw.nn.parameter")
    if not known:
        raise refuse_save(
            f"obj{path} is a {cls.__qualname__}, a subclass of Tensor that no checkpoint holds",
            value=path,
            remedy="save a plain tensor, e.g. detach()",
        )
    fields: dict[str, Any] = {"dtype": tensor.dtype.name}
    if cls is not Tensor:
        fields["class"] = cls.__name__
    if tensor.device.type != "cpu":
        fields["device"] = str(tensor.device)
    if tensor.requires_grad:
        fields["requires_grad"] = True
    return fields


def _array_fields(array: Array, path: str) -> dict[str, Any]:
    known = array.dtype in ENTRY_DTYPES or array.dtype.kind == "c"
    native = array.dtype.isnative and array.dtype.itemsize <= 16
    if not (known and native) or any(s % array.itemsize for s in array.strides):
        raise refuse_save(
            f"obj{path} is a NumPy array of dtype {array.dtype}, which a checkpoint does not hold",
            value=path,
            remedy="convert it to a number type in native byte order, contiguous",
        )
    return {"dtype": array.dtype.name}


def _entry_name(path: str) -> str:
    """Return a readable name: ``['model']['fc.weight'][0]`` becomes ``model.fc.weight.0``."""
    name = path.replace("']['", ".").replace("'][", ".").replace("]['", ".").replace("][", ".")
    name = name.strip("[]'") or "tensor"
    # Lone surrogates, which Python's text may hold, are no valid JSON for other readers.
    return name.encode("utf-8", "backslashreplace").decode()
