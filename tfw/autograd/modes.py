"""Gradient modes, per thread: no_grad, enable_grad, set_grad_enabled, inference_mode, anomaly."""

from __future__ import annotations

import functools
import inspect
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from tfw.errors import ArgumentError
from tfw.graph import anomaly
from tfw.runtime.thread_state import state

F = TypeVar("F", bound=Callable[..., Any])


class _Mode(ABC):
    """A context manager that is also a decorator, for functions and generator functions."""

    @abstractmethod
    def __enter__(self) -> None: ...

    @abstractmethod
    def __exit__(self, *exc: object) -> None: ...

    def _again(self) -> _Mode:
        """Return a fresh mode for one call of a decorated function."""
        return type(self)()

    def __call__(self, function: F) -> F:
        if inspect.isgeneratorfunction(function):

            @functools.wraps(function)
            def generate(*args: Any, **kwargs: Any) -> Generator[Any, Any, Any]:
                # The mode holds while the generator runs, not while its caller does.
                generator = function(*args, **kwargs)
                value, throw = None, None
                try:
                    while True:
                        with self._again():
                            item = (
                                generator.send(value) if throw is None else generator.throw(throw)
                            )
                        value, throw = None, None
                        try:
                            value = yield item
                        except GeneratorExit:
                            with self._again():
                                generator.close()
                            raise
                        except BaseException as error:
                            throw = error
                except StopIteration as stop:
                    return stop.value

            return generate  # pyright: ignore[reportReturnType]  wraps keeps the type

        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            with self._again():
                return function(*args, **kwargs)

        return call  # pyright: ignore[reportReturnType]  wraps keeps the type


class _GradMode(_Mode):
    enabled: bool

    def __enter__(self) -> None:
        self._before = state.grad_enabled
        state.grad_enabled = self.enabled

    def __exit__(self, *exc: object) -> None:
        state.grad_enabled = self._before


class no_grad(_GradMode):  # noqa: N801  PyTorch's name
    """Record no gradients inside the block (or function)."""

    enabled = False

    def __new__(cls, function: Any = None) -> Any:
        """Decorate directly when used as `@no_grad` without parentheses."""
        mode = super().__new__(cls)
        return mode if function is None else mode(function)


class enable_grad(_GradMode):  # noqa: N801  PyTorch's name
    """Record gradients inside the block (or function), also within no_grad."""

    enabled = True

    def __new__(cls, function: Any = None) -> Any:
        """Decorate directly when used as `@enable_grad` without parentheses."""
        mode = super().__new__(cls)
        return mode if function is None else mode(function)


class set_grad_enabled(_GradMode):  # noqa: N801  PyTorch's name
    """Switch recording on or off: at once as a call, for a block as a context manager."""

    def __init__(self, mode: bool) -> None:
        if not isinstance(mode, bool):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ArgumentError(
                f"mode={mode!r} is no bool", op="set_grad_enabled", argument="mode", value=mode
            )
        self.enabled = mode
        self._before = state.grad_enabled
        state.grad_enabled = mode

    def __enter__(self) -> None:
        state.grad_enabled = self.enabled

    def __call__(self, function: F) -> F:
        """Decorate a function: the mode then holds in its calls only."""
        state.grad_enabled = self._before
        return super().__call__(function)

    def _again(self) -> _Mode:
        return set_grad_enabled(self.enabled)


class inference_mode(_Mode):  # noqa: N801  PyTorch's name
    """No gradients, as no_grad; `inference_mode(False)` records them."""

    def __new__(cls, mode: Any = True) -> Any:
        """Decorate directly when used as `@inference_mode` without parentheses."""
        if callable(mode):
            return super().__new__(cls)._set(True)(mode)
        return super().__new__(cls)._set(mode)

    def _set(self, mode: bool) -> inference_mode:
        self.mode = mode
        return self

    def _again(self) -> _Mode:
        return inference_mode(self.mode)

    def __enter__(self) -> None:
        self._before = state.grad_enabled, state.inference
        state.grad_enabled, state.inference = not self.mode, self.mode

    def __exit__(self, *exc: object) -> None:
        state.grad_enabled, state.inference = self._before


def is_grad_enabled() -> bool:
    """Return whether ops record gradients in this thread."""
    return state.grad_enabled


def is_inference_mode_enabled() -> bool:
    """Return whether inference_mode is on in this thread."""
    return state.inference


class set_detect_anomaly(_Mode):  # noqa: N801  PyTorch's name
    """Switch anomaly mode: at once as a call, for a block as a context manager.

    Nodes keep the traceback of their forward line; an error in backward shows it, and NaN in a
    gradient raises. Costs much time: for debugging.
    """

    def __init__(self, mode: bool, check_nan: bool = True) -> None:
        self._before = state.anomaly, state.check_nan
        self._mode = mode, check_nan
        anomaly.ever = True
        state.anomaly, state.check_nan = self._mode

    def __enter__(self) -> None:
        state.anomaly, state.check_nan = self._mode

    def __exit__(self, *exc: object) -> None:
        state.anomaly, state.check_nan = self._before

    def _again(self) -> _Mode:
        return set_detect_anomaly(*self._mode)


class detect_anomaly(set_detect_anomaly):  # noqa: N801  PyTorch's name
    """Anomaly mode for a block: see set_detect_anomaly."""

    def __init__(self, check_nan: bool = True) -> None:
        super().__init__(True, check_nan)

    def _again(self) -> _Mode:
        return detect_anomaly(self._mode[1])


def is_anomaly_enabled() -> bool:
    """Return whether anomaly mode is on in this thread."""
    return state.anomaly
