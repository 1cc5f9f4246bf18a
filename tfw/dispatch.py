"""The one slow path of every op: promotion, checks, choice of executor, named errors, recording.

The fast path (`tfw.fastpath`) handles equal kinds on the CPU and hands all else to `dispatch`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import Category, dtype
from tfw.errors import (
    ArgumentError,
    AutogradError,
    DeviceError,
    DtypeError,
    NoKernelError,
    TfwError,
)
from tfw.graph import Edge, Output, View, cell_of, edge_of
from tfw.recording import OpNode, record
from tfw.runtime import backend as backends
from tfw.runtime.backend import Backend, Kind
from tfw.runtime.thread_state import state
from tfw.tensor import Tensor, new_tensor

if TYPE_CHECKING:
    from tfw.registry import Op

NUMBERS = (bool, int, float, complex, np.generic)
Handler = Callable[["Op", tuple[Any, ...]], Any]

# The interception point: the profiler, autocast and tracers put a handler into `state.handler` of
# their thread. The fast path tests this global, None unless a thread has one, so it costs nothing.
intercept: bool | None = None
_handlers = 0
_lock = threading.Lock()


@contextmanager
def intercepting(handler: Handler) -> Generator[None, None, None]:
    """Send every op call of this thread to `handler(op, args)` inside the block.

    Inside the handler the previous interceptor is in force, so `dispatch(op, args)` there goes on.
    """
    global intercept, _handlers
    outer = state.handler

    def call(op: Op, args: tuple[Any, ...]) -> Any:
        state.handler = outer
        try:
            return handler(op, args)
        finally:
            state.handler = call

    with _lock:
        _handlers += 1
        intercept = True
    state.handler = call
    try:
        yield
    finally:
        state.handler = outer
        with _lock:
            _handlers -= 1
            intercept = True if _handlers else None


def dispatch(op: Op, args: tuple[Any, ...]) -> Any:
    """Run an op on arguments in signature order; returns a Tensor or a tuple of them."""
    if intercept is not None and state.handler is not None:
        return state.handler(op, args)
    inputs, attrs = split(op, args)
    if op.promotion:
        inputs = promote(op, inputs)
        args = _with_inputs(op, args, inputs)
    backend = choose(op, inputs, attrs)
    if op.dtypes is not None:
        check_dtypes(op, inputs)
    edges: tuple[Edge | None, ...] = ()
    tracked = False
    if state.grad_enabled and op.differentiable:
        edges = tuple([edge_of(x) if isinstance(x, Tensor) else None for x in inputs])
        tracked = any(e is not None for e in edges)
    if tracked and not op.vjps and op.body is not None:
        return op.run_body(args)  # its own ops record themselves
    result = execute(op, backend, inputs, attrs)
    if result is NotImplemented:
        if op.body is None:
            raise NoKernelError(
                f"the op has no way to run on device {backend.device_type!r}",
                op=op.shown,
                remedy="move the tensors to the CPU, or define a kernel (docs/adding-an-op.md)",
            )
        if not op.vjps:
            return op.run_body(args)
        result = without_history(op, args)
    return finish(op, backend, result, inputs, attrs, edges, tracked)


def finish(
    op: Op,
    backend: Backend,
    result: Any,
    inputs: Sequence[Any],
    attrs: tuple[Any, ...],
    edges: tuple[Edge | None, ...],
    tracked: bool,
) -> Any:
    """Wrap payloads in Tensors; make views of them, or record their node."""
    if "device" in op.attrs:
        backend = backends.for_device(attrs[op.attrs.index("device")])
    if not isinstance(result, tuple):
        out = new_tensor(result, backend.kind(result))
        if op.layout is not None:
            make_view(op, out, inputs[0], attrs, -1, None)
        elif tracked:
            record(op, (out,), inputs, edges, attrs)
        return out
    outs = tuple(new_tensor(r, backend.kind(r)) for r in result)  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  payloads
    if op.views:
        edge = record_views(op, outs, inputs[0], edges, attrs) if tracked else None
        for k, out in enumerate(outs):
            make_view(op, out, inputs[0], attrs, k, None if edge is None else Output(edge, k))
    elif tracked:
        record(op, outs, inputs, edges, attrs)
    return outs


def record_views(
    op: Op,
    outs: tuple[Tensor, ...],
    x: Tensor,
    edges: tuple[Edge | None, ...],
    attrs: tuple[Any, ...],
) -> OpNode | None:
    """Record one node for all outputs of a view op such as split."""
    if len(outs) == 1:
        return None  # found again by replay
    return record(op, outs, (x,), edges, attrs)


def make_view(
    op: Op, out: Tensor, parent: Tensor, attrs: tuple[Any, ...], index: int, edge: Edge | None
) -> None:
    """Mark `out` as sharing the memory of `parent`."""
    cell = out._cell = cell_of(parent)
    out._node = View(parent, op, attrs, index, cell[0], edge, state.grad_enabled)


def split(op: Op, args: tuple[Any, ...]) -> tuple[list[Any], tuple[Any, ...]]:
    """Sort arguments in signature order into tensors and attributes. TypeError for a wrong type."""
    inputs = [args[i] for i in op.tensor_positions]
    for name, x, accepts in zip(op.inputs, inputs, op.accepts, strict=True):
        if not isinstance(x, accepts if list in accepts else (Tensor, *accepts)):
            wanted = " or ".join(
                (["a list or tuple of Tensors"] if list in accepts else ["a Tensor"])
                + (["None"] if type(None) in accepts else [])
                + (["a number"] if float in accepts else [])
            )
            raise ArgumentError(
                f"{name} must be {wanted}, not {type(x).__name__}",
                op=op.shown,
                argument=name,
                value=x,
            )
    if op.list_at is not None:
        name, elements = op.inputs[-1], inputs.pop()
        for i, x in enumerate(elements):
            if not isinstance(x, Tensor):
                raise ArgumentError(
                    f"{name}[{i}] is a {type(x).__name__}, not a Tensor",
                    op=op.shown,
                    argument=name,
                    value=x,
                )
        inputs.extend(elements)
    return inputs, tuple([args[i] for i in op.attr_positions])


def _with_inputs(op: Op, args: tuple[Any, ...], inputs: list[Any]) -> tuple[Any, ...]:
    """Return arguments in signature order with promoted inputs, as the body is to see them."""
    result = list(args)
    for i, position in enumerate(op.tensor_positions):
        result[position] = inputs[i:] if i == op.list_at else inputs[i]
    return tuple(result)


def promote(op: Op, inputs: list[Any]) -> list[Any]:
    """Convert the op's operands to their common dtype, integers to floating point if it says so."""
    chosen = op.promoted
    operands = [inputs[i] for i in chosen] if chosen is not None else inputs
    if not operands:
        return inputs  # an empty list, which the op's shape rule refuses
    kinds = {x._kind.dtype for x in operands if isinstance(x, Tensor)}
    if len(kinds) == 1 and all(isinstance(x, Tensor) for x in operands):
        common = next(iter(kinds))
    else:
        common = common_dtype(operands)
    if op.promotion == "float" and common.category < Category.FLOATING:
        common = dtypes.get_default_dtype()
    result = list(inputs)
    for i in chosen if chosen is not None else range(len(inputs)):
        x = inputs[i]
        if isinstance(x, Tensor):
            if x._kind.dtype is not common:
                result[i] = convert(x, common)
        elif x is not None:
            result[i] = number_as(common, x)
    return result


