"""backward and grad: arguments checked, first gradients made, the walk started."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfw.autograd.engine import Walk, key_of
from tfw.errors import ArgumentError, AutogradError, ShapeError, ValueRangeError
from tfw.graph import edge_of
from tfw.ops.creation import zeros_like
from tfw.runtime.thread_state import state
from tfw.tensor import Tensor, new_tensor

Tensors = Tensor | Sequence[Tensor]


def backward(
    tensors: Tensors,
    grad_tensors: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    grad_variables: Any = None,
    inputs: Tensors | None = None,
) -> None:
    """Add the gradients of `tensors` to `.grad` of the leaves that they were computed from.

    Args:
        tensors: one or more tensors; one with a single element needs no gradient given.
        grad_tensors: the gradient of the final result with respect to each.
        retain_graph: keep saved values for another backward; by default what create_graph says.
        create_graph: record backward itself, for higher derivatives.
        grad_variables: deprecated name of grad_tensors.
        inputs: accumulate into these tensors only.

    Errors: RuntimeError if nothing requires grad, a gradient's shape does not fit, or the graph was
    freed.

    """
    roots = _as_tuple(tensors, "backward")
    targets = None if inputs is None else _as_tuple(inputs, "backward")
    if targets is not None:
        if not targets:
            raise AutogradError("inputs is empty", op="backward", argument="inputs")
        for x in targets:
            x.retain_grad()  # what puts the gradient of a computed tensor into its `.grad`
    grads = grad_tensors if grad_tensors is not None else grad_variables
    _run(roots, grads, retain_graph, create_graph, targets, True, "backward")


def grad(
    outputs: Tensors,
    inputs: Tensors,
    grad_outputs: Any = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    only_inputs: bool = True,
    allow_unused: bool | None = None,
    is_grads_batched: bool = False,
    materialize_grads: bool = False,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of `outputs` with respect to `inputs`, leaving every `.grad` alone.

    Args:
        outputs, grad_outputs, retain_graph, create_graph: as `backward`.
        inputs: one or more tensors, computed or leaves.
        only_inputs: must be True.
        allow_unused: give None for an input that outputs do not depend on, instead of an error.
        is_grads_batched: must be False.
        materialize_grads: give zeros instead of None.

    Errors: RuntimeError as `backward`, or for an unused input.

    """
    if not only_inputs or is_grads_batched:
        raise ArgumentError(
            "only_inputs=False and is_grads_batched=True are not supported",
            op="grad",
            argument="only_inputs",
        )
    if materialize_grads and allow_unused is False:
        raise ValueRangeError(
            "allow_unused=False contradicts materialize_grads=True",
            op="grad",
            argument="allow_unused",
        )
    roots, targets = _as_tuple(outputs, "grad"), _as_tuple(inputs, "grad")
    for i, x in enumerate(targets):
        if not x.requires_grad:
            raise AutogradError(
                f"inputs[{i}] of shape {tuple(x._a.shape)} does not require grad",
                op="grad",
                argument="inputs",
            )
    found = _run(roots, grad_outputs, retain_graph, create_graph, targets, False, "grad")
    result: list[Tensor | None] = []
    for i, x in enumerate(targets):
        g = found.get(key_of(edge_of(x)))
        if g is None and materialize_grads:
            g = zeros_like(x)
        if g is None and not allow_unused:
            raise AutogradError(
                f"inputs[{i}] of shape {tuple(x._a.shape)} was not used to compute the outputs",
                op="grad",
                argument="inputs",
                remedy="pass allow_unused=True to get None for it",
            )
        result.append(g)
    return tuple(result)


def _as_tuple(tensors: Any, op: str) -> tuple[Tensor, ...]:
    found: tuple[Any, ...] = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
    for x in found:
        if not isinstance(x, Tensor):
            raise ArgumentError(
                f"expected Tensors, got {type(x).__name__}", op=op, argument="tensors"
            )
    return found


def _run(
    roots: tuple[Tensor, ...],
    grads: Any,
    retain_graph: bool | None,
    create_graph: bool,
    targets: tuple[Tensor, ...] | None,
    accumulate: bool,
    op: str,
) -> dict[tuple[int, int], Tensor]:
    """Start from the roots, with gradients recorded only if asked, and walk."""
    pairs = list(zip(roots, _root_grads(roots, grads, create_graph, op), strict=True))
    keep = create_graph if retain_graph is None else retain_graph
    before = state.grad_enabled
    state.grad_enabled = create_graph
    try:
        walk = Walk(keep, targets, accumulate)
        for root, g in pairs:
            walk.send(edge_of(root), g)
        walk.run()
    finally:
        state.grad_enabled = before
    return walk.found


def _root_grads(roots: tuple[Tensor, ...], grads: Any, create_graph: bool, op: str) -> list[Tensor]:
    given: Sequence[Any] = (
        [None] * len(roots)
        if grads is None
        else [grads]
        if isinstance(grads, Tensor)
        else list(grads)
    )
    if len(given) != len(roots):
        raise AutogradError(
            f"{len(roots)} tensors but {len(given)} gradients", op=op, argument="grad_tensors"
        )
    result: list[Tensor] = []
    for root, g in zip(roots, given, strict=True):
        if edge_of(root) is None:
            raise AutogradError(
                f"the tensor of shape {tuple(root._a.shape)} does not require grad and was not "
                "computed from one that does",
                op=op,
                argument="tensors",
                remedy="call requires_grad_() on a leaf before computing",
            )
        if g is None:
            if root._a.size != 1:
                raise AutogradError(
                    f"a gradient must be given for a tensor of shape {tuple(root._a.shape)}; only "
                    "one element has an implicit gradient of 1",
                    op=op,
                    argument="grad_tensors",
                    remedy="reduce it to one number, e.g. with sum() or mean()",
                )
            g = _one_for(root)
        elif g._a.shape != root._a.shape:
            raise ShapeError(
                f"gradient of shape {tuple(g._a.shape)} for a tensor of shape "
                f"{tuple(root._a.shape)}",
                op=op,
                argument="grad_tensors",
                value=g.shape,
            )
        elif not create_graph:
            # The caller's tensor keeps its memory: the walk must see that it is shared.
            g = g.detach()
        result.append(g)
    return result


def _one_for(root: Tensor) -> Tensor:
    """Return the gradient that a single element has of itself."""
    backend = root._kind.backend
    payload = backend.empty(backend.spec(root._a))
    backend.fill(payload, 1)
    return new_tensor(payload, root._kind)
