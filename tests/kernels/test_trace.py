"""Programs from bodies: ops that users compose, their numbers and their gradients."""

# pyright: reportOperatorIssue=false, reportAttributeAccessIssue=false, reportOptionalCall=false
# (ops attach Tensor's operators and methods when they are imported)

from __future__ import annotations

import threading

import numpy as np
import pytest
from interpret import launch
from kernel_specs import number, plan_of, spec

import tfw
from tfw.dtypes import float32
from tfw.kernels import program
from tfw.kernels.elementwise import plan_elementwise, plan_gradient
from tfw.kernels.program import Builder, is_arithmetic
from tfw.kernels.trace import trace
from tfw.registry import OPS, op
from tfw.tensor import Tensor

LINE = np.linspace(-3, 3, 1027, dtype=np.float32)


@pytest.fixture
def composed():
    """Return a decorator that registers an elementwise op for one test."""
    before = set(OPS)
    yield op(pointwise=True, promotion="common", method=False, numpy=lambda *_: None)
    for name in set(OPS) - before:
        del OPS[name]


def test_a_users_body_becomes_one_kernel(composed):
    @composed
    def leaky(input: Tensor, slope: float = 0.01) -> Tensor:
        return tfw.where(input > 0, input, input * slope)

    first = plan_of("leaky", [spec(LINE.shape)], [0.01])
    assert plan_of("leaky", [spec((5, 7))], [0.5]).kernel is first.kernel
    (y,) = launch(first, [LINE], [0.25])
    np.testing.assert_array_equal(y, np.where(LINE > 0, LINE, LINE * np.float32(0.25)))


def test_operators_leave_numbers_open_too(composed):
    @composed
    def shifted(input: Tensor, low: float = 0.5, power: float = 2.0) -> Tensor:
        return tfw.where(low < input, (low - input) ** 2.0 / power, 1.0 - low * input)

    plan = plan_of("shifted", [spec(LINE.shape)], [0.5, 2.0])
    assert plan_of("shifted", [spec(LINE.shape)], [1.5, 3.0]).kernel is plan.kernel
    (y,) = launch(plan, [LINE], [1.5, 3.0])
    x = LINE.astype(np.float64)
    np.testing.assert_allclose(y, np.where(x > 1.5, (1.5 - x) ** 2 / 3, 1 - 1.5 * x), 1e-5, 1e-6)


def test_a_body_that_decides_with_a_number_gets_its_value(composed):
    @composed
    def clipped(input: Tensor, limit: float = 1.0) -> Tensor:
        if limit == 0:
            return input * 0.0
        return tfw.minimum(tfw.maximum(input, -limit), limit)

    low, high = (plan_of("clipped", [spec(LINE.shape)], [limit]) for limit in (0.5, 2.0))
    assert low.kernel is not high.kernel
    np.testing.assert_array_equal(launch(low, [LINE], [0.5])[0], LINE.clip(-0.5, 0.5))
    np.testing.assert_array_equal(launch(high, [LINE], [2.0])[0], LINE.clip(-2, 2))
    zero = plan_of("clipped", [spec(LINE.shape)], [0.0])
    np.testing.assert_array_equal(launch(zero, [LINE], [0.0])[0], LINE * 0)


def test_a_body_may_call_composed_ops_and_convert(composed):
    @composed
    def mixed(input: Tensor, other: Tensor) -> Tensor:
        return (tfw.nn.functional.gelu(input) + other).to(float32) + tfw.full_like(input, 2.0)

    s = spec(LINE.shape)
    (y,) = launch(plan_of("mixed", [s, s]), [LINE, LINE])
    expected = OPS["gelu"].reference_rule(LINE.astype(np.float64), "none") + LINE + 2
    np.testing.assert_allclose(y, expected, rtol=1e-6, atol=1e-6)


