"""Backward: gradients walk the graph from the newest node to the oldest.

An edge always leads to an older node, so taking the newest pending node first means that all of its
gradients have arrived. The walk is a loop over a heap, so a chain of any length runs.
"""

from __future__ import annotations

import heapq
import sys
import threading
from collections.abc import Iterable, Sequence
from typing import Any

from tfw.errors import AnomalyError, AutogradError, ShapeError
from tfw.graph import LEAF, Edge, Node, Output, anomaly, edge_of
from tfw.ops.compare import ne
from tfw.ops.convert import clone, to
from tfw.ops.creation import zeros
from tfw.ops.elementwise import add
from tfw.ops.reduce import any as any_
from tfw.recording import OpNode
from tfw.runtime.thread_state import state
from tfw.tensor import Tensor, new_tensor


def key_of(edge: Edge) -> tuple[int, int]:
    """Identify where a gradient goes: a leaf, or one output of a node."""
    return (id(edge.node), edge.index) if isinstance(edge, Output) else (id(edge), 0)


def _references(g: Tensor) -> int:
    """Count the references to a gradient's memory."""
    return sys.getrefcount(g._a)


# What `_references` counts if the tensor alone holds its memory; Python versions differ in it.
_ONE_REFERENCE = _references(zeros(1))


class Walk:
    """One pass over the graph.

    Args:
        keep: leave saved values in the nodes.
        targets: tensors whose gradients are wanted; None for all leaves.
        accumulate: add gradients to `.grad` instead of collecting them in `found`.

    """

    def __init__(self, keep: bool, targets: tuple[Tensor, ...] | None, accumulate: bool) -> None:
        self.keep, self.accumulate = keep, accumulate
        # Whether code of the user has seen gradients and may hold them.
        self._shared = False
        self.found: dict[tuple[int, int], Tensor] = {}
        self._heap: list[tuple[int, Node]] = []
        self._grads: dict[Node, list[Tensor | None]] = {}
        self._leaves: dict[int, tuple[Tensor, Tensor]] = {}
        self._wanted: dict[tuple[int, int], Tensor] | None = None
        self._useful: dict[int, bool] | None = None
        if targets is not None:
            self._wanted = {key_of(edge_of(t)): t for t in targets}
            # Nodes that lead to a target; found as they are met, each once.
            self._useful = {}

    def send(self, edge: Edge, g: Tensor) -> None:
        """Deliver a gradient to a leaf or to an output of a node."""
        if edge.__class__ is Output:
            node, index = edge
        elif isinstance(edge, Tensor):
            if self._wanted is None or (id(edge), 0) in self._wanted:
                # Taken out and put back: the leaf that is complete first is served first.
                held = self._leaves.pop(id(edge), None)
                self._leaves[id(edge)] = (edge, g if held is None else add(held[1], g))
            return
        else:
            node, index = edge, 0
        if self._useful is not None and not self._leads_to_target(node):
            return
        grads = self._grads.get(node)
        if grads is None:
            grads = self._grads[node] = [None] * node.n_outputs
            heapq.heappush(self._heap, (-node.sequence, node))
        held = grads[index]
        grads[index] = g if held is None else add(held, g)

    def run(self) -> None:
        """Take pending nodes, newest first, until none is left; then hand leaves their gradients.

        A leaf's gradient is complete only at the end: until then its parts add up here, so that its
        hooks see the whole.
        """
        heap, waiting, keep = self._heap, self._grads, self.keep
        plain = self._wanted is None
        while heap:
            node = heapq.heappop(heap)[1]
            grads = waiting.pop(node)
            if node.__class__ is OpNode and plain and not node.watched and not anomaly.ever:
                results = node.apply(grads)
            else:
                results = self._step(node, grads)
                if results is None:
                    continue
            if not keep:
                node.release()
            for edge, g in zip(node.edges, results, strict=True):
                if g is None or edge is None:
                    continue
                if edge.__class__ is OpNode and plain:  # `send` without its other cases
                    held = waiting.get(edge)
                    if held is None:
                        waiting[edge] = [g]
                        heapq.heappush(heap, (-edge.sequence, edge))
                    else:
                        held[0] = g if held[0] is None else add(held[0], g)
                else:
                    self.send(edge, g)
        # Nothing but the leaves may hold the gradients now: see `_owned`.
        node = grads = results = edge = g = held = None
        leaves, self._leaves = self._leaves, {}
        for key in list(leaves):
            leaf, g = leaves.pop(key)
            self._deliver(leaf, g)
            del g

    def _step(self, node: Node, grads: list[Tensor | None]) -> Sequence[Tensor | None] | None:
        """Run a node with all that may be attached to it; None if no target lies behind it.

        The order is PyTorch's: hooks of its outputs, `.grad` of retained ones, what `grad`
        collects, hooks before the node, the node, hooks after it.
        """
        if node._tensor_hooks is not None:
            self._shared = True
            for index, hooks in node._tensor_hooks.items():
                g = grads[index]
                if g is not None:
                    grads[index] = _run_tensor_hooks(hooks, g)
        if node._retained is not None:
            for index, reference in node._retained.items():
                tensor, g = reference(), grads[index]
                if tensor is not None and g is not None:
                    _accumulate(tensor, g, True)
        if self._wanted is not None and not self._collect(node, grads):
            return None
        if node._prehooks is not None:
            self._shared = True
            grads = _run_prehooks(node, grads)
        try:
            results: Sequence[Tensor | None] = node.apply(grads)
        except Exception as error:
            if node.trace is not None:
                error.add_note(_forward_line(node))
            raise
        if state.anomaly and state.check_nan:
            _check_nan(node, results)
        if node._hooks is not None:
            self._shared = True
            results = _run_hooks(node, results, grads)
        if node.runs_user_code:
            self._shared = True
        return results

    def _collect(self, node: Node, grads: list[Tensor | None]) -> bool:
        """Keep gradients that were asked for; return whether the walk goes on behind this node."""
        assert self._wanted is not None
        for index, g in enumerate(grads):
            key = (id(node), index)
            if g is not None and key in self._wanted:
                self.found[key] = g
        return any(
            e is not None
            and (
                self._leads_to_target(e)
                if not isinstance(e, (Tensor, Output))
                else self._edge_useful(e)
            )
            for e in node.edges
        )

    def _edge_useful(self, edge: Edge) -> bool:
        assert self._wanted is not None
        if isinstance(edge, Tensor):
            return (id(edge), 0) in self._wanted
        return self._leads_to_target(edge.node if isinstance(edge, Output) else edge)

    def _leads_to_target(self, node: Node) -> bool:
        """Return whether a node is or reaches a target; iterative, for chains of any length."""
        assert self._useful is not None
        assert self._wanted is not None
        useful = self._useful
        stack = [node]
        while stack:
            top = stack[-1]
            if id(top) in useful:
                stack.pop()
                continue
            answer = any((id(top), k) in self._wanted for k in range(top.n_outputs))
            pending: list[Node] = []
            if not answer:
                for e in top.edges:
                    if e is None:
                        continue
                    if isinstance(e, Tensor):
                        answer = answer or (id(e), 0) in self._wanted
                        continue
                    below = e.node if isinstance(e, Output) else e
                    if id(below) in useful:
                        answer = answer or useful[id(below)]
                    else:
                        pending.append(below)
            if answer or not pending:
                useful[id(top)] = answer
                stack.pop()
            else:
                stack.extend(pending)
        return useful[id(node)]

    def _deliver(self, leaf: Tensor, g: Tensor) -> None:
        if leaf._hooks is not None:
            g = _run_tensor_hooks(leaf._hooks, g)
            self._shared = True
        if self.accumulate:
            if leaf._node is not LEAF:
                return  # it stopped requiring grad after the forward pass
            _accumulate(leaf, g, self._shared)
            if leaf._post_hooks is not None:
                for hook in list(leaf._post_hooks.values()):
                    hook(leaf)
        else:
            self.found[id(leaf), 0] = g


