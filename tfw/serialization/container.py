"""The safetensors file format, written and read strictly, with checksums.

    8 bytes      length n of the header, little-endian
    n bytes      JSON: {"__metadata__": {text: text}, name: {"dtype", "shape", "data_offsets"}, ...}
    the rest     the bytes of all entries, one after the other without gaps

Specification: https://github.com/huggingface/safetensors#format. Two things are added within it,
so that any safetensors reader opens the file: the metadata begins with the CRC-32 of the header
(taken with that field as zeros), and the last entry, `__checksums__`, holds the CRC-32 of each
entry before it and of itself. It comes last so that data is passed over once and no file needs to
be seekable. Checksums cost 0.55 s per GB, about as much as copying the data does.

The safetensors library is not used: it reads no bfloat16, float8 or file objects for NumPy, checks
neither checksums nor duplicate names, and copies where this reads into place.
"""

from __future__ import annotations

import json
import math
import struct
import zlib
from collections.abc import Callable, Iterable, Sequence
from typing import IO, Any, Final, NamedTuple

import numpy as np

from tfw import dtypes
from tfw.serialization.failure import refuse_load, refuse_save

Array = np.ndarray[Any, np.dtype[Any]]

VERSION: Final = "1"
# What the safetensors library accepts at most.
MAX_HEADER_BYTES: Final = 100_000_000
MAX_DIMS: Final = 64
CHECKSUMS: Final = "__checksums__"
_METADATA: Final = "__metadata__"
_PREFIX: Final = b'{"__metadata__":{"tfw.header":"'
_ZEROS: Final = b"00000000"
_CHUNK_BYTES: Final = 1 << 20  # small enough to be in the cache when its checksum is taken

# safetensors' names; complex numbers are stored as pairs of reals, which older readers know too.
ENTRY_DTYPES: Final[dict[np.dtype[Any], str]] = {
    dtypes.bool_.numpy: "BOOL",
    dtypes.uint8.numpy: "U8",
    dtypes.int8.numpy: "I8",
    dtypes.int16.numpy: "I16",
    dtypes.int32.numpy: "I32",
    dtypes.int64.numpy: "I64",
    np.dtype(np.uint16): "U16",
    np.dtype(np.uint32): "U32",
    np.dtype(np.uint64): "U64",
    dtypes.float8_e4m3fn.numpy: "F8_E4M3",
    dtypes.float8_e5m2.numpy: "F8_E5M2",
    dtypes.float16.numpy: "F16",
    dtypes.bfloat16.numpy: "BF16",
    dtypes.float32.numpy: "F32",
    dtypes.float64.numpy: "F64",
}
_ITEMSIZES: Final = {name: d.itemsize for d, name in ENTRY_DTYPES.items()}


class Entry(NamedTuple):
    """One entry of a file: its name in safetensors' terms, and where its bytes lie in the data."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    start: int
    stop: int

    @property
    def n_bytes(self) -> int:
        """Bytes of data."""
        return self.stop - self.start


class Source(NamedTuple):
    """An entry to be written; `read` returns its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    n_bytes: int
    read: Callable[[], Array]


# ---- writing


