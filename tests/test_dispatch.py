"""The interception point, and what the fast path must not forget beside it."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from twins import twin

import tfw
from tfw.dispatch import dispatch, intercepting
from tfw.errors import ShapeError

# One call of every style of the fast path, with the op that an interceptor must see.
CALLS: dict[str, tuple[Callable[[tfw.Tensor], Any], str]] = {
    "unary": (lambda x: tfw.exp(x), "exp"),
    "binary": (lambda x: x + x, "add"),
    "binary with a number": (lambda x: x * 2.0, "mul"),
    "view": (lambda x: x.view(-1), "view"),
    "slice": (lambda x: x[0], "slice_view"),
    "in place": (lambda x: x.add_(1.0), "add"),
    "in place, one tensor": (lambda x: x.neg_(), "neg"),
    "list": (lambda x: tfw.cat([x, x]), "cat"),
    "reduction": (lambda x: x.sum(), "sum"),
    "several outputs": (lambda x: x.max(0), "max_along"),
    "product": (lambda x: x @ x, "matmul"),
}


@pytest.mark.parametrize("style", CALLS)
def test_an_interceptor_sees_every_style_of_call(style: str) -> None:
    call, name = CALLS[style]
    seen: list[str] = []

    def handler(op: Any, args: tuple[Any, ...]) -> Any:
        seen.append(op.name)
        return dispatch(op, args)

    x = tfw.tensor([[1.0, 2.0], [3.0, 4.0]])
    with intercepting(handler):
        call(x)
    count = len(seen)
    call(x)
    assert name in seen
    assert len(seen) == count


def test_interceptors_nest_and_an_error_removes_them() -> None:
    seen: list[str] = []

    def handler(tag: str) -> Callable[..., Any]:
        def handle(op: Any, args: tuple[Any, ...]) -> Any:
            seen.append(tag)
            return dispatch(op, args)

        return handle

    x = tfw.ones(2)
    with intercepting(handler("outer")):
        with intercepting(handler("inner")):
            tfw.exp(x)
        with pytest.raises(ShapeError), intercepting(handler("failing")):
            _ = x + tfw.ones(3)
        tfw.exp(x)
    tfw.exp(x)
    assert seen == ["inner", "outer", "failing", "outer", "outer"]


def test_an_interceptor_is_its_threads_own() -> None:
    seen: list[str] = []

    def handler(op: Any, args: tuple[Any, ...]) -> Any:
        seen.append(op.name)
        return dispatch(op, args)

    with intercepting(handler):
        thread = threading.Thread(target=lambda: tfw.exp(tfw.ones(2)))
        thread.start()
        thread.join(10)
    assert seen == []


@pytest.mark.parametrize("dtype", [tfw.float16, tfw.bfloat16], ids=str)
def test_half_types_are_computed_in_float32_and_rounded_once(dtype: Any) -> None:
    x = tfw.tensor(np.random.default_rng(0).uniform(0.0, 1.0, 3000), dtype=dtype)
    wide = x.to(tfw.float32)
    calls: list[Callable[[tfw.Tensor], tfw.Tensor]] = [
        lambda v: v.sum(),
        lambda v: v.mean(),
        lambda v: v @ v,
        lambda v: tfw.exp(v),
        lambda v: tfw.add(v, v, alpha=3.3),
        lambda v: tfw.softmax(v, 0),
    ]
    for call in calls:
        assert call(x).tolist() == call(wide).to(dtype).tolist()


def test_numbers_that_compare_equal_are_told_apart() -> None:
    x = tfw.ones(2)
    signs = [math.copysign(1.0, (x * zero)[0].item()) for zero in (0.0, -0.0, 0.0, -0.0, 0)]
    assert signs == [1.0, -1.0, 1.0, -1.0, 1.0]
    whole = tfw.ones(2, dtype=tfw.int64)
    assert [(whole * v).dtype for v in (1, True, 1.0)] == [tfw.int64, tfw.int64, tfw.float32]
    assert [(x + v).dtype for v in (1, True, 1.0)] == [tfw.float32] * 3


@twin(
    [
        "float64",
        "float32",
        "float32",
        "float16",
        "float16",
        "float32",
        "int16",
        "uint8",
        "int64",
        "uint8",
        "float32",
        "float32",
        "float16",
        "float32",
        "float32",
        "int8",
        "int64",
        "float64",
        "float16",
        "int8",
    ]
)
def test_promotion_knows_three_ranks(t: Any) -> Any:
    f32, f64 = t.ones(2), t.ones(2, dtype=t.float64)
    f16, bf16 = t.ones(2, dtype=t.float16), t.ones(2, dtype=t.bfloat16)
    i64, u8 = t.ones(2, dtype=t.int64), t.ones(2, dtype=t.uint8)
    i8, flags = t.ones(2, dtype=t.int8), t.ones(2, dtype=t.bool)
    results = [
        *[f32 + f64, f32 + f64.sum(), f16 + bf16, f16 + f32.sum(), i64 + f16, i64 + f32.sum()],
        *[u8 + i8, u8 + i64.sum(), flags + 1, flags + u8, flags * 1.0, i64 + 1.5, f16 * 2.0],
        *[
            i64 / 2,
            i64 / i64,
            i8 + i64.sum(),
            flags.sum(),
            f32.sum() + f64.sum(),
            f16 + 1,
            i8 * True,
        ],
    ]
    return [str(r.dtype).split(".")[1] for r in results]


@twin(
    [
        [0.0, 0.0, 1.0],
        [-1.0, 0.0, 1.0],
        [0.0, 0.5, 1.0],
        [0.5, 0.5, 0.0],
        [1.0, 0.0, 0.0],
        [0.0, float("inf"), float("inf")],
        [float("inf"), 0.0, 0.0],
        [float("inf"), 0.0, 0.0],
        [0.0, 0.0, 0.0],
    ]
)
def test_gradients_at_kinks_and_of_what_was_not_chosen(t: Any) -> Any:
    def slope(f: Any, *values: float, scale: float = 1.0) -> Any:
        x = t.tensor(values, requires_grad=True)
        (f(x) * scale).sum().backward()
        return x.grad

    inf = float("inf")
    other = t.tensor([1.0, 1.0, 1.0])
    return [
        slope(t.relu, -1.0, 0.0, 2.0),
        slope(t.abs, -1.0, 0.0, 2.0),
        slope(lambda x: t.maximum(x, other), 0.0, 1.0, 2.0),
        slope(lambda x: x.amax(), 3.0, 3.0, 1.0),
        slope(lambda x: x.max(0)[0], 3.0, 3.0, 1.0),
        slope(lambda x: t.where(x > 1.5, x, other), 1.0, 2.0, 3.0, scale=inf),
        slope(lambda x: t.where(x > 1.5, other, x), 1.0, 2.0, 3.0, scale=inf),
        slope(lambda x: x.masked_fill(x > 1.5, 0.0), 1.0, 2.0, 3.0, scale=inf),
        slope(lambda x: x**0, 0.0, 1.0, 2.0),
    ]


@twin(
    [
        [[0.727475166, 0.267623156, 0.00490168901], [0.244728476, 0.665240943, 0.0900305733]],
        [[-0.318175405, -1.31817544, -5.31817532], [-1.40760589, -0.407605946, -2.40760589]],
        [[0.727475166, 0.267623156, 0.00490168901], [0.244728476, 0.665240943, 0.0900305733]],
        [
            [0.99966465, 0.00033535013, 4.24692957e-18],
            [0.000335350093, 0.999664537, 1.12497423e-07],
        ],
        [0.727475166, 0.267623156, 0.00490168901],
    ]
)
def test_softmax_of_values_whose_exponential_overflows(t: Any) -> Any:
    few = t.tensor([[95.0, 94.0, 90.0], [-95.0, -94.0, -96.0]])
    many = t.cat([few] * 5000)
    told = [t.softmax(few, 1), t.log_softmax(few, -1), t.softmax(many, 1)[-2:]]
    return [*told, t.softmax(few.to(t.float64) * 8.0, 1), t.softmax(few.T.contiguous(), 0)[:, 0]]
