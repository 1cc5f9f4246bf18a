"""Plans of elementwise kernels: the emitter behind every pointwise op, and copies and fills.

Bytes: each operand is read once and each result written once; what repeats is read once per block
of rows (ROWS), or again from the caches (GATHER). Limits: real dtypes; any number of dims, any
strides, and tensors past 2^31 elements through 64-bit offsets. Source: elementary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tfw.dtypes import accumulation, get_default_dtype
from tfw.errors import DtypeError, ShapeError
from tfw.kernels import program
from tfw.kernels.emit import Emitted, Shape, emit, tensor_inputs
from tfw.kernels.program import Builder, Program
from tfw.kernels.trace import trace, trace_gradient
from tfw.kernels.walk import FLAT, GATHER, ROWS, Walk, plan_walk
from tfw.registry import Op
from tfw.runtime.cuda.plan import (
    POINTER_TYPES,
    VECTOR_BYTES,
    Argument,
    Parameter,
    Plan,
    Source,
    integer,
    kernel,
)
from tfw.shapes import Spec

_THREADS = 128
# Elements of one thread by bytes of the smallest dtype: at least 128 bits of each operand.
_PER_THREAD = {1: 16, 2: 8, 4: 8, 8: 4}
_TILE, _TILE_WARPS = 64, 8
_MAX_COLS = 1024
_SOURCES = {program.NUMBER: Source.INPUT, program.ATTR: Source.ATTR}
_programs: dict[Any, Any] = {}
_PROGRAMS_KEPT = 4096


def plan_elementwise(
    op: Op, outputs: Sequence[Spec], inputs: Sequence[Spec], attrs: Sequence[Any]
) -> Plan:
    """Return the plan of a pointwise op, from its Triton expression or its traced body."""
    return plan_program(_program(trace, op, inputs, attrs), outputs, inputs)


def plan_gradient(
    op: Op,
    outputs: Sequence[Spec],
    inputs: Sequence[Spec],
    attrs: Sequence[Any],
    needs: Sequence[bool],
) -> Plan:
    """Return the plan of one kernel for all gradients of a pointwise op that are needed.

    `inputs` are the gradients of the op's outputs, then the op's inputs; `outputs` the results.

    Errors: ShapeError for inputs that broadcast, whose gradients are sums.
    """
    shape = outputs[0].shape
    for spec in inputs:
        if spec.shape not in (shape, ()):
            raise ShapeError(
                f"shape {spec.shape} broadcasts to {shape}", op=f"{op.name}_grad", value=spec.shape
            )
    return plan_program(_program(trace_gradient, op, inputs, attrs, tuple(needs)), outputs, inputs)


def plan_copy(target: Spec, source: Spec) -> Plan:
    """Return the plan that writes `source`, converted and broadcast, into `target`."""
    builder = Builder()
    node = builder.add(program.TENSOR, source.dtype, 0)
    if source.dtype is not target.dtype:
        node = builder.add(program.CAST, target.dtype, None, (node,))
    return plan_program(builder.finish("copy", (node,), ("input",), ()), (target,), (source,))


def plan_fill(target: Spec) -> Plan:
    """Return the plan that writes attribute 0, a number, everywhere into the memory of `target`."""
    builder = Builder()
    node = builder.add(program.ATTR, target.dtype, 0)
    return plan_program(builder.finish("fill", (node,), (), ("value",)), (target,), ())


def _program(
    tracer: Any, op: Op, inputs: Sequence[Spec], attrs: Sequence[Any], *more: Any
) -> Program:
    """Return a traced program, known if dtypes, ranks and attributes are."""
    layout = tuple((s.dtype, not s.shape, s.device.type == "cpu") for s in inputs)
    # Integers and numbers may promote to the default dtype.
    open_key = (tracer, op, layout, get_default_dtype(), *more, *(_open(v) for v in attrs))
    found = _programs.get(open_key)
    if found is None:
        if len(_programs) >= _PROGRAMS_KEPT:
            _programs.clear()
        traced, fixed = tracer(op, inputs, attrs, *more)
        found = _programs[open_key] = "values matter" if fixed else traced
        if fixed:
            _programs[(open_key, *map(repr, attrs))] = traced
            return traced
    if isinstance(found, Program):
        return found
    key = (open_key, *map(repr, attrs))
    found = _programs.get(key)
    if found is None:
        found = _programs[key] = tracer(op, inputs, attrs, *more)[0]
    return found


def _open(value: Any) -> Any:
    """Return what an attribute adds to the key of a program that leaves its numbers open."""
    return type(value) if type(value) in (int, float) else (type(value), repr(value))


def plan_program(p: Program, outputs: Sequence[Spec], inputs: Sequence[Spec]) -> Plan:
    """Return the plan of a program on tensors laid out as the Specs say."""
    numbers = tensor_inputs(p)
    operands = [*[inputs[i] for i in numbers], *outputs]
    itemsize = min([s.dtype.itemsize for s in operands])
    walk = plan_walk(outputs[0].shape, [s[:2] for s in operands], itemsize)
    emitted = emit(p, Shape(walk.mode, walk.forms, walk.operands, walk.row, walk.wide))
    values = [walk.layouts[layout][d] for _, layout, d in emitted.strides]
    values += [size.of(walk.sizes) for _, size in emitted.sizes]
    constants, blocks, num_warps = _blocks(walk, itemsize)

    aligned = tuple([s.aligned for s in operands])
    vector = VECTOR_BYTES // itemsize
    promises = tuple([(not -(2**31) <= v < 2**31, v % vector == 0) for v in values])
    found = emitted.kernels.get((aligned, promises, *constants.values()))
    if found is None:
        parameters = _parameters(emitted, operands, values, vector)
        found = kernel(emitted.function, parameters, constants, num_warps=num_warps)
        emitted.kernels[aligned, promises, *constants.values()] = found

    arguments = [
        *[Argument(Source.INPUT, i) for i in numbers],
        *[Argument(Source.OUTPUT, k) for k in range(len(outputs))],
        *[Argument(_SOURCES[node.kind], node.detail) for _, node in emitted.numbers],
        *[Argument(Source.VALUE, v) for v in values],
    ]
    return Plan(found, (blocks, 1, 1), tuple(arguments), tuple(outputs))


def _parameters(
    emitted: Emitted, operands: Sequence[Spec], values: Sequence[int], vector: int
) -> tuple[Parameter, ...]:
    """Return the kernel's parameters with what may be promised of each."""
    for (name, d), spec in zip(emitted.tensors, operands, strict=True):
        if spec.dtype is not d:
            raise DtypeError(
                f"{name} has dtype {spec.dtype!r}, the kernel computes {d!r}",
                op=emitted.function.name,
                argument=name,
                value=spec.dtype,
            )
    result = [
        Parameter(name, POINTER_TYPES[d.name], VECTOR_BYTES if spec.aligned else 1)
        for (name, d), spec in zip(emitted.tensors, operands, strict=True)
    ]
    for name, node in emitted.numbers:
        result.append(Parameter(name, POINTER_TYPES[accumulation(node.dtype).name][1:]))
    named = [(name, True) for name, *_ in emitted.strides]
    # Of the sizes, only those that decide where runs start can make accesses wide.
    named += [(name, size.starts_runs) for name, size in emitted.sizes]
    for (name, starts_runs), value in zip(named, values, strict=True):
        result.append(integer(name, value, vector if starts_runs else 1))
    return tuple(result)


def _blocks(walk: Walk, itemsize: int) -> tuple[dict[str, int], int, int]:
    """Return the block's sizes, how many blocks there are, and the warps of one."""
    block = _PER_THREAD[itemsize] * _THREADS
    n_cols, *outer = walk.sizes
    if walk.mode in (FLAT, GATHER):
        return {"BLOCK": block}, -(-math.prod(walk.sizes) // block), _THREADS // 32
    if walk.mode == ROWS:
        cols = min(block, _MAX_COLS)
        # The widest block that leaves at most a fifth of its columns idle.
        while -(-n_cols // cols) * cols * 4 > n_cols * 5:
            cols //= 2
        rows = block // cols
        blocks = -(-math.prod(outer) // rows) * -(-n_cols // cols)
        return {"ROWS": rows, "COLS": cols}, blocks, _THREADS // 32
    n_rows = walk.sizes[walk.row]
    batches = math.prod(walk.sizes) // (n_rows * n_cols) if n_cols * n_rows else 0
    blocks = -(-n_rows // _TILE) * -(-n_cols // _TILE) * batches
    return {"ROWS": _TILE, "COLS": _TILE}, blocks, _TILE_WARPS
