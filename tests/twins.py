"""Programs that run in tfw and in PyTorch alike: one literal must hold for both.

A twin takes the module (`t`) and returns what it observed. The literal beside it came from PyTorch
2.13; where PyTorch is installed, test_torch_twins.py runs every twin there as well.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import tfw

Program = Callable[[Any], Any]
TWINS: list[tuple[Program, Any]] = []


def twin(expected: Any) -> Callable[[Program], Callable[[], None]]:
    """Make a test of a program: run with tfw, it must tell `expected`."""

    def wrap(program: Program) -> Callable[[], None]:
        TWINS.append((program, expected))

        def test() -> None:
            assert_told(program(tfw), expected)

        test.__name__ = test.__qualname__ = program.__name__
        test.__module__ = program.__module__
        test.__doc__ = program.__doc__
        return test

    return wrap


def told(value: Any) -> Any:
    """Return what a program observed as plain Python values."""
    if isinstance(value, (list, tuple)):
        return [told(v) for v in value]
    if hasattr(value, "detach"):
        return value.detach().tolist()
    return value


def refused(action: Callable[[], Any]) -> str:
    """Return the built-in error class of what `action` raises, which `except` lines name."""
    try:
        action()
    except Exception as error:
        return next(c.__name__ for c in type(error).__mro__ if c.__module__ == "builtins")
    return "no error"


def assert_told(value: Any, expected: Any) -> None:
    """Compare what was observed with a literal, floats within 1e-6."""
    plain = told(value)
    assert _same(plain, expected), f"told {plain!r}\nnot  {expected!r}"


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    if isinstance(a, float) and isinstance(b, float):
        return math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-6) or (math.isnan(a) and math.isnan(b))
    return type(a) is type(b) and a == b
