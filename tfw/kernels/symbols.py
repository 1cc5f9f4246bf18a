"""Payloads that stand for values of a program under construction, and the backend that grows it.

With them an op's body, and its gradient, runs unchanged on Tensors and leaves an elementwise
program.
"""

# ruff: noqa: D102 - Backend documents the methods

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

from tfw.dtypes import accumulation, dtype
from tfw.errors import CompileError
from tfw.kernels import program
from tfw.kernels.program import Builder
from tfw.registry import OPS, Op
from tfw.runtime.backend import Backend, Runnable
from tfw.runtime.thread_state import state
from tfw.shapes import Shape, Spec, device
from tfw.tensor import Tensor, new_tensor

# Promotion asks whether a tensor has dims, nothing asks for their sizes: a symbol has none or one.
_SIZE = 2
_HOME = device("cuda")


class Symbol:
    """A payload that stands for one element: a node of the program under construction."""

    __slots__ = ("dtype", "ndim", "node", "shape", "size")

    def __init__(self, node: int, dtype: dtype, shape: Shape) -> None:
        self.node, self.dtype, self.shape = node, dtype, shape
        self.ndim, self.size = len(shape), _SIZE if shape else 1


class NeedsValueError(Exception):
    """A body computed or decided with a number that is known only at a launch."""


class Placeholder:
    """A number among an op's attributes whose value the kernel is given at a launch.

    Ops take it like any number; whatever else is done with it raises NeedsValueError.
    """

    def __init__(self, index: int, sample: float) -> None:
        self.index, self.sample = index, sample


def _refuse(self: Placeholder, *_: object) -> Any:
    raise NeedsValueError(self.index)


def _operator(op: str, swapped: bool) -> Any:
    """Return an operator that is the op beside a Tensor, and refuses beside anything else."""

    def operator(self: Placeholder, other: object) -> Any:
        if not isinstance(other, Tensor):
            raise NeedsValueError(self.index)
        function = OPS[op].function
        return function(other, self) if swapped else function(self, other)

    return operator


for _name in (
    *("neg", "floordiv", "rfloordiv", "mod", "rmod", "abs", "bool", "float", "int", "index"),
    *("complex", "hash", "round", "trunc", "floor", "ceil", "format"),
):
    setattr(Placeholder, f"__{_name}__", _refuse)
for _name in ("add", "sub", "mul", "truediv", "pow"):
    _op = "div" if _name == "truediv" else _name
    setattr(Placeholder, f"__{_name}__", _operator(_op, swapped=False))
    setattr(Placeholder, f"__r{_name}__", _operator(_op, swapped=True))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    setattr(Placeholder, f"__{_name}__", _operator(_name, swapped=False))


class _Current(threading.local):
    """The program that this thread is tracing."""

    builder: Builder


current = _Current()


class SymbolBackend(Backend):
    """Runs an elementwise primitive by adding a node to the current program."""

    device_type = "symbol"
    payload_type = Symbol

    def spec(self, payload: Symbol) -> Spec:
        return Spec(payload.shape, (1,) * payload.ndim, payload.dtype, _HOME)

    def empty(self, spec: Spec) -> Symbol:
        return Symbol(-1, spec.dtype, spec.shape)

    def copy(self, target: Symbol, source: Symbol) -> None:
        target.node = source.node
        if target.dtype is not source.dtype:
            target.node = current.builder.add(program.CAST, target.dtype, None, (source.node,))

    def fill(self, target: Symbol, value: complex) -> None:
        target.node = current.builder.add(program.CONSTANT, target.dtype, value)

    def run(self, op: Runnable, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
        if not isinstance(op, Op) or not op.triton or op.infer is None:
            raise not_elementwise(op)
        spec: Spec = op.infer(*map(self.spec, inputs), *attrs)
        names, args = list(op.inputs), [x.node for x in inputs]
        for name, value in zip(op.attrs, attrs, strict=True):
            if f"{{{name}}}" in op.triton:
                names.append(name)
                args.append(number(value, inputs[-1].dtype).node)
        detail = (op.triton, tuple(names))
        node = current.builder.add(program.APPLY, spec.dtype, detail, tuple(args))
        return Symbol(node, spec.dtype, spec.shape)

    def view(self, payload: Symbol, shape: Shape, strides: Shape, offset: int) -> Symbol:
        raise CompileError("views have no place in an elementwise kernel", op="view")

    def from_host(self, array: Any, device: device) -> Symbol:
        raise CompileError("data have no place in an elementwise kernel", op="tensor")

    def to_host(self, payload: Symbol) -> Any:
        raise CompileError("a value is read while its kernel is being generated", op="item")

    def share_memory(self, a: Symbol, b: Symbol) -> bool:
        return False

    def same_memory(self, a: Symbol, b: Symbol) -> bool:
        return False


backend = SymbolBackend()


def wrap(symbol: Symbol) -> Tensor:
    """Return a Tensor that holds a symbol."""
    return new_tensor(symbol, backend.kind(symbol))


def operand(index: int, spec: Spec) -> Tensor:
    """Return the symbol of an input; a 0-d one on the CPU is a number, passed by value."""
    is_number = not spec.shape and spec.device.type == "cpu"
    kind = program.NUMBER if is_number else program.TENSOR
    node = current.builder.add(kind, spec.dtype, index)
    return wrap(Symbol(node, spec.dtype, (_SIZE,) if spec.shape else ()))


def number(value: Any, dtype: dtype) -> Symbol:
    """Return a number as a symbol. Integers wrap as in memory; half types keep float32's digits."""
    if isinstance(value, Placeholder):
        node = current.builder.add(program.ATTR, dtype, value.index)
    else:
        value = state.run(np.asarray(value).astype, accumulation(dtype).numpy).item()
        node = current.builder.add(program.CONSTANT, dtype, value)
    return Symbol(node, dtype, ())


def is_symbolic(x: object) -> bool:
    """Return whether an argument is, or stands for, a value that is not known yet."""
    return isinstance(x, Placeholder) or (isinstance(x, Tensor) and isinstance(x._a, Symbol))


def not_elementwise(op: Runnable) -> CompileError:
    """Return the error for an op that cannot be part of an elementwise kernel."""
    return CompileError(
        "the op has neither a Triton expression nor a body",
        op=op.name,
        rule="ops that compute each element from its own",
    )
