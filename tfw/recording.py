"""From an op to a node: what its vjps need, saving just that, and applying them.

A vjp is a plain function whose parameter names say what it needs (see `GradPlan`), so nothing is saved
that no vjp of a needed input names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from tfw.errors import ArgumentError
from tfw.graph import (
    LEAF,
    Edge,
    Extent,
    Node,
    Output,
    Saved,
    check_version,
    edge_of,
    freed,
    next_sequence,
    save,
    start,
)
from tfw.runtime.thread_state import state
from tfw.tensor import Tensor, new_tensor

_new = object.__new__


class Differentiable(Protocol):
    """What recording needs of an op."""

    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attrs: tuple[str, ...]
    vjps: dict[tuple[str, ...], Callable[..., Any]]
    broadcasts: bool
    list_at: int | None
    plans: dict[int, GradPlan]


class Call(NamedTuple):
    """One vjp to run: the inputs it serves, and where each argument comes from."""

    indices: tuple[int, ...]
    vjp: Callable[..., Any]
    arguments: tuple[tuple[str, int], ...]


class GradPlan:
    """What to save and which vjps to run when a given set of an op's inputs needs gradients.

    A vjp's parameter may be named
    - ``g``: the gradient of the one output, or ``g_<output>`` of one of several (None if unused), or
      ``grads``: a list of all, for an op whose number of outputs varies;
    - an input or an output: that tensor, saved;
    - ``<input>_spec`` or ``<output>_spec``: its shape and kind, without memory;
    - an attribute: its value;
    - ``needs``: for a joint vjp, which of the op's inputs need a gradient.

    If the op's last input is a list, its name stands for a tuple of all its elements.
    """

    __slots__ = ("calls", "needs", "op", "saves")

    def __init__(self, op: Differentiable, mask: int) -> None:
        self.op = op
        self.needs = tuple(bool(mask >> i & 1) for i in range(len(op.inputs)))
        saves: list[tuple[str, int]] = []
        calls: list[Call] = []
        for served, vjp in op.vjps.items():
            indices = tuple(op.inputs.index(name) for name in served)
            if not any(self.needs[i] for i in indices):
                continue
            code = vjp.__code__
            arguments: list[tuple[str, int]] = []
            for name in code.co_varnames[: code.co_argcount]:
                tag, index = _source(op, name)
                if tag in ("input", "output", "input_spec", "output_spec"):
                    if (tag, index) not in saves:
                        saves.append((tag, index))
                    tag, index = "saved", saves.index((tag, index))
                arguments.append((tag, index))
            calls.append(Call(indices, vjp, tuple(arguments)))
        self.saves = tuple(saves)
        self.calls = tuple(calls)


def _source(op: Differentiable, name: str) -> tuple[str, int]:
    if name == "g" and len(op.outputs) == 1:
        return "grad", 0
    if name.startswith("g_") and name[2:] in op.outputs:
        return "grad", op.outputs.index(name[2:])
    if name in ("needs", "grads"):
        return name, 0
    for tag, names in (("input", op.inputs), ("output", op.outputs)):
        if name in names:
            return tag, names.index(name)
        if name.endswith("_spec") and name[:-5] in names:
            return f"{tag}_spec", names.index(name[:-5])
    if name in op.attrs:
        return "attr", op.attrs.index(name)
    raise ArgumentError(
        f"the vjp's parameter {name!r} names nothing of the op",
        op=op.name,
        argument=name,
        rule="g, g_<output>, needs, or one of "
        + ", ".join((*op.inputs, *op.outputs, *op.attrs))
        + ", the tensors also with _spec",
    )


def plan_of(op: Differentiable, mask: int) -> GradPlan:
    """Return the op's plan for the inputs in `mask`, made once."""
    plan = op.plans.get(mask)
    if plan is None:
        plan = op.plans[mask] = GradPlan(op, mask)
    return plan


