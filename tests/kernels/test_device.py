"""Functions for use inside kernels: every dtype types, and numbers are NumPy's."""

import numpy as np
import pytest
from interpret import launch
from kernel_specs import as_dtype, lower, spec

from tfw import dtypes
from tfw.dtypes import FLOATING, INTEGERS, NUMERIC, float32, float64
from tfw.kernels import program
from tfw.kernels.elementwise import plan_program
from tfw.kernels.program import Builder

HALVES = (dtypes.float16, dtypes.bfloat16)


def plan(expression, dtype, n_inputs, n):
    """Return the plan of one expression on vectors a and b."""
    builder = Builder()
    names = ("a", "b")[:n_inputs]
    args = tuple(builder.add(program.TENSOR, dtype, i) for i in range(n_inputs))
    y = builder.add(program.APPLY, dtype, (expression, names), args)
    made = builder.finish("device", (y,), names, ())
    return plan_program(made, [spec((n,), dtype)], [spec((n,), dtype)] * n_inputs)


CASES = {
    "device.power({a}, {b})": (NUMERIC, np.power),
    "device.divide({a}, {b})": (FLOATING, np.divide),
    "device.sqrt({a})": (FLOATING, np.sqrt),
    "device.exp({a})": (FLOATING, np.exp),
    "device.sign({a})": (NUMERIC, np.sign),
}


@pytest.mark.compiles
@pytest.mark.parametrize("expression", CASES)
def test_every_dtype_types(expression):
    for dtype in CASES[expression][0]:
        lower(plan(expression, dtype, 1 + ("{b}" in expression), 9).kernel, 90)


@pytest.mark.parametrize("expression", CASES)
def test_numbers(expression):
    taken, function = CASES[expression]
    values = np.array([0.5, 1, 2, 3, 1.5, 4, 0.25])
    exponents = np.array([2, 3, 1, 1, 2.5, 3, 0.5])
    for dtype in taken:
        if dtype in HALVES:
            continue  # computed in float32, which is here
        arrays = [as_dtype(v, dtype) for v in (values, exponents)][: 1 + ("{b}" in expression)]
        (y,) = launch(plan(expression, dtype, len(arrays), 7), arrays)
        np.testing.assert_allclose(y, function(*arrays), rtol=1e-6 if dtype is float32 else 1e-12)


@pytest.mark.parametrize("dtype", INTEGERS, ids=str)
def test_integer_powers_wrap_and_negative_ones_cut(dtype):
    base = np.array([3, 2, 5, 0, 7], dtype.numpy)
    exponent = np.array([40, 70, 0, 0, 1], dtype.numpy)
    (y,) = launch(plan("device.power({a}, {b})", dtype, 2, 5), [base, exponent])
    modulus = 2**dtype.bits
    exact = [pow(int(b), int(e), modulus) for b, e in zip(base, exponent, strict=True)]
    assert [int(v) % modulus for v in y] == exact
    if dtype.is_signed:
        base = np.array([1, -1, -1, 2, 0], dtype.numpy)
        exponent = np.array([-3, -3, -2, -1, -1], dtype.numpy)
        (y,) = launch(plan("device.power({a}, {b})", dtype, 2, 5), [base, exponent])
        np.testing.assert_array_equal(y, [1, -1, 1, 0, 0])


@pytest.mark.parametrize("dtype", [float32, float64], ids=str)
def test_sign_keeps_nan(dtype):
    x = np.array([np.nan, np.inf, -np.inf, 0.0, -2.0], dtype.numpy)
    (y,) = launch(plan("device.sign({a})", dtype, 1, 5), [x])
    np.testing.assert_array_equal(y, np.sign(x))
