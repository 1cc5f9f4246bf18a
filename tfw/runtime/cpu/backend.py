"""The CPU backend: payloads are ndarrays, rules are NumPy functions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.runtime.backend import Backend, Kind, Runnable
from tfw.runtime.cpu.memory import Array, empty
from tfw.runtime.thread_state import state
from tfw.shapes import CPU, Shape, Spec, contiguous_strides, device, is_dense

_HALF = frozenset(d.numpy for d in dtypes.FLOATING if d.itemsize < 4)


class _Window:
    """Memory of `owner` seen otherwise through NumPy's array interface, which keeps it alive."""

    def __init__(self, owner: Array, start: int, shape: Shape, strides: Shape) -> None:
        self.owner = owner
        interface = owner.__array_interface__
        self.__array_interface__ = {
            "version": 3,
            "data": (start, interface["data"][1]),
            "shape": shape,
            "strides": strides,
            # As bytes: NumPy has no name for some of ml_dtypes' types.
            "typestr": f"|V{owner.itemsize}",
        }


class CpuBackend(Backend):
    """Runs ops through their NumPy rules, inside the thread's quiet floating-point context."""

    device_type = "cpu"
    payload_type = np.ndarray

    def __init__(self) -> None:
        super().__init__()
        self._by_numpy: dict[np.dtype[Any], Kind] = {
            d.numpy: self.kinds(d, CPU) for d in dtypes.ALL
        }

    def kind(self, payload: Array) -> Kind:
        kind = self._by_numpy[payload.dtype]
        if not payload.ndim:
            return kind.scalar
        return kind if payload.flags.c_contiguous else kind.strided

    def spec(self, payload: Array) -> Spec:
        size, shape = payload.itemsize, payload.shape
        return Spec(
            shape,
            # NumPy gives empty arrays strides of 0.
            tuple(s // size for s in payload.strides)
            if payload.size
            else contiguous_strides(shape),
            dtypes.BY_NUMPY[payload.dtype],
            CPU,
        )

    def empty(self, spec: Spec) -> Array:
        if spec.is_contiguous or not is_dense(spec.shape, spec.strides):
            return empty(spec.shape, spec.dtype.numpy)
        outermost_first = sorted(range(spec.ndim), key=lambda d: (-spec.strides[d], -spec.shape[d]))
        array = empty(tuple(spec.shape[d] for d in outermost_first), spec.dtype.numpy)
        return array.transpose(np.argsort(outermost_first))

    def view(self, payload: Array, shape: Shape, strides: Shape, offset: int) -> Array:
        # NumPy's own constructor wants contiguous memory and no negative offset; this does not.
        start = payload.__array_interface__["data"][0] + offset * payload.itemsize
        steps = tuple(s * payload.itemsize for s in strides)
        window = _Window(payload, start, shape, steps)
        return np.asarray(window).view(payload.dtype)

    def copy(self, target: Array, source: Array) -> None:
        state.run(np.copyto, target, source, "unsafe")

    def fill(self, target: Array, value: complex) -> None:
        state.run(target.fill, value)

    def from_host(self, array: Array, device: device) -> Array:
        return array

    def to_host(self, payload: Array) -> Array:
        return payload

    def run(self, op: Runnable, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        rule = op.rules.get("cpu")
        if rule is None:
            return NotImplemented
        if op.computes:
            half = next((x.dtype for x in _flat(inputs) if x.dtype in _HALF), None)
            if half is not None:
                return _round(half, state.run(rule, *map(_widen, inputs), *attrs))
        return _arrays(state.run(rule, *inputs, *attrs))

    def share_memory(self, a: Array, b: Array) -> bool:
        return np.shares_memory(a, b)

    def same_memory(self, a: Array, b: Array) -> bool:
        return (
            a.__array_interface__["data"] == b.__array_interface__["data"]
            and a.shape == b.shape
            and a.strides == b.strides
        )


def _flat(inputs: Sequence[Any]) -> Iterator[Array]:
    for x in inputs:
        if isinstance(x, list):
            yield from x
        elif x is not None:
            yield x


def _arrays(outputs: tuple[Any, ...] | np.generic[Any] | Array) -> Any:
    """Return outputs as ndarrays; NumPy gives scalars, without memory, for results of no dims."""
    if isinstance(outputs, tuple):
        return tuple(map(_arrays, outputs))
    return np.asarray(outputs) if isinstance(outputs, np.generic) else outputs


def _widen(x: Any) -> Any:
    if isinstance(x, list):
        return [_widen(e) for e in x]  # pyright: ignore[reportUnknownVariableType]  a list of arrays
    return x if x is None or x.dtype not in _HALF else x.astype(np.float32)


def _round(half: np.dtype[Any], outputs: Any) -> Any:
    """Round float32 outputs to the half dtype: computed in float32, rounded once."""
    if isinstance(outputs, tuple):
        return tuple(_round(half, y) for y in outputs)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  rules return ndarrays
    y = np.asarray(outputs)
    return state.run(y.astype, half) if y.dtype == np.float32 else y


cpu = CpuBackend()
