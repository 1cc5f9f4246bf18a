"""What the tests of saving and loading share: round trips, comparison to the bit, forgery."""

from __future__ import annotations

import io
import json
import struct
import zlib

import numpy as np

import tfw
from tfw.serialization import load, save
from tfw.tensor import Tensor

DTYPES = [
    *(tfw.bool, tfw.uint8, tfw.int8, tfw.int16, tfw.int32, tfw.int64, tfw.float8_e4m3fn),
    *(tfw.float8_e5m2, tfw.float16, tfw.bfloat16, tfw.float32, tfw.float64),
    *(tfw.complex64, tfw.complex128),
]


def saved(obj):
    file = io.BytesIO()
    save(obj, file)
    return file.getvalue()


def loaded(data, **options):
    return load(io.BytesIO(data), **options)


def again(obj):
    return loaded(saved(obj))


def raw(tensor):
    """Return shape, dtype and the exact bits of a tensor or array."""
    array = tensor.numpy(force=True) if isinstance(tensor, Tensor) else tensor
    return array.shape, array.dtype, np.ascontiguousarray(array).tobytes()


def alike(a, b):
    """Return whether two nestings are the same to the last bit, types and order included."""
    if type(a) is not type(b):
        return False
    if isinstance(a, (Tensor, np.ndarray, np.generic)):
        return raw(np.asarray(a) if isinstance(a, np.generic) else a) == raw(
            np.asarray(b) if isinstance(b, np.generic) else b
        )
    if isinstance(a, float):
        return struct.pack("d", a) == struct.pack("d", b)
    if isinstance(a, complex):
        return alike(a.real, b.real) and alike(a.imag, b.imag)
    if isinstance(a, dict):
        return len(a) == len(b) and all(
            alike(k, m) and alike(v, w) for (k, v), (m, w) in zip(a.items(), b.items(), strict=True)
        )
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == b


def bits(dtype, n):
    """Return a tensor of arbitrary bit patterns (0 and 1 for bool), NaN among them."""
    random = np.random.default_rng(0).integers(0, 256, n * dtype.itemsize, np.uint8)
    if dtype is tfw.bool:
        random %= 2
    return tfw.from_numpy(random.view(dtype.numpy))


def forge(data, change):
    """Change the header of a file and make its checksum right again."""
    (n,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + n])
    tree = json.loads(header["__metadata__"]["tfw.tree"])
    forged = {"header": header, "tree": tree}
    change(forged)
    metadata = header.get("__metadata__")
    if isinstance(metadata, dict) and "tfw.tree" in metadata:
        metadata["tfw.tree"] = forged.get("text") or json.dumps(forged["tree"])
    return sealed(json.dumps(header, separators=(",", ":")), data[8 + n :])


def sealed(text, rest):
    raw = text.encode("latin-1")
    start = len(b'{"__metadata__":{"tfw.header":"')
    raw = raw[:start] + b"0" * 8 + raw[start + 8 :]
    raw = raw[:start] + b"%08x" % zlib.crc32(raw) + raw[start + 8 :]
    return struct.pack("<Q", len(raw)) + raw + rest


def at(forged):
    return forged["tree"]["obj"]
