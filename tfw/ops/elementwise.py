"""Elementwise ops: each output element depends on the input elements at the same index.

A primitive gives its NumPy rule, its Triton expression and its vjp on adjacent lines; layout,
broadcasting, promotion and the CUDA kernel follow from `pointwise`.
"""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tfw import dtypes
from tfw.dtypes import FLOATING, NUMERIC, Number, dtype
from tfw.errors import ArgumentError, DtypeError, ShapeError
from tfw.fastpath import Fast
from tfw.registry import Call, Cost, Op, OpFunction, Reject, op, primitive
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


def _normal(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape)


def _positive(rng: np.random.Generator, *shape: int) -> Any:
    return np.abs(rng.standard_normal(shape)) + 0.1


def _away_from_zero(rng: np.random.Generator, *shape: int) -> Any:
    x = rng.standard_normal(shape)
    return x + np.copysign(0.5, x)


def _integer(rng: np.random.Generator, *shape: int) -> Any:
    return rng.integers(-100, 100, shape)


def _cost(*args: Any) -> Cost:
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
    draw: Callable[..., Any] = _normal,
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
        fast=Fast("unary", dtypes=_FAST if like else _FAST_INT64_TOO),
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
    result.cost(_cost)

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
    draw: Callable[..., Any] = _normal,
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
        errors="RuntimeError if the shapes do not broadcast, TypeError if an argument is no tensor or number",
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
    registered.cost(_cost)
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


def _is_number(x: object) -> bool:
    return isinstance(x, (int, float, complex, np.generic))


# ---- arithmetic


def _scaled(  # pyright: ignore[reportReturnType]  a primitive has no body
    input: Tensor | Number, other: Tensor | Number, *, alpha: Number = 1, out: Tensor | None = None
) -> Tensor: ...


def _times(b: Any, alpha: Any) -> Any:
    return b if alpha == 1 else np.multiply(b, b.dtype.type(alpha))


add = binary(
    "add",
    "Sum: input + alpha * other.",
    numpy=lambda a, b, alpha: np.add(a, _times(b, alpha)),
    triton="{input} + {other} * {alpha}",
    prototype=_scaled,
    fast_rule=np.add,
    dunders=("__add__", "__radd__"),
    example="tfw.add(tfw.ones(2), 1.0).tolist() == [2.0, 2.0]",
)
add.vjp(input=lambda g: g, other=lambda g, alpha: g if alpha == 1 else mul(g, alpha))


sub = binary(
    "sub",
    "Difference: input - alpha * other.",
    numpy=lambda a, b, alpha: np.subtract(a, _times(b, alpha)),
    triton="{input} - {other} * {alpha}",
    prototype=_scaled,
    fast_rule=np.subtract,
    taken=NUMERIC,
    dunders=("__sub__",),
    example="tfw.sub(tfw.ones(2), 1.0).tolist() == [0.0, 0.0]",
)
sub.vjp(input=lambda g: g, other=lambda g, alpha: mul(g, -alpha))

mul = binary(
    "mul",
    "Product: input * other.",
    numpy=np.multiply,
    triton="{input} * {other}",
    dunders=("__mul__", "__rmul__"),
    example="tfw.mul(tfw.ones(2), 3.0).tolist() == [3.0, 3.0]",
)
mul.vjp(input=lambda g, other: mul(g, other), other=lambda g, input: mul(g, input))

div = binary(
    "div",
    "Quotient: input / other, in floating point; x / 0 is inf or NaN.",
    numpy=np.divide,
    triton="{input} / {other}",
    like="float",
    draw=_away_from_zero,
    dunders=("__truediv__",),
    example="tfw.div(tfw.ones(2), 2.0).tolist() == [0.5, 0.5]",
)
div.vjp(
    input=lambda g, other: div(g, other),
    # From the inputs, not from the result: `y = a / b; y -= c` must stay differentiable.
    other=lambda g, input, other: neg(div(mul(g, div(input, other)), other)),
)


def _power(a: Any, b: Any) -> Any:
    if b.dtype.kind == "i" and b.size and b.min() < 0:
        return _integer_power(a, b)
    if b.ndim == 0 and b == 2:  # np.power is 20 times slower than a product
        return np.multiply(a, a)
    return np.power(a, b)


def _integer_power(a: Any, b: Any) -> Any:
    """Cut reciprocals of integers towards zero, as PyTorch does: only those of 1 and -1 remain."""
    if not b.ndim:
        raise DtypeError(
            f"an integer to the power {int(b)} is no integer",
            op="pow",
            argument="exponent",
            value=int(b),
            rule="exponent >= 0 for integers",
            remedy="convert one to floating point",
        )
    reciprocal = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2, -1, 1), 0))
    return np.where(b < 0, reciprocal, np.power(a, np.maximum(b, 0))).astype(b.dtype)