def common_dtype(operands: Sequence[Any]) -> dtype:
    """Return PyTorch's result dtype of Tensors and numbers."""
    tensors = [x for x in operands if isinstance(x, Tensor)]
    return dtypes.result_type(
        [x._kind.dtype for x in tensors if x._a.ndim],
        [x._kind.dtype for x in tensors if not x._a.ndim],
        [x for x in operands if isinstance(x, NUMBERS)],  # pyright: ignore[reportArgumentType]  np.generic counts as a number
    )


def number_as(d: dtype, value: Any) -> Tensor:
    """Return a Python number as a 0-d CPU tensor of `d`; integers wrap as PyTorch's do."""
    array = state.run(np.asarray(value).astype, d.numpy)
    backend = backends.for_device(_CPU)
    return new_tensor(array, backend.kind(array))


def convert(x: Tensor, d: dtype) -> Tensor:
    """Return `x` as dtype `d`, recorded."""
    from tfw.registry import OPS

    return OPS["to_dtype"].function(x, d)


def choose(op: Op, inputs: list[Any], attrs: tuple[Any, ...]) -> Backend:
    """Return the backend of the inputs' device, or of the attribute `device`.

    0-d CPU tensors move there. Errors: RuntimeError (DeviceError) if other devices differ.
    """
    first: Kind | None = None
    mixed = False
    for x in inputs:
        if isinstance(x, Tensor):
            kind = x._kind
            if first is None:
                first = kind
            elif kind.device is not first.device and kind.device != first.device:
                mixed = True
    if first is None:
        return backends.for_device(
            attrs[op.attrs.index("device")] if "device" in op.attrs else _CPU
        )
    if mixed:
        return _gather(op, inputs)
    return first.backend


