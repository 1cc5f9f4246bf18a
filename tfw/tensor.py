"""Tensor: one payload, its kind, and what autograd keeps with it.

Ops attach themselves as methods when `tfw.ops` is imported; `tensor.pyi` lists them all.
"""

# To the modules it calls, Tensor is the class of tensor.pyi; `self` is the one of this file.
# pyright: reportArgumentType=none

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfw import dtypes, graph
from tfw.dtypes import dtype
from tfw.errors import ArgumentError, AutogradError, DtypeError, ShapeError, ValueRangeError
from tfw.graph import LEAF, Cell, Handle, Node, Output, View, edge_of
from tfw.runtime.backend import Kind, Payload
from tfw.shapes import Shape, Size, Spec, device, normalize_dim

_new = object.__new__


class Tensor:
    """An n-dimensional array with a dtype and a device, tracked for gradients if asked.

    Make one with `tfw.tensor`, `tfw.zeros`, `tfw.randn`, ...; names and behaviour are PyTorch's.
    """

    _a: Payload
    _kind: Kind
    # Class-level defaults: a fresh tensor stores its payload and kind only.
    _node: Any = None
    _cell: Cell | None = None
    _grad: Tensor | None = None
    _hooks: dict[int, Callable[..., Any]] | None = None
    _post_hooks: dict[int, Callable[..., Any]] | None = None

    # Let `ndarray + tensor` come to Tensor.__radd__ rather than to NumPy's loops.
    __array_priority__ = 1000

    # ---- what it is

    @property
    def shape(self) -> Size:
        """Sizes of all dimensions."""
        return Size(self._a.shape)

    @property
    def dtype(self) -> dtype:
        """Type of the elements."""
        return self._kind.dtype

    @property
    def device(self) -> device:
        """Where the memory is."""
        return self._kind.device

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self._a.ndim

    @property
    def itemsize(self) -> int:
        """Bytes per element."""
        return self._kind.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self._a.size * self._kind.dtype.itemsize

    @property
    def is_cuda(self) -> bool:
        """Whether the memory is on a CUDA device."""
        return self._kind.device.type == "cuda"

    @property
    def is_meta(self) -> bool:
        """Whether there is a layout only."""
        return self._kind.device.type == "meta"

    def size(self, dim: int | None = None) -> Any:
        """Return the shape, or the size of one dimension."""
        if dim is None:
            return Size(self._a.shape)
        return self._a.shape[normalize_dim("size", dim, self._a.ndim, self._a.shape)]

    def dim(self) -> int:
        """Return the number of dimensions."""
        return self._a.ndim

    ndimension = dim

    def numel(self) -> int:
        """Return the number of elements."""
        return self._a.size

    nelement = numel

    def element_size(self) -> int:
        """Return the bytes per element."""
        return self._kind.dtype.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """Return the step along each dimension in elements, or along one."""
        strides: Shape = self._kind.backend.spec(self._a).strides
        if dim is None:
            return strides
        return strides[normalize_dim("stride", dim, self._a.ndim, self._a.shape)]

    def is_contiguous(self) -> bool:
        """Return whether the elements lie in row-major order without gaps."""
        return self._kind.form != "strided"

    def is_floating_point(self) -> bool:
        """Return whether the dtype is a real floating-point type."""
        return self._kind.dtype.is_floating_point

    def is_complex(self) -> bool:
        """Return whether the dtype is complex."""
        return self._kind.dtype.is_complex

    def __len__(self) -> int:
        if not self._a.ndim:
            raise ArgumentError("a 0-d tensor has no length", op="len")
        return self._a.shape[0]

    def __iter__(self) -> Iterator[Tensor]:
        if not self._a.ndim:
            raise ArgumentError("iteration over a 0-d tensor", op="iter")
        return (self[i] for i in range(self._a.shape[0]))  # pyright: ignore[reportIndexIssue, reportReturnType, reportUnknownVariableType]  __getitem__ is attached

    __hash__ = object.__hash__

    # ---- values on the host

    def numpy(self, *, force: bool = False) -> Any:
        """Return the values as an ndarray; on the CPU it shares this tensor's memory.

        Errors: RuntimeError if the tensor requires grad, TypeError if it is not on the CPU;
        `force=True` detaches and copies instead.
        """
        if not force:
            if self.requires_grad:
                raise AutogradError(
                    "a tensor that requires grad cannot become an ndarray, which would lose its "
                    "history",
                    op="numpy",
                    remedy="call detach() first, or numpy(force=True)",
                )
            if self._kind.device.type != "cpu":
                raise ArgumentError(
                    f"the tensor is on {self.device}, an ndarray lives on the host",
                    op="numpy",
                    remedy="call cpu() first",
                )
        return self._kind.backend.to_host(self._a)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self.numpy(), dtype=dtype, copy=copy)

    def item(self) -> Any:
        """Return the one element as a Python number. RuntimeError unless there is exactly one."""
        if self._a.size != 1:
            raise ShapeError(
                f"a tensor of shape {tuple(self._a.shape)} has {self._a.size} elements, not one",
                op="item",
                remedy="index it first, or use tolist()",
            )
        return _python(self._kind.backend.to_host(self._a).reshape(()), self._kind.dtype)

    def tolist(self) -> Any:
        """Return nested lists of Python numbers (a number for a 0-d tensor)."""
        host = self._kind.backend.to_host(self._a)
        if self._kind.dtype.itemsize < 4 and self._kind.dtype.is_floating_point:
            host = host.astype(np.float32)
        return host.tolist()

    def __bool__(self) -> bool:
        if self._a.size != 1:
            raise ShapeError(
                f"the truth of a tensor of shape {tuple(self._a.shape)} is ambiguous",
                op="bool",
                remedy="use any() or all()",
            )
        return bool(self.item())

    def __float__(self) -> float:
        return float(self._number("float"))

    def __int__(self) -> int:
        return int(self._number("int"))

    def _number(self, name: str) -> Any:
        if self._a.size != 1:
            raise ValueRangeError(
                f"a tensor of shape {tuple(self._a.shape)} has {self._a.size} elements, not one",
                op=name,
                remedy="index it first, or use tolist()",
            )
        return self.item()

    def __index__(self) -> int:
        if self._kind.dtype.category > 1 or self._a.size != 1:
            raise ArgumentError(
                f"only an integer tensor of one element is an index, not {self.dtype!r} of shape "
                f"{tuple(self._a.shape)}",
                op="index",
            )
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self._number("complex"))

    def __repr__(self) -> str:
        from tfw.printing import tensor_string

        return tensor_string(self)

    def __format__(self, spec: str) -> str:
        return format(self.item() if not self._a.ndim else self.__repr__(), spec)

    # ---- gradients

    @property
    def requires_grad(self) -> bool:
        """Whether gradients flow to or through this tensor."""
        node = self._node
        return node is not None and edge_of(self) is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Start or stop accumulating gradients in this leaf, in place.

        Errors: RuntimeError for an integer dtype, or to stop on a tensor that was computed.
        """
        if requires_grad == self.requires_grad:
            return self
        if not requires_grad:
            if self._node is not LEAF:
                raise AutogradError(
                    "only a leaf can stop requiring grad; this tensor was computed",
                    op="requires_grad_",
                    remedy="use detach()",
                )
            self._node = None
        else:
            if self._kind.dtype.category < dtypes.Category.FLOATING:
                raise DtypeError(
                    f"{self.dtype!r} cannot require grad",
                    op="requires_grad_",
                    argument="dtype",
                    value=self.dtype,
                    rule="floating-point and complex dtypes",
                )
            self._node = LEAF
        return self

    @property
    def is_leaf(self) -> bool:
        """Whether this tensor was not computed from tracked ones."""
        edge = edge_of(self)
        return edge is None or edge is self

    @property
    def grad_fn(self) -> Node | None:
        """The node that computed this tensor; None for a leaf."""
        edge = edge_of(self)
        if isinstance(edge, Output):
            return edge.node
        return None if edge is None or edge is self else edge

    @property
    def output_nr(self) -> int:
        """Which output of `grad_fn` this is."""
        edge = edge_of(self)
        return edge.index if isinstance(edge, Output) else 0

    @property
    def grad(self) -> Tensor | None:
        """The gradient accumulated by backward, or None."""
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
                raise ArgumentError(
                    f"grad must be a Tensor or None, not {type(value).__name__}", op="grad"
                )
            if value is self:
                raise AutogradError("a tensor cannot be its own gradient", op="grad")
            if value._a.shape != self._a.shape or value._kind.dtype is not self._kind.dtype:
                raise ShapeError(
                    f"a gradient of shape {tuple(value._a.shape)} and {value.dtype!r} does not fit "
                    f"a tensor of shape {tuple(self._a.shape)} and {self.dtype!r}",
                    op="grad",
                )
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self._grad = None

    @property
    def _version(self) -> int:
        """How often this memory was modified in place."""
        return 0 if self._cell is None else self._cell[0]

    @property
    def _base(self) -> Tensor | None:
        """The tensor whose memory this view shows, or None."""
        base: Tensor | None = None
        while (self if base is None else base)._node.__class__ is View:
            base = (self if base is None else base)._node.parent
        return base

    def register_hook(self, hook: Callable[[Tensor], Tensor | None]) -> Handle:
        """Call `hook(grad)` when this tensor's gradient is computed; what it returns replaces it.

        Errors: RuntimeError unless the tensor requires grad.
        """
        edge = edge_of(self)
        if edge is None:
            raise AutogradError("the tensor does not require grad", op="register_hook")
        if edge is self:
            if self._hooks is None:
                self._hooks = {}
            return Handle(self._hooks, hook)
        node, index = (edge.node, edge.index) if isinstance(edge, Output) else (edge, 0)
        if node._tensor_hooks is None:
            node._tensor_hooks = {}
        node.watched = True
        return Handle(node._tensor_hooks.setdefault(index, {}), hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> Handle:
        """Call `hook(self)` after backward added to this leaf's gradient."""
        if self._node is not LEAF:
            raise AutogradError(
                "only a leaf that requires grad accumulates a gradient",
                op="register_post_accumulate_grad_hook",
            )
        if self._post_hooks is None:
            self._post_hooks = {}
        return Handle(self._post_hooks, hook)

    def retain_grad(self) -> None:
        """Keep the gradient of this computed tensor in `.grad` as well."""
        edge = edge_of(self)
        if edge is None:
            raise AutogradError("the tensor does not require grad", op="retain_grad")
        if edge is self:
            return
        node, index = (edge.node, edge.index) if isinstance(edge, Output) else (edge, 0)
        node.retain(index, weakref.ref(self))

    @property
    def retains_grad(self) -> bool:
        """Whether `retain_grad` was called on this computed tensor."""
        edge = edge_of(self)
        if edge is None or edge is self:
            return False
        node, index = (edge.node, edge.index) if isinstance(edge, Output) else (edge, 0)
        return node._retained is not None and index in node._retained

    def detach(self) -> Tensor:
        """Return the same memory without history; backward still notices in-place changes."""
        result = new_tensor(self._a, self._kind)
        result._cell = graph.cell_of(self)
        return result

    def detach_(self) -> Tensor:
        """Drop this tensor's history in place. RuntimeError for a view."""
        if self._node.__class__ is View:
            raise AutogradError(
                "a view cannot be detached in place", op="detach_", remedy="use detach()"
            )
        self._node = None
        return self

    @property
    def data(self) -> Tensor:
        """The same memory without history; backward's checks miss changes, unlike `detach()`'s."""
        return new_tensor(self._a, self._kind)

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(f"data must be a Tensor, not {type(value).__name__}", op="data")
        self._a, self._kind = value._a, value._kind

    # ---- copying between processes and objects

    def __reduce__(self) -> tuple[Any, ...]:
        if edge_of(self) is not None and self._node is not LEAF:
            raise AutogradError(
                "only a leaf can be pickled or deep-copied; this tensor was computed",
                op="pickle",
                remedy="use detach()",
            )
        if self.is_meta:
            host = self._kind.backend.spec(self._a)  # all there is
        else:
            host = np.ascontiguousarray(self._kind.backend.to_host(self._a)).reshape(self._a.shape)
        state_ = (
            host,
            self._kind.dtype.name,
            str(self.device),
            self._node is LEAF,
            dict(self._extra()),
        )
        return _rebuild, (type(self), *state_)

    def _extra(self) -> Iterator[tuple[str, Any]]:
        """Yield attributes that users put on the tensor."""
        for name, value in self.__dict__.items():
            if name not in Tensor.__annotations__:
                yield name, value

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        done = memo.get(id(self))
        if done is None:
            function, arguments = self.__reduce__()
            cls, host, *rest = arguments
            # to_host of a CPU tensor is the tensor's own memory: copy it.
            done = function(cls, host if isinstance(host, Spec) else host.copy(), *rest)
            memo[id(self)] = done
            if self._grad is not None:
                done._grad = self._grad.__deepcopy__(memo)
        return done


def _rebuild(
    cls: type[Tensor], host: Any, name: str, where: str, requires_grad: bool, extra: dict[str, Any]
) -> Tensor:
    from tfw.runtime.backend import for_device

    target = device(where)
    backend = for_device(target)
    payload = backend.empty(host) if isinstance(host, Spec) else backend.from_host(host, target)
    tensor: Tensor = _new(cls)
    tensor._a, tensor._kind = payload, backend.kind(payload)
    if requires_grad:
        tensor._node = LEAF
    tensor.__dict__.update(extra)
    return tensor


def new_tensor(payload: Payload, kind: Kind) -> Tensor:
    """Return an untracked Tensor that holds `payload`."""
    tensor: Tensor = _new(Tensor)
    tensor._a = payload
    tensor._kind = kind
    return tensor


def is_tensor(obj: object) -> bool:
    """Return whether obj is a Tensor."""
    return isinstance(obj, Tensor)


def _python(value: Any, d: dtype) -> Any:
    """Return a 0-d ndarray's value as a Python number."""
    if d.itemsize < 4 and d.is_floating_point:
        return float(value)
    return value.item()
