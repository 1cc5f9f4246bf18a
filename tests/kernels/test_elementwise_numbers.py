"""The generated kernels as numbers: through Triton's interpreter, against NumPy in float64."""

from typing import Any

import numpy as np
import pytest
from interpret import launch, strided
from kernel_specs import (
    as_dtype,
    plan_of,
    pointwise_ops,
    sample_inputs,
    spec,
    spec_of,
    taken_dtypes,
    wide,
)

from tfw import dtypes
from tfw.dtypes import BY_NUMPY, FLOATING, bfloat16, float16, float32
from tfw.kernels.elementwise import plan_copy, plan_elementwise, plan_fill, plan_gradient
from tfw.kernels.trace import trace
from tfw.registry import OPS

# Half a unit in the last place of each dtype for rounding, and float32's own error beside it.
ROUNDING = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 1e-5, "float64": 1e-14}
BLOCK = 1024  # elements of a block of float32


def run(op, inputs, attrs):
    """Return what an op's kernel makes of ndarrays and numbers."""
    specs = [spec_of(x) for x in inputs]
    program, _ = trace(op, specs, attrs)
    out = op.infer(*specs, *attrs)._replace(dtype=program.nodes[program.outputs[0]].dtype)
    plan = plan_elementwise(op, [out._replace(device=specs[0].device)], specs, attrs)
    (y,) = launch(plan, inputs, attrs)
    return y


def check(op, inputs, attrs):
    """Compare an op's kernel with its reference."""
    y = run(op, inputs, attrs)
    with np.errstate(all="ignore"):
        expected = np.asarray(op.reference_rule(*map(wide, inputs), *attrs))
    if y.dtype == np.bool_ or BY_NUMPY[y.dtype] not in FLOATING:
        np.testing.assert_array_equal(y, expected.astype(y.dtype))
        return
    rtol = ROUNDING[BY_NUMPY[y.dtype].name]
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=rtol * 1.01, atol=rtol / 1e3)


@pytest.mark.parametrize("op", pointwise_ops(), ids=lambda op: op.name)
def test_every_op_at_lengths_around_a_block(op):
    rng = np.random.default_rng(0)
    dtype = float32 if float32 in taken_dtypes(op) else dtypes.int32
    inputs, attrs = sample_inputs(op, dtype, rng)
    for n in (0, 1, 2 * BLOCK + 7):
        stretched = [np.resize(x, n) if n else x.reshape(-1)[:0] for x in map(np.asarray, inputs)]
        check(op, stretched, attrs)


@pytest.mark.parametrize("op", pointwise_ops(), ids=lambda op: op.name)
def test_every_op_in_every_dtype_and_sample(op):
    rng = np.random.default_rng(1)
    for dtype in taken_dtypes(op):
        inputs, attrs = sample_inputs(op, dtype, rng)
        check(op, inputs, attrs)
    for call in op.sample_maker(rng):
        args = op.bind(call, call.keywords)
        inputs = [args[i] for i in op.tensor_positions]
        arrays = [x for x in inputs if isinstance(x, np.ndarray)]
        # A number has the dtype that it promotes to.
        inputs = [
            x if isinstance(x, np.ndarray) else np.asarray(x, arrays[-1].dtype)[()] for x in inputs
        ]
        check(op, inputs, [args[i] for i in op.attr_positions])


@pytest.mark.parametrize("op", pointwise_ops(), ids=lambda op: op.name)
def test_every_op_on_special_values(op):
    dtype = float32 if float32 in taken_dtypes(op) else dtypes.int32
    if dtype is float32:
        tiny, huge = np.finfo(np.float32).tiny, np.finfo(np.float32).max
        values: list[Any] = [
            np.nan,
            np.inf,
            -np.inf,
            0.0,
            -0.0,
            1.0,
            -1.0,
            tiny,
            -tiny,
            huge,
            -huge,
        ]
    else:
        values = [0, 1, -1, 2**31 - 1, -(2**31)]
    column, row = np.meshgrid(np.array(values), np.array(values), indexing="ij")
    samples, attrs = sample_inputs(op, dtype, np.random.default_rng(2))
    inputs = [
        as_dtype(v, BY_NUMPY[x.dtype]) for v, x in zip((column, row, column), samples, strict=False)
    ]
    if op.name.endswith("_grad"):  # of what values: 0 * inf is a question of its own
        inputs = [np.ones_like(inputs[0]), np.clip(inputs[1], -1e18, 1e18)]
    y = run(op, inputs, attrs)
    with np.errstate(all="ignore"):
        expected = np.asarray(op.reference_rule(*inputs, *attrs)).astype(y.dtype)
    np.testing.assert_allclose(y, expected, rtol=1e-5, atol=1e-30, equal_nan=True)


