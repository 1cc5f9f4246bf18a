"""The one slow path of every op: promotion, checks, choice of executor, named errors, recording.

The fast path (`tfw.fastpath`) handles equal kinds on the CPU and hands everything else to `dispatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
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
    LayoutError,
    NoKernelError,
    ShapeError,
    TfwError,
)
from tfw.graph import LEAF, Edge, Node, Output, Saved, View, cell_of, edge_of
from tfw.recording import OpNode, plan_of, record
from tfw.runtime import backend as backends
from tfw.runtime.backend import Backend, Kind, Payload
from tfw.runtime.thread_state import state
from tfw.shapes import Spec, may_overlap
from tfw.tensor import Tensor, new_tensor

if TYPE_CHECKING:
    from tfw.registry import Op

NUMBERS = (bool, int, float, complex, np.generic)
Handler = Callable[["Op", tuple[Any, ...]], Any]

# The interception point: the profiler, autocast and tracers put a handler here while they are on.
# The fast path tests this global, so it costs nothing while it is None.
intercept: Handler | None = None


@contextmanager
def intercepting(handler: Handler) -> Iterator[None]:
    """Send every op call to `handler(op, args)` inside the block.

    Inside the handler the previous interceptor is in force, so `dispatch(op, args)` there goes on.
    """
    global intercept
    outer = intercept

    def call(op: Op, args: tuple[Any, ...]) -> Any:
        global intercept
        intercept = outer
        try:
            return handler(op, args)
        finally:
            intercept = call

    intercept = call
    try:
        yield
    finally:
        intercept = outer


def dispatch(op: Op, args: tuple[Any, ...]) -> Any:
    """Run an op on arguments in signature order; returns a Tensor or a tuple of them."""
    if intercept is not None:
        return intercept(op, args)
    inputs, attrs = split(op, args)
    if op.promotion:
        inputs = promote(op, inputs)
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
                op=op.name,
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
                op=op.name,
                argument=name,
                value=x,
            )
    if op.list_at is not None:
        name, elements = op.inputs[-1], inputs.pop()
        for i, x in enumerate(elements):
            if not isinstance(x, Tensor):
                raise ArgumentError(
                    f"{name}[{i}] is a {type(x).__name__}, not a Tensor",
                    op=op.name,
                    argument=name,
                    value=x,
                )
        inputs.extend(elements)
    return inputs, tuple([args[i] for i in op.attr_positions])


def promote(op: Op, inputs: list[Any]) -> list[Any]:
    """Convert the op's operands to their common dtype (and integers to floating point if it says so)."""
    chosen = op.promoted
    operands = [inputs[i] for i in chosen] if chosen is not None else inputs
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
    """Return the backend of the inputs' device (or of the attribute `device`); 0-d CPU tensors move there.

    Errors: RuntimeError (DeviceError) if the devices differ.
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
                    op=op.name,
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
                    op=op.name,
                    argument=name,
                    value=x.dtype,
                    rule=", ".join(d.name for d in allowed),
                    remedy="convert it with .to(dtype)",
                )


def execute(op: Op, backend: Backend, inputs: Sequence[Any], attrs: tuple[Any, ...]) -> Any:
    """Return the op's output payloads on this backend, or NotImplemented if it has no rule for it."""
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
    """Give results PyTorch's layout where a rule followed its inputs' (NumPy's "K" order) instead."""
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
        raise AutogradError("the op has no shape rule of its own", op=op.name)
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
        result = op.run_body(args)
    finally:
        state.grad_enabled = before
    return tuple(r._a for r in result) if isinstance(result, tuple) else result._a


# ---- in place, and out=


def dispatch_inplace(op: Op, args: tuple[Any, ...]) -> Tensor:
    """Run `x.op_(...)`: the out-of-place op, with its result stored in x's memory and x's history moved on."""
    target = args[0]
    if not isinstance(target, Tensor):
        raise ArgumentError(f"self must be a Tensor, not {type(target).__name__}", op=op.name + "_")
    name = op.name + "_"
    tracked = check_writable(name, target, args[1:], op.writes_one_value)
    source = target
    if tracked:
        # A gradient may need the value that is about to be overwritten.
        plan = plan_of(op, _mask(op, args))
        if ("input", 0) in plan.saves:
            kind = target._kind
            memory = kind.backend.empty(kind.backend.spec(target._a))
            kind.backend.copy(memory, target._a)
            source = new_tensor(memory, kind.backend.kind(memory))
            source._node = edge_of(target)
    result = dispatch(op, (source, *args[1:]))
    write(name, target, result)
    if tracked:
        node = result._node
        set_history(target, edge_of(result))
        if isinstance(node, OpNode):
            _save_output_of(node, target)
    return target


def _mask(op: Op, args: tuple[Any, ...]) -> int:
    mask = 0
    for i, position in enumerate(op.tensor_positions):
        x = args[position]
        if isinstance(x, Tensor) and edge_of(x) is not None:
            mask |= 1 << i
    return mask


def _save_output_of(node: OpNode, target: Tensor) -> None:
    """Let a node that saved its output refer to the memory the output was stored in."""
    if node.saved is not None and ("output", 0) in node.plan.saves:
        cell = cell_of(target)
        saved = Saved(target._a, target._kind, cell, cell[0])
        node.saved = tuple(
            saved if source == ("output", 0) else s
            for source, s in zip(node.plan.saves, node.saved, strict=True)
        )


