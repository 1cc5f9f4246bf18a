"""How elementwise ops are declared: `unary` and `binary` register one with all its slots.

Layout, broadcasting, promotion and the CUDA kernel follow from `pointwise`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import FLOATING, NUMERIC, Number, dtype
from tfw.errors import ArgumentError, DtypeError, ShapeError
from tfw.fastpath import Fast
from tfw.registry import Call, Cost, Op, OpFunction, Reject
from tfw.shapes import Spec
from tfw.tensor import Tensor

_FAST = (dtypes.float32, dtypes.float64)
_FAST_INT64_TOO = (*_FAST, dtypes.int64)
_FLOAT_ONLY = "floating; integers become the default dtype"

_SECTIONS = """{formula}

    Shapes: {shapes}.
    Dtypes: {dtypes}.
    Errors: {errors}.
    Source: elementary.
    Example: {example}
    """


def normal(rng: np.random.Generator, *shape: int) -> Any:
    """Draw a sample."""
    return rng.standard_normal(shape)


def positive(rng: np.random.Generator, *shape: int) -> Any:
    """Draw a sample for a function of positive numbers."""
    return np.abs(rng.standard_normal(shape)) + 0.1


def away_from_zero(rng: np.random.Generator, *shape: int) -> Any:
    """Draw a sample for a function with a pole at 0."""
    x = rng.standard_normal(shape)
    return x + np.copysign(0.5, x)


def integer(rng: np.random.Generator, *shape: int) -> Any:
    """Draw a sample of integers."""
    return rng.integers(-100, 100, shape)


def pointwise_cost(*args: Any) -> Cost:
    """Return the work of an elementwise op: every operand read once, the result written once."""
    specs = [a for a in args if isinstance(a, Spec)]
    n = max(s.numel for s in specs)
    return Cost(sum(s.numel * s.dtype.itemsize for s in specs) + n * specs[0].dtype.itemsize, n)


def unary(
    name: str,
    formula: str,
    *,
    numpy: Callable[..., Any],
    triton: str,
    vjp: Callable[..., Any] | None,
    example: str,
    like: str = "",
    reference: Callable[..., Any] | None = None,
    draw: Callable[..., Any] = normal,
    autocast: str = "",
    dunders: tuple[str, ...] = (),
) -> OpFunction[..., Tensor]:
    """Register a function of one tensor. `like` is "float" for one that needs floating point."""

    def function(input: Tensor, *, out: Tensor | None = None) -> Tensor:  # pyright: ignore[reportReturnType]  a primitive has no body
        ...

    function.__name__, function.__module__ = name, __name__
    function.__doc__ = _SECTIONS.format(
        formula=formula,
        shapes="the input's",
        dtypes=_FLOAT_ONLY if like else "all but bool",
        errors="TypeError if input is no tensor" + ("" if like else ", RuntimeError for bool"),
        example=f"`{example}`" if example else "used by gradients",
    )
    result = Op(
        function,
        body=None,
        numpy=numpy,
        triton=triton,
        fast=Fast("unary", dtypes=_FAST if like else _FAST_INT64_TOO, threaded=True),
        pointwise=True,
        promotion=like,
        dtypes=FLOATING if like else NUMERIC,
        inplace=True,
        autocast=autocast,
        dunders=dunders,
    )
    if vjp is not None:
        result.vjp(input=vjp)
    result.reference(reference or numpy)
    result.cost(pointwise_cost)

    @result.samples
    def _(rng: np.random.Generator) -> Iterator[Call]:
        yield Call(draw(rng, 3, 4))

    @result.rejects
    def _() -> Iterator[Reject]:
        yield Reject(Call("a"), ArgumentError, argument="input")
        if not like:
            yield Reject(Call(np.ones(2, np.bool_)), DtypeError, argument="input")

    return result.function  # pyright: ignore[reportReturnType]  a function with OpFunction's attributes


def binary(
    name: str,
    formula: str,
    *,
    numpy: Callable[..., Any],
    triton: str,
    example: str,
    prototype: Callable[..., Any] | None = None,
    fast_rule: Callable[..., Any] | None = None,
    reference: Callable[..., Any] | None = None,
    like: str = "common",
    taken: tuple[dtype, ...] | None = None,
    result: dtype | None = None,
    differentiable: bool = True,
    draw: Callable[..., Any] = normal,
    number: Number = 2.5,
    inplace: bool = True,
    hidden: bool = False,
    fast: bool = True,
    dunders: tuple[str, ...] = (),
) -> OpFunction[..., Tensor]:
    """Register a function of two tensors or numbers that broadcast."""

    def function(  # pyright: ignore[reportReturnType]  a primitive has no body
        input: Tensor | Number, other: Tensor | Number, *, out: Tensor | None = None
    ) -> Tensor: ...

    function = prototype or function
    function.__name__, function.__module__ = name, __name__
    function.__doc__ = _SECTIONS.format(
        formula=formula,
        shapes="both broadcast to the result's shape",
        dtypes=(
            _FLOAT_ONLY
            if like == "float"
            else "all"
            if taken is None
            else "all but bool"
            if taken is NUMERIC
            else "bool and integers"
        )
        + ("; the result is bool" if result else "; the result has the promoted dtype"),
        errors="RuntimeError if the shapes do not broadcast, TypeError for another type",
        example=f"`{example}`" if example else "used by gradients",
    )
    registered = Op(
        function,
        body=None,
        numpy=numpy,
        triton=triton,
        fast=Fast(
            "binary" if fast else "",
            fast_rule,
            _FAST if like == "float" else _FAST_INT64_TOO,
            guard="alpha == 1" if fast_rule else "",
            threaded=True,
        ),
        pointwise=True,
        promotion=like,
        dtypes=taken,
        result_dtype=result,
        differentiable=differentiable and result is None,
        inplace=inplace,
        hidden=hidden,
        method=not hidden,
        dunders=dunders,
    )
    registered.reference(reference or numpy)
    registered.cost(pointwise_cost)
    second = registered.inputs[1]

    @registered.samples
    def _(rng: np.random.Generator) -> Iterator[Call]:
        yield Call(draw(rng, 3, 4), draw(rng, 3, 4))
        yield Call(draw(rng, 3, 1), draw(rng, 2, 1, 4))
        yield Call(draw(rng, 5), number)

    @registered.rejects
    def _() -> Iterator[Reject]:
        good = draw(np.random.default_rng(0), 2, 3)
        yield Reject(Call(good, good[0, :2]), ShapeError, argument="shape")
        yield Reject(Call(good, "a"), ArgumentError, argument=second)
        if taken is not None:
            refused = np.ones(2) if dtypes.bool_ in taken else np.ones(2, np.bool_)
            yield Reject(Call(refused, refused), DtypeError)

    return registered.function  # pyright: ignore[reportReturnType]  a function with OpFunction's attributes


def is_number(x: object) -> bool:
    """Return whether x is a Python or NumPy number."""
    return isinstance(x, (int, float, complex, np.generic))
