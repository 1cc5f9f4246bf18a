"""state_dict and load_state_dict: a module's tensors by name, out and in."""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tfw.autograd import no_grad
from tfw.errors import ArgumentError, StateDictError
from tfw.graph import Handle
from tfw.nn.hooks import Hook, HookError
from tfw.nn.members import Members
from tfw.nn.parameter import Parameter
from tfw.tensor import Tensor

EXTRA_STATE = "_extra_state"


class Write(NamedTuple):
    """One entry to load, and how to take it back."""

    do: Callable[[], object]
    # Called before `do`; returns the function that restores what was there.
    remember: Callable[[], Callable[[], object]]


class IncompatibleKeys(NamedTuple):
    """Names that the module has and the state lacks, and the other way round."""

    missing_keys: list[str]
    unexpected_keys: list[str]

    def __repr__(self) -> str:
        if not self.missing_keys and not self.unexpected_keys:
            return "<All keys matched successfully>"
        return (
            f"IncompatibleKeys(missing_keys={self.missing_keys!r}, "
            f"unexpected_keys={self.unexpected_keys!r})"
        )


class LoadError(StateDictError):
    """A state that does not fit the module.

    Attributes:
        missing_keys: names that the module has and the state lacks.
        unexpected_keys: names that the state has and the module lacks.
        mismatches: what is wrong with each entry that both have.

    """

    missing_keys: list[str]
    unexpected_keys: list[str]
    mismatches: list[str]