class OpNode(Node):
    """A recorded call of a registered op."""

    plan: GradPlan
    saved: tuple[Any, ...] | None
    attrs: tuple[Any, ...] = ()
    # Shapes of the inputs of a broadcasting op, where one of them is not the result's.
    shapes: tuple[Any, ...] | None = None

    def name(self) -> str:
        words = self.plan.op.name.split("_")
        return "".join(w[:1].upper() + w[1:] for w in words) + "Backward0"

    def release(self) -> None:
        if self.plan.saves:
            self.saved = None

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        saved = self.saved
        if saved is None:
            raise freed(self.plan.op.name)
        result: list[Tensor | None] = [None] * len(self.edges)
        for indices, vjp, arguments in self.plan.calls:
            values: list[Any] = []
            for tag, k in arguments:
                if tag == "grad":
                    values.append(grads[k])
                elif tag == "saved":
                    item = saved[k]
                    values.append(item if item.__class__ is Extent else self._unpack(item, k))
                elif tag == "attr":
                    values.append(self.attrs[k])
                elif tag == "grads":
                    values.append(grads)
                else:
                    values.append([edge is not None for edge in self.edges])
            value = vjp(*values)
            if indices[-1] == self.plan.op.list_at:
                result[indices[-1] :] = value
            elif len(indices) == 1:
                result[indices[0]] = value
            else:
                for i, v in zip(indices, value, strict=True):
                    result[i] = v
        if self.shapes is not None:
            for i, shape in enumerate(self.shapes):
                g = result[i]
                if g is not None and shape is not None and g._a.shape != shape:
                    result[i] = _sum_to(g, shape)
        return result

    def _unpack(self, item: Any, k: int) -> Any:
        """Rebuild a saved tensor; with its history if gradients are being recorded."""
        op = self.plan.op
        tag, i = self.plan.saves[k]
        if item.__class__ is Saved:
            if tag == "input":
                return self._rebuild(item, self.edges[i], op.inputs[i])
            return self._rebuild(
                item, self if self.n_outputs == 1 else Output(self, i), op.outputs[i]
            )
        if i == op.list_at and tag == "input":
            return tuple(
                self._rebuild(e, self.edges[i + j], op.inputs[i]) for j, e in enumerate(item)
            )
        return item  # extents of a list, an absent tensor, a Python number

    def _rebuild(self, item: Saved, edge: Edge | None, what: str) -> Tensor:
        if item.cell[0] != item.version:
            check_version(item, self.plan.op.name, what)
        tensor = new_tensor(item.payload, item.kind)
        if edge is not None and state.grad_enabled:
            if isinstance(edge, Tensor):
                return edge
            tensor._node = edge
        return tensor


def _sum_to(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    from tfw.registry import OPS

    return OPS["sum_to_size"].function(g, shape)


def record(
    op: Differentiable,
    outputs: tuple[Tensor, ...],
    inputs: Sequence[Any],
    edges: tuple[Edge | None, ...],
    attrs: tuple[Any, ...],
) -> OpNode | None:
    """Attach a node to an op's outputs; `inputs` are Tensors, None or numbers, as many as `edges`."""
    mask = 0
    for i, edge in enumerate(edges):
        if edge is not None:
            mask |= 1 << (i if op.list_at is None else min(i, op.list_at))
    plan = op.plans.get(mask)
    if plan is None:
        plan = plan_of(op, mask)
    if not plan.calls:
        return None
    node: OpNode = _new(OpNode)
    node.plan = plan
    node.attrs = attrs
    node.edges = edges
    node.sequence = next_sequence()
    if state.anomaly:
        start(node, edges)
    if len(outputs) == 1:
        outputs[0]._node = node
    else:
        node.n_outputs = len(outputs)
        for k, out in enumerate(outputs):
            if out._kind.dtype.category >= 2:
                out._node = Output(node, k)
    node.saved = tuple([_keep(tag, i, inputs, outputs, op.list_at) for tag, i in plan.saves])
    if op.broadcasts:
        shape = outputs[0]._a.shape
        if any(
            edge is not None and x._a.shape != shape for x, edge in zip(inputs, edges, strict=True)
        ):
            node.shapes = tuple(x._a.shape if isinstance(x, Tensor) else None for x in inputs)
    return node


def _keep(
    tag: str, i: int, inputs: Sequence[Any], outputs: tuple[Tensor, ...], list_at: int | None
) -> Any:
    if tag == "output":
        return save(outputs[i])
    if tag == "output_spec":
        return Extent(outputs[i]._a.shape, outputs[i]._kind)
    if i == list_at:
        elements = inputs[i:]
        if tag == "input":
            return tuple([save(x) for x in elements])
        return tuple([Extent(x._a.shape, x._kind) for x in elements])
    x = inputs[i]
    if not isinstance(x, Tensor):
        return x
    return save(x) if tag == "input" else Extent(x._a.shape, x._kind)


def record_unary(op: Differentiable, out: Tensor, x: Tensor, attrs: tuple[Any, ...]) -> None:
    """Record the result of a one-tensor op on the fast path; the caller saw that x may be tracked."""
    node = x._node
    edge = x if node is LEAF else node if node.__class__ is OpNode else edge_of(x)
    if edge is not None:
        record(op, (out,), (x,), (edge,), attrs)


def record_binary(
    op: Differentiable, out: Tensor, x: Tensor, y: Any, attrs: tuple[Any, ...]
) -> None:
    """Record the result of a two-tensor op on the fast path; `y` may be a number."""
    edge_x = edge_of(x)
    edge_y = edge_of(y) if isinstance(y, Tensor) else None
    if edge_x is not None or edge_y is not None:
        record(op, (out,), (x, y), (edge_x, edge_y), attrs)


def replay_view(op: Differentiable, view: Any, edge: Edge) -> Edge:
    """Return a fresh edge for a view, as if its op ran on `view.parent` now."""
    parent: Tensor = view.parent
    node: OpNode = _new(OpNode)
    node.plan = plan_of(op, 1)
    node.attrs = view.attrs
    node.saved = tuple(Extent(parent._a.shape, parent._kind) for _ in node.plan.saves)
    start(node, (edge,))
    if view.index < 0:
        return node
    node.n_outputs = view.index + 1
    return Output(node, view.index)
