"""autograd.Function: an op whose backward the user writes."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, cast

from tfw.errors import ArgumentError, AutogradError, ShapeError
from tfw.graph import (
    Edge,
    Node,
    Output,
    Saved,
    View,
    cell_of,
    check_version,
    edge_of,
    freed,
    save,
    start,
)
from tfw.inplace import check_writable, count_change, set_history
from tfw.ops.creation import zeros
from tfw.ops.reduce import sum_to_size
from tfw.runtime.thread_state import state
from tfw.tensor import Tensor, new_tensor


class FunctionCtx:
    """What forward leaves for backward."""

    needs_input_grad: tuple[bool, ...] = ()

    def __init__(self, name: str) -> None:
        self._name = name
        self._to_save: tuple[Tensor | None, ...] = ()
        self._dirty: tuple[Tensor, ...] = ()
        self._non_differentiable: tuple[Tensor, ...] = ()
        self._materialize = True
        self._saved: list[tuple[Saved, Edge | None] | None] | None = None
        self._node: Any = None

    def save_for_backward(self, *tensors: Tensor | None) -> None:
        """Keep inputs, outputs or intermediates; call once, in forward."""
        for t in tensors:
            if t is not None and not isinstance(t, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ArgumentError(
                    f"save_for_backward takes Tensors, not {type(t).__name__}",
                    op="save_for_backward",
                    remedy="put other values on ctx as attributes",
                )
        self._to_save = tensors

    def mark_dirty(self, *tensors: Tensor) -> None:
        """Say which inputs forward modified in place."""
        self._dirty = tensors

    def mark_non_differentiable(self, *tensors: Tensor) -> None:
        """Say which outputs have no gradient."""
        self._non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether backward gets zeros (True, the default) or None for unused outputs."""
        self._materialize = value

    @property
    def saved_tensors(self) -> tuple[Tensor | None, ...]:
        """What save_for_backward kept. RuntimeError once it was freed or modified."""
        if self._saved is None:
            raise freed(self._name)
        return tuple(None if item is None else self._unpack(*item) for item in self._saved)

    def _unpack(self, item: Saved, edge: Edge | None) -> Tensor:
        check_version(item, self._node().name() if self._node else "Function", "a saved tensor")
        if isinstance(edge, Tensor):
            return edge
        tensor = new_tensor(item.payload, item.kind)
        if isinstance(edge, int):  # an output of the node itself
            node = self._node()
            tensor._node = Output(node, edge) if node.n_outputs > 1 else node
        else:
            tensor._node = edge
        return tensor


def _as_tuple(value: Any) -> tuple[Any, ...]:
    return cast("tuple[Any, ...]", value) if isinstance(value, tuple) else (value,)


class FunctionNode(Node):
    """The node of one call of a Function."""

    runs_user_code = True
    ctx: FunctionCtx
    function: type[Function]
    shapes: tuple[Any, ...]
    extents: tuple[Any, ...]

    def name(self) -> str:
        """Return the Function's name and "Backward"."""
        return self.function.__name__ + "Backward"

    def release(self) -> None:
        """Drop what save_for_backward kept."""
        if self.ctx._to_save:
            self.ctx._saved = None

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """Call the Function's backward and check what it returns."""
        ctx = self.ctx
        if ctx._to_save and ctx._saved is None:
            raise freed(self.name())
        if ctx._materialize:
            grads = [
                zeros(*shape, dtype=kind.dtype, device=kind.device) if g is None else g
                for g, (shape, kind) in zip(grads, self.extents, strict=True)
            ]
        ctx._node = lambda: self
        try:
            given = self.function.backward(ctx, *grads)
        finally:
            ctx._node = None  # no cycle: ctx belongs to the node
        results = _as_tuple(given)
        n = len(self.shapes)
        extra = results[n:]
        if len(results) < n or any(e is not None for e in extra):
            raise AutogradError(
                f"backward returned {len(results)} gradients for {n} arguments of forward",
                op=self.name(),
                argument="backward",
                rule="one gradient (or None) per argument of forward",
            )
        edges: list[Tensor | None] = []
        for i, (g, shape) in enumerate(zip(results, self.shapes, strict=False)):
            if shape is None:
                continue
            if g is not None and not isinstance(g, Tensor):
                raise AutogradError(
                    f"backward returned a {type(g).__name__} for argument {i}",
                    op=self.name(),
                    argument="backward",
                    rule="one gradient (or None) per argument of forward",
                )
            if g is not None and g._a.shape != shape:
                try:
                    g = sum_to_size(g, shape)
                except ShapeError as error:
                    raise ShapeError(
                        f"backward returned a gradient of shape {tuple(g._a.shape)} for argument "
                        f"{i} of shape {shape}",
                        op=self.name(),
                        argument="backward",
                    ) from error
            edges.append(g)
        return edges


def _undefined(name: str) -> Callable[..., Any]:
    def undefined(*args: Any) -> Any:
        raise NotImplementedError(f"a Function must define the static method {name}")

    return staticmethod(undefined)


