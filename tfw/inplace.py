"""In-place forms and `out=`: results stored in memory that a tensor already has, and its history.

An in-place op is the out-of-place op's node with its result stored in the same memory. What may be
overwritten is checked before anything is computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tfw import dtypes
from tfw.dispatch import dispatch, split
from tfw.errors import ArgumentError, AutogradError, DtypeError, LayoutError, ShapeError
from tfw.graph import LEAF, Edge, Node, Output, Saved, View, cell_of, edge_of
from tfw.recording import OpNode, plan_of, record
from tfw.runtime.thread_state import state
from tfw.shapes import Spec, may_overlap
from tfw.tensor import Tensor, new_tensor

if TYPE_CHECKING:
    from tfw.registry import Op


def dispatch_inplace(op: Op, args: tuple[Any, ...]) -> Tensor:
    """Run `x.op_(...)`: the op, its result stored in x's memory, x's history moved on."""
    target = args[0]
    if not isinstance(target, Tensor):
        raise ArgumentError(
            f"self must be a Tensor, not {type(target).__name__}", op=op.shown + "_"
        )
    name = op.shown.removesuffix("_") + "_"
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

    `one_value` says that all elements get the same value, so that it does not matter if several are
    one place in memory.
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
            and not backend.same_memory(target._a, x._a)
            and backend.share_memory(target._a, x._a)
        ):
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
                f"output {view.index} of {view.op.name} is one of several views and cannot be "
                "modified in place",
                op=name,
                remedy="index the tensor instead, or clone() the output",
            )
        above = view.parent._node
        if view.parent._kind.form == "strided":
            spec = view.parent._kind.backend.spec(view.parent._a)
            if may_overlap(spec.shape, spec.strides):
                raise LayoutError(
                    "a view of an expanded tensor is being modified in place: its gradient would "
                    "count the elements that are one place in memory several times",
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
            f"the result's shape {tuple(result._a.shape)} does not fit a tensor of shape "
            f"{tuple(target._a.shape)}",
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

    parent' = view_scatter(parent, view'), and so on up to the base. Other views of the base notice
    by its version that they must replay their view op.
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
    """Let `retain_grad` follow a tensor to its new value, whose gradient it then asks for."""
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
            f"out must be a Tensor, not {type(out).__name__}", op=op.shown, argument="out"
        )
    inputs, _ = split(op, args)
    if state.grad_enabled and any(
        isinstance(x, Tensor) and x.requires_grad for x in (*inputs, out)
    ):
        raise AutogradError(
            "out= does not support gradients and an argument requires grad",
            op=op.shown,
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
