"""Runs plans on NumPy memory through Triton's interpreter, in a process that also compiles.

Triton decides at import whether `triton.jit` makes compiled or interpreted functions, and its
interpreter patches triton.language and puts back only part of it. So here: every Triton function
that a kernel can reach is replaced by an interpreted twin while a plan runs, and triton.language is
restored name by name.
"""

from __future__ import annotations

import inspect
import sys
import types
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import triton.language as tl
from triton.runtime import interpreter
from triton.runtime.interpreter import InterpretedFunction, InterpreterBuilder, TensorHandle
from triton.runtime.jit import JITFunction

from tfw.runtime.cuda.plan import Plan, Source
from tfw.shapes import Spec

_SCALARS = {
    "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "u8": np.uint8,
    "fp32": np.float32, "fp64": np.float64,
}  # fmt: skip
_TRITON = {
    "i8": tl.int8, "i16": tl.int16, "i32": tl.int32, "i64": tl.int64, "u8": tl.uint8,
    "fp16": tl.float16, "bf16": tl.bfloat16, "fp32": tl.float32, "fp64": tl.float64,
    "fp8e4nv": tl.float8e4nv, "fp8e5": tl.float8e5,
}  # fmt: skip


def strided(values: Any, strides: Sequence[int], offset: int = 0) -> np.ndarray:
    """Return an ndarray with these values and strides (in elements), in memory of its own."""
    values = np.asarray(values)
    reach = sum((n - 1) * s for n, s in zip(values.shape, strides, strict=True)) + 1
    memory = np.zeros(offset + max(reach, 0) + 16, values.dtype)
    steps = tuple(s * values.itemsize for s in strides)
    window = np.ndarray(values.shape, values.dtype, memory, offset * values.itemsize, steps)
    window[...] = values
    return window


# More bytes than a block has lie before and after each result, to catch what is written there.
_GUARD = 65536
_UNWRITTEN = 77


def _guarded(spec: Spec) -> tuple[np.ndarray, np.ndarray]:
    """Return a result's memory with guards around it, and the window that a Spec describes."""
    reach = sum((n - 1) * s for n, s in zip(spec.shape, spec.strides, strict=True)) + 1
    size = spec.dtype.itemsize
    memory = np.full(2 * _GUARD + max(reach, 0) * size, _UNWRITTEN, np.uint8)
    steps = tuple(s * size for s in spec.strides)
    return memory, np.ndarray(spec.shape, spec.dtype.numpy, memory, _GUARD, steps)


def launch(
    plan: Plan,
    inputs: Sequence[Any],
    attrs: Sequence[Any] = (),
    outputs: Sequence[np.ndarray] | None = None,
) -> list[np.ndarray]:
    """Run a plan on ndarrays (numbers for inputs passed by value) and return its outputs."""
    guarded = [_guarded(s) for s in plan.outputs] if outputs is None else []
    results = [window for _, window in guarded] if outputs is None else list(outputs)
    workspaces = [np.zeros(w.bytes, np.int8) for w in plan.workspaces]
    given = {
        Source.INPUT: inputs,
        Source.OUTPUT: results,
        Source.WORKSPACE: workspaces,
        Source.ATTR: attrs,
    }
    args: dict[str, Any] = dict(plan.kernel.constants)
    for parameter, (source, value) in zip(plan.kernel.parameters, plan.arguments, strict=True):
        actual = value if source is Source.VALUE else given[source][value]
        args[parameter.name] = _argument(parameter.type, parameter.divisor, actual)
    with interpreted(plan.kernel.triton_function()) as function:
        builder = interpreter.interpreter_builder
        builder.set_grid_dim(*plan.grid)
        for x in range(plan.grid[0]):
            builder.set_grid_idx(x, 0, 0)
            with np.errstate(all="ignore"):
                function(**args)
    for memory, _ in guarded:
        assert (memory[:_GUARD] == _UNWRITTEN).all(), "written before a result's memory"
        assert (memory[-_GUARD:] == _UNWRITTEN).all(), "written past a result's memory"
    return results


def _argument(type_: str, divisor: int, value: Any) -> tl.tensor:
    if type_.startswith("*"):
        address = value.__array_interface__["data"][0]
        assert address % divisor == 0 or not value.size, (
            f"{address} is promised to divide by {divisor}"
        )
        pointer = tl.pointer_type(_TRITON[type_[1:]])
        return tl.tensor(TensorHandle(np.array([address], np.uint64), pointer), pointer)
    assert divisor == 1 or value % divisor == 0
    scalar = np.array([value]).astype(_SCALARS[type_])
    return tl.tensor(TensorHandle(scalar, _TRITON[type_]), _TRITON[type_])


