"""A device that is no array: memory behind a private buffer, ops by name from a table of its own.

It stands in for type "cuda" within `fake_device()`. Its payload offers what a Backend must know of
one and nothing else (no buffer protocol, no array interface, no arithmetic), so whatever above the
backend took payloads for arrays fails here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import dtype
from tfw.runtime import backend as backends
from tfw.runtime.backend import Backend, Runnable
from tfw.shapes import Shape, Spec, contiguous, device

Array = Any


class Memory:
    """One allocation. Only the device reads or writes its bytes."""

    def __init__(self, n_bytes: int) -> None:
        # Fresh memory holds garbage: NaN in every floating dtype.
        self._bytes = bytearray(b"\xff" * n_bytes)


class FakeArray:
    """A layout in an allocation; strides and offset count elements."""

    __slots__ = ("device", "dtype", "memory", "ndim", "offset", "shape", "size", "strides")

    def __init__(self, memory: Memory, spec: Spec, offset: int) -> None:
        self.memory, self.offset = memory, offset
        self.shape, self.strides = spec.shape, spec.strides
        self.dtype, self.device = spec.dtype, spec.device
        self.ndim, self.size = len(spec.shape), math.prod(spec.shape)


def _window(x: FakeArray) -> Array:
    """Look at a payload from inside the device."""
    step = x.dtype.itemsize
    return np.ndarray(
        x.shape,
        x.dtype.numpy,
        x.memory._bytes,
        x.offset * step,
        tuple(s * step for s in x.strides),
    )


class FakeBackend(Backend):
    """Runs primitives by name; ops with a body it leaves to their definition."""

    device_type = "cuda"
    payload_type = FakeArray

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[str] = []

    def spec(self, payload: FakeArray) -> Spec:
        return Spec(payload.shape, payload.strides, payload.dtype, payload.device)

    def empty(self, spec: Spec) -> FakeArray:
        last = sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True) if n)
        return FakeArray(Memory((last + 1) * spec.dtype.itemsize), spec, 0)

    def view(self, payload: FakeArray, shape: Shape, strides: Shape, offset: int) -> FakeArray:
        spec = Spec(shape, strides, payload.dtype, payload.device)
        return FakeArray(payload.memory, spec, payload.offset + offset)

    def copy(self, target: FakeArray, source: FakeArray) -> None:
        assert isinstance(source, FakeArray)
        with np.errstate(all="ignore"):
            np.copyto(_window(target), _window(source), "unsafe")

    def fill(self, target: FakeArray, value: complex) -> None:
        with np.errstate(all="ignore"):
            _window(target)[...] = np.asarray(value).astype(target.dtype.numpy)

    def from_host(self, array: Array, device: device) -> FakeArray:
        assert isinstance(array, np.ndarray)
        return self._store(array, device)

    def to_host(self, payload: FakeArray) -> Array:
        return _window(payload).copy()

    def run(self, op: Runnable, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        rule = TABLE.get(op.name)
        if rule is None:
            return NotImplemented
        self.calls.append(op.name)
        where = next((x.device for x in _flat(inputs)), None)
        where = where or next(a for a in attrs if isinstance(a, device))
        with np.errstate(all="ignore"):
            results = rule(*[_seen(x) for x in inputs], *attrs)
        stored = [
            self._store(np.asarray(y), where)
            for y in (results if isinstance(results, tuple) else (results,))
        ]
        if op.infer is not None:
            # Results must be laid out as promised; the device writes them so.
            specs = op.infer(*[self._spec_of(x) for x in inputs], *attrs)
            specs = [specs] if isinstance(specs, Spec) else list(specs)
            laid = [self.empty(s._replace(device=where)) for s in specs]
            for target, source in zip(laid, stored, strict=True):
                self.copy(target, source)
            stored = laid
        return tuple(stored) if isinstance(results, tuple) else stored[0]

    def _spec_of(self, x: Any) -> Any:
        if isinstance(x, list):
            return [self.spec(e) for e in x]
        return self.spec(x) if isinstance(x, FakeArray) else x

    def _store(self, array: Array, where: device) -> FakeArray:
        kind = dtypes.from_numpy(array.dtype)
        payload = self.empty(contiguous(array.shape, kind, where))
        np.copyto(_window(payload), array)
        return payload

    def share_memory(self, a: FakeArray, b: FakeArray) -> bool:
        return a.memory is b.memory and np.shares_memory(_window(a), _window(b))

    def same_memory(self, a: FakeArray, b: FakeArray) -> bool:
        layout = (a.memory is b.memory, a.offset, a.shape, a.strides)
        return layout == (True, b.offset, b.shape, b.strides)


def _flat(inputs: Sequence[Any]) -> Iterator[FakeArray]:
    for x in inputs:
        if isinstance(x, list):
            yield from x
        elif isinstance(x, FakeArray):
            yield x


def _seen(x: Any) -> Any:
    if isinstance(x, list):
        return [_window(e) for e in x]
    return _window(x) if isinstance(x, FakeArray) else x


# ---- the device's own arithmetic


def _axis(x: Array, dim: Any) -> Any:
    if not x.ndim or dim is None or dim == ():
        return None
    return dim if isinstance(dim, int) else tuple(dim)


def _reduce(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda x, dim, keepdim: function(x, axis=_axis(x, dim), keepdims=keepdim)


def _sum(x: Array, dim: Any, keepdim: bool, kind: dtype | None) -> Array:
    wide = None if kind is None else kind.numpy
    if wide is None and x.dtype.kind in "bui":
        wide = np.int64
    return np.sum(x, axis=_axis(x, dim), keepdims=keepdim, dtype=wide)


def _along(function: Callable[..., Any]) -> Callable[..., Any]:
    def rule(x: Array, dim: int, keepdim: bool) -> tuple[Array, Array]:
        if not x.ndim:
            return x.copy(), np.zeros((), np.int64)
        at = function(x, axis=dim, keepdims=True)
        values = np.take_along_axis(x, at, dim)
        return (values, at) if keepdim else (values.squeeze(dim), at.squeeze(dim))

    return rule


def _order(x: Array, k: int, dim: int, largest: bool, in_order: bool) -> tuple[Array, Array]:
    at = np.argsort(-x if largest else x, axis=dim, kind="stable")
    at = np.take(at, range(k), dim)
    return np.take_along_axis(x, at, dim), at


def _front(x: Array, dims: Sequence[int]) -> Array:
    return x.transpose([*dims, *[d for d in range(x.ndim) if d not in dims]])


def _put(x: Array, values: Array, indices: list[Array], dims: Any, accumulate: bool) -> Array:
    result = np.ascontiguousarray(x).copy()
    moved = _front(result, dims)
    if accumulate:
        np.add.at(moved, tuple(indices), values)
    else:
        moved[tuple(indices)] = values
    return result


def _rows_added(g: Array, index: Array, n_rows: int, padding_idx: int | None) -> Array:
    table = np.zeros((n_rows, g.shape[-1]), g.dtype)
    np.add.at(table, index, g)
    if padding_idx is not None:
        table[padding_idx] = 0
    return table


def _cross_entropy(
    x: Array, t: Array, w: Array | None, ignored: int, smoothing: float, reduction: str
) -> tuple[Array, Array, Array]:
    top = x.max(1, keepdims=True)
    lse = (np.log(np.exp(x - top).sum(1, keepdims=True)) + top)[:, 0]
    n = x.shape[1]
    weights = np.ones(n, x.dtype) if w is None else w
    valid = t != ignored
    safe = np.where(valid, t, 0)
    own = weights[safe] * (lse - np.take_along_axis(x, safe[:, None], 1)[:, 0])
    spread = (weights * (lse[:, None] - x)).sum(1) / n
    loss = np.where(valid, (1 - smoothing) * own + smoothing * spread, 0)
    total = np.ones((), x.dtype)
    if reduction == "mean":
        total = np.asarray(weights[safe][valid].sum(), x.dtype)
    if reduction != "none":
        loss = np.asarray(loss.sum() / total)
    return loss.astype(x.dtype), lse, total


def _power(a: Array, b: Array) -> Array:
    return np.power(a, b)


TABLE: dict[str, Callable[..., Any]] = {
    "add": lambda a, b, alpha: a + b * b.dtype.type(alpha),
    "sub": lambda a, b, alpha: a - b * b.dtype.type(alpha),
    "mul": lambda a, b: a * b,
    "div": lambda a, b: a / b,
    "pow": _power,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "neg": lambda x: -x,
    "exp": np.exp,
    "log": np.log,
    "sqrt": np.sqrt,
    "tanh": np.tanh,
    "abs": np.abs,
    "sign": np.sign,
    "relu": lambda x: np.where(x <= 0, x.dtype.type(0), x),
    "relu_grad": lambda g, y: np.where(y <= 0, g.dtype.type(0), g),
    "erf": lambda x: np.vectorize(math.erf, otypes=[x.dtype])(x),
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
    "logical_and": np.logical_and,
    "bitwise_and": lambda a, b: a & b,
    "bitwise_or": lambda a, b: a | b,
    "bitwise_xor": lambda a, b: a ^ b,
    "bitwise_not": lambda x: ~x,
    "where": np.where,
    "sum": _sum,
    "amax": _reduce(np.max),
    "amin": _reduce(np.min),
    "any": _reduce(np.any),
    "all": _reduce(np.all),
    "argmax": _reduce(np.argmax),
    "argmin": _reduce(np.argmin),
    "max_along": _along(np.argmax),
    "min_along": _along(np.argmin),
    "topk_along": _order,
    "matmul": np.matmul,
    "tril": np.tril,
    "triu": np.triu,
    "cat": np.concatenate,
    "take_at": lambda x, indices, dims: _front(x, dims)[tuple(indices)],
    "put_at": _put,
    "nonzero_rows": lambda x: np.argwhere(x).astype(np.int64),
    "embedding_rows": lambda index, table, padding_idx: table[index],
    "embedding_grad": _rows_added,
    "cross_entropy_rows": _cross_entropy,
}


@contextmanager
def fake_device() -> Generator[FakeBackend, None, None]:
    """Make the fake device the one of type "cuda" inside the block."""
    fake = FakeBackend()
    before = backends._by_device.pop("cuda", None)
    backends.register(fake)
    try:
        yield fake
    finally:
        del backends._by_device["cuda"]
        if before is not None:
            backends.register(before)
