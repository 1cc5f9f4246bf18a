"""A nesting of Python objects as JSON, and back. Nothing in it names code.

JSON's own null, true, false, text, integers and finite numbers stand for Python's; a JSON object is
a dict whose keys are all text; all else is a JSON array that begins with a tag, e.g. ["tuple", 1].
Numbers keep every bit. An object met before is ["same", k], the k-th that was completed, so two
names of one object stay one object.
"""

from __future__ import annotations

import base64
import binascii
import struct
from collections import Counter, OrderedDict
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from tfw import dtypes
from tfw.errors import TfwError
from tfw.serialization.failure import refuse_load, refuse_save
from tfw.shapes import Size, device

Node = Any  # what JSON can hold
MAX_DEPTH: Final = 100

_SEQUENCES: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}
_MAPPINGS: Final[dict[str, Callable[[list[Any]], Any]]] = {
    "dict": dict,
    "ordered": OrderedDict,
    "counter": lambda pairs: Counter(dict(pairs)),
}
_SEQUENCE_TAGS: Final = {list: "list", tuple: "tuple", set: "set", frozenset: "frozenset"}
_MAPPING_TAGS: Final = {dict: "dict", OrderedDict: "ordered", Counter: "counter"}
_SCALARS: Final = {np.dtype(t).name: np.dtype(t) for t in "?bBhHiIlLefdFD"}
_KEYS = (str, int, float, bool, type(None), bytes, complex, tuple, dtypes.dtype, device)


def _bits(number: float) -> str:
    return struct.pack(">d", number).hex()


def _from_bits(text: Any) -> float:
    (number,) = struct.unpack(">d", bytes.fromhex(text))
    return number


class Encoder:
    """Turns objects into JSON nodes. `place` does so for tensors and arrays, or returns None."""

    def __init__(self, place: Callable[[Any, str, Encoder], Node | None]) -> None:
        self._place = place
        self._done: dict[int, int] = {}
        self._open: set[int] = set()
        # Ids are only unique while their objects live.
        self._alive: list[Any] = []

    def encode(self, value: Any, path: str = "") -> Node:
        """Return the node of `value`, which lies at `path`, e.g. ``['optimizer'][3]``."""
        cls = _class(value)
        if value is None or cls is bool or cls is str:
            return value
        if cls is int:
            # JSON readers differ beyond 64 bits, and Python limits the digits it parses.
            return value if -(1 << 63) <= value < 1 << 63 else ["int", hex(value)]
        if cls is float:
            return value if value - value == 0 else ["float", _bits(value)]
        if cls is complex:
            return ["complex", _bits(value.real), _bits(value.imag)]
        if cls is bytes:
            return ["bytes", base64.b64encode(value).decode()]
        if cls is dtypes.dtype:
            return ["dtype", value.name]
        if cls is device:
            return ["device", str(value)]
        if cls is Size:
            return ["size", *value]
        if issubclass(cls, np.generic) and value.dtype.name in _SCALARS:
            return ["scalar", value.dtype.name, base64.b64encode(value.tobytes()).decode()]
        return self._encode_object(value, path)

    def _encode_object(self, value: Any, path: str) -> Node:
        """Return the node of an object that has an identity."""
        key = id(value)
        if key in self._done:
            return ["same", self._done[key]]
        if key in self._open:
            raise refuse_save(f"{_at(path)} contains itself", value=path)
        if len(self._open) >= MAX_DEPTH:
            raise refuse_save(f"{_at(path)} is nested deeper than {MAX_DEPTH} levels", value=path)
        self._open.add(key)
        self._alive.append(value)
        node = self._encode_contents(value, path)
        self._open.remove(key)
        self._done[key] = len(self._done)
        return node

    def _encode_contents(self, value: Any, path: str) -> Node:
        cls = _class(value)
        if cls in _SEQUENCE_TAGS:
            items = [self.encode(item, f"{path}[{i}]") for i, item in enumerate(value)]
            return [_SEQUENCE_TAGS[cls], *items]
        if cls in _MAPPING_TAGS:
            if cls is dict and all(type(k) is str for k in value):
                return {k: self.encode(v, f"{path}[{k!r}]") for k, v in value.items()}
            pairs = [
                [self._encode_key(k, path), self.encode(v, f"{path}[{k!r}]")]
                for k, v in value.items()
            ]
            return [_MAPPING_TAGS[cls], *pairs]
        node = self._place(value, path, self)
        if node is None:
            raise refuse_save(
                f"{_at(path)} is a {cls.__module__}.{cls.__qualname__}, which no checkpoint holds: "
                "loading one runs no code",
                value=path,
                remedy="save its state_dict(), or its contents as dicts, lists, numbers, tensors",
            )
        return node

    def _encode_key(self, key: Any, path: str) -> Node:
        if type(key) not in _KEYS:
            raise refuse_save(
                f"{_at(path)} has a key of type {type(key).__name__}",
                value=path,
                remedy="use text, numbers, None or tuples of them as keys",
            )
        return self.encode(key, f"{path} key {key!r}")