# Threads that run backward into one leaf must not add to its gradient at once.
_accumulating = threading.RLock()


def _accumulate(leaf: Tensor, g: Tensor, shared: bool) -> None:
    """Add a gradient to `.grad`: memory that nothing else holds, in the leaf's own layout."""
    if g._kind.dtype is not leaf._kind.dtype:
        g = to(g, leaf._kind.dtype)
    with _accumulating:
        held = leaf._grad
        if state.grad_enabled:
            leaf._grad = clone(g) if held is None else add(held, g)
        elif held is not None:
            held.add_(g)
        elif not shared and g._kind is leaf._kind and g._kind.form != "strided" and _owned(g):
            leaf._grad = new_tensor(g._a, g._kind)
        else:
            leaf._grad = _laid_out_as(leaf, g)


def _laid_out_as(leaf: Tensor, g: Tensor) -> Tensor:
    """Return a copy of a gradient in the leaf's own layout."""
    backend = leaf._kind.backend
    payload = backend.empty(backend.spec(leaf._a))
    backend.copy(payload, g._a)
    return new_tensor(payload, backend.kind(payload))


def _owned(g: Tensor) -> bool:
    """Return whether a gradient's memory belongs to it alone, so that a leaf may take it over."""
    return getattr(g._a, "base", None) is None and _references(g) == _ONE_REFERENCE


