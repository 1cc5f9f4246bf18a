"""What runs around `forward`: hooks, and the call that honours them."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any, NamedTuple, cast

from tfw.errors import TfwError
from tfw.graph import Handle
from tfw.nn.backward_hooks import BackwardHooks

Hook = Callable[..., Any]


class HookError(TfwError, RuntimeError):
    """A hook that returned what it must not."""


def check_pair(op: str, what: str, result: object) -> None:
    """Raise unless a hook returned a tuple of (args, kwargs)."""
    if not isinstance(result, tuple) or len(cast("tuple[Any, ...]", result)) != 2:
        raise HookError(
            f"{what} returned {type(cast(object, result)).__name__}",
            op=op,
            argument="hook",
            value=cast(object, result),
            rule="None, or a tuple of (args, kwargs)",
        )


class ForwardHook(NamedTuple):
    """A registered forward hook or pre-hook, and how it wants to be called."""

    function: Hook
    with_kwargs: bool
    always_call: bool = False


class Hooked:
    """The part of Module that calls `forward`, with hooks before, after and in backward."""

    forward: Callable[..., Any]

    # Set by the first registration, so that a call without hooks costs one test.
    _hooked: bool = False
    _forward_pre_hooks: dict[int, ForwardHook]
    _forward_hooks: dict[int, ForwardHook]
    _backward_pre_hooks: dict[int, Hook]
    _backward_hooks: dict[int, Hook]

    def _init_hooks(self) -> None:
        """Give a new module its empty hook tables."""
        self.__dict__.update(
            _forward_pre_hooks={}, _forward_hooks={}, _backward_pre_hooks={}, _backward_hooks={}
        )

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run `forward` with the hooks around it."""
        if self._hooked:
            return _Call(self, args, kwargs).run()
        return self.forward(*args, **kwargs)

    def register_forward_pre_hook(
        self, hook: Hook, *, prepend: bool = False, with_kwargs: bool = False
    ) -> Handle:
        """Call `hook(module, args)` before each forward; what it returns replaces the arguments.

        With with_kwargs the hook is `hook(module, args, kwargs)` and returns None or both.
        """
        return self._add_hook(self._forward_pre_hooks, ForwardHook(hook, with_kwargs), prepend)

    def register_forward_hook(
        self,
        hook: Hook,
        *,
        prepend: bool = False,
        with_kwargs: bool = False,
        always_call: bool = False,
    ) -> Handle:
        """Call `hook(module, args, output)` after forward; what it returns replaces the output.

        With with_kwargs the hook is `hook(module, args, kwargs, output)`. With always_call it also
        runs when forward or another hook raises, with the output so far (None if there is none).
        """
        entry = ForwardHook(hook, with_kwargs, always_call)
        return self._add_hook(self._forward_hooks, entry, prepend)

    def register_full_backward_pre_hook(self, hook: Hook, prepend: bool = False) -> Handle:
        """Call `hook(module, grad_output)` in backward, before the module's own gradients.

        A tuple that it returns replaces grad_output.
        """
        return self._add_hook(self._backward_pre_hooks, hook, prepend)

    def register_full_backward_hook(self, hook: Hook, prepend: bool = False) -> Handle:
        """Call `hook(module, grad_input, grad_output)` when the inputs' gradients are known.

        Both are tuples, one entry per positional argument and per output, None where that is no
        tensor or got no gradient. A tuple that the hook returns replaces grad_input. If no input
        requires grad, it runs as soon as grad_output is known, with a warning.
        While such a hook exists the module must not modify its inputs in place, nor its user the
        outputs: RuntimeError.
        """
        return self._add_hook(self._backward_hooks, hook, prepend)

    def _add_hook(self, hooks: dict[int, Any], hook: Any, prepend: bool) -> Handle:
        self._hooked = True
        return Handle(hooks, hook, first=prepend)


class _Call:
    """One call of a module that has hooks."""

    def __init__(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.module = module
        self.args: Any = args  # a tuple; what hooks return replaces it
        self.kwargs: Any = kwargs
        self.output: Any = None
        self.called: set[int] = set()

    def run(self) -> Any:
        try:
            return self._run()
        except Exception:
            self._always()
            raise

    def _run(self) -> Any:
        module = self.module
        # Copies, since a hook may remove itself.
        for hook in tuple(module._forward_pre_hooks.values()):
            self._before(hook)
        backward = None
        if module._backward_hooks or module._backward_pre_hooks:
            backward = BackwardHooks(
                module,
                tuple(module._backward_pre_hooks.values()),
                tuple(module._backward_hooks.values()),
            )
            self.args = backward.watch_inputs(self.args)
        self.output = module.forward(*self.args, **self.kwargs)
        for number, hook in tuple(module._forward_hooks.items()):
            self.called.add(number)
            replacement = self._after(hook)
            if replacement is not None:
                self.output = replacement
        if backward is not None:
            self.output = backward.watch_outputs(self.output)
        return self.output

    def _before(self, hook: ForwardHook) -> None:
        """Run one pre-hook and take over the arguments that it returns."""
        if hook.with_kwargs:
            result = hook.function(self.module, self.args, self.kwargs)
            if result is not None:
                check_pair(type(self.module).__name__, "a forward pre-hook with_kwargs", result)
                self.args, self.kwargs = result
            return
        result = hook.function(self.module, self.args)
        if result is not None:
            self.args = result if isinstance(result, tuple) else (result,)

    def _after(self, hook: ForwardHook) -> Any:
        if hook.with_kwargs:
            return hook.function(self.module, self.args, self.kwargs, self.output)
        return hook.function(self.module, self.args, self.output)

    def _always(self) -> None:
        """After an error, run the hooks that want it and did not run; their own errors warn."""
        for number, hook in tuple(self.module._forward_hooks.items()):
            if not hook.always_call or number in self.called:
                continue
            try:
                replacement = self._after(hook)
                if replacement is not None:
                    self.output = replacement
            except Exception as error:
                warnings.warn(
                    f"{type(self.module).__name__}: a forward hook with always_call=True raised "
                    f"{type(error).__name__} ({error}), ignored since another error is on its way",
                    stacklevel=4,
                )
