"""How users reach an op: its function, and on Tensor the method, operators and in-place form."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tfw.dispatch import NUMBERS, dispatch
from tfw.fastpath import Fast, make_function
from tfw.inplace import dispatch_inplace
from tfw.tensor import Tensor

if TYPE_CHECKING:
    from tfw.registry import Op


def expose(
    op: Op, fast: Fast, method: bool | str, dunders: Sequence[str], inplace: bool, varargs: str
) -> Callable[..., Any]:
    """Return the op's public function, and attach its other forms to Tensor.

    Args:
        op: the op.
        fast: its fast path.
        method: whether it is a method, or the method's name.
        dunders: operators, e.g. ``"__add__"``.
        inplace: whether `Tensor.<name>_` exists.
        varargs: the parameter that the method takes as several arguments, e.g. ``x.view(2, 3)``.

    """
    function = make_function(op, fast, op.parameters)
    if method:
        as_method = function
        if varargs:
            starred = tuple((n, f"*{n}" if n == varargs else t) for n, t in op.parameters)
            as_method = make_function(op, fast, starred)
        setattr(Tensor, method if isinstance(method, str) else op.name, as_method)
    operands = op.parameters[: len(op.inputs)]
    slow = _operator if len(operands) > 1 else dispatch
    if dunders:
        operator = make_function(op, fast, operands, slow)
        for dunder in dunders:
            setattr(Tensor, dunder, operator)
    if inplace:
        _expose_inplace(op, fast, [d for d in dunders if not d.startswith("__r")], operands)
    return function


def _expose_inplace(
    op: Op, fast: Fast, dunders: Sequence[str], operands: tuple[tuple[str, str], ...]
) -> None:
    rule = fast.rule or op.rules.get("cpu")
    # A ufunc takes the memory to write to as its last argument.
    style = f"inplace_{fast.style}" if fast.style and isinstance(rule, np.ufunc) else ""
    parameters = tuple(p for p in op.parameters if p[0] != "out")
    if parameters[-1][0] == "*":
        parameters = parameters[:-1]
    method = make_function(op, fast, parameters, dispatch_inplace, style)
    method.__name__ = method.__qualname__ = op.name + "_"
    method.__doc__ = f"In-place form of `{op.name}`."
    setattr(Tensor, op.name + "_", method)
    for dunder in dunders:
        if len(operands) > 1:
            operator = make_function(op, fast, operands, _inplace_operator, style)
            setattr(Tensor, f"__i{dunder[2:]}", operator)


def _operator(op: Op, args: tuple[Any, ...]) -> Any:
    """Slow path of Python operators: leave operands that are no numbers to the other side."""
    return dispatch(op, args) if isinstance(args[1], (Tensor, *NUMBERS)) else NotImplemented


def _inplace_operator(op: Op, args: tuple[Any, ...]) -> Any:
    if isinstance(args[1], (Tensor, *NUMBERS)):
        return dispatch_inplace(op, args)
    return NotImplemented
