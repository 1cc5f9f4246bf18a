"""What autograd adds to Tensor."""

from __future__ import annotations

from typing import Any

from tfw.autograd.calls import backward
from tfw.tensor import Tensor


def _backward(
    self: Tensor,
    gradient: Tensor | None = None,
    retain_graph: bool | None = None,
    create_graph: bool = False,
    inputs: Any = None,
) -> None:
    """Add this tensor's gradients to `.grad` of the leaves: see `autograd.backward`."""
    backward(
        (self,),
        None if gradient is None else (gradient,),
        retain_graph,
        create_graph,
        inputs=inputs,
    )


def attach() -> None:
    """Make backward a method of Tensor."""
    _backward.__name__ = _backward.__qualname__ = "backward"
    Tensor.backward = _backward  # pyright: ignore[reportAttributeAccessIssue]  attached