def write(stream: IO[bytes], metadata: dict[str, str], sources: Sequence[Source]) -> None:
    """Write a file: sources in order of falling item size, so that each is aligned for mmap."""
    ordered = sorted(sources, key=lambda s: -_ITEMSIZES[s.dtype])
    table_bytes = 4 * (len(ordered) + 1)
    sizes = [*((s.name, s.dtype, s.shape, s.n_bytes) for s in ordered)]
    sizes.append((CHECKSUMS, "U8", (table_bytes,), table_bytes))
    header: dict[str, Any] = {
        _METADATA: {"tfw.header": _ZEROS.decode(), "tfw.version": VERSION, **metadata}
    }
    start = 0
    for name, dtype, shape, n_bytes in sizes:
        offsets = [start, start + n_bytes]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": offsets}
        start += n_bytes
    text = json.dumps(header, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    if len(text) > MAX_HEADER_BYTES:
        raise refuse_save(
            f"what is not tensors takes {len(text)} bytes of text; a file holds {MAX_HEADER_BYTES}",
            value=len(text),
            remedy="put large lists of numbers into tensors",
        )
    checksum = b"%08x" % zlib.crc32(text)
    at = len(_PREFIX)
    _put(stream, struct.pack("<Q", len(text)))
    _put(stream, text[:at] + checksum + text[at + len(_ZEROS) :])
    table = b""
    for source in ordered:
        checksum = 0
        data = _bytes(source.read())
        for i in range(0, len(data), _CHUNK_BYTES):
            chunk = data[i : i + _CHUNK_BYTES]
            checksum = zlib.crc32(chunk, checksum)
            _put(stream, chunk)
        table += struct.pack("<I", checksum)
    _put(stream, table + struct.pack("<I", zlib.crc32(table)))


def _put(stream: IO[bytes], data: bytes | memoryview) -> None:
    """Write all of the data; an unbuffered file may take it in parts."""
    rest = memoryview(data)
    while rest:
        taken: Any = stream.write(rest)
        # A wrapper that does not say how much it took took all.
        rest = rest[len(rest) if taken is None else taken :]


# ---- reading


def read_header(
    stream: IO[bytes], n_file_bytes: int | None
) -> tuple[dict[str, str], list[Entry], int]:
    """Read and check all but the data: metadata, entries in the data's order, where data starts.

    `n_file_bytes` is the size of the whole file if it is known.
    Errors: RuntimeError (CheckpointError).
    """
    length = _exactly(stream, 8, "the header's length")
    (n_header,) = struct.unpack("<Q", length)
    if n_header > MAX_HEADER_BYTES:
        raise refuse_load(f"the file is no checkpoint{_what_it_is(length)}", remedy=_REMEDY)
    if n_file_bytes is not None and 8 + n_header > n_file_bytes:
        raise refuse_load(
            f"the file has {n_file_bytes} bytes, its header {n_header}: "
            f"it is cut or no checkpoint{_what_it_is(length)}"
        )
    text = _exactly(stream, n_header, "the header", _what_it_is(length))
    at, end = len(_PREFIX), len(_PREFIX) + len(_ZEROS)
    if not text.startswith(_PREFIX):
        what = " but a safetensors file of another program" if text[:1] == b"{" else ""
        raise refuse_load(f"the file is no checkpoint{what}", remedy=_REMEDY)
    if b"%08x" % zlib.crc32(text[:at] + _ZEROS + text[end:]) != text[at:end]:
        raise refuse_load("the header does not match its checksum: the file is damaged")
    header = parse_json(text.decode("latin-1"), "header")
    metadata = _metadata(header)
    entries = _entries({k: v for k, v in header.items() if k != _METADATA})
    expected = 8 + n_header + entries[-1].stop
    if n_file_bytes is not None and n_file_bytes != expected:
        what = "it is cut" if n_file_bytes < expected else "something follows the checkpoint"
        raise refuse_load(f"the file has {n_file_bytes} bytes, its header says {expected}: {what}")
    return metadata, entries, 8 + n_header


def read_data(stream: IO[bytes], entries: Iterable[Entry]) -> dict[str, Array]:
    """Read the bytes of all entries, each into memory of its own, and check their checksums."""
    data: dict[str, Array] = {}
    table = b""
    for entry in entries:
        try:
            memory = np.empty(entry.n_bytes, np.uint8)
        except (MemoryError, ValueError):
            raise refuse_load(
                f"{entry.name!r} needs {entry.n_bytes} bytes, which this machine does not have",
                value=entry.n_bytes,
            ) from None
        if entry.name == CHECKSUMS:
            _fill(stream, _bytes(memory), "the checksums")
            _check(table, memory.tobytes(), list(data))
        else:
            checksum = _fill(stream, _bytes(memory), f"{entry.name!r}")
            table += struct.pack("<I", checksum)
            data[entry.name] = memory
    return data


def parse_json(text: str, what: str) -> dict[str, Any]:
    """Parse a JSON object, refusing what Python lets pass: NaN, duplicate names."""
    try:
        parsed = json.loads(text, object_pairs_hook=_unique, parse_constant=_no_constant)
    except RecursionError:
        raise refuse_load(f"the {what} is nested too deeply") from None
    except ValueError as error:
        raise refuse_load(f"the {what} is not valid: {error}") from None
    if not isinstance(parsed, dict):
        raise refuse_load(f"the {what} is not valid: it is no JSON object")
    return parsed  # pyright: ignore[reportUnknownVariableType]  names are text in JSON


_REMEDY = (
    "tfw.load reads what tfw.save wrote; other safetensors files are read with the safetensors "
    "library, and PyTorch's own files turned into such with safetensors.torch.save_file"
)


def _what_it_is(start: bytes) -> str:
    """Guess from the first bytes, only to explain: a genuine length may begin like this, too."""
    if start.startswith(b"PK\x03\x04"):
        return " but perhaps a zip archive, as torch.save writes them"
    if start.startswith(b"\x80"):
        return " but perhaps a pickle, which could run code when loaded"
    return ""


def _bytes(array: Any) -> memoryview:
    return memoryview(array)  # typeshed does not know ndarrays as buffers


def _exactly(stream: IO[bytes], n: int, what: str, guess: str = "") -> bytes:
    parts: list[bytes] = []
    missing = n
    while missing:
        part = stream.read(missing)
        if not part:
            raise refuse_load(f"the file ends within {what}: it is cut or no checkpoint{guess}")
        parts.append(part)
        missing -= len(part)
    return b"".join(parts)


def _fill(stream: IO[bytes], memory: memoryview, what: str) -> int:
    """Fill memory from the stream; returns the checksum of what came."""
    read_into: Callable[[memoryview], int | None] | None = getattr(stream, "readinto", None)
    checksum = done = 0
    while done < len(memory):
        chunk = memory[done : done + _CHUNK_BYTES]
        if read_into is None:
            part = stream.read(len(chunk))
            n = len(part)
            chunk[:n] = part
        else:
            n = read_into(chunk) or 0
        if not n:
            raise refuse_load(f"the file ends within {what}: it is cut")
        checksum = zlib.crc32(chunk[:n], checksum)
        done += n
    return checksum


def _check(computed: bytes, stored: bytes, names: list[str]) -> None:
    if len(stored) != len(computed) + 4 or zlib.crc32(stored[:-4]) != _u32(stored, -4):
        raise refuse_load("the checksums are damaged")
    for i, name in enumerate(names):
        if _u32(computed, 4 * i) != _u32(stored, 4 * i):
            raise refuse_load(
                f"the data of {name!r} does not match its checksum: the file is damaged", value=name
            )


def _u32(data: bytes, at: int) -> int:
    return struct.unpack_from("<I", data, at % len(data))[0]


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise ValueError("a name comes twice")
    return result


def _no_constant(name: str) -> None:
    raise ValueError(f"{name} is no JSON")


def _metadata(header: dict[str, Any]) -> dict[str, str]:
    if not _is_object(header.get(_METADATA)):
        raise refuse_load("the header is not valid: it has no metadata")
    metadata: dict[str, Any] = header[_METADATA]
    if not all(type(v) is str for v in metadata.values()):
        raise refuse_load("the header is not valid: its metadata is not text")
    version = metadata.get("tfw.version")
    if version != VERSION:
        raise refuse_load(
            f"the checkpoint has version {version!r}, this tfw reads {VERSION!r}",
            value=version,
            remedy="load it with the tfw that wrote it, or a newer one",
        )
    return metadata


def _entries(described: dict[str, Any]) -> list[Entry]:
    entries = [_entry(name, description) for name, description in described.items()]
    entries.sort(key=lambda e: (e.start, e.stop))
    start = 0
    for entry in entries:
        if entry.start != start:
            raise refuse_load(
                f"the header is not valid: {entry.name!r} starts at byte {entry.start} of the "
                f"data, not at {start}, where the one before it ends"
            )
        start = entry.stop
    if not entries or entries[-1].name != CHECKSUMS:
        raise refuse_load("the header is not valid: its last entry is not the checksums")
    return entries


def _entry(name: str, described: Any) -> Entry:
    if _is_object(described) and set(described) == {"dtype", "shape", "data_offsets"}:
        dtype: Any = described["dtype"]
        shape: Any = described["shape"]
        offsets: Any = described["data_offsets"]
        if (
            type(dtype) is str
            and dtype in _ITEMSIZES
            and is_counts(shape)
            and is_counts(offsets)
            and len(shape) <= MAX_DIMS
            and len(offsets) == 2
            and offsets[1] - offsets[0] == math.prod(shape) * _ITEMSIZES[dtype]
        ):
            return Entry(name, dtype, tuple(shape), *offsets)
    raise refuse_load(f"the header is not valid: entry {name!r} makes no sense")


def is_counts(value: Any) -> bool:
    """Return whether a JSON value is a list of integers from 0 to 2^63 - 1."""
    return type(value) is list and all(map(_is_count, value))  # pyright: ignore[reportUnknownArgumentType]  JSON


def _is_count(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def _is_object(value: Any) -> bool:
    return isinstance(value, dict)
