"""Parameter and Buffer: tensors that a Module notices when they are assigned to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

from tfw.errors import ArgumentError
from tfw.graph import cell_of
from tfw.ops.creation import empty
from tfw.tensor import Tensor

T = TypeVar("T", bound=Tensor)


def _alias(cls: type[T], data: Tensor | None) -> T:
    """Return a `cls` that shares memory and version counter with `data`, without its history."""
    if data is None:
        data = empty(0)
    if not isinstance(data, Tensor):  # pyright: ignore[reportUnnecessaryIsInstance]
        raise ArgumentError(
            f"data must be a Tensor or None, not {type(data).__name__}",
            op=cls.__name__,
            argument="data",
            value=data,
            remedy="make one with tfw.tensor(data)",
        )
    alias = object.__new__(cls)
    alias._a, alias._kind = data._a, data._kind
    alias._cell = cell_of(data)
    return alias


class Parameter(Tensor):
    """A leaf tensor that a module trains: assigned to a Module, it becomes one of its parameters.

    It shares `data`'s memory. Outside a module it computes like any tensor.

    Shapes: data's.
    Dtypes: floating and complex; any with requires_grad=False.
    Errors: TypeError if data is no Tensor, RuntimeError for an integer dtype that requires grad.
    Source: elementary.
    Example: `nn.Parameter(tfw.ones(2)).requires_grad`
    """

    def __new__(cls, data: Tensor | None = None, requires_grad: bool = True) -> Parameter:
        """Make a Parameter of data's memory."""
        parameter = _alias(cls, data)
        if requires_grad:
            parameter.requires_grad_()
        return parameter

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        done = memo.get(id(self))
        if done is None:
            done = type(self)(self.detach().clone(), self.requires_grad)
            done.__dict__.update(self._extra())
            # The copy starts without a gradient, as PyTorch's does.
            memo[id(self)] = done
        return done

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


class Buffer(Tensor):
    """A tensor that belongs to a module's state without being trained.

    Assigned to a Module it becomes one of its buffers, part of `state_dict` if `persistent`.

    Shapes: data's.
    Dtypes: all.
    Errors: TypeError if data is no Tensor.
    Source: elementary.
    Example: `nn.Buffer(tfw.zeros(2), persistent=False).persistent == False`
    """

    persistent: bool

    def __new__(cls, data: Tensor | None = None, *, persistent: bool = True) -> Buffer:
        """Make a Buffer of data's memory."""
        buffer = _alias(cls, data)
        if data is not None and data.requires_grad:
            buffer.requires_grad_()
        buffer.persistent = persistent
        return buffer

    def _extra(self) -> Iterator[tuple[str, Any]]:
        yield "persistent", self.persistent
        yield from super()._extra()
