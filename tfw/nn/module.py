"""Module: the base of all layers and models."""

from __future__ import annotations

import textwrap
from collections.abc import Callable
from typing import Any, TypeVar

from tfw.errors import ValueRangeError
from tfw.nn.convert import Convertible
from tfw.nn.hooks import Hooked
from tfw.nn.state import Stateful
from tfw.tensor import Tensor

M = TypeVar("M", bound="Module")


class Module(Hooked, Stateful, Convertible):
    """Base of layers and models: holds parameters, buffers, submodules; a call runs `forward`.

    A subclass calls `super().__init__()`, assigns its parts as attributes, and defines `forward`.
    Assigned Parameters, Buffers and Modules are registered under the attribute's name.

    Where the parts are told: members.py (attributes, iterators), hooks.py (calls), state.py
    (state_dict), convert.py (devices and dtypes).

    Example:
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.hidden = nn.Linear(4, 8)
                self.out = nn.Linear(8, 2)

            def forward(self, x):
                return self.out(nn.functional.relu(self.hidden(x)))

    """

    training: bool

    def __init__(self) -> None:
        # Past __setattr__, which would look each name up in tables that are not there yet.
        self.__dict__["training"] = True
        self._init_members()
        self._init_hooks()
        self._init_state()

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Compute the output; every subclass defines it."""
        raise NotImplementedError(
            f'Module [{type(self).__name__}] is missing the required "forward" function'
        )

    def train(self: M, mode: bool = True) -> M:
        """Set training mode, or evaluation mode if False, in this module and all below it.

        Errors: ValueError if mode is no bool.
        """
        if not isinstance(mode, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ValueRangeError(
                f"mode={mode!r} is no bool", op="Module.train", argument="mode", value=mode
            )
        self.training = mode
        for module in self.children():
            module.train(mode)
        return self

    def eval(self: M) -> M:
        """Set evaluation mode: `train(False)`."""
        return self.train(False)

    def requires_grad_(self: M, requires_grad: bool = True) -> M:
        """Start or stop training all parameters."""
        for parameter in self.parameters():
            parameter.requires_grad_(requires_grad)
        return self

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros if not set_to_none."""
        for parameter in self.parameters():
            clear_grad(parameter, set_to_none)

    def apply(self: M, fn: Callable[[Module], object]) -> M:
        """Call `fn(module)` for every module below this one and then for itself."""
        for module in self.children():
            module.apply(fn)
        fn(self)
        return self

    def extra_repr(self) -> str:
        """Return what the repr shows between the parentheses; for subclasses to define."""
        return ""

    def _get_name(self) -> str:
        return type(self).__name__

    def __repr__(self) -> str:
        extra = self.extra_repr()
        lines = extra.split("\n") if extra else []
        if len(lines) == 1 and not self._modules:
            return f"{self._get_name()}({extra})"
        lines += [f"({name}): {module!r}" for name, module in self._modules.items()]
        return block_repr(self._get_name(), lines)


def block_repr(name: str, items: list[str]) -> str:
    """Return `name(...)` with one indented item a line; items may have several lines."""
    if not items:
        return f"{name}()"
    return f"{name}({textwrap.indent(chr(10) + chr(10).join(items), '  ')}\n)"


def clear_grad(tensor: Tensor, set_to_none: bool) -> None:
    """Drop a tensor's gradient, or fill it with zeros and forget how it was computed."""
    grad = tensor.grad
    if grad is None:
        return
    if set_to_none:
        tensor.grad = None
        return
    if grad.grad_fn is not None:
        grad.detach_()
    else:
        grad.requires_grad_(False)
    grad.zero_()
