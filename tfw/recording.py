"""From an op to a node: what its vjps need, saving just that, and applying them.

A vjp is a plain function whose parameter names say what it needs (see `GradPlan`), so nothing is
saved that no vjp of a needed input names.
"""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from tfw.dtypes import Category
from tfw.errors import ArgumentError
from tfw.graph import (
    LEAF,
    Edge,
    Node,
    Output,
    Saved,
    anomaly,
    anomaly_is_on,
    check_version,
    edge_of,
    extent,
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
    shown: str
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
    - ``g``: the gradient of the one output, or ``g_<output>`` of one of several (None if unused),
      or ``grads``: a list of all, for an op whose number of outputs varies;
    - an input or an output: that tensor, saved;
    - ``<input>_spec`` or ``<output>_spec``: its shape and kind, without memory;
    - an attribute: its value;
    - ``needs``: for a joint vjp, which of the op's inputs need a gradient.

    If the op's last input is a list, its name stands for a tuple of all its elements.
    """

    __slots__ = ("calls", "holds", "keep", "needs", "op", "run", "saves")

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
        # Whether memory is kept; extents cost none and stay for another backward.
        self.holds = any(tag in ("input", "output") for tag, _ in saves)
        self.calls = tuple(calls)
        self.keep, self.run = _compile(self)


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
        op=op.shown,
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
        """Return the op's name as PyTorch writes it."""
        words = self.plan.op.name.split("_")
        return "".join(w[:1].upper() + w[1:] for w in words) + "Backward0"

    def release(self) -> None:
        """Drop the saved values, if the plan keeps any."""
        if self.plan.holds:
            self.saved = None

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """Run the vjps, and sum each gradient to the shape its input was broadcast from."""
        if self.saved is None:
            raise freed(self.plan.op.shown)
        result = self.plan.run(self, grads, self.saved, state.grad_enabled)
        if self.shapes is not None:
            result = list(result)
            for i, shape in enumerate(self.shapes):
                g = result[i]
                if g is not None and shape is not None and g._a.shape != shape:
                    result[i] = _sum_to(g, shape)
        return result

    def unpack(self, item: Any, k: int) -> Any:
        """Rebuild what was saved; a tensor with its history if gradients are being recorded."""
        op = self.plan.op
        tag, i = self.plan.saves[k]
        if item.__class__ is Saved:
            if tag == "input":
                return self._rebuild(item, self.edges[i], op.inputs[i])
            edge = self if self.n_outputs == 1 else Output(self, i)
            return self._rebuild(item, edge, op.outputs[i])
        if i == op.list_at and tag == "input":
            return tuple(
                self._rebuild(e, self.edges[i + j], op.inputs[i]) for j, e in enumerate(item)
            )
        return item  # extents, an absent tensor, a number

    def _rebuild(self, item: Saved, edge: Edge | None, what: str) -> Tensor:
        check_version(item, self.plan.op.shown, what)
        tensor = new_tensor(item.payload, item.kind)
        if edge is not None and state.grad_enabled:
            if isinstance(edge, Tensor):
                return edge
            tensor._node = edge
        return tensor


def _sum_to(g: Tensor, shape: tuple[int, ...]) -> Tensor:
    from tfw.registry import OPS

    return OPS["sum_to_size"].function(g, shape)


# How the compiled function rebuilds a saved value: directly unless the node must look at it.
_SAVED = """
    item = saved[{k}]
    if item.__class__ is Saved and not recording and item[2][0] == item[3]:
        s{k} = new(Tensor)
        s{k}._a = item[0]
        s{k}._kind = item[1]
    else:
        s{k} = node.unpack(item, {k})"""


Keep = Callable[[Sequence[Any], tuple[Tensor, ...]], tuple[Any, ...]]


def _compile(plan: GradPlan) -> tuple[Keep, Callable[..., Any]]:
    """Compile the plan into two functions: thrice the speed of loops.

    keep(inputs, outputs) gives what is saved, run(node, grads, saved, recording) the gradients.
    """
    kept = "".join(f"{_kept(tag, i, plan.op.list_at)}, " for tag, i in plan.saves)
    lines = ["def keep(inputs, outputs):", f"    return ({kept})", ""]
    lines += ["def run(node, grads, saved, recording):"]
    lines += [_SAVED.format(k=k).strip("\n") for k in range(len(plan.saves))]
    n = len(plan.op.inputs)
    results = ["None"] * n
    scope: dict[str, Any] = {
        "Saved": Saved,
        "Tensor": Tensor,
        "new": _new,
        "save": save,
        "extent": extent,
    }
    text = {
        "grad": "grads[{}]",
        "saved": "s{}",
        "attr": "node.attrs[{}]",
        "needs": "[e is not None for e in node.edges]",
        "grads": "grads",
    }
    tail = ""
    for c, call in enumerate(plan.calls):
        scope[f"vjp{c}"] = call.vjp
        arguments = ", ".join(text[tag].format(k) for tag, k in call.arguments)
        if call.indices[-1] == plan.op.list_at:
            lines.append(f"    rest = vjp{c}({arguments})")
            tail = ", *rest"
        elif len(call.indices) == 1:
            lines.append(f"    r{call.indices[0]} = vjp{c}({arguments})")
            results[call.indices[0]] = f"r{call.indices[0]}"
        else:
            lines.append(f"    j{c} = vjp{c}({arguments})")
            for at, i in enumerate(call.indices):
                results[i] = f"j{c}[{at}]"
    if plan.op.list_at is not None:
        results = results[: plan.op.list_at]
        tail = tail or ", *[None] * (len(node.edges) - len(node.plan.op.inputs) + 1)"
    joined = ", ".join(results) + tail
    lines.append(f"    return ({joined.removeprefix(', ')},)")
    source = "\n".join(lines)
    filename = f"<gradient of {plan.op.name}, needs {plan.needs}>"
    linecache.cache[filename] = (len(source), None, source.splitlines(True), filename)
    exec(compile(source, filename, "exec"), scope)
    return scope["keep"], scope["run"]


def _kept(tag: str, i: int, list_at: int | None) -> str:
    """Return the expression that keeps one value."""
    tensors, function = ("outputs" if tag.startswith("output") else "inputs"), "save"
    if tag.endswith("_spec"):
        function = "extent"
    if tensors == "inputs" and i == list_at:
        return f"tuple([{function}(x) for x in inputs[{i}:]])"
    x = f"{tensors}[{i}]"
    # An input may be a number or None.
    kept = f"{function}({x})"
    return kept if tensors == "outputs" else f"{kept} if isinstance({x}, Tensor) else {x}"


def record(
    op: Differentiable,
    outputs: tuple[Tensor, ...],
    inputs: Sequence[Any],
    edges: tuple[Edge | None, ...],
    attrs: tuple[Any, ...],
) -> OpNode | None:
    """Attach a node to an op's outputs.

    `inputs` are Tensors, None or numbers, as many as `edges`.
    """
    mask, bit = 0, 1
    for edge in edges:
        if edge is not None:
            mask |= bit
        bit <<= 1
    return _attach(op, outputs, inputs, edges, mask, attrs)


def _attach(
    op: Differentiable,
    outputs: tuple[Tensor, ...],
    inputs: Sequence[Any],
    edges: tuple[Edge | None, ...],
    mask: int,
    attrs: tuple[Any, ...],
) -> OpNode | None:
    """Attach a node; bit i of `mask` says that edge i is there."""
    at = op.list_at
    if at is not None and mask >> at:
        mask = mask & ((1 << at) - 1) | 1 << at  # the list counts as one input
    plan = op.plans.get(mask) or plan_of(op, mask)
    if not plan.calls:
        return None
    if len(outputs) == 1:
        out = outputs[0]
        if out._kind.dtype.category < Category.FLOATING:
            return None
        out._node = node = _node(plan, edges, attrs)
    else:
        node = _node(plan, edges, attrs)
        node.n_outputs = len(outputs)
        for k, out in enumerate(outputs):
            if out._kind.dtype.category >= Category.FLOATING:
                out._node = Output(node, k)
    node.saved = plan.keep(inputs, outputs)
    if op.broadcasts:
        shape = outputs[0]._a.shape
        for x in inputs:
            if isinstance(x, Tensor) and x._a.shape != shape:
                node.shapes = tuple(x._a.shape if isinstance(x, Tensor) else None for x in inputs)
                break
    return node


def _node(plan: GradPlan, edges: tuple[Edge | None, ...], attrs: tuple[Any, ...]) -> OpNode:
    node: OpNode = _new(OpNode)
    node.plan = plan
    node.edges = edges
    node.sequence = next_sequence()
    if attrs:
        node.attrs = attrs
    if anomaly.ever is not False and anomaly_is_on():
        node.trace = traceback.extract_stack()
    return node


def record_unary(op: Differentiable, out: Tensor, x: Tensor, attrs: tuple[Any, ...]) -> None:
    """Record a one-tensor op's result on the fast path; the caller saw that x may be tracked."""
    edge = x._node
    if edge.__class__ is not OpNode:
        edge = x if edge is LEAF else edge_of(x)
        if edge is None:
            return
    plan = op.plans.get(1) or plan_of(op, 1)
    if not plan.calls:
        return
    out._node = node = _node(plan, (edge,), attrs)
    node.saved = plan.keep((x,), (out,))


def record_binary(
    op: Differentiable, out: Tensor, x: Tensor, y: Any, attrs: tuple[Any, ...]
) -> None:
    """Record the result of a two-tensor op on the fast path; `y` may be a number."""
    edge_x = x._node
    if edge_x is not None and edge_x.__class__ is not OpNode:
        edge_x = x if edge_x is LEAF else edge_of(x)
    if y.__class__ is float or y.__class__ is int:
        if edge_x is None:
            return
        edge_y, mask, broadcast = None, 1, False
    else:
        edge_y = y._node
        if edge_y is not None and edge_y.__class__ is not OpNode:
            edge_y = y if edge_y is LEAF else edge_of(y)
        mask = (edge_x is not None) + 2 * (edge_y is not None)
        if not mask:
            return
        broadcast = op.broadcasts and x._a.shape != y._a.shape
    plan = op.plans.get(mask) or plan_of(op, mask)
    if not plan.calls:
        return
    out._node = node = _node(plan, (edge_x, edge_y), attrs)
    node.saved = plan.keep((x, y), (out,))
    if broadcast:
        node.shapes = (x._a.shape, y._a.shape)


def record_any(
    op: Differentiable, outputs: tuple[Tensor, ...], inputs: Sequence[Any], attrs: tuple[Any, ...]
) -> None:
    """Record an op on the fast path; the caller saw that an input may be tracked."""
    edges: list[Edge | None] = []
    mask, bit = 0, 1
    for x in inputs:
        edge = x._node if isinstance(x, Tensor) else None
        if edge is not None:
            if edge.__class__ is not OpNode:
                edge = x if edge is LEAF else edge_of(x)
            if edge is not None:
                mask |= bit
        edges.append(edge)
        bit <<= 1
    if mask:
        _attach(op, outputs, inputs, tuple(edges), mask, attrs)


def replay_view(op: Differentiable, view: Any, edge: Edge) -> Edge:
    """Return a fresh edge for a view, as if its op ran on `view.parent` now."""
    parent: Tensor = view.parent
    node: OpNode = _new(OpNode)
    node.plan = plan_of(op, 1)
    node.attrs = view.attrs
    node.saved = tuple(extent(parent) for _ in node.plan.saves)
    start(node, (edge,))
    if view.index < 0:
        return node
    node.n_outputs = view.index + 1
    return Output(node, view.index)