def _gather(op: Op, inputs: list[Any]) -> Backend:
    from tfw.registry import OPS

    def movable(x: Tensor) -> bool:
        return not x._a.ndim and x._kind.device.type == "cpu"

    tensors = [x for x in inputs if isinstance(x, Tensor)]
    fixed = next((x for x in tensors if not movable(x)), tensors[0])
    target = fixed._kind.device
    for i, x in enumerate(inputs):
        if isinstance(x, Tensor) and x._kind.device != target:
            if not movable(x):
                name = _name_of(op, i)
                raise DeviceError(
                    f"{name} is on {x.device}, other arguments are on {target}",
                    op=op.shown,
                    argument=name,
                    value=x.device,
                    rule="all tensors on one device (0-d CPU tensors may be mixed in)",
                    remedy=f"move it with .to({str(target)!r})",
                )
            inputs[i] = OPS["to_device"].function(x, target)
    return fixed._kind.backend


def _name_of(op: Op, i: int) -> str:
    """Return how input number `i` is called in messages."""
    if op.list_at is None or i < op.list_at:
        return op.inputs[i]
    return f"{op.inputs[op.list_at]}[{i - op.list_at}]"


def check_dtypes(op: Op, inputs: Sequence[Any]) -> None:
    """Raise RuntimeError (DtypeError) for a tensor whose dtype the op does not take."""
    for i, x in enumerate(inputs):
        if isinstance(x, Tensor):
            name = _name_of(op, i)
            allowed = op.dtypes
            if isinstance(allowed, dict):
                allowed = allowed.get(name.partition("[")[0])
            if allowed is not None and x._kind.dtype not in allowed:
                raise DtypeError(
                    f"{name} has dtype {x.dtype!r}",
                    op=op.shown,
                    argument=name,
                    value=x.dtype,
                    rule=", ".join(d.name for d in allowed),
                    remedy="convert it with .to(dtype)",
                )


def execute(op: Op, backend: Backend, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """Return the op's output payloads on this backend, NotImplemented if it has no rule for it."""
    payloads = [x._a if isinstance(x, Tensor) else x for x in inputs]
    if op.generic is not None:
        return op.generic(backend, *payloads, *attrs)
    if op.layout is not None:
        layout = op.layout(backend.spec(payloads[0]), *attrs)
        if op.views:
            return tuple(backend.view(payloads[0], *part) for part in layout)
        return backend.view(payloads[0], *layout)
    if op.list_at is not None:
        payloads = [*payloads[: op.list_at], payloads[op.list_at :]]
    try:
        result = backend.run(op, payloads, attrs)
    except TfwError:
        raise
    except Exception:
        explain(op, inputs, attrs)
        raise
    if result is NotImplemented or op.infer is None or not _any_strided(inputs):
        return result
    return _laid_out(backend, result, infer(op, inputs, attrs))


def _any_strided(inputs: Sequence[Any]) -> bool:
    return any(isinstance(x, Tensor) and x._kind.form == "strided" for x in inputs)


def _laid_out(backend: Backend, result: Any, wanted: Any) -> Any:
    """Give results PyTorch's layout where a rule followed its inputs' (NumPy's "K" order)."""
    if isinstance(result, tuple):
        return tuple(_laid_out(backend, r, w) for r, w in zip(result, wanted, strict=True))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]  payloads
    if result.ndim < 2 or backend.spec(result).strides == wanted.strides:
        return result
    copy = backend.empty(wanted)
    backend.copy(copy, result)
    return copy


def infer(op: Op, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """Return the Spec(s) of an op's result from its inputs' Specs."""
    specs: list[Any] = [x._kind.backend.spec(x._a) if isinstance(x, Tensor) else x for x in inputs]
    if op.infer is None:
        raise AutogradError("the op has no shape rule of its own", op=op.shown)
    if op.list_at is not None:
        specs = [*specs[: op.list_at], specs[op.list_at :]]
    return op.infer(*specs, *attrs)


def explain(op: Op, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> None:
    """Raise the named error for arguments that a rule refused, if the shape rule knows it."""
    if op.infer is not None:
        infer(op, inputs, attrs)


def without_history(op: Op, args: tuple[Any, ...]) -> Any:
    """Run a composed op's body unrecorded and return its payloads."""
    state.grad_enabled, before = False, state.grad_enabled
    try:
        result: Tensor | tuple[Tensor, ...] = op.run_body(args)
    finally:
        state.grad_enabled = before
    return tuple(r._a for r in result) if isinstance(result, tuple) else result._a


_CPU = backends.device("cpu")
