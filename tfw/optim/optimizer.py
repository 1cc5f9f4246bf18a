"""Optimizer: parameter groups, per-parameter state, hooks, and saving both."""

from __future__ import annotations

import functools
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable
from copy import deepcopy
from itertools import chain
from typing import Any, Final, TypeVar, cast

from tfw.dtypes import float32
from tfw.errors import ArgumentError, DtypeError, ValueRangeError
from tfw.graph import Handle
from tfw.nn.hooks import check_pair
from tfw.nn.module import clear_grad
from tfw.ops.data import tensor
from tfw.optim.saved import check_mapping, check_state
from tfw.tensor import Tensor

Group = dict[str, Any]
Hook = Callable[..., Any]
F = TypeVar("F", bound=Callable[..., Any])


class _Required:
    """Marks an option without a default, which every group must give."""

    def __repr__(self) -> str:
        return "<required parameter>"


required: Final = _Required()


def _with_hooks(step: F) -> F:
    """Wrap a `step` so that hooks run around it, once even if it calls an inherited `step`."""

    @functools.wraps(step)
    def wrapped(self: Optimizer, *args: Any, **kwargs: Any) -> Any:
        self._opt_called = True
        if self._stepping or not (self._step_pre_hooks or self._step_post_hooks):
            return step(self, *args, **kwargs)
        self._stepping = True
        try:
            for hook in tuple(self._step_pre_hooks.values()):
                result = hook(self, args, kwargs)
                if result is not None:
                    check_pair(type(self).__name__, "a step pre-hook", result)
                    args, kwargs = result
            loss = step(self, *args, **kwargs)
            for hook in tuple(self._step_post_hooks.values()):
                hook(self, args, kwargs)
            return loss
        finally:
            self._stepping = False

    return cast(F, wrapped)


