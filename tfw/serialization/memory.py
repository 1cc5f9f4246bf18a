"""Which memory a checkpoint must hold: tensors that share memory share one entry.

Elements are found by address, so a view alone brings along the span between its first and last
element and not the whole memory that it was taken from.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.runtime.backend import Backend, Payload
from tfw.runtime.cpu.backend import cpu
from tfw.serialization.container import CHECKSUMS, ENTRY_DTYPES, Array, Source
from tfw.shapes import CPU, Shape, is_contiguous
from tfw.tensor import Tensor

Fields = dict[str, Any]


@dataclass
class _Piece:
    """The memory of one tensor or array.

    Attributes:
        fields: its node, which `storage` and `offset_bytes` are added to.
        space: what its addresses are relative to; nothing overlaps across spaces.
        start, stop: addresses of its first byte and past its last.

    """

    fields: Fields
    name: str
    space: Hashable
    start: int
    stop: int
    origin: int  # address of element (0, ..., 0), which a negative stride does not start at
    dtype: np.dtype[Any]
    shape: Shape
    strides: Shape
    owner: Any
    backend: Backend


class _Extent:
    """Bytes of an ndarray's memory by address, through NumPy's array interface."""

    def __init__(self, owner: Array, start: int, n_bytes: int) -> None:
        self.owner = owner  # keeps the memory alive
        self.__array_interface__ = {
            "version": 3,
            "data": (start, True),
            "shape": (n_bytes,),
            "typestr": "|u1",
        }


class Memory:
    """Collects the memory of all tensors of a checkpoint."""

    def __init__(self) -> None:
        self._pieces: list[_Piece] = []

    def add_tensor(self, tensor: Tensor, fields: Fields, name: str) -> None:
        """Note a tensor; its node gets `storage` later. Meta tensors have no memory."""
        payload, backend = tensor._a, tensor._kind.backend
        spec = backend.spec(payload)
        fields |= _layout(spec.shape, spec.strides)
        if tensor.is_meta:
            return
        itemsize = spec.dtype.itemsize
        if backend is cpu:
            space: Hashable = CPU
            origin = _address(payload)
        else:
            # A device's memory is read per dtype, so only tensors of one dtype can share an entry.
            space = (id(payload.storage), spec.dtype.name)
            origin = payload.offset * itemsize
        self._add(
            fields,
            name,
            space,
            origin,
            spec.dtype.numpy,
            spec.shape,
            spec.strides,
            payload,
            backend,
        )

    def add_array(self, array: Array, fields: Fields, name: str) -> None:
        """Note an ndarray whose strides are whole elements."""
        strides = tuple(s // array.itemsize for s in array.strides)
        fields |= _layout(array.shape, strides)
        origin = _address(array)
        self._add(fields, name, CPU, origin, array.dtype, array.shape, strides, array, cpu)

    def _add(
        self,
        fields: Fields,
        name: str,
        space: Hashable,
        origin: int,
        dtype: np.dtype[Any],
        shape: Shape,
        strides: Shape,
        owner: Payload,
        backend: Backend,
    ) -> None:
        start = stop = origin
        if 0 in shape:
            space = object()  # an empty tensor shares memory with nothing
        else:
            low, high = reach(shape, strides)
            start, stop = origin + low * dtype.itemsize, origin + (high + 1) * dtype.itemsize
        self._pieces.append(
            _Piece(fields, name, space, start, stop, origin, dtype, shape, strides, owner, backend)
        )

    def sources(self) -> list[Source]:
        """Merge what overlaps, name the entries, and tell every node where its memory is."""
        spaces: dict[Hashable, list[_Piece]] = {}
        for piece in self._pieces:
            spaces.setdefault(piece.space, []).append(piece)
        groups: list[list[_Piece]] = []
        for pieces in spaces.values():
            stop = -1
            for piece in sorted(pieces, key=lambda p: p.start):
                if piece.start >= stop:
                    groups.append([])
                groups[-1].append(piece)
                stop = max(stop, piece.stop)
        order = {id(piece): i for i, piece in enumerate(self._pieces)}
        groups.sort(key=lambda group: min(order[id(p)] for p in group))
        used = {"__metadata__", CHECKSUMS}
        return [_source(sorted(group, key=lambda p: order[id(p)]), used) for group in groups]


def reach(shape: Shape, strides: Shape) -> tuple[int, int]:
    """Return the lowest and the highest element offset of a layout that is not empty."""
    steps = [s * (n - 1) for n, s in zip(shape, strides, strict=True)]
    return sum(s for s in steps if s < 0), sum(s for s in steps if s > 0)


def _layout(shape: Shape, strides: Shape) -> Fields:
    fields: Fields = {"shape": list(shape)}
    if not is_contiguous(shape, strides) and math.prod(shape):
        fields["stride"] = list(strides)
    return fields


def _address(array: Any) -> int:
    return array.__array_interface__["data"][0]


def _source(group: list[_Piece], used: set[str]) -> Source:
    """Return one entry for tensors that overlap, in the terms of one that covers it if one does."""
    start, stop = min(p.start for p in group), max(p.stop for p in group)
    name = base = group[0].name
    n = 1
    while name in used:
        n += 1
        name = f"{base}#{n}"
    used.add(name)
    for piece in group:
        piece.fields["storage"] = name
        if piece.origin != start:
            piece.fields["offset_bytes"] = piece.origin - start
    n_bytes = stop - start
    whole = next((p for p in group if (p.start, p.stop) == (start, stop) and _is_dense(p)), None)
    if whole is not None:
        dtype, shape = whole.dtype, whole.shape
    else:
        kinds = {p.dtype for p in group}
        dtype = kinds.pop() if len(kinds) == 1 else np.dtype(np.uint8)
        if n_bytes % dtype.itemsize:
            dtype = np.dtype(np.uint8)
        shape = (n_bytes // dtype.itemsize,)
    if dtype.kind == "c":
        dtype, shape = dtypes.from_numpy(dtype).to_real().numpy, (*shape, 2)
    first = min(group, key=lambda p: p.start)
    return Source(name, ENTRY_DTYPES[dtype], shape, n_bytes, lambda: _bytes(first, n_bytes))


def _is_dense(piece: _Piece) -> bool:
    return is_contiguous(piece.shape, piece.strides)


def _bytes(piece: _Piece, n_bytes: int) -> Array:
    """Return the bytes from a piece's start on: its own memory on the CPU, a copy elsewhere."""
    if not n_bytes:
        return np.empty(0, np.uint8)
    if piece.backend is cpu:
        return np.asarray(_Extent(piece.owner, piece.start, n_bytes))
    count = n_bytes // piece.dtype.itemsize
    low = (piece.start - piece.origin) // piece.dtype.itemsize
    span = piece.backend.view(piece.owner, (count,), (1,), low)
    return np.ascontiguousarray(piece.backend.to_host(span)).view(np.uint8)
