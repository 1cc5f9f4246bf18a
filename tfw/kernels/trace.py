"""From an op to an elementwise program, by running it, or its gradient, on symbols.

Every op that a body calls is intercepted. One with a Triton expression becomes a node; one with a
body is followed; numbers become constants. An attribute that is a number stays an argument of the
kernel as long as the body only hands it on; a body that computes or decides with it is traced again
with its value.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Sequence
from typing import Any

from tfw.dispatch import NUMBERS, common_dtype, dispatch, finish, intercepting
from tfw.dtypes import Category, get_default_dtype
from tfw.errors import CompileError
from tfw.graph import LEAF, Node, Output, edge_of
from tfw.kernels.program import Builder, Program
from tfw.kernels.symbols import (
    Placeholder,
    Symbol,
    backend,
    current,
    is_symbolic,
    not_elementwise,
    number,
    operand,
    wrap,
)
from tfw.registry import OPS, Op
from tfw.runtime.thread_state import state
from tfw.shapes import Spec
from tfw.tensor import Tensor

# There is one interception point for all threads, so they trace in turn.
_lock = threading.RLock()


def trace(op: Op, specs: Sequence[Spec], attrs: Sequence[Any]) -> tuple[Program, bool]:
    """Return the program of an op, and whether it holds only for these values of the attributes.

    Errors: CompileError for an op that is not elementwise.
    """
    with _lock:
        return _with_numbers_open(lambda given: _forward(op, specs, given), attrs)


def trace_gradient(
    op: Op, specs: Sequence[Spec], attrs: Sequence[Any], needs: Sequence[bool]
) -> tuple[Program, bool]:
    """Return the program of an op's gradients with respect to the inputs that need one.

    `specs` are those of the gradients of the op's outputs, then of its inputs. Tensors with dims
    must have one shape: summing over broadcast dims is another kernel's work.

    Errors: CompileError for an op that is not elementwise.
    """
    with _lock:
        return _with_numbers_open(lambda given: _gradient(op, specs, given, needs), attrs)


def _with_numbers_open(
    run: Callable[[tuple[Any, ...]], Program], attrs: Sequence[Any]
) -> tuple[Program, bool]:
    held = [Placeholder(i, v) if type(v) in (int, float) else v for i, v in enumerate(attrs)]
    try:
        return run(tuple(held)), False
    except Exception:
        # A body can fail over an open number in many ways; given it, its faults are its own.
        if not any(isinstance(v, Placeholder) for v in held):
            raise
        return run(tuple(attrs)), True


def _forward(op: Op, specs: Sequence[Spec], attrs: tuple[Any, ...]) -> Program:
    builder = current.builder = Builder()
    inputs = [operand(i, spec) for i, spec in enumerate(specs)]
    outputs = _run(op, inputs, attrs, grad=False)
    return builder.finish(op.name, _nodes(outputs), op.inputs, op.attrs)


def _gradient(
    op: Op, specs: Sequence[Spec], attrs: tuple[Any, ...], needs: Sequence[bool]
) -> Program:
    builder = current.builder = Builder()
    symbols = [operand(i, spec) for i, spec in enumerate(specs)]
    grads, inputs = symbols[: len(op.outputs)], symbols[len(op.outputs) :]
    wanted = [x for x, needed in zip(inputs, needs, strict=True) if needed]
    for x in wanted:
        x._node = LEAF
    outputs = _run(op, inputs, attrs, grad=True)
    with intercepting(_handle):
        results = _backward(op, outputs, grads, wanted)
    names = ("grad",) if len(grads) == 1 else tuple(f"grad_{n}" for n in op.outputs)
    return builder.finish(f"{op.name}_grad", _nodes(results), (*names, *op.inputs), op.attrs)


def _run(op: Op, inputs: list[Tensor], attrs: tuple[Any, ...], grad: bool) -> tuple[Tensor, ...]:
    """Call an op on symbols, with or without recording its gradient."""
    args: dict[int, Any] = dict(zip(op.tensor_positions, inputs, strict=True))
    args |= dict(zip(op.attr_positions, attrs, strict=True))
    before, state.grad_enabled = state.grad_enabled, grad
    try:
        with intercepting(_handle):
            result = dispatch(op, tuple(args[i] for i in range(len(args))))
    finally:
        state.grad_enabled = before
    return result if isinstance(result, tuple) else (result,)


def _nodes(outputs: Sequence[Tensor]) -> tuple[int, ...]:
    return tuple(y._a.node for y in outputs)


def _handle(op: Op, args: tuple[Any, ...]) -> Any:
    """Take one op call of a traced body."""
    if not any(map(is_symbolic, args)):
        return dispatch(op, args)
    args = _with_numbers_as_symbols(op, args)
    if op.triton or op.generic is not None:
        return dispatch(op, args)
    if op.body is None:
        raise not_elementwise(op)
    inputs = [args[i] for i in op.tensor_positions]
    edges = tuple(edge_of(x) if isinstance(x, Tensor) else None for x in inputs)
    if not (state.grad_enabled and op.vjps and any(e is not None for e in edges)):
        with intercepting(_handle):
            return op.body(*args)
    # The op has a gradient of its own: record that one, not the body's.
    state.grad_enabled = False
    try:
        with intercepting(_handle):
            result = op.body(*args)
    finally:
        state.grad_enabled = True
    payloads = tuple(r._a for r in result) if isinstance(result, tuple) else result._a
    attrs = tuple(args[i] for i in op.attr_positions)
    return finish(op, backend, payloads, inputs, attrs, edges, True)


def _with_numbers_as_symbols(op: Op, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Replace numbers among an op's tensor arguments by symbols of what they promote to."""
    positions = op.tensor_positions
    result = list(args)
    for i in positions:
        x = args[i]
        if isinstance(x, Tensor) and not isinstance(x._a, Symbol):
            if x._a.ndim:
                raise CompileError("a tensor from outside the kernel", op=op.name, value=x)
            result[i] = wrap(number(x.item(), x.dtype))
    if not op.promotion:
        return tuple(result)
    chosen = positions if op.promoted is None else [positions[i] for i in op.promoted]
    operands = [result[i] for i in chosen]
    common = common_dtype([x.sample if isinstance(x, Placeholder) else x for x in operands])
    if op.promotion == "float" and common.category < Category.FLOATING:
        common = get_default_dtype()
    for i in chosen:
        if isinstance(result[i], (Placeholder, *NUMBERS)):
            result[i] = wrap(number(result[i], common))
    return tuple(result)


