"""The graph that backward walks: nodes, edges, saved values, versions and views.

A node never refers to a Tensor, except that the edge to a leaf is the leaf itself, which
accumulates its own gradient. So memory goes with the last reference and no cycle needs the garbage
collector.

A tensor's `_node` field is one of
- None: not tracked;
- LEAF: a leaf that requires grad;
- a Node: the result of an op with one output;
- an Output: output k of a node with several;
- a View: shares memory with its parent; the node is found when the view is used.
"""

from __future__ import annotations

import itertools
import traceback
import weakref
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tfw.config import ANOMALY
from tfw.errors import AutogradError, VersionError
from tfw.runtime.backend import Kind
from tfw.runtime.thread_state import ThreadState, state
from tfw.shapes import Shape

if TYPE_CHECKING:
    from tfw.tensor import Tensor

next_sequence: Callable[[], int] = itertools.count().__next__
Cell = list[int]


class Anomaly:
    """Whether any thread ever had anomaly mode on: one cheap test while none has.

    None until the first node is recorded, which asks the environment.
    """

    ever: bool | None = None


anomaly = Anomaly()


def anomaly_is_on() -> bool:
    """Return whether nodes of this thread keep their forward line."""
    if anomaly.ever is None:
        anomaly.ever = ThreadState.anomaly = ANOMALY.get()
    return state.anomaly


class _Leaf:
    """Marks a leaf that requires grad."""

    def __repr__(self) -> str:
        return "LEAF"


LEAF: Final = _Leaf()


class Output(NamedTuple):
    """Output `index` of a node that has several."""

    node: Node
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]  nobody searches it


Edge = Any  # Node | Output | Tensor (a leaf)


class View(NamedTuple):
    """How a tensor came to share its parent's memory.

    Attributes:
        parent: the tensor it was taken from.
        op: the view op, which can be replayed on the parent's node.
        attrs: the op's attributes.
        index: which output of `op`, or -1 if it has one.
        version: version of the memory when `node` was found.
        node: the edge found then, or None.
        tracked: False if taken under no_grad.

    """

    parent: Tensor
    op: Any
    attrs: tuple[Any, ...]
    index: int  # pyright: ignore[reportIncompatibleMethodOverride]  nobody searches it
    version: int
    node: Edge | None
    tracked: bool


class Extent(NamedTuple):
    """Shape and kind of a tensor that was not saved."""

    shape: Shape
    kind: Kind

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)


class Saved(NamedTuple):
    """A tensor kept for backward: its memory, and the version that the memory had."""

    payload: Any
    kind: Kind
    cell: Cell
    version: int