def _run_prehooks(node: Node, grads: list[Tensor | None]) -> list[Tensor | None]:
    assert node._prehooks is not None
    for hook in list(node._prehooks.values()):
        replaced = hook(tuple(grads))
        if replaced is not None:
            grads = [replaced] if isinstance(replaced, Tensor) else list(replaced)
    return grads


def _run_tensor_hooks(hooks: dict[int, Any], g: Tensor) -> Tensor:
    for hook in list(hooks.values()):
        replaced = hook(g)
        if replaced is not None:
            if replaced._a.shape != g._a.shape:
                raise ShapeError(
                    f"a hook changed the gradient's shape from {tuple(g._a.shape)} to "
                    f"{tuple(replaced._a.shape)}",
                    op="register_hook",
                    argument="hook",
                )
            g = replaced
    return g


def _run_hooks(
    node: Node, results: Sequence[Tensor | None], grads: list[Tensor | None]
) -> Sequence[Tensor | None]:
    assert node._hooks is not None
    for hook in list(node._hooks.values()):
        replaced = hook(tuple(results), tuple(grads))
        if replaced is not None:
            results = (replaced,) if isinstance(replaced, Tensor) else tuple(replaced)
            if len(results) != len(node.edges):
                raise AutogradError(
                    f"a hook returned {len(results)} gradients for {len(node.edges)} inputs",
                    op=node.name(),
                    argument="hook",
                )
    return results


def _check_nan(node: Node, results: Iterable[Tensor | None]) -> None:
    for i, g in enumerate(results):
        if g is not None and g.is_floating_point() and not g.is_meta and bool(any_(ne(g, g))):
            error = AnomalyError(
                f"{node.name()} gave NaN in the gradient of its input {i}",
                op="backward",
                argument=f"input {i}",
                remedy="look at the forward line below",
            )
            error.add_note(_forward_line(node))
            raise error


def _forward_line(node: Node) -> str:
    """Say where in the user's program the node was recorded."""
    if node.trace is None:
        return f"{node.name()} was recorded outside detect_anomaly: no forward line is known"
    here = __file__.rsplit("autograd", 1)[0]
    frames = [
        f
        for f in node.trace
        if not f.filename.startswith(here) and not f.filename.startswith("<tfw")
    ]
    import traceback

    return f"{node.name()} was recorded by the forward pass here:\n" + "".join(
        traceback.StackSummary.from_list(frames).format()
    )