class Function:
    """Base of user-defined ops: subclass it with static `forward` and `backward`, call `apply`.

    forward(ctx, *args) computes, and keeps what backward needs with ctx.save_for_backward; or, as
    PyTorch 2 allows, forward(*args) with setup_context(ctx, inputs, output). backward(ctx, *grads)
    returns one gradient (or None) per argument of forward, recorded when create_graph is on; `vjp`
    is another name for it.

    Example::

        class Double(Function):
            @staticmethod
            def forward(ctx, x):
                return x * 2

            @staticmethod
            def backward(ctx, g):
                return g * 2

        y = Double.apply(x)
    """

    # Values, not methods, so that subclasses may give them any signature.
    forward: Callable[..., Any] = _undefined("forward")
    backward: Callable[..., Any] = _undefined("backward (or vjp)")
    setup_context: Callable[..., Any] | None = None

    def __init_subclass__(cls) -> None:
        if "vjp" in cls.__dict__ and "backward" not in cls.__dict__:
            cls.backward = cls.__dict__["vjp"]

    def __init__(self) -> None:
        raise ArgumentError(
            f"{type(self).__name__} is not instantiated",
            op=type(self).__name__,
            remedy=f"call {type(self).__name__}.apply(...)",
        )

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run forward on args and record backward."""
        edges = [edge_of(a) if isinstance(a, Tensor) else None for a in args]
        tracked = state.grad_enabled and any(e is not None for e in edges)
        ctx = FunctionCtx(cls.__name__)
        ctx.needs_input_grad = tuple(e is not None for e in edges)
        state.grad_enabled, before = False, state.grad_enabled
        try:
            if cls.setup_context is None:
                output = cls.forward(ctx, *args)
            else:
                output = cls.forward(*args)
                cls.setup_context(ctx, args, output)
        finally:
            state.grad_enabled = before
        outputs = _as_tuple(output)
        for dirty in ctx._dirty:
            if tracked:
                check_writable(cls.__name__, dirty, ())
            count_change(dirty)
        if tracked:
            outputs = _attach(cls, ctx, args, edges, outputs)
        return outputs if isinstance(output, tuple) else outputs[0]


def once_differentiable(backward: Callable[..., Any]) -> Callable[..., Any]:
    """Decorate a backward that must not be differentiated again."""

    @functools.wraps(backward)
    def call(ctx: FunctionCtx, *grads: Any) -> Any:
        tracked = state.grad_enabled and any(
            isinstance(g, Tensor) and g.requires_grad for g in grads
        )
        state.grad_enabled, before = False, state.grad_enabled
        try:
            results = backward(ctx, *grads)
        finally:
            state.grad_enabled = before
        if not tracked:
            return results
        outputs = _as_tuple(results)
        refused = tuple(_refuse(r, ctx) if isinstance(r, Tensor) else r for r in outputs)
        return refused if isinstance(results, tuple) else refused[0]

    return call


class _RefusingNode(Node):
    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        raise AutogradError(
            "a backward marked once_differentiable cannot be differentiated again",
            op="once_differentiable",
        )


def _refuse(result: Tensor, ctx: FunctionCtx) -> Tensor:
    tensor = new_tensor(result._a, result._kind)
    node = _RefusingNode()
    start(node, ())
    tensor._node = node
    return tensor


def _attach(
    cls: type[Function],
    ctx: FunctionCtx,
    args: tuple[Any, ...],
    edges: list[Edge | None],
    outputs: tuple[Any, ...],
) -> tuple[Any, ...]:
    """Record the node, give each output its history and keep what was saved."""
    node = FunctionNode()
    node.ctx, node.function = ctx, cls
    # backward answers for every argument; edges exist for tensors only.
    node.shapes = tuple(a._a.shape if isinstance(a, Tensor) else None for a in args)
    tensors = [o for o in outputs if isinstance(o, Tensor)]
    node.n_outputs = len(tensors)
    node.extents = tuple((tuple(t._a.shape), t._kind) for t in tensors)
    start(node, tuple(e for e, a in zip(edges, args, strict=True) if isinstance(a, Tensor)))
    result: list[Any] = []
    index = 0
    positions: dict[int, int] = {}
    for out in outputs:
        if not isinstance(out, Tensor):
            result.append(out)
            continue
        positions[id(out)] = index
        dirty = any(out is d for d in ctx._dirty)
        source = None if dirty else _source_of(out, args)
        if any(out is a for a in args) and not dirty:
            # forward returned an input as it is: the output is a view of it, not the input itself.
            out = _alias(out)
        edge: Edge = node if node.n_outputs == 1 else Output(node, index)
        frozen = any(out is n or out._a is n._a for n in ctx._non_differentiable)
        if dirty and isinstance(out._node, View):
            set_history(out, edge)
        elif not frozen and out._kind.dtype.category >= 2:
            out._node = (
                edge
                if source is None
                else View(source, _FunctionView(cls), (), index, cell_of(out)[0], edge, True)
            )
        result.append(out)
        index += 1
    ctx._saved = [
        None if t is None else (save(t), positions[id(t)] if id(t) in positions else edge_of(t))
        for t in ctx._to_save
    ]
    ctx._to_save = tuple(None for _ in ctx._to_save)  # only their payloads are kept
    return tuple(result)


class _FunctionView:
    """Stands for the view op of an output that shows memory of an input.

    What forward did cannot be replayed on the input's new history, so changing either in place is
    refused.
    """

    views = True

    def __init__(self, function: type[Function]) -> None:
        self.name = function.__name__

    def replay(self, view: View, edge: Edge) -> Edge:
        raise AutogradError(
            f"output {view.index} is a view of an input, whose memory was modified in place since",
            op=self.name,
            remedy="clone() the output",
        )


def _source_of(out: Tensor, args: tuple[Any, ...]) -> Tensor | None:
    """Return the argument whose memory an output shows, or None."""
    for a in args:
        if isinstance(a, Tensor) and (out is a or (a._cell is not None and a._cell is out._cell)):
            return a
    return None


def _alias(tensor: Tensor) -> Tensor:
    alias = new_tensor(tensor._a, tensor._kind)
    alias._cell = cell_of(tensor)
    return alias