def _power_reference(a: Any, b: Any) -> Any:
    if np.result_type(a, b).kind == "f":
        return np.power(a, b)

    def power(x: Any, y: Any) -> int:
        x, y = int(x), int(y)
        if y < 0:
            return 0 if x == 0 else int(1 / x) ** (-y % 2 or 2)
        low = builtins.pow(x, y, 1 << 64)
        return low - (low >> 63 << 64)

    return np.vectorize(power, otypes=[np.int64])(a, b)


def _pow(  # pyright: ignore[reportReturnType]  a primitive has no body
    input: Tensor | Number, exponent: Tensor | Number, *, out: Tensor | None = None
) -> Tensor: ...


pow = binary(
    "pow",
    "Power: input ** exponent; 0 ** 0 = 1.",
    numpy=_power,
    triton="libdevice.pow({input}, {exponent})",
    prototype=_pow,
    reference=_power_reference,
    taken=NUMERIC,
    draw=_positive,
    fast=False,
    dunders=("__pow__",),
    example="tfw.pow(tfw.full((2,), 3.0), 2).tolist() == [9.0, 9.0]",
)


def _pow_grad_input(g: Tensor, input: Tensor, exponent: Any) -> Tensor:
    slope = mul(
        pow(input, sub(exponent, 1) if isinstance(exponent, Tensor) else exponent - 1), exponent
    )
    # d/dx x**0 is 0 also at x = 0, where exponent * x**(exponent - 1) is 0 * inf.
    return mul(g, where(eq(exponent, 0), 0.0, slope))


def _pow_grad_exponent(g: Tensor, y: Tensor, input: Any, exponent: Tensor) -> Tensor:
    if _is_number(input):
        return mul(g, mul(y, math.log(input) if input > 0 else 0.0 if input == 0 else math.nan))
    flat = logical_and(eq(input, 0), ge(exponent, 0))
    return mul(g, where(flat, 0.0, mul(y, log(input))))


pow.vjp(input=_pow_grad_input, exponent=_pow_grad_exponent)


def _reflected(function: OpFunction[..., Tensor]) -> Callable[[Tensor, Any], Any]:
    def operator(self: Tensor, other: Any) -> Any:
        return function(other, self) if _is_number(other) else NotImplemented

    return operator


for _dunder, _function in (("__rsub__", sub), ("__rtruediv__", div), ("__rpow__", pow)):
    setattr(Tensor, _dunder, _reflected(_function))

maximum = binary(
    "maximum",
    "The larger of the two; NaN if one is NaN. Equal inputs share the gradient.",
    numpy=np.maximum,
    triton="tl.maximum({input}, {other}, propagate_nan=tl.PropagateNan.ALL)",
    inplace=False,
    example="tfw.maximum(tfw.ones(2), tfw.zeros(2)).tolist() == [1.0, 1.0]",
)
minimum = binary(
    "minimum",
    "The smaller of the two; NaN if one is NaN. Equal inputs share the gradient.",
    numpy=np.minimum,
    triton="tl.minimum({input}, {other}, propagate_nan=tl.PropagateNan.ALL)",
    inplace=False,
    example="tfw.minimum(tfw.ones(2), tfw.zeros(2)).tolist() == [0.0, 0.0]",
)


def _share(lost: Any, a: Any, b: Any, g: Tensor) -> Tensor:
    """Half for equal operands, nothing for the loser, all for the winner; NaN makes both winners."""
    return where(eq(a, b), mul(g, 0.5), where(lost, 0.0, g))


maximum.vjp(
    input=lambda g, input, other: _share(lt(input, other), input, other, g),
    other=lambda g, input, other: _share(gt(input, other), input, other, g),
)
minimum.vjp(
    input=lambda g, input, other: _share(gt(input, other), input, other, g),
    other=lambda g, input, other: _share(lt(input, other), input, other, g),
)


# ---- functions of one tensor