def test_gradients_add_up_where_paths_meet(composed):
    """d/dx (e^x * e^x + e^x * y) = 2 e^2x + y e^x, d/dy = e^x."""

    @composed
    def paths(input: Tensor, other: Tensor) -> Tensor:
        e = tfw.exp(input)
        return e * e + e * other

    s = spec(LINE.shape)
    plan = plan_gradient(OPS["paths"], [s, s], [s, s, s], [], [True, True])
    assert plan.kernel.function.source.count("device.exp(") == 2  # once in each branch
    g, y = LINE[::-1].copy(), LINE * LINE
    dx, dy = launch(plan, [g, LINE, y])
    e = np.exp(LINE.astype(np.float64))
    np.testing.assert_allclose(dx, g * (2 * e * e + y * e), rtol=2e-5, atol=1e-5)
    np.testing.assert_allclose(dy, g * e, rtol=2e-6, atol=1e-6)
    only_y = plan_gradient(OPS["paths"], [s], [s, s, s], [], [False, True])
    np.testing.assert_allclose(launch(only_y, [g, LINE, y])[0], g * e, rtol=2e-6, atol=1e-6)


def test_gradients_of_what_broadcasts_are_refused():
    wide, narrow = spec((8, 9)), spec((8, 1))
    with pytest.raises(tfw.errors.ShapeError):
        plan_gradient(OPS["mul"], [wide, narrow], [wide, wide, narrow], [], [True, True])


def test_programs_follow_the_default_dtype():
    inputs = [spec((9,), tfw.int32), spec((9,), tfw.int32)]
    try:
        for dtype in (tfw.float64, tfw.float32):
            tfw.set_default_dtype(dtype)
            plan_elementwise(OPS["div"], [spec((9,), dtype)], inputs, [])
    finally:
        tfw.set_default_dtype(tfw.float32)


def test_a_gradient_that_does_not_exist_is_refused(composed):
    @composed
    def flat(input: Tensor, other: Tensor) -> Tensor:
        return input * 2.0

    s = spec((9,))
    with pytest.raises(tfw.errors.CompileError, match="no gradient reaches"):
        plan_gradient(OPS["flat"], [s], [s, s, s], [], [False, True])


def test_a_body_that_is_not_elementwise_is_refused(composed):
    @composed
    def centred(input: Tensor) -> Tensor:
        return input - input.sum()

    with pytest.raises(tfw.errors.CompileError):
        plan_of("centred", [spec((9,))])

    @composed
    def shown(input: Tensor) -> Tensor:
        return input * float(input)

    with pytest.raises(tfw.errors.TfwError):
        plan_of("shown", [spec((9,))])


def test_tracing_leaves_the_thread_as_it_was():
    from tfw import dispatch
    from tfw.runtime.thread_state import state

    with pytest.raises(tfw.errors.CompileError):
        trace(OPS["amax"], [spec((3, 4))], [0, False])
    assert dispatch.intercept is None
    assert state.grad_enabled
    x = tfw.ones(3, requires_grad=True)
    plan_gradient(OPS["gelu"], [spec((9,))], [spec((9,))] * 2, ["tanh"], [True])
    assert (x * 2).requires_grad


def test_threads_trace_in_turn():
    failures = []

    def work():
        try:
            for _ in range(20):
                trace(OPS["gelu"], [spec((9,))], ["none"])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_number_on_the_left():
    (y,) = launch(plan_of("sub", [number(), spec(LINE.shape)], [1]), [2.5, LINE], [1])
    np.testing.assert_array_equal(y, np.float32(2.5) - LINE)


def test_constants_that_compare_equal_stay_apart():
    builder = Builder()
    zero, minus_zero, again = (builder.add(program.CONSTANT, float32, v) for v in (0.0, -0.0, 0.0))
    assert zero == again != minus_zero
    a = builder.add(program.TENSOR, float32, 0)
    builder.add(program.CAST, tfw.float64, None, (a,))
    made = builder.finish("f", (a,), ("a",), ())
    assert made.nodes == (program.Node(program.TENSOR, float32, 0),)  # what is not needed is gone


@pytest.mark.parametrize(
    ("expression", "arithmetic"),
    [
        *(("{a} + {b}", True), ("-{a}", True), ("tl.abs({a})", True), ("~{a}", False)),
        *(("{a} & {b}", False), ("tl.where({a}, {b}, {b})", False), ("{a} == {b}", False)),
    ],
)
def test_which_expressions_compute_with_numbers(expression, arithmetic):
    assert is_arithmetic(expression) is arithmetic