class Stateful(Members):
    """The part of Module that saves and loads its state."""

    _version: int = 1
    _state_dict_pre_hooks: dict[int, Hook]
    _state_dict_hooks: dict[int, Hook]
    _load_state_dict_pre_hooks: dict[int, Hook]
    _load_state_dict_post_hooks: dict[int, Hook]

    def _init_state(self) -> None:
        """Give a new module its empty hook tables."""
        self.__dict__.update(
            _state_dict_pre_hooks={},
            _state_dict_hooks={},
            _load_state_dict_pre_hooks={},
            _load_state_dict_post_hooks={},
        )

    def get_extra_state(self) -> Any:
        """Return what else `state_dict` should save of this module; for subclasses to define."""
        raise NotImplementedError

    def set_extra_state(self, state: Any) -> None:
        """Take back what `get_extra_state` returned; for subclasses to define."""
        raise NotImplementedError

    # ---- out

    def state_dict(
        self, *, destination: Any = None, prefix: str = "", keep_vars: bool = False
    ) -> OrderedDict[str, Any]:
        """Return parameters and persistent buffers by path; they share memory with the module.

        Tensors are detached unless keep_vars. Entries go into `destination` if one is given, their
        names after `prefix`. Its attribute `_metadata` holds each module's version.
        """
        if destination is None:
            destination = OrderedDict[str, Any]()
            destination._metadata = OrderedDict[str, Any]()  # pyright: ignore[reportAttributeAccessIssue]  PyTorch's place for it
        metadata = {"version": self._version}
        if hasattr(destination, "_metadata"):
            destination._metadata[prefix[:-1]] = metadata
        for hook in tuple(self._state_dict_pre_hooks.values()):
            hook(self, prefix, keep_vars)
        self._save_to_state_dict(destination, prefix, keep_vars)
        for name, module in self._modules.items():
            if module is not None:
                module.state_dict(
                    destination=destination, prefix=f"{prefix}{name}.", keep_vars=keep_vars
                )
        for hook in tuple(self._state_dict_hooks.values()):
            returned = hook(self, destination, prefix, metadata)
            if returned is not None:
                raise HookError(
                    f"a state_dict post-hook returned {type(returned).__name__}",
                    op=type(self).__name__,
                    argument="hook",
                    value=returned,
                    rule="None; change the state in place",
                )
        return destination

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        """Save this module's own tensors; subclasses may save more."""
        for name, tensor in self._own_state().items():
            destination[prefix + name] = tensor if keep_vars else tensor.detach()
        if type(self).get_extra_state is not Stateful.get_extra_state:
            destination[prefix + EXTRA_STATE] = self.get_extra_state()

    def _own_state(self) -> dict[str, Tensor]:
        """Return this module's parameters and persistent buffers that are not None."""
        own: dict[str, Tensor] = {}
        for name, parameter in self._parameters.items():
            if parameter is not None:
                own[name] = parameter
        for name, buffer in self._buffers.items():
            if buffer is not None and name not in self._non_persistent_buffers_set:
                own[name] = buffer
        return own

    def register_state_dict_pre_hook(self, hook: Hook) -> Handle:
        """Call `hook(module, prefix, keep_vars)` before this module's state is collected."""
        return Handle(self._state_dict_pre_hooks, hook)

    def register_state_dict_post_hook(self, hook: Hook) -> Handle:
        """Call `hook(module, state_dict, prefix, local_metadata)` after; it may change the dict."""
        return Handle(self._state_dict_hooks, hook)

    # ---- in

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> IncompatibleKeys:
        """Copy a state's tensors into this module's parameters and buffers, all or none.

        Values are converted to the module's dtypes and devices; with assign the module takes the
        state's tensors themselves instead. With strict every name must match. If an error is
        raised, nothing was loaded (PyTorch leaves what it loaded before it noticed).

        Returns: (missing_keys, unexpected_keys), both empty if strict.
        Errors: RuntimeError (LoadError) that lists missing and unexpected keys and size
        mismatches; TypeError if state_dict is no mapping.
        Example: `model.load_state_dict(tfw.load("model.tfw"))`
        """
        if not isinstance(state_dict, Mapping):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"state_dict must be a mapping, not {type(state_dict).__name__}",
                op="load_state_dict",
                argument="state_dict",
                value=state_dict,
            )
        loading = _Loading(state_dict, assign)
        loading.visit(self, dict(state_dict), "")
        loading.check(self, strict and not loading.post_hooks)
        undo = loading.write(remember=strict and bool(loading.post_hooks))
        keys = IncompatibleKeys(loading.missing, loading.unexpected)
        for module, hook in loading.post_hooks:
            returned = hook(module, keys)
            if returned is not None:
                raise HookError(
                    f"a load_state_dict post-hook returned {type(returned).__name__}",
                    op=type(module).__name__,
                    argument="hook",
                    value=returned,
                    rule="None; change the lists of keys in place",
                )
        try:
            loading.check(self, strict)
        except LoadError:
            for take_back in reversed(undo):
                take_back()
            raise
        return keys

    def _load_from_state_dict(
        self,
        state_dict: dict[str, Any],
        prefix: str,
        local_metadata: dict[str, Any],
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Load this module's own tensors; subclasses may adapt `state_dict` first.

        What does not fit goes into the three lists. Writing waits until all of the state is known
        to fit, if `local_metadata` has the list "writes".
        """
        for hook in tuple(self._load_state_dict_pre_hooks.values()):
            hook(
                *(self, state_dict, prefix, local_metadata, strict),
                *(missing_keys, unexpected_keys, error_msgs),
            )
        writes: list[Write] = local_metadata.get("writes", [])
        assign = local_metadata.get("assign_to_params_buffers", False)
        own = self._own_state()
        for name, tensor in own.items():
            key = prefix + name
            if key not in state_dict:
                missing_keys.append(key)
            elif (fault := _misfit(key, tensor, state_dict[key], assign)) is not None:
                error_msgs.append(fault)
            else:
                writes.append(_write(self, name, tensor, state_dict[key], assign))
        extra_key = prefix + EXTRA_STATE
        takes_extra = type(self).set_extra_state is not Stateful.set_extra_state
        if takes_extra and extra_key in state_dict:
            writes.append(_write_extra(self, state_dict[extra_key]))
        elif takes_extra:
            missing_keys.append(extra_key)
        known = {extra_key} if takes_extra else set[str]()
        for key in state_dict:
            if not key.startswith(prefix) or key in known:
                continue
            name, dot, _ = key[len(prefix) :].partition(".")
            if name not in (self._modules if dot else own):
                unexpected_keys.append(key)
        if "writes" not in local_metadata:
            for write in writes:
                write.do()

    def register_load_state_dict_pre_hook(self, hook: Hook) -> Handle:
        """Call a hook before this module's own tensors are loaded.

        It is `hook(module, state_dict, prefix, local_metadata, strict, missing_keys,
        unexpected_keys, error_msgs)` and may change the state and the lists in place.
        """
        return Handle(self._load_state_dict_pre_hooks, hook)

    def register_load_state_dict_post_hook(self, hook: Hook) -> Handle:
        """Call `hook(module, incompatible_keys)` once all is loaded, before strict is enforced.

        It may change the two lists in place. If strict then fails, the module's tensors get their
        values back.
        """
        return Handle(self._load_state_dict_post_hooks, hook)


class _Loading:
    """One load_state_dict: what does not fit, and the writes that wait until all does."""

    def __init__(self, state_dict: Any, assign: bool) -> None:
        self.missing: list[str] = []
        self.unexpected: list[str] = []
        self.mismatches: list[str] = []
        self.post_hooks: list[tuple[Any, Hook]] = []
        self._metadata: dict[str, Any] = getattr(state_dict, "_metadata", None) or {}
        self._assign = assign
        self._writes: list[Write] = []

    def visit(self, module: Any, state: dict[str, Any], prefix: str) -> None:
        """Compare a module and all below it with the state."""
        metadata: dict[str, Any] = {**self._metadata.get(prefix[:-1], {}), "writes": self._writes}
        if self._assign:
            metadata["assign_to_params_buffers"] = True
        module._load_from_state_dict(
            state, prefix, metadata, True, self.missing, self.unexpected, self.mismatches
        )
        for name, child in module._modules.items():
            if child is not None:
                path = f"{prefix}{name}."
                self.visit(child, {k: v for k, v in state.items() if k.startswith(path)}, path)
        hooks = module._load_state_dict_post_hooks.values()
        self.post_hooks.extend((module, hook) for hook in hooks)

    def check(self, module: Any, strict: bool) -> None:
        """Raise LoadError if something does not fit; names count if strict."""
        missing, unexpected = (self.missing, self.unexpected) if strict else ([], [])
        lines = [
            *([f"missing keys: {', '.join(missing)}"] if missing else []),
            *([f"unexpected keys: {', '.join(unexpected)}"] if unexpected else []),
            *self.mismatches,
        ]
        if not lines:
            return
        error = LoadError(
            "\n  ".join(["the state does not fit; nothing was loaded", *lines]),
            op=f"load_state_dict of {type(module).__name__}",
            argument="state_dict",
            remedy="" if self.mismatches else "strict=False loads the entries that match",
        )
        error.missing_keys, error.unexpected_keys = list(missing), list(unexpected)
        error.mismatches = list(self.mismatches)
        raise error

    def write(self, *, remember: bool) -> list[Callable[[], object]]:
        """Do what waited; return how to take it back, if asked for."""
        undo = [write.remember() for write in self._writes] if remember else []
        for write in self._writes:
            write.do()
        return undo


def _misfit(key: str, tensor: Tensor, value: Any, assign: bool) -> str | None:
    """Return why a state's entry cannot be loaded, or None."""
    if not isinstance(value, Tensor):
        return f"{key}: expected a Tensor, found {type(value).__name__}"
    if value.shape != tensor.shape:
        return (
            f"size mismatch for {key}: {tuple(value.shape)} in the state, "
            f"{tuple(tensor.shape)} in the module"
        )
    if tensor.is_meta and not value.is_meta and not assign:
        warnings.warn(
            f"load_state_dict: {key} is on the meta device, which has no memory to copy into; "
            "pass assign=True to take the state's tensor",
            stacklevel=6,
        )
    return None


def _write(module: Members, name: str, tensor: Tensor, value: Tensor, assign: bool) -> Write:
    """Return the write of one tensor: into its memory, or in its place if assign."""
    if assign:
        return Write(
            lambda: setattr(module, name, _like_parameter(tensor, value)),
            lambda: lambda: setattr(module, name, tensor),
        )

    def copy(source: Tensor = value) -> None:
        with no_grad():
            tensor.copy_(source.to(device=tensor.device))

    def remember() -> Callable[[], object]:
        before = tensor.detach().clone()
        return lambda: copy(before)

    return Write(copy, remember)


def _like_parameter(tensor: Tensor, value: Tensor) -> Tensor:
    """Return the value as the kind of member that `tensor` is."""
    if not isinstance(tensor, Parameter):
        return value
    if not isinstance(value, Parameter):
        return Parameter(value, tensor.requires_grad)
    value.requires_grad_(tensor.requires_grad)
    return value


def _write_extra(module: Stateful, state: Any) -> Write:
    # Extra state is the module's own affair: nothing is known of how to take it back.
    return Write(lambda: module.set_extra_state(state), lambda: lambda: None)
