"""Checks of an optimizer's saved state against its parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tfw.errors import StateDictError
from tfw.tensor import Tensor


class OptimizerStateError(StateDictError, ValueError):
    """A saved state that does not fit the optimizer; ValueError as in PyTorch."""


def check_mapping(op: str, state_dict: Any) -> None:
    """Raise OptimizerStateError unless a state is a mapping."""
    if not isinstance(state_dict, Mapping):
        raise _misfit(op, "state_dict", f"it is a {type(state_dict).__name__}, not a dict")


def check_state(
    op: str, groups: list[dict[str, Any]], state_dict: Any, shaped_like_parameter: frozenset[str]
) -> None:
    """Raise OptimizerStateError unless a state fits an optimizer's groups and parameters."""
    check_mapping(op, state_dict)
    missing = [key for key in ("state", "param_groups") if key not in state_dict]
    if missing:
        raise _misfit(op, missing[0], f"it has no {' and no '.join(map(repr, missing))}")
    saved = state_dict["param_groups"]
    if len(saved) != len(groups):
        raise _misfit(
            op, "param_groups", f"it has {len(saved)} parameter groups, not {len(groups)}"
        )
    parameters: dict[Any, Tensor] = {}
    for i, (ours, theirs) in enumerate(zip(groups, saved, strict=True)):
        n_saved, n = len(theirs.get("params", ())), len(ours["params"])
        if n_saved != n:
            raise _misfit(op, "param_groups", f"its group {i} has {n_saved} parameters, not {n}")
        if "lr" in ours and "lr" not in theirs:
            raise _misfit(op, "param_groups", f"its group {i} has no learning rate")
        parameters.update(zip(theirs["params"], ours["params"], strict=True))
    for number, entries in state_dict["state"].items():
        parameter = parameters.get(number)
        if parameter is None:
            continue
        for name in shaped_like_parameter.intersection(entries):
            value = entries[name]
            if isinstance(value, Tensor) and value.shape != parameter.shape:
                raise _misfit(
                    op,
                    "state",
                    f"its {name} of parameter {number} has shape {tuple(value.shape)}, "
                    f"the parameter {tuple(parameter.shape)}",
                )


def _misfit(op: str, argument: str, message: str) -> OptimizerStateError:
    return OptimizerStateError(
        f"the state does not fit; nothing was loaded: {message}",
        op=f"load_state_dict of {op}",
        argument=argument,
    )
