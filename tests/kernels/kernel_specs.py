"""Specs, plans and machine code for the tests of kernels."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
from triton.backends.compiler import GPUTarget
from triton.compiler.compiler import make_backend

import tfw
from tfw import dtypes
from tfw.kernels.elementwise import plan_elementwise
from tfw.registry import OPS, Op
from tfw.runtime.cuda.compile import CompiledKernel, _source
from tfw.runtime.cuda.plan import Kernel, Plan
from tfw.shapes import CPU, Spec, contiguous, device

CUDA = device("cuda", 0)
ARCHES = (80, 90, 100)

assert tfw  # registers the ops


def spec(shape: Sequence[int], dtype: Any = dtypes.float32) -> Spec:
    """Return the Spec of a row-major CUDA tensor."""
    return contiguous(shape, dtype, CUDA)


def number(dtype: Any = dtypes.float32) -> Spec:
    """Return the Spec of an input that is a Python number."""
    return Spec((), (), dtype, CPU)


def spec_of(array: Any) -> Spec:
    """Return the Spec that an ndarray's copy on a CUDA device would have; numbers stay numbers."""
    if not isinstance(array, np.ndarray):
        return number(dtypes.from_numpy(np.asarray(array).dtype))
    strides = tuple(s // array.itemsize for s in array.strides)
    aligned = array.__array_interface__["data"][0] % 16 == 0
    return Spec(array.shape, strides, dtypes.BY_NUMPY[array.dtype], CUDA, aligned)


def plan_of(name: str, inputs: Sequence[Spec], attrs: Sequence[Any] = ()) -> Plan:
    """Return the elementwise plan of an op for these inputs."""
    op: Any = OPS[name]
    out = op.infer(*inputs, *attrs)
    return plan_elementwise(op, [out._replace(device=CUDA)], inputs, attrs)


def pointwise_ops() -> list[Any]:
    """Return the registered ops that the emitter serves."""
    return [op for op in OPS.values() if op.pointwise]


def taken_dtypes(op: Op) -> list[Any]:
    """Return the real dtypes that an op takes."""
    if op.dtypes is None or isinstance(op.dtypes, dict):
        return list(dtypes.REAL)
    return [d for d in dtypes.REAL if d in op.dtypes]


def sample_inputs(op: Any, dtype: Any, rng: np.random.Generator) -> tuple[list[Any], list[Any]]:
    """Return the tensors of an op's first sample, in a dtype where it is taken, and attributes."""
    call = next(iter(op.sample_maker(rng)))
    args = op.bind(call, call.keywords)
    inputs = []
    for name, position in zip(op.inputs, op.tensor_positions, strict=True):
        allowed = op.dtypes.get(name) if isinstance(op.dtypes, dict) else None
        target = allowed[0] if allowed else dtype
        inputs.append(as_dtype(args[position], target))
    return inputs, [args[i] for i in op.attr_positions]


def as_dtype(values: Any, dtype: Any) -> np.ndarray:
    """Return values in a dtype; small integers for integer dtypes, signs for bool."""
    values = np.asarray(values)
    if dtype is dtypes.bool_:
        return values > 0
    if dtype.category is dtypes.Category.INTEGER and values.dtype.kind == "f":
        values = np.round(values * 3)
        return (np.abs(values) if not dtype.is_signed else values).astype(dtype.numpy)
    return values.astype(dtype.numpy)


def wide(array: Any) -> Any:
    """Return values in which a reference computes: float64 for floating point."""
    array = np.asarray(array)
    floating = array.dtype.kind == "f" or array.dtype == ml_dtypes.bfloat16
    return array.astype(np.float64) if floating else array


def lower(kernel: Kernel, arch: int) -> str:
    """Return a kernel's Triton IR: a tenth of a cubin's cost, and it finds what does not type."""
    from triton._C.libtriton import ir

    backend: Any = make_backend(GPUTarget("cuda", arch, 32))
    options = backend.parse_options({"num_warps": kernel.num_warps, **kernel.options})
    context = ir.context()
    ir.load_dialects(context)
    backend.load_dialects(context)
    source = _source(kernel, arch)
    functions = backend.get_codegen_implementation(options)
    return str(
        source.make_ir(backend.target, options, functions, backend.get_module_map(), context)
    )


_ACCESS = re.compile(r"\b(ld|st)\.global\.(?:v(\d)\.)?[bfus](\d+)")


def accesses(compiled: CompiledKernel) -> list[tuple[str, int]]:
    """Return (ld or st, bits) of each access to global memory in a kernel's PTX."""
    return [
        (kind, int(count or 1) * int(bits))
        for kind, count, bits in _ACCESS.findall(compiled.texts["ptx"])
    ]