def _random(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def layouts(rng):
    """Yield (name, a, b) of two operands that broadcast."""
    yield "alike", _random(rng, 5, 33), _random(rng, 5, 33)
    yield "row vector", _random(rng, 5, 33), _random(rng, 33)
    yield "aligned row vector", _random(rng, 70, 160), _random(rng, 160)
    yield "column", _random(rng, 70, 160), _random(rng, 70, 1)
    yield "outer", _random(rng, 70, 1), _random(rng, 1, 160)
    yield "0-d in memory", _random(rng, 5, 33), np.array(2.5, np.float32)
    yield "transposed", _random(rng, 70, 90), _random(rng, 90, 70).T
    yield "both transposed", _random(rng, 70, 90).T, _random(rng, 70, 90).T
    yield (
        "transposed in a batch",
        _random(rng, 3, 20, 40),
        _random(rng, 3, 40, 20).transpose(0, 2, 1),
    )
    yield (
        "expanded",
        _random(rng, 4, 7, 32),
        strided(_random(rng, 1, 7, 1).repeat(4, 0)[:, :, :1], (0, 1, 0)),
    )
    yield "middle dim repeats", _random(rng, 3, 5, 64), _random(rng, 3, 1, 64)
    yield "every other", _random(rng, 40)[::2], _random(rng, 40)[1::2]
    yield "channels last", _random(rng, 2, 5, 6, 8).transpose(0, 3, 1, 2), _random(rng, 1, 8, 1, 1)
    yield "off by one element", strided(_random(rng, 5, 33), (33, 1), 1), _random(rng, 5, 33)
    yield "wider rows", strided(_random(rng, 9, 64), (128, 1)), _random(rng, 9, 64)
    yield "empty", _random(rng, 3, 0, 4), _random(rng, 4)
    yield "one element", _random(rng, 1, 1), _random(rng, 1)
    eight = _random(rng, 2, 3, 2, 3, 2, 3, 2, 3)
    yield "eight dims", eight, eight.transpose(4, 7, 6, 1, 0, 3, 2, 5)
    yield "eight dims shuffled", eight, strided(eight, (1, 8, 24, 48, 144, 288, 864, 1728))


@pytest.mark.parametrize(
    ("a", "b"),
    [pytest.param(a, b, id=name) for name, a, b in layouts(np.random.default_rng(3))],
)
def test_layouts(a, b):
    y = run(OPS["sub"], [a, b], [1])
    np.testing.assert_array_equal(y, a - b)


def test_layout_of_the_result_is_that_of_dense_operands():
    a = _random(np.random.default_rng(4), 6, 9).T
    assert run(OPS["mul"], [a, a], []).strides == a.strides


def test_random_layouts_copied():
    """Any strides to any strides: orders of dims, gaps, repeats, and a conversion."""
    rng = np.random.default_rng(5)
    for _ in range(40):
        shape = tuple(rng.integers(1, 9, rng.integers(1, 6)))
        source = _strides(rng, shape, repeats=True)
        target = _strides(rng, shape, repeats=False)
        x = strided(np.zeros(shape, np.float32), source, int(rng.integers(0, 3)))
        x[...] = rng.integers(-100, 100, shape)  # where elements coincide, the last one counts
        y = strided(np.zeros(shape, np.int16), target)
        launch(plan_copy(spec_of(y), spec_of(x)), [x], outputs=[y])
        np.testing.assert_array_equal(y, x)


def _strides(rng, shape, repeats):
    strides = [0] * len(shape)
    step = 1
    for d in rng.permutation(len(shape)):
        if repeats and rng.random() < 0.2:
            continue
        strides[d] = step
        step *= shape[d] + int(rng.integers(0, 2) * rng.integers(0, 5))
    return strides


@pytest.mark.parametrize("source", dtypes.REAL, ids=str)
def test_conversions(source):
    values = np.array([0, 1, 2, 3, -1.7, 2.5, 100.3, -128, 0.1], np.float64)
    x = as_dtype(np.abs(values) if source in (dtypes.bool_, dtypes.uint8) else values, source)
    for target in dtypes.REAL:
        if target is dtypes.uint8 and source not in (dtypes.bool_, dtypes.uint8):
            continue
        (y,) = launch(plan_copy(spec(x.shape, target), spec_of(x)), [x])
        np.testing.assert_array_equal(y, x.astype(target.numpy))


def test_fill():
    y = strided(np.zeros((4, 5), np.float16), (7, 1))
    launch(plan_fill(spec_of(y)), [], [1.5], outputs=[y])
    assert (y == 1.5).all()
    assert (y.base.reshape(-1)[5:7] == 0).all() if y.base is not None else True


def test_half_types_round_once():
    """In float32 throughout: 1 + 2^-9 - 1 would be lost if the sum were rounded to bfloat16."""
    x = np.full(5, 2.0**-9, bfloat16.numpy)
    erf_free = run(OPS["gelu"], [x], ["tanh"])
    inner = np.float64(2.0**-9)
    expected = 0.5 * inner * (1 + np.tanh(np.sqrt(2 / np.pi) * (inner + 0.044715 * inner**3)))
    np.testing.assert_allclose(erf_free.astype(np.float64), expected, rtol=2.0**-9)


def test_bool_arithmetic_is_logic():
    a, b = np.array([True, True, False]), np.array([True, False, False])
    np.testing.assert_array_equal(run(OPS["add"], [a, b], [1]), a | b)
    np.testing.assert_array_equal(run(OPS["mul"], [a, b], []), a & b)
    np.testing.assert_array_equal(run(OPS["bitwise_not"], [a], []), ~a)


def test_integers_stay_exact():
    a = np.array([2**62 + 1, -(2**53) - 1], np.int64)
    np.testing.assert_array_equal(run(OPS["add"], [a, np.int64(1)], [1]), a + 1)
    small = np.array([127, -128], np.int8)
    np.testing.assert_array_equal(run(OPS["add"], [small, small], [1]), small + small)


def test_one_kernel_gives_both_gradients():
    rng = np.random.default_rng(6)
    g, a, b = (_random(rng, BLOCK + 3) for _ in range(3))
    s = spec(a.shape)
    plan = plan_gradient(OPS["div"], [s, s], [s, s, s], [], [True, True])
    da, db = launch(plan, [g, a, b])
    np.testing.assert_allclose(da, g / b, rtol=1e-6)
    np.testing.assert_allclose(db, -g * a / (b.astype(np.float64) ** 2), rtol=1e-5)


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gradient_of_a_body_is_that_of_the_definition(approximate):
    x = np.linspace(-4, 4, 101, dtype=np.float32)
    s = spec(x.shape)
    plan = plan_gradient(OPS["gelu"], [s], [s, s], [approximate], [True])
    (dx,) = launch(plan, [np.ones_like(x), x])
    step = 1e-5
    gelu: Any = OPS["gelu"]
    high, low = (gelu.reference_rule(wide(x) + h, approximate) for h in (step, -step))
    np.testing.assert_allclose(dx, (high - low) / (2 * step), atol=2e-6)


def test_gradient_at_equal_values_is_shared():
    a = np.array([1, 2, 3], np.float32)
    b = np.array([1, 3, 2], np.float32)
    s = spec(a.shape)
    plan = plan_gradient(OPS["maximum"], [s, s], [s, s, s], [], [True, True])
    da, db = launch(plan, [np.ones_like(a), a, b])
    np.testing.assert_array_equal(da, [0.5, 0, 1])
    np.testing.assert_array_equal(db, [0.5, 1, 0])


def test_number_inputs_keep_float32_digits_beside_half_types():
    plan = plan_of(
        "add", [spec((3,), float16), spec((), float16)._replace(device=spec_of(1.0).device)], [1]
    )
    (y,) = launch(plan, [np.zeros(3, np.float16), 0.1], [1])
    np.testing.assert_array_equal(y, np.float16(0.1))