def _backward(
    op: Op, outputs: Sequence[Tensor], grads: Sequence[Tensor], wanted: Sequence[Tensor]
) -> list[Tensor]:
    """Return the gradient of each wanted leaf: newest node first, sums where paths meet."""
    pending: dict[int, tuple[Node, list[Tensor | None]]] = {}
    leaves: dict[int, Tensor] = {}
    newest: list[int] = []

    def send(edge: Any, grad: Tensor | None) -> None:
        if edge is None or grad is None:
            return
        if isinstance(edge, Tensor):
            before = leaves.get(id(edge))
            leaves[id(edge)] = grad if before is None else OPS["add"].function(before, grad)
            return
        node, k = (edge.node, edge.index) if isinstance(edge, Output) else (edge, 0)
        if node.sequence not in pending:
            pending[node.sequence] = (node, [None] * node.n_outputs)
            heapq.heappush(newest, -node.sequence)
        slots = pending[node.sequence][1]
        before = slots[k]
        slots[k] = grad if before is None else OPS["add"].function(before, grad)

    before, state.grad_enabled = state.grad_enabled, False
    try:
        for y, g in zip(outputs, grads, strict=True):
            send(edge_of(y), g)
        while newest:
            node, slots = pending.pop(-heapq.heappop(newest))
            for edge, grad in zip(node.edges, node.apply(slots), strict=True):
                send(edge, grad)
    finally:
        state.grad_enabled = before
    for x in wanted:
        if id(x) not in leaves:
            raise CompileError("no gradient reaches an input that needs one", op=op.name)
    return [leaves[id(x)] for x in wanted]