neg = unary(
    "neg",
    "Negative: -input.",
    numpy=np.negative,
    triton="-{input}",
    vjp=lambda g: neg(g),
    dunders=("__neg__",),
    example="tfw.neg(tfw.ones(2)).tolist() == [-1.0, -1.0]",
)
exp = unary(
    "exp",
    "Exponential: e ** input.",
    numpy=np.exp,
    triton="tl.exp({input})",
    vjp=lambda g, y: mul(g, y),
    like="float",
    autocast="float32",
    example="tfw.exp(tfw.zeros(2)).tolist() == [1.0, 1.0]",
)
log = unary(
    "log",
    "Natural logarithm: -inf at 0, NaN below.",
    numpy=np.log,
    triton="tl.log({input})",
    vjp=lambda g, input: div(g, input),
    like="float",
    draw=_positive,
    autocast="float32",
    example="tfw.log(tfw.ones(2)).tolist() == [0.0, 0.0]",
)
sqrt = unary(
    "sqrt",
    "Square root: NaN below 0.",
    numpy=np.sqrt,
    triton="tl.sqrt({input})",
    vjp=lambda g, y: div(g, mul(y, 2.0)),
    like="float",
    draw=_positive,
    example="tfw.sqrt(tfw.full((2,), 4.0)).tolist() == [2.0, 2.0]",
)
tanh = unary(
    "tanh",
    "Hyperbolic tangent.",
    numpy=np.tanh,
    triton="libdevice.tanh({input})",
    vjp=lambda g, y: mul(g, sub(1.0, mul(y, y))),
    like="float",
    example="tfw.tanh(tfw.zeros(2)).tolist() == [0.0, 0.0]",
)
abs = unary(
    "abs",
    "Absolute value; its gradient at 0 is 0.",
    numpy=np.absolute,
    triton="tl.abs({input})",
    vjp=lambda g, input: mul(g, sign(input)),
    dunders=("__abs__",),
    example="tfw.abs(tfw.full((2,), -3.0)).tolist() == [3.0, 3.0]",
)
sign = unary(
    "sign",
    "Sign: -1, 0 or 1, NaN for NaN (PyTorch gives 0); its gradient is 0.",
    numpy=np.sign,
    triton="tl.where({input} > 0, 1, tl.where({input} < 0, -1, {input}))",
    vjp=lambda g: mul(g, 0.0),
    example="tfw.sign(tfw.full((2,), -3.0)).tolist() == [-1.0, -1.0]",
)

# maximum with a 0-d array of the same dtype is twice as fast as with a Python number.
_ZERO = {d.numpy: np.zeros((), d.numpy) for d in NUMERIC}

relu = unary(
    "relu",
    "Rectifier: max(input, 0); its gradient at 0 is 0, NaN stays NaN.",
    numpy=lambda x: np.maximum(x, _ZERO[x.dtype]),
    triton="tl.maximum({input}, 0, propagate_nan=tl.PropagateNan.ALL)",
    vjp=lambda g, y: relu_grad(g, y),
    reference=lambda x: np.maximum(x, 0),
    example="tfw.relu(tfw.full((2,), -3.0)).tolist() == [0.0, 0.0]",
)


def _relu_grad(g: Any, y: Any) -> Any:
    # Chosen, not multiplied: inf * 0 would be NaN.
    result = np.where(np.less_equal(y, _ZERO[y.dtype]), _ZERO[g.dtype], g)
    return result if result.ndim else result[()]  # a scalar, as ufuncs give


relu_grad = binary(
    "relu_grad",
    "Gradient of relu from its result: 0 where other <= 0, else input; other gets no gradient.",
    numpy=_relu_grad,
    triton="tl.where({other} <= 0, 0, {input})",
    inplace=False,
    hidden=True,
    taken=NUMERIC,
    reference=lambda g, y: np.where(y <= 0, 0, g),
    example="",
)
relu_grad.vjp(input=lambda g, other: relu_grad(g, other))


# ---- comparisons and logic


def _comparison(
    name: str, symbol: str, ufunc: np.ufunc, at_one: list[bool]
) -> OpFunction[..., Tensor]:
    return binary(
        name,
        f"Whether input {symbol} other, element by element.",
        numpy=ufunc,
        triton=f"{{input}} {symbol} {{other}}",
        result=dtypes.bool_,
        inplace=False,
        dunders=(f"__{name}__",),
        example=f"tfw.{name}(tfw.tensor([0.0, 1.0, 2.0]), 1.0).tolist() == {at_one}",
    )


eq = _comparison("eq", "==", np.equal, [False, True, False])
ne = _comparison("ne", "!=", np.not_equal, [True, False, True])
lt = _comparison("lt", "<", np.less, [True, False, False])
le = _comparison("le", "<=", np.less_equal, [True, True, False])
gt = _comparison("gt", ">", np.greater, [False, False, True])
ge = _comparison("ge", ">=", np.greater_equal, [False, True, True])

