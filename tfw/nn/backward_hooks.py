"""Full backward hooks: two nodes around a module's part of the graph, through which gradients pass.

The node behind the outputs sees grad_output before the module's own gradients are computed, the one
before the inputs sees grad_input after. Both hand tensors through as views of themselves.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any, cast

from tfw.errors import AutogradError, TfwError
from tfw.graph import Edge, Node, Output, View, cell_of, edge_of, start
from tfw.runtime.thread_state import state
from tfw.tensor import Tensor, new_tensor

Hook = Callable[..., Any]
Grads = tuple[Tensor | None, ...]


class BackwardHookError(TfwError, RuntimeError):
    """A backward hook that returned what it must not."""


class _Through:
    """Stands for the view op of a tensor handed through: it may not be modified in place."""

    name = "a module with full backward hooks"
    # Counted as one of several views, which in-place ops refuse.
    views = True

    def replay(self, view: View, edge: Edge) -> Edge:
        """Return the edge of a view whose memory changed: the same, if only values did."""
        node = view.node
        if isinstance(node, Output) and node.node.edges[node.index] is edge:
            return node
        raise AutogradError(
            "a tensor that went into or came out of it was modified in place",
            op=self.name,
            remedy="use the out-of-place form, or clone() the tensor first",
        )


_THROUGH = _Through()


class _Boundary(Node):
    """Passes gradients on, by way of a function of them."""

    runs_user_code = True

    def __init__(self, what: str, function: Callable[[list[Tensor | None]], Grads]) -> None:
        self._what = what
        self._function = function

    def name(self) -> str:
        return self._what

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        return self._function(grads)


class BackwardHooks:
    """The backward hooks of one call of a module."""

    def __init__(self, module: Any, pre_hooks: Sequence[Hook], hooks: Sequence[Hook]) -> None:
        self._module, self._pre_hooks, self._hooks = module, pre_hooks, hooks
        # Which arguments and outputs have gradients, among how many.
        self._inputs: list[int] = []
        self._outputs: list[int] = []
        self._n_inputs = self._n_outputs = 0
        self._grad_output: Grads | None = None

    def watch_inputs(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Return the arguments, those with gradients behind a node."""
        self._n_inputs = len(args)
        node = _Boundary("ModuleInputBackward", self._on_grad_input)
        passed, self._inputs = _pass_through(node, args)
        return tuple(passed)

    def watch_outputs(self, output: Any) -> Any:
        """Return the output, a tensor or a tuple, with its tensors behind a node."""
        if not isinstance(output, (Tensor, tuple)):
            warnings.warn(
                f"{type(self._module).__name__}: backward hooks need an output that is a Tensor or "
                f"a tuple, not {type(output).__name__}; they will not run",
                stacklevel=5,
            )
            return output
        outputs = (output,) if isinstance(output, Tensor) else cast("tuple[Any, ...]", output)
        self._n_outputs = len(outputs)
        node = _Boundary("ModuleOutputBackward", self._on_grad_output)
        passed, self._outputs = _pass_through(node, outputs)
        if isinstance(output, Tensor):
            return passed[0]
        make: Any = getattr(type(outputs), "_make", tuple)  # a named tuple stays one
        return make(passed)

    def _on_grad_output(self, given: list[Tensor | None]) -> Grads:
        grads = _spread(given, self._outputs, self._n_outputs)
        for hook in self._pre_hooks:
            grads = _replaced(grads, hook(self._module, grads), "grad_output")
        self._grad_output = grads
        if self._hooks and not self._inputs:
            self._without_inputs(grads)
        return tuple(grads[i] for i in self._outputs)

    def _without_inputs(self, grad_output: Grads) -> None:
        """Run the hooks of a module none of whose inputs requires grad."""
        warnings.warn(
            f"{type(self._module).__name__}: no input requires grad, so its full backward hook "
            "runs as soon as grad_output is known",
            stacklevel=2,
        )
        nothing: Grads = (None,) * self._n_inputs
        for hook in self._hooks:
            result = hook(self._module, nothing, grad_output)
            if any(g is not None for g in _replaced(nothing, result, "grad_input")):
                raise BackwardHookError(
                    "a backward hook returned gradients for inputs that require none",
                    op=type(self._module).__name__,
                    argument="hook",
                    value=result,
                    rule="None",
                )
        self._grad_output = None

    def _on_grad_input(self, given: list[Tensor | None]) -> Grads:
        if self._grad_output is None:
            # The gradient came here past the outputs, as it does in double backward.
            return tuple(given)
        grads = _spread(given, self._inputs, self._n_inputs)
        for hook in self._hooks:
            grads = _replaced(grads, hook(self._module, grads, self._grad_output), "grad_input")
        self._grad_output = None
        return tuple(grads[i] for i in self._inputs)


def _pass_through(node: _Boundary, values: tuple[Any, ...]) -> tuple[list[Any], list[int]]:
    """Put tensors that have a history behind a node; return all values and where those were."""
    passed = list(values)
    indices: list[int] = []
    edges: list[Edge] = []
    if state.grad_enabled:
        for i, x in enumerate(values):
            edge = edge_of(x) if isinstance(x, Tensor) else None
            if edge is not None:
                indices.append(i)
                edges.append(edge)
    node.n_outputs = len(indices)
    start(node, tuple(edges))
    for k, i in enumerate(indices):
        x = values[i]
        alias = new_tensor(x._a, x._kind)
        cell = alias._cell = cell_of(x)
        alias._node = View(x, _THROUGH, (), k, cell[0], Output(node, k), True)
        passed[i] = alias
    return passed, indices


def _spread(given: Sequence[Tensor | None], indices: list[int], n: int) -> Grads:
    """Return n gradients, the given ones at their indices and None elsewhere."""
    grads: list[Tensor | None] = [None] * n
    for i, g in zip(indices, given, strict=True):
        grads[i] = g
    return tuple(grads)


def _replaced(grads: Grads, result: Any, what: str) -> Grads:
    """Return the gradients to go on with after a hook returned `result`."""
    if result is None:
        return grads
    found: tuple[Any, ...] = (result,) if isinstance(result, Tensor) else tuple(result)
    if len(found) != len(grads):
        raise BackwardHookError(
            f"a backward hook returned {len(found)} gradients",
            op="register_full_backward_hook",
            argument=what,
            value=result,
            rule=f"None, or {len(grads)}, as many as {what} has",
        )
    return found
