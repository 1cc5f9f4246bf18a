"""What every kind of payload must offer, and the interned `Kind` that says which a tensor holds.

A payload is the one thing a Tensor holds: an ndarray, a MetaArray, a CudaArray, or what a tracer
puts there. Its backend runs ops on it. Nothing above this package looks inside a payload.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from tfw.dtypes import dtype
from tfw.errors import DeviceError
from tfw.shapes import DEVICE_TYPES, Shape, Spec, device

Payload = Any


class Runnable(ABC):
    """What a backend needs of an op: name, rules, shape rule, whether it does arithmetic."""

    name: str
    rules: dict[str, Callable[..., Any]]
    computes: bool
    infer: Callable[..., Any] | None


class Kind:
    """dtype, device, backend and form of a payload; the fast path compares kinds by identity.

    Attributes:
        form: "dense" (row-major, at least one dim), "scalar" (no dims) or "strided".
        dense, scalar, strided: the kind of each form with the same dtype and device.

    """

    __slots__ = ("backend", "dense", "device", "dtype", "form", "scalar", "strided")

    dense: Kind
    scalar: Kind
    strided: Kind

    def __init__(self, backend: Backend, dtype: dtype, device: device, form: str) -> None:
        self.backend, self.dtype, self.device, self.form = backend, dtype, device, form

    def __repr__(self) -> str:
        return f"Kind({self.dtype.name}, {self.device}, {self.form})"


class Backend(ABC):
    """Memory and execution for one type of payload."""

    device_type: str
    payload_type: type

    def __init__(self) -> None:
        self._kinds: dict[tuple[dtype, device], Kind] = {}

    def kinds(self, dtype: dtype, device: device) -> Kind:
        """Return the dense kind of `dtype` on `device`; its fields lead to the other forms."""
        found = self._kinds.get((dtype, device))
        if found is None:
            forms = [Kind(self, dtype, device, form) for form in ("dense", "scalar", "strided")]
            for kind in forms:
                kind.dense, kind.scalar, kind.strided = forms
            # setdefault: two threads that come here at once must agree on one object.
            found = self._kinds.setdefault((dtype, device), forms[0])
        return found

    def kind(self, payload: Payload) -> Kind:
        """Return the kind of a payload."""
        spec = self.spec(payload)
        kind = self.kinds(spec.dtype, spec.device)
        if not spec.shape:
            return kind.scalar
        return kind if spec.is_contiguous else kind.strided

    @abstractmethod
    def spec(self, payload: Payload) -> Spec:
        """Return shape, strides, dtype, device and alignment."""

    @abstractmethod
    def empty(self, spec: Spec) -> Payload:
        """Return fresh memory laid out as `spec` says; its contents are undefined."""

    @abstractmethod
    def view(self, payload: Payload, shape: Shape, strides: Shape, offset: int) -> Payload:
        """Return the same memory seen otherwise; `offset` counts elements from the first."""

    @abstractmethod
    def copy(self, target: Payload, source: Payload) -> None:
        """Write `source`, converted and broadcast, into `target` of the same backend."""

    @abstractmethod
    def fill(self, target: Payload, value: complex) -> None:
        """Write one number everywhere."""

    @abstractmethod
    def from_host(self, array: Any, device: device) -> Payload:
        """Return a payload with an ndarray's values (the CPU backend returns the array itself)."""

    @abstractmethod
    def to_host(self, payload: Payload) -> Any:
        """Return an ndarray of the values, waiting for work in flight."""

    @abstractmethod
    def run(self, op: Runnable, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        """Return the op's output payload(s), or NotImplemented if this backend has no rule for it.

        `inputs` are payloads, None for an absent optional tensor, or lists of payloads.
        """

    @abstractmethod
    def share_memory(self, a: Payload, b: Payload) -> bool:
        """Return whether two payloads have an element of memory in common."""

    @abstractmethod
    def same_memory(self, a: Payload, b: Payload) -> bool:
        """Return whether two payloads are the same elements in the same order."""


_by_device: dict[str, Backend] = {}
_openers: dict[str, Callable[[], Backend]] = {}


def register(backend: Backend) -> None:
    """Make a backend the one for its device type."""
    _by_device[backend.device_type] = backend


def register_opener(device_type: str, opener: Callable[[], Backend]) -> None:
    """Name the function that brings up a backend when its device type is first used."""
    _openers[device_type] = opener


def for_device(d: device) -> Backend:
    """Return the backend of a device, brought up if need be. RuntimeError if there is none."""
    backend = _by_device.get(d.type)
    if backend is None:
        opener = _openers.get(d.type)
        if opener is None:
            raise DeviceError(
                f"device {str(d)!r} is not available in this build",
                op="device",
                argument="device",
                value=str(d),
                rule=", ".join(t for t in DEVICE_TYPES if t in _by_device or t in _openers),
                remedy="run 'tfw doctor' to see what works here",
            )
        backend = opener()
        register(backend)
    return backend