def check_writable(
    name: str, target: Tensor, others: Sequence[Any], one_value: bool = False
) -> bool:
    """Raise unless `target` may be modified in place; return whether the change must be recorded.

    `one_value` says that all elements get the same value, so that it does not matter if several are one
    place in memory.
    """
    backend = target._kind.backend
    if target._kind.form == "strided" and not one_value:
        spec = backend.spec(target._a)
        if may_overlap(spec.shape, spec.strides):
            raise LayoutError(
                f"several elements of the tensor of shape {spec.shape} and strides {spec.strides} "
                "are one place in memory",
                op=name,
                remedy="clone() it first",
            )
    for x in others:
        if (
            isinstance(x, Tensor)
            and x is not target
            and x._cell is not None
            and x._cell is target._cell
        ):
            if not backend.same_memory(target._a, x._a) and backend.share_memory(target._a, x._a):
                raise LayoutError(
                    "source and destination share part of their memory",
                    op=name,
                    remedy="clone() the source first",
                )
    if not state.grad_enabled:
        return False
    node = target._node
    tracked = edge_of(target) is not None
    if node is LEAF:
        raise AutogradError(
            "a leaf that requires grad is being modified in place",
            op=name,
            remedy="do it under no_grad(), or on a clone()",
        )
    changed = tracked or any(isinstance(x, Tensor) and edge_of(x) is not None for x in others)
    if node.__class__ is View and (changed or not node.tracked):
        _check_view(name, node, changed)
    return changed


def _check_view(name: str, view: View, changed: bool) -> None:
    """Raise where a change of a view could not be recorded in what it is a view of."""
    while True:
        if not view.tracked and (changed or edge_of(view.parent) is not None):
            raise AutogradError(
                "a view taken under no_grad() is being modified in place with gradients enabled",
                op=name,
                remedy="take the view outside no_grad(), or modify it inside",
            )
        if not changed:
            return
        if view.op.views:
            raise AutogradError(
                f"output {view.index} of {view.op.name} is one of several views and cannot be modified in place",
                op=name,
                remedy="index the tensor instead, or clone() the output",
            )
        above = view.parent._node
        if view.parent._kind.form == "strided":
            spec = view.parent._kind.backend.spec(view.parent._a)
            if may_overlap(spec.shape, spec.strides):
                raise LayoutError(
                    "a view of an expanded tensor is being modified in place: its gradient would count "
                    "the elements that are one place in memory several times",
                    op=name,
                    remedy="clone() the expanded tensor first",
                )
        if above is LEAF:
            raise AutogradError(
                "a view of a leaf that requires grad is being modified in place",
                op=name,
                remedy="do it under no_grad(), or on a clone()",
            )
        if above.__class__ is not View:
            return
        view = above


def write(name: str, target: Tensor, result: Tensor) -> None:
    """Store a result in `target`'s memory and count the change. RuntimeError if it does not fit."""
    if result._a.shape != target._a.shape:
        raise ShapeError(
            f"the result's shape {tuple(result._a.shape)} does not fit a tensor of shape {tuple(target._a.shape)}",
            op=name,
            argument="shape",
            value=tuple(result._a.shape),
        )
    if not dtypes.can_cast(result.dtype, target.dtype):
        raise DtypeError(
            f"result type {result.dtype!r} cannot be stored in {target.dtype!r}",
            op=name,
            argument="dtype",
            value=result.dtype,
            remedy="use the out-of-place form",
        )
    target._kind.backend.copy(target._a, result._a)
    count_change(target)


def count_change(target: Tensor) -> None:
    """Note that a tensor's memory was modified."""
    cell = target._cell
    if cell is None:
        target._cell = [1]
    else:
        cell[0] += 1


def set_history(target: Tensor, edge: Edge | None) -> None:
    """Make `edge` the history of a tensor modified in place, and rebase what it is a view of.

    parent' = view_scatter(parent, view'), and so on up to the base. Other views of the base notice by
    its version that they must replay their view op.
    """
    from tfw.registry import OPS

    node = target._node
    if node.__class__ is not View:
        _move_retained(node, edge)
        target._node = edge
        return
    parent: Tensor = node.parent
    before = edge_of(parent)
    scatter = OPS["view_scatter"]
    out = new_tensor(parent._a, parent._kind)
    attrs = (node.op, node.attrs, node.index)
    record(scatter, (out,), (parent, target), (before, edge), attrs)
    set_history(parent, out._node)
    # The view finds its edge by replay from the parent, whose hooks then see its gradient.
    target._node = node._replace(node=None)


def _move_retained(before: Any, after: Edge | None) -> None:
    """Let `retain_grad` follow a tensor to its new value: it asks for the final value's gradient."""
    old, index = (before.node, before.index) if isinstance(before, Output) else (before, 0)
    if not isinstance(old, Node) or not old._retained or index not in old._retained:
        return
    new, at = (after.node, after.index) if isinstance(after, Output) else (after, 0)
    if isinstance(new, Node):
        new.retain(at, old._retained.pop(index))


def dispatch_out(op: Op, args: tuple[Any, ...], out: Any) -> Tensor:
    """Run an op and store its result in `out`, which is resized if it is empty."""
    if not isinstance(out, Tensor):
        raise ArgumentError(
            f"out must be a Tensor, not {type(out).__name__}", op=op.name, argument="out"
        )
    inputs, _ = split(op, args)
    if state.grad_enabled and any(
        isinstance(x, Tensor) and x.requires_grad for x in (*inputs, out)
    ):
        raise AutogradError(
            "out= does not support gradients and an argument requires grad",
            op=op.name,
            argument="out",
            remedy="call under no_grad()",
        )
    check_writable(op.name, out, inputs)
    result = dispatch(op, args)
    if out._a.shape != result._a.shape and not out._a.size:
        backend = out._kind.backend
        shape: Spec = backend.spec(result._a)
        out._a = backend.empty(shape._replace(dtype=out.dtype))
        out._kind = backend.kind(out._a)
    write(op.name, out, result)
    return out


_CPU = backends.device("cpu")