class Optimizer:
    """Base of optimizers: `step()` changes the parameters by their gradients.

    Args:
        params: parameters, (name, parameter) pairs, or dicts with "params" and options of a group.
        defaults: options of groups that do not give them.

    A subclass sets `defaults` and defines `step`; per-parameter state goes into `self.state[p]`.

    Errors: TypeError for params of another type, ValueError if there are none.

    """

    # State entries that must have their parameter's shape, checked when state is loaded.
    shaped_like_parameter: frozenset[str] = frozenset()

    _opt_called = False
    _stepping = False
    defaults: dict[str, Any]
    state: defaultdict[Any, dict[str, Any]]
    param_groups: list[Group]

    def __init_subclass__(cls, **keywords: Any) -> None:
        super().__init_subclass__(**keywords)
        if "step" in cls.__dict__:
            cls.step = _with_hooks(cls.__dict__["step"])

    def __init__(self, params: Any, defaults: dict[str, Any]) -> None:
        if isinstance(params, Tensor) or not isinstance(params, Iterable):
            raise ArgumentError(
                f"params is a {type(params).__name__}",
                op=type(self).__name__,
                argument="params",
                value=params,
                rule="an iterable of Tensors, of (name, Tensor) pairs or of dicts",
            )
        self.defaults = defaults
        self._init_hooks()
        self.state = defaultdict(dict)
        self.param_groups = []
        groups = list(cast("Iterable[Any]", params))
        if not groups:
            raise ValueRangeError(
                "params is empty", op=type(self).__name__, argument="params", value=groups
            )
        if not isinstance(groups[0], dict):
            groups = [{"params": groups}]
        for group in groups:
            self.add_param_group(group)

    def _init_hooks(self) -> None:
        self._step_pre_hooks: dict[int, Hook] = {}
        self._step_post_hooks: dict[int, Hook] = {}
        self._state_dict_pre_hooks: dict[int, Hook] = {}
        self._state_dict_post_hooks: dict[int, Hook] = {}
        self._load_pre_hooks: dict[int, Hook] = {}
        self._load_post_hooks: dict[int, Hook] = {}

    # ---- groups

    def add_param_group(self, param_group: Group) -> None:
        """Add parameters with options of their own.

        Errors: TypeError for a group that is no dict, a set of parameters, or an element that is no
        Tensor; ValueError for a computed tensor, a missing option, a parameter that another group
        has, or names in some places only.
        """
        op = type(self).__name__
        if not isinstance(param_group, dict):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"a group must be a dict, not {type(param_group).__name__}",
                op=op,
                argument="param_group",
                value=param_group,
            )
        params = param_group["params"]
        if isinstance(params, set):
            raise ArgumentError(
                "params is a set, whose order differs from run to run",
                op=op,
                argument="params",
                remedy="use a list",
            )
        entries: list[Any] = [params] if isinstance(params, Tensor) else list(params)
        names: list[Any] = [e[0] for e in entries if isinstance(e, tuple)]
        parameters: list[Any] = [e[1] if isinstance(e, tuple) else e for e in entries]
        if names and len(names) != len(entries):
            raise self._bad_names("some parameters of the group have no name")
        for p in parameters:
            self._check_parameter(p)
        group = param_group
        group["params"] = parameters
        if names:
            group["param_names"] = names
        for name, default in self.defaults.items():
            if default is required and name not in group:
                raise ValueRangeError(
                    f"the group does not give {name!r}, which has no default", op=op, argument=name
                )
            group.setdefault(name, default)
        if len(parameters) != len(set(parameters)):
            warnings.warn(
                f"{op}: a group has a parameter twice, which takes its step twice", stacklevel=3
            )
        taken: set[Any] = set()
        for other in self.param_groups:
            taken.update(other["params"])
            if ("param_names" in group) != ("param_names" in other):
                raise self._bad_names("some groups have names and some have none")
        if not taken.isdisjoint(parameters):
            raise ValueRangeError(
                "a parameter is in two groups", op=op, argument="params", rule="one group each"
            )
        self.param_groups.append(group)

    def _bad_names(self, message: str) -> ValueRangeError:
        return ValueRangeError(
            message,
            op=type(self).__name__,
            argument="params",
            rule="(name, parameter) pairs everywhere or nowhere",
        )

    def _check_parameter(self, p: Any) -> None:
        op = type(self).__name__
        if not isinstance(p, Tensor):
            raise ArgumentError(
                f"a parameter must be a Tensor, not {type(p).__name__}",
                op=op,
                argument="params",
                value=p,
            )
        if not (self.defaults.get("differentiable") or p.is_leaf or p.retains_grad):
            raise ValueRangeError(
                "a computed tensor cannot be optimized",
                op=op,
                argument="params",
                value=p,
                remedy="optimize the leaves that it was computed from, or a detach()ed copy",
            )
        if p.is_complex():
            raise DtypeError(
                f"a parameter has dtype {p.dtype!r}",
                op=op,
                argument="params",
                value=p.dtype,
                rule="floating-point dtypes",
            )

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients of all parameters, or fill them with zeros if not set_to_none."""
        for group in self.param_groups:
            for p in group["params"]:
                clear_grad(p, set_to_none)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters by their gradients; return what closure() returns.

        `closure` computes the loss and its gradients anew; it runs first, with gradients enabled.
        """
        raise NotImplementedError

    def __repr__(self) -> str:
        lines = [f"{type(self).__name__} ("]
        for i, group in enumerate(self.param_groups):
            lines.append(f"Parameter Group {i}")
            lines += [f"    {key}: {group[key]}" for key in sorted(group) if key != "params"]
        return "\n".join([*lines, ")"])

    def __getstate__(self) -> dict[str, Any]:
        return {
            "defaults": self.defaults,
            "state": self.state,
            "param_groups": self.param_groups,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if "_step_pre_hooks" not in self.__dict__:
            self._init_hooks()

    # ---- hooks

    def register_step_pre_hook(self, hook: Hook) -> Handle:
        """Call `hook(optimizer, args, kwargs)` before `step`; a tuple it returns replaces both."""
        return Handle(self._step_pre_hooks, hook)

    def register_step_post_hook(self, hook: Hook) -> Handle:
        """Call `hook(optimizer, args, kwargs)` after `step`."""
        return Handle(self._step_post_hooks, hook)

    def register_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` before `state_dict`."""
        return Handle(self._state_dict_pre_hooks, hook, first=prepend)

    def register_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> Handle:
        """Call `hook(optimizer, state_dict)` after `state_dict`; what it returns replaces it."""
        return Handle(self._state_dict_post_hooks, hook, first=prepend)

    def register_load_state_dict_pre_hook(self, hook: Hook, prepend: bool = False) -> Handle:
        """Call `hook(optimizer, state_dict)` with a shallow copy; what it returns is loaded."""
        return Handle(self._load_pre_hooks, hook, first=prepend)

    def register_load_state_dict_post_hook(self, hook: Hook, prepend: bool = False) -> Handle:
        """Call `hook(optimizer)` after `load_state_dict`."""
        return Handle(self._load_post_hooks, hook, first=prepend)

    # ---- state

    def state_dict(self) -> dict[str, Any]:
        """Return options and state, parameters as numbers counted over all groups.

        {"state": {number: {...}}, "param_groups": [{..., "params": [numbers]}]}. Tensors are the
        optimizer's own; save or copy them before the next step.
        """
        for hook in tuple(self._state_dict_pre_hooks.values()):
            hook(self)
        numbers: dict[int, int] = {}
        groups: list[Group] = []
        start = 0
        for group in self.param_groups:
            for i, p in enumerate(group["params"], start):
                numbers.setdefault(id(p), i)
            start += len(group["params"])
            packed = {key: value for key, value in group.items() if key != "params"}
            packed["params"] = [numbers[id(p)] for p in group["params"]]
            groups.append(packed)
        state = {
            numbers[id(key)] if isinstance(key, Tensor) else key: value
            for key, value in self.state.items()
        }
        result: dict[str, Any] = {"state": state, "param_groups": groups}
        for hook in tuple(self._state_dict_post_hooks.values()):
            replacement = hook(self, result)
            if replacement is not None:
                result = replacement
        return result

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over options and state; parameters are matched by their order in the groups.

        Tensors are copied (PyTorch shares them with `state_dict`), state that belongs to a
        floating-point parameter is converted to its dtype and device. Options, learning rates
        among them, come from the state. If an error is raised, nothing was loaded.

        Errors: ValueError (OptimizerStateError) if groups or shapes do not fit.
        """
        check_mapping(type(self).__name__, state_dict)
        state_dict = dict(state_dict)
        for hook in tuple(self._load_pre_hooks.values()):
            replacement = hook(self, state_dict)
            if replacement is not None:
                state_dict = replacement
        check_state(type(self).__name__, self.param_groups, state_dict, self.shaped_like_parameter)
        saved_groups: list[Group] = deepcopy(state_dict["param_groups"])
        numbers = chain.from_iterable(g["params"] for g in saved_groups)
        parameters = dict(
            zip(numbers, chain.from_iterable(g["params"] for g in self.param_groups), strict=True)
        )
        state: defaultdict[Any, dict[str, Any]] = defaultdict(dict)
        for key, value in state_dict["state"].items():
            parameter = parameters.get(key)
            if parameter is None:
                state[key] = value
            else:
                state[parameter] = _converted(parameter, value, "")
        for group, saved in zip(self.param_groups, saved_groups, strict=True):
            saved["params"] = group["params"]
            if "param_names" in group:
                saved.setdefault("param_names", group["param_names"])
            for name, default in self.defaults.items():
                saved.setdefault(name, default)  # an option newer than the state
        self.__setstate__({"state": state, "param_groups": saved_groups})
        for hook in tuple(self._load_post_hooks.values()):
            hook(self)


def _converted(parameter: Tensor, value: Any, name: str) -> Any:
    """Return a copy of a state entry, its tensors with the parameter's dtype and device."""
    if isinstance(value, dict):
        entries = cast("dict[str, Any]", value)
        return {key: _converted(parameter, entry, key) for key, entry in entries.items()}
    if name == "step":
        # On the parameter's device, where a captured graph can count.
        count = value if isinstance(value, Tensor) else tensor(float(value))
        return count.detach().to(device=parameter.device, dtype=float32, copy=True)
    if isinstance(value, Tensor):
        wanted = parameter.dtype if parameter.is_floating_point() else value.dtype
        return value.detach().to(device=parameter.device, dtype=wanted, copy=True)
    if isinstance(value, (list, tuple)):
        return type(value)(_converted(parameter, v, "") for v in cast("Iterable[Any]", value))  # pyright: ignore[reportUnknownVariableType, reportUnknownArgumentType]
    return deepcopy(value)