class Node:
    """One recorded op. Subclasses say in `apply` how gradients pass through it.

    Attributes:
        edges: where each input's gradient goes; None for an input that needs none.
        sequence: creation number; backward takes the newest node first.
        n_outputs: number of outputs.
        watched: whether a hook or retain_grad waits for its gradients.
        runs_user_code: whether `apply` calls code that may hold on to gradients.

    """

    edges: tuple[Edge | None, ...] = ()
    sequence: int = 0
    n_outputs: int = 1
    runs_user_code: bool = False
    watched: bool = False
    # Class-level defaults, so that recording a node stores only what differs.
    _hooks: dict[int, Callable[..., Any]] | None = None
    _prehooks: dict[int, Callable[..., Any]] | None = None
    _tensor_hooks: dict[int, dict[int, Callable[..., Any]]] | None = None
    _retained: dict[int, weakref.ref[Tensor]] | None = None
    _metadata: dict[str, Any] | None = None
    trace: traceback.StackSummary | None = None

    def apply(self, grads: list[Tensor | None]) -> Sequence[Tensor | None]:
        """Return the gradient of each input, given that of each output."""
        raise NotImplementedError

    def release(self) -> None:
        """Drop the saved values; a second backward through this node then raises."""

    def name(self) -> str:
        """Return e.g. ``"MulBackward0"``."""
        return type(self).__name__

    @property
    def next_functions(self) -> tuple[tuple[Any, int], ...]:
        """The nodes (or leaves) that the inputs came from, each with its output number."""
        return tuple(
            (None, 0) if e is None else (e.node, e.index) if isinstance(e, Output) else (e, 0)
            for e in self.edges
        )

    @property
    def metadata(self) -> dict[str, Any]:
        """A dict for the user's own notes on this node."""
        if self._metadata is None:
            self._metadata = {}
        return self._metadata

    def register_hook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(grad_inputs, grad_outputs)` after this node ran.

        What it returns replaces grad_inputs.
        """
        if self._hooks is None:
            self._hooks = {}
        self.watched = True
        return Handle(self._hooks, hook)

    def register_prehook(self, hook: Callable[..., Any]) -> Handle:
        """Call `hook(grad_outputs)` before this node runs.

        What it returns replaces grad_outputs.
        """
        if self._prehooks is None:
            self._prehooks = {}
        self.watched = True
        return Handle(self._prehooks, hook)

    def retain(self, index: int, tensor: weakref.ref[Tensor]) -> None:
        """Give a tensor the gradient of output `index` as its `.grad`."""
        if self._retained is None:
            self._retained = {}
        self._retained[index] = tensor
        self.watched = True

    def __repr__(self) -> str:
        return f"<{self.name()}>"


class Handle:
    """Removes what was registered; usable in a `with` statement."""

    _ids = itertools.count()

    def __init__(self, hooks: dict[int, Any], hook: object, first: bool = False) -> None:
        self.id = next(Handle._ids)
        self._hooks = hooks
        hooks[self.id] = hook
        if first:
            for key in [k for k in hooks if k != self.id]:
                hooks[key] = hooks.pop(key)

    def remove(self) -> None:
        """Take the hook away; a second call does nothing."""
        self._hooks.pop(self.id, None)

    def __enter__(self) -> Handle:
        return self

    def __exit__(self, *exc: object) -> None:
        self.remove()


def cell_of(tensor: Tensor) -> Cell:
    """Return the version cell of a tensor's memory, which all of its views share."""
    cell = tensor._cell
    if cell is None:
        cell = tensor._cell = [0]
    return cell


def edge_of(tensor: Tensor) -> Edge | None:
    """Return where this tensor's gradient goes, or None if it needs none."""
    node = tensor._node
    if node is None or node.__class__ is not View:
        return tensor if node is LEAF else node
    return _resolve(tensor)


def _resolve(tensor: Tensor) -> Edge | None:
    """Find the edge of a view; replay its op on the parent's edge if the memory changed since."""
    chain: list[Tensor] = []
    while tensor._node.__class__ is View:
        view: View = tensor._node
        if not view.tracked or (view.node is not None and view.version == tensor._cell[0]):  # pyright: ignore[reportOptionalSubscript]  a view has a cell
            break
        chain.append(tensor)
        tensor = view.parent
    node = tensor._node
    edge = tensor if node is LEAF else node.node if node.__class__ is View else node
    for child in reversed(chain):
        view = child._node
        if edge is None and view.node is None:
            continue
        edge = None if edge is None else view.op.replay(view, edge)
        child._node = view._replace(node=edge, version=child._cell[0])  # pyright: ignore[reportOptionalSubscript]  a view has a cell
    return edge


_new_tuple = tuple[Any, ...].__new__  # a third of a NamedTuple's own constructor


def save(tensor: Tensor) -> Saved:
    """Keep a tensor for backward."""
    cell = tensor._cell
    if cell is None:
        cell = tensor._cell = [0]
    return _new_tuple(Saved, (tensor._a, tensor._kind, cell, cell[0]))


def extent(tensor: Tensor) -> Extent:
    """Keep a tensor's shape and kind only."""
    return _new_tuple(Extent, (tensor._a.shape, tensor._kind))


def check_version(saved: Saved, name: str, what: str) -> None:
    """Raise VersionError if a saved tensor's memory was written since."""
    if saved.cell[0] != saved.version:
        raise VersionError(
            f"{what} of shape {tuple(saved.payload.shape)}, which its gradient needs, was modified "
            f"by an inplace operation: it is at version {saved.cell[0]}, version {saved.version} "
            "was saved",
            op=name,
            argument=what,
            value=saved.cell[0],
            remedy="use the out-of-place form, or clone() before modifying; "
            "autograd.set_detect_anomaly(True) shows the forward line",
        )


def freed(name: str) -> AutogradError:
    """Return the error for a second backward through a node that released what it saved."""
    return AutogradError(
        "trying to backward through the graph a second time; its saved values were freed by the "
        "first",
        op=name,
        remedy="pass retain_graph=True to the first backward",
    )


def start(node: Node, edges: tuple[Edge | None, ...]) -> None:
    """Give a node its edges and creation number, and in anomaly mode the forward line."""
    node.edges = edges
    node.sequence = next_sequence()
    if anomaly.ever is not False and anomaly_is_on():
        node.trace = traceback.extract_stack()
