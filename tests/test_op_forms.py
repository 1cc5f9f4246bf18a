"""How users reach an op: methods, operators, in-place forms, out= and keywords."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from harness.calls import (
    OP_NAMES,
    Case,
    as_dtype,
    call,
    flat_tensors,
    from_array,
    samples,
    tensors,
    values_of,
    writes,
)
from harness.compare import same_bits
from harness.variants import transposed

import tfw
from tfw.errors import ArgumentError, AutogradError, DtypeError, LayoutError, ShapeError
from tfw.registry import OPS, Op
from tfw.tensor import Tensor


def cases_of(op: Op) -> list[Case]:
    return [as_dtype(case, tfw.float32) for case in samples(op)]


def assert_same(found: Any, wanted: Any) -> None:
    ours, theirs = flat_tensors(found), flat_tensors(wanted)
    assert len(ours) == len(theirs)
    for y, t in zip(ours, theirs, strict=True):
        assert (y.dtype, y.stride()) == (t.dtype, t.stride())
        assert same_bits(values_of(y), values_of(t))


def address(x: Tensor) -> int:
    return x._a.__array_interface__["data"][0]


def keywords_of(op: Op, args: tuple[Any, ...]) -> dict[str, Any]:
    names = [n for n, _ in op.parameters if n not in ("*", "out")]
    return dict(zip(names, args, strict=True))


METHODS = [n for n in OP_NAMES if OPS[n].method and OPS[n].tensor_positions[:1] == (0,)]


@pytest.mark.parametrize("name", METHODS)
def test_method_is_the_function(name: str) -> None:
    op = OPS[name]
    method_name = op.method if isinstance(op.method, str) else name
    for case in cases_of(op):
        first, *rest = tensors(case)
        if not isinstance(first, Tensor):
            continue
        keywords = keywords_of(op, (first, *rest))
        del keywords[op.inputs[0]]
        method = getattr(first, method_name)
        wanted = call(op, (first, *rest))
        if op.varargs:
            given = keywords.pop(op.varargs)
            assert_same(method(*given, **keywords), wanted)
            assert_same(method(given, **keywords), wanted)
        else:
            assert_same(method(**keywords), wanted)


@pytest.mark.parametrize("name", [n for n in OP_NAMES if not writes(OPS[n])])
def test_keywords(name: str) -> None:
    op = OPS[name]
    for case in cases_of(op):
        args = tensors(case)
        assert_same(op.function(**keywords_of(op, args)), call(op, args))


@pytest.mark.parametrize("name", [n for n in OP_NAMES if not OPS[n].hidden])
def test_public_ops_are_exported(name: str) -> None:
    # What a layer needs lives in nn.functional, the rest at the top; torch.linear is not a name.
    assert (
        getattr(tfw, name, None) is OPS[name].function
        or hasattr(tfw.nn.functional, name)
        or (hasattr(Tensor, name))
    )


# ---- in place

INPLACE = [n for n in OP_NAMES if OPS[n].inplace]


def _inplace(op: Op, args: tuple[Any, ...]) -> Tensor:
    keywords = keywords_of(op, args)
    return getattr(keywords.pop(op.inputs[0]), op.name + "_")(**keywords)


def _fits(case: Case) -> bool:
    """Return whether the result has the shape of what it is to replace."""
    args = tensors(case)
    return isinstance(args[0], Tensor) and call(case.op, args).shape == args[0].shape


@pytest.mark.parametrize("name", INPLACE)
@pytest.mark.parametrize("layout", ["row-major", "transposed"])
def test_inplace_is_the_op_in_the_same_memory(name: str, layout: str) -> None:
    op = OPS[name]
    n = 0
    for case in cases_of(op):
        if not _fits(case):
            continue
        n += 1
        if layout == "transposed":
            case = case.change(case.label, lambda _, x: transposed(x))
        else:
            case = case.change(case.label, lambda _, x: x.copy())
        first, *rest = tensors(case)
        wanted = values_of(call(op, (first, *rest))).copy()
        memory, strides = address(first), first.stride()
        result = _inplace(op, (first, *rest))
        assert result is first
        assert (address(first), first.stride(), first._version) == (memory, strides, 1)
        assert same_bits(values_of(first), wanted)
    assert n


@pytest.mark.parametrize("name", [n for n in INPLACE if OPS[n].differentiable])
def test_inplace_has_the_ops_gradient(name: str) -> None:
    op = OPS[name]
    for case in cases_of(op):
        if not _fits(case):
            continue
        gradients: list[list[Any]] = []
        for run in (call, _inplace):
            leaves: list[Tensor] = []

            def leaf(x: Tensor, leaves: list[Tensor] = leaves) -> Tensor:
                if not x.is_floating_point():
                    return x
                leaves.append(x.clone().requires_grad_())
                return leaves[-1] * 1

            args = tuple(leaf(x) if isinstance(x, Tensor) else x for x in tensors(case))
            y = run(op, args)
            g = from_array(np.linspace(-1, 1, y.numel(), dtype=np.float32).reshape(y.shape))
            gradients.append(list(tfw.autograd.grad(y, leaves, g, allow_unused=True)))
        for out_of_place, in_place in zip(*gradients, strict=True):
            assert (out_of_place is None) == (in_place is None)
            if out_of_place is not None:
                np.testing.assert_array_equal(in_place.numpy(), out_of_place.numpy())


@pytest.mark.parametrize("name", INPLACE)
def test_inplace_refusals(name: str) -> None:
    op = OPS[name]
    case = next(c for c in cases_of(op) if _fits(c))
    first, *rest = tensors(case.change(case.label, lambda _, x: x.copy()))
    before = values_of(first).copy()

    wide = tfw.zeros(2, *first.shape).to(first.dtype)[0].expand(2, *first.shape)
    with pytest.raises(LayoutError):
        _inplace(op, (wide, *rest))
    if first.is_floating_point() and op.differentiable:
        leaf = first.clone().requires_grad_()
        with pytest.raises(AutogradError):
            _inplace(op, (leaf, *rest))
        np.testing.assert_array_equal(leaf.detach().numpy(), before)
    if len(op.inputs) > 1 and op.pointwise and isinstance(rest[0], Tensor):
        bigger = rest[0].expand(2, *rest[0].shape)
        with pytest.raises(ShapeError):
            _inplace(op, (first, bigger, *rest[1:]))
    assert first._version == 0
    np.testing.assert_array_equal(first.numpy(), before)


def test_inplace_refuses_a_lower_category() -> None:
    whole = tfw.ones(2, dtype=tfw.int64)
    for change in (lambda: whole.div_(2), lambda: whole.add_(0.5), lambda: whole.mul_(tfw.ones(2))):
        with pytest.raises(DtypeError):
            change()
    assert whole.tolist() == [1, 1]
    assert whole._version == 0


# ---- out=

WITH_OUT = [n for n in OP_NAMES if any(p == "out" for p, _ in OPS[n].parameters)]


@pytest.mark.parametrize("name", WITH_OUT)
def test_out(name: str) -> None:
    op = OPS[name]
    for case in cases_of(op):
        args = tensors(case)
        keywords = keywords_of(op, args)
        wanted = op.function(**keywords)
        out = tfw.empty_like(wanted)
        memory = address(out)
        assert op.function(**keywords, out=out) is out
        assert address(out) == memory
        assert out._version == 1
        assert same_bits(values_of(out), values_of(wanted))

        resized = tfw.empty(0, dtype=wanted.dtype)
        op.function(**keywords, out=resized)
        assert same_bits(values_of(resized), values_of(wanted))

        with pytest.raises(ShapeError):
            op.function(**keywords, out=tfw.empty(7, 11, 13, dtype=wanted.dtype))
        if wanted.is_floating_point():
            with pytest.raises(DtypeError):
                op.function(**keywords, out=tfw.empty(wanted.shape, dtype=tfw.int32))
        with pytest.raises(ArgumentError):
            op.function(**keywords, out=np.zeros(wanted.shape))
        if op.differentiable and wanted.is_floating_point():
            keywords[op.inputs[0]] = keywords[op.inputs[0]].clone().requires_grad_()
            with pytest.raises(AutogradError):
                op.function(**keywords, out=out)


# ---- operators

BINARY: dict[str, tuple[Callable[..., Any], Callable[..., Any] | None]] = {
    "add": (operator.add, operator.iadd),
    "sub": (operator.sub, operator.isub),
    "mul": (operator.mul, operator.imul),
    "div": (operator.truediv, operator.itruediv),
    "pow": (operator.pow, operator.ipow),
    "matmul": (operator.matmul, None),
    "eq": (operator.eq, None),
    "ne": (operator.ne, None),
    "lt": (operator.lt, None),
    "le": (operator.le, None),
    "gt": (operator.gt, None),
    "ge": (operator.ge, None),
    "bitwise_and": (operator.and_, operator.iand),
    "bitwise_or": (operator.or_, operator.ior),
    "bitwise_xor": (operator.xor, operator.ixor),
}
REFLECTED = ("add", "sub", "mul", "div", "pow", "bitwise_and", "bitwise_or", "bitwise_xor")


@pytest.mark.parametrize("name", BINARY)
def test_operators(name: str) -> None:
    op = OPS[name]
    plain, inplace = BINARY[name]
    for case in cases_of(op):
        a, b, *_ = tensors(case.change(case.label, lambda _, x: x.copy()))
        wanted = op.function(a, b)
        assert_same(plain(a, b), wanted)
        if inplace is not None and wanted.shape == a.shape:
            target = a.clone()
            assert inplace(target, b) is target
            assert same_bits(values_of(target), values_of(wanted))


@pytest.mark.parametrize("name", REFLECTED)
def test_reflected_operators(name: str) -> None:
    op = OPS[name]
    plain, _ = BINARY[name]
    integer = name.startswith("bitwise")
    x = tfw.tensor([1, 2, 5] if integer else [1.0, 2.0, 5.0])
    for number in (3, True) if integer else (3, 2.5, True):
        wanted = op.function(number, x)
        assert_same(plain(number, x), wanted)
        # NumPy's numbers leave the operation to Tensor as well.
        assert_same(plain(np.asarray(number)[()], x), wanted)


@pytest.mark.parametrize("name", BINARY)
def test_operators_leave_what_they_do_not_know(name: str) -> None:
    x = tfw.tensor([1, 2])
    if name in ("eq", "ne"):
        assert BINARY[name][0](x, "a") is (name == "ne")
        return
    with pytest.raises(TypeError):
        BINARY[name][0](x, "a")
    with pytest.raises(TypeError):
        BINARY[name][0]("a" if name != "mul" else None, x)


def test_unary_operators() -> None:
    x = tfw.tensor([1.0, -2.0])
    assert (-x).tolist() == [-1.0, 2.0]
    assert abs(x).tolist() == [1.0, 2.0]
    assert (~tfw.tensor([True, False])).tolist() == [False, True]
    assert (~tfw.tensor([0, 5])).tolist() == [-1, -6]