logical_and = binary(
    "logical_and",
    "Whether both are nonzero.",
    numpy=np.logical_and,
    triton="({input} != 0) & ({other} != 0)",
    result=dtypes.bool_,
    inplace=False,
    example="tfw.logical_and(tfw.tensor([0, 1, 2]), 1).tolist() == [False, True, True]",
)


def _bitwise(name: str, symbol: str, ufunc: np.ufunc, six_and_five: int) -> OpFunction[..., Tensor]:
    return binary(
        f"bitwise_{name}",
        f"Bits of input {symbol} other; for bool the logical {name}.",
        numpy=ufunc,
        triton=f"{{input}} {symbol} {{other}}",
        taken=(dtypes.bool_, *dtypes.INTEGERS),
        differentiable=False,
        draw=_integer,
        number=5,
        dunders=(f"__{name}__", f"__r{name}__"),
        example=f"tfw.bitwise_{name}(tfw.tensor([6]), 5).tolist() == [{six_and_five}]",
    )


bitwise_and = _bitwise("and", "&", np.bitwise_and, 4)
bitwise_or = _bitwise("or", "|", np.bitwise_or, 7)
bitwise_xor = _bitwise("xor", "^", np.bitwise_xor, 3)


@op(
    triton="{input} == 0",
    pointwise=True,
    numpy=np.logical_not,
    result_dtype=dtypes.bool_,
    differentiable=False,
)
def logical_not(input: Tensor) -> Tensor:
    """Whether input is zero.

    Shapes: the input's.
    Dtypes: all; the result is bool.
    Errors: TypeError if input is no tensor.
    Source: elementary.
    Example: `tfw.logical_not(tfw.tensor([0, 1])).tolist() == [True, False]`
    """
    return eq(input, 0)


@logical_not.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)) > 0)
    yield Call(rng.integers(-1, 2, (3, 4)))


logical_not.reference(np.logical_not)


@logical_not.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call("a"), ArgumentError, argument="input")


@primitive(
    numpy=np.invert,
    triton="~{input}",
    pointwise=True,
    dtypes=(dtypes.bool_, *dtypes.INTEGERS),
    differentiable=False,
    inplace=True,
    dunders=("__invert__",),
)
def bitwise_not(input: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Inverted bits; for bool the logical not.

    Shapes: the input's.
    Dtypes: bool and integers.
    Errors: RuntimeError for floating point.
    Source: elementary.
    Example: `tfw.bitwise_not(tfw.tensor([0, 1])).tolist() == [-1, -2]`
    """
    ...


@bitwise_not.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(rng.standard_normal((3, 4)) > 0)
    yield Call(rng.integers(-5, 5, (3, 4)))


bitwise_not.reference(np.invert)


@bitwise_not.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(2)), DtypeError, argument="input")


# ---- choice


@primitive(
    numpy=np.where,
    triton="tl.where({condition}, {input}, {other})",
    pointwise=True,
    promotion="common",
    promoted=("input", "other"),
    dtypes={"condition": (dtypes.bool_,)},
    fast=Fast("direct", main="input", needs={"condition": dtypes.bool_}),
    method=False,
)
def where(condition: Tensor, input: Tensor | Number, other: Tensor | Number) -> Tensor:
    """Choice: input where condition holds, other elsewhere.

    Shapes: all three broadcast to the result's shape.
    Dtypes: condition bool; input and other any, the result has their promoted dtype.
    Errors: RuntimeError if the shapes do not broadcast or condition is not bool.
    Source: elementary.
    Example: `tfw.where(tfw.tensor([True, False]), 1.0, 2.0).tolist() == [1.0, 2.0]`
    """
    ...


# Chosen rather than multiplied: 0 * inf must not reach the side that was not taken.
where.vjp(
    input=lambda g, condition: where(condition, g, 0.0),
    other=lambda g, condition: where(condition, 0.0, g),
)
where.reference(np.where)
where.cost(_cost)


@where.samples
def _(rng: np.random.Generator) -> Iterator[Call]:
    yield Call(
        rng.standard_normal((3, 4)) > 0, rng.standard_normal((3, 4)), rng.standard_normal((3, 4))
    )
    yield Call(rng.standard_normal((3, 1)) > 0, rng.standard_normal(4), 2.0)


@where.rejects
def _() -> Iterator[Reject]:
    yield Reject(Call(np.ones(2), np.ones(2), np.ones(2)), DtypeError, argument="condition")
    yield Reject(Call(np.ones(2) > 0, np.ones(3), np.ones(2)), ShapeError, argument="shape")


def _where_method(self: Tensor, condition: Tensor, other: Tensor | Number) -> Tensor:
    return where(condition, self, other)


Tensor.where = _where_method