@contextmanager
def interpreted(kernel: JITFunction) -> Generator[Any]:
    """Yield the Python function that interprets a kernel, with triton.language patched for it."""
    places = [interpreter, InterpreterBuilder, *_places()]
    before = [(place, dict(vars(place))) for place in places]
    try:
        interpreter._convert_float = _convert_float
        setattr(InterpreterBuilder, "create_splat", _create_splat)  # noqa: B010 - other names
        for place in places:
            for name, value in list(vars(place).items()):
                if isinstance(value, JITFunction):
                    setattr(place, name, _twin(value))
        function = _twin(kernel)
        # Patched for a function that sees both modules, since Triton's own library uses the second.
        both = types.FunctionType((lambda: None).__code__, {"tl": tl, "core": tl.core})
        scope = interpreter._patch_lang(both)
        try:
            yield function.rewrite()
        finally:
            scope.restore()
    finally:
        for place, names in before:
            for name in [n for n in vars(place) if n not in names]:
                delattr(place, name)
            for name, value in names.items():
                if vars(place).get(name) is not value:
                    setattr(place, name, value)


_triton_convert_float = interpreter._convert_float


def _convert_float(values: np.ndarray, source: Any, target: Any, rounding: Any) -> np.ndarray:
    """Round to bfloat16 to the nearest as the GPU does; Triton's interpreter cuts."""
    if source == tl.float32 and target == tl.bfloat16:
        return values.astype(ml_dtypes.bfloat16).view(np.uint16)
    return _triton_convert_float(values, source, target, rounding)


_triton_create_splat = InterpreterBuilder.create_splat


def _create_splat(builder: Any, type_: Any, value: TensorHandle) -> TensorHandle:
    """Keep a comparison of numbers a truth value; the interpreter gives it their dtype."""
    if value.data.dtype == np.bool_:
        return TensorHandle(np.full(type_.shape, value.data), tl.int1)
    return _triton_create_splat(builder, type_, value)


def _places() -> list[Any]:
    """Return the modules and classes of triton.language that the interpreter patches."""
    modules = [m for n, m in sys.modules.items() if n.split(".")[:2] == ["triton", "language"]]
    classes = {
        c for m in modules for _, c in inspect.getmembers(m, inspect.isclass)
        if c.__module__.startswith("triton.language")
    }  # fmt: skip
    return [*modules, *classes]


class _Twin(InterpretedFunction):
    """An interpreted function that does not patch triton.language again at each call."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.rewrite()(*args, **kwargs)


_scopes: dict[int, dict[str, Any]] = {}


def _twin(function: JITFunction) -> _Twin:
    """Return an interpreted twin whose globals, and those of the functions it calls, are copies.

    Triton's rewrite puts names into the globals and counts on finding them at every later run.
    """
    original = function.fn
    scope = _scopes.get(id(original.__globals__))
    if scope is None:
        scope = _scopes[id(original.__globals__)] = dict(original.__globals__)
        for name, value in list(scope.items()):
            if isinstance(value, JITFunction):
                scope[name] = _twin(value)
            elif isinstance(value, types.ModuleType):
                if value.__name__ == "tfw.kernels.device":
                    scope[name] = _Device(value)
                elif value.__name__.endswith("libdevice"):
                    scope[name] = _Libdevice()
    found = _twins.get(original)
    if found is None:
        copy = types.FunctionType(
            original.__code__, scope, original.__name__, original.__defaults__
        )
        copy.__annotations__ = original.__annotations__
        copy.__module__ = original.__module__
        copy.__qualname__ = original.__qualname__
        found = _twins[original] = _Twin(copy)
    return found


_twins: dict[Any, _Twin] = {}


class _Device:
    """tfw.kernels.device with interpreted functions."""

    def __init__(self, module: types.ModuleType) -> None:
        for name, value in vars(module).items():
            if isinstance(value, JITFunction):
                setattr(self, name, _twin(value))


class _Libdevice:
    """NVIDIA's math library in NumPy: the functions of one and two numbers that kernels call."""

    def __getattr__(self, name: str) -> Any:
        function = {"pow": np.power}.get(name) or getattr(np, name)

        def call(*args: Any) -> tl.tensor:
            arrays = [a.handle.data for a in args]
            first = args[0]
            result = function(*arrays).astype(arrays[0].dtype)
            scalar = first.dtype
            shape = list(result.shape)
            type_ = tl.block_type(scalar, shape) if any(a.type.is_block() for a in args) else scalar
            return tl.tensor(TensorHandle(result, scalar), type_)

        return call