def _class(value: object) -> Any:
    return type(value)


def _at(path: str) -> str:
    return f"obj{path}"


class Decoder:
    """Turns nodes back into objects. `restore` does so for tensors and arrays."""

    def __init__(self, restore: Callable[[str, dict[str, Any], Decoder], Any]) -> None:
        self._restore = restore
        self._built: list[Any] = []
        self._depth = 0

    def decode(self, node: Node) -> Any:
        """Return the object of a node. RuntimeError (CheckpointError) if it makes no sense."""
        if node is None or isinstance(node, (bool, str, int, float)):
            return node
        if isinstance(node, list):
            tag, rest = _split(node)
            if isinstance(tag, str) and tag in _LEAVES:
                try:
                    return _LEAVES[tag](*rest)
                except (ValueError, TypeError, KeyError, struct.error, binascii.Error, TfwError):
                    raise _bad(tag) from None
            if tag == "same":
                return self._same(rest)
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise refuse_load(f"the checkpoint is nested deeper than {MAX_DEPTH} levels")
        value = self._decode_object(node)
        self._depth -= 1
        self._built.append(value)
        return value

    def _same(self, rest: list[Any]) -> Any:
        k: Any = rest[0] if len(rest) == 1 else None
        if type(k) is int and 0 <= k < len(self._built):
            return self._built[k]
        raise _bad("same")

    def _decode_object(self, node: Node) -> Any:
        if type(node) is dict:
            return {k: self.decode(v) for k, v in node.items()}  # pyright: ignore[reportUnknownVariableType]  JSON
        tag, items = _split(node)
        if type(tag) is str:
            if tag in _SEQUENCES:
                return self._build(tag, _SEQUENCES[tag], [self.decode(item) for item in items])
            if tag in _MAPPINGS:
                return self._build(tag, _MAPPINGS[tag], [self._pair(tag, item) for item in items])
            if tag in ("tensor", "ndarray") and len(items) == 1 and type(items[0]) is dict:
                return self._restore(tag, items[0], self)  # pyright: ignore[reportUnknownArgumentType]  JSON
        raise _bad(str(tag))

    def _pair(self, tag: str, item: Any) -> tuple[Any, Any]:
        if type(item) is list and len(item) == 2:  # pyright: ignore[reportUnknownArgumentType]  JSON
            return self.decode(item[0]), self.decode(item[1])
        raise _bad(tag)

    def _build(self, tag: str, make: Callable[[list[Any]], Any], items: list[Any]) -> Any:
        try:
            made = make(items)
        except TypeError:  # an unhashable key or element
            raise _bad(tag) from None
        if len(made) != len(items):  # equal keys or elements
            raise _bad(tag)
        return made


def _split(node: Any) -> tuple[Any, list[Any]]:
    """Return a JSON array's tag and the rest."""
    return (node[0], node[1:]) if node else (None, [])


def _bad(what: str) -> Exception:
    return refuse_load(f"the description of the contents is not valid: a {what!r} makes no sense")


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _decode_complex(real: Any, imag: Any) -> complex:
    return complex(_from_bits(real), _from_bits(imag))


def _decode_bytes(data: Any) -> bytes:
    return base64.b64decode(_text(data), validate=True)


def _decode_device(name: Any) -> device:
    return device(_text(name))


def _decode_scalar(name: Any, data: Any) -> Any:
    (value,) = np.frombuffer(_decode_bytes(data), _SCALARS[name])
    return value


def _decode_int(text: Any) -> int:
    value = int(_text(text), 16)
    if hex(value) != text:
        raise ValueError
    return value


def _decode_dtype(name: Any) -> dtypes.dtype:
    return {d.name: d for d in dtypes.ALL}[name]


def _decode_size(*sizes: Any) -> Size:
    if not all(type(n) is int for n in sizes):
        raise TypeError
    return Size(sizes)


_LEAVES: Final[dict[str, Callable[..., Any]]] = {
    "int": _decode_int,
    "float": _from_bits,
    "complex": _decode_complex,
    "bytes": _decode_bytes,
    "dtype": _decode_dtype,
    "device": _decode_device,
    "size": _decode_size,
    "scalar": _decode_scalar,
}
