"""Softmax kernels: numbers through Triton's interpreter, code for three architectures."""

from typing import Any

import numpy as np
import pytest
from interpret import launch, strided
from kernel_specs import ARCHES, accesses, as_dtype, spec, spec_of

from tfw import dtypes
from tfw.dtypes import FLOATING, bfloat16, float32, float64
from tfw.kernels import plan as plan_of_op
from tfw.registry import OPS
from tfw.runtime.cuda.compile import compile_kernel

FORWARD = ("softmax_along", "log_softmax_along")
GRADIENTS = ("softmax_grad", "log_softmax_grad")
TOLERANCE = {"float16": 2.0**-11, "bfloat16": 2.0**-8, "float32": 5e-6, "float64": 1e-14}


def plan(name, inputs, dim) -> Any:
    op: Any = OPS[name]
    return plan_of_op(op, [op.infer(*inputs, dim)], inputs, [dim])


def run(name, arrays, dim):
    (y,) = launch(plan(name, [spec_of(a) for a in arrays], dim), arrays)
    return y


def check(name, arrays, dim):
    y = run(name, arrays, dim)
    with np.errstate(all="ignore"):
        op: Any = OPS[name]
        expected = op.reference_rule(*[a.astype(np.float64) for a in arrays], dim)
    rtol = TOLERANCE[dtypes.BY_NUMPY[y.dtype].name]
    np.testing.assert_allclose(y.astype(np.float64), expected, rtol=rtol * 2, atol=rtol)


def rows(rng, *shape, dtype=float32):
    return as_dtype(rng.standard_normal(shape) * 3, dtype)


def operands(rng, name, *shape, dtype=float32):
    """Return what an op takes: its input, or a gradient and a result."""
    x = rows(rng, *shape, dtype=dtype)
    if name in FORWARD:
        return [x]
    e = np.exp(x.astype(np.float64) - x.astype(np.float64).max(-1, keepdims=True))
    y = e / e.sum(-1, keepdims=True)
    return [x, (np.log(y) if name.startswith("log") else y).astype(dtype.numpy)]


SHAPES = [(5, 1), (3, 2), (4, 7), (2, 33), (3, 100), (1, 1025), (37, 16), (2, 3, 4, 5)]


@pytest.mark.parametrize("name", FORWARD + GRADIENTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_last_dim(name, shape):
    check(name, operands(np.random.default_rng(0), name, *shape), -1)


@pytest.mark.parametrize("name", FORWARD + GRADIENTS)
def test_rows_longer_than_a_block(name):
    arrays = operands(np.random.default_rng(1), name, 1, 32769)
    assert "loop" in plan(name, [spec_of(a) for a in arrays], -1).kernel.name
    check(name, arrays, -1)


@pytest.mark.parametrize("name", FORWARD + GRADIENTS)
@pytest.mark.parametrize(
    ("shape", "dim"),
    [((7, 5), 0), ((3, 9, 70), 1), ((2, 3, 4, 5), 1), ((2, 3, 4, 5), 2), ((600, 65), 0)],
    ids=str,
)
def test_other_dims(name, shape, dim):
    check(name, operands(np.random.default_rng(2), name, *shape), dim)


@pytest.mark.parametrize("dtype", FLOATING, ids=str)
@pytest.mark.parametrize("name", FORWARD + GRADIENTS)
def test_every_dtype(name, dtype):
    check(name, operands(np.random.default_rng(3), name, 3, 65, dtype=dtype), -1)


@pytest.mark.parametrize("name", FORWARD)
def test_layouts(name):
    rng = np.random.default_rng(4)
    check(name, [rows(rng, 20, 33).T], -1)
    check(name, [rows(rng, 20, 33).T], 0)
    check(name, [strided(rows(rng, 5, 33), (64, 1), 1)], -1)
    check(name, [strided(rows(rng, 5, 33), (0, 1))], -1)
    check(name, [strided(rows(rng, 5, 33), (1, 0))], -1)
    check(name, [rows(rng, 2, 3, 4, 5).transpose(3, 1, 0, 2)], 1)
    check(name, [np.array(2.5, np.float32)], 0)


def test_rows_in_too_many_dims_are_left_to_the_body():
    x = rows(np.random.default_rng(5), 2, 3, 2, 3, 4).transpose(3, 1, 0, 2, 4)
    assert plan("softmax_along", [spec_of(x)], -1) is None


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("n_cols", [11, 32769])
def test_special_rows(name, n_cols):
    x = np.zeros((6, n_cols), np.float32)
    x[0] = -np.inf  # NaN, as in PyTorch
    x[1, 3:] = -np.inf  # the rest of the row is -inf: three equal numbers
    start = max(3, n_cols // 2)  # past the first blocks of a long row
    x[2, :start] = -np.inf
    x[3, 1] = np.inf
    x[4, 2] = np.nan
    x[5, 0] = 3e38
    y = run(name, [x], -1)
    share = np.exp if name.startswith("log") else np.asarray
    assert np.isnan(y[[0, 3, 4]]).all()
    np.testing.assert_allclose(share(y[1, :3]), 1 / 3, rtol=1e-6)
    assert (share(y[1, 3:]) == 0).all()
    np.testing.assert_allclose(share(y[2, start:]), 1 / (n_cols - start), rtol=1e-5)
    np.testing.assert_array_equal(share(y[5]), [1] + [0] * (n_cols - 1))


@pytest.mark.parametrize("shape", [(0, 5), (5, 0), (0,)], ids=str)
def test_empty(shape):
    x = np.zeros(shape, np.float32)
    assert plan("softmax_along", [spec_of(x)], -1).grid == (0, 1, 1)
    assert run("softmax_along", [x], -1).shape == shape


def test_rows_past_32_bits_take_64_bit_offsets():
    huge = plan("softmax_along", [spec((2**19, 4096), bfloat16)], -1)
    assert huge.kernel.constants["WIDE"]
    assert huge.grid[0] == 2**19
    assert not plan("softmax_along", [spec((2**18, 4096), bfloat16)], -1).kernel.constants["WIDE"]


@pytest.mark.compiles
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("name", ["softmax_along", "softmax_grad"])
@pytest.mark.parametrize("n_cols", [4096, 32768, 40000])
def test_code(name, arch, n_cols):
    """No spill on any chip, and 128 bits per access in aligned rows."""
    x = spec((512, n_cols), float32 if n_cols == 32768 else bfloat16)
    compiled = compile_kernel(plan(name, [x] * len(OPS[name].inputs), -1).kernel, arch)
    assert {bits for _, bits in accesses(compiled)} == {128}


@pytest.mark.compiles
def test_code_reaches_the_bars():
    """kernel-bars: at 4096 columns 64 warps to a processor, at most 296 and 118 instructions."""
    for name, most in (("softmax_along", 296), ("softmax_grad", 118)):
        x = spec((512, 4096))
        compiled = compile_kernel(plan(name, [x] * len(OPS[name].inputs), -1).kernel, 90)
        assert compiled.facts.registers <= 32
        assert compiled.facts.instructions <= most


@pytest.mark.compiles
@pytest.mark.parametrize("name", ["log_softmax_along", "log_softmax_grad"])
def test_odd_and_wide_rows_compile(name):
    n_inputs = len(OPS[name].inputs)
    for shape, dtype in (((33, 77), bfloat16), ((5, 40001), float64), ((2**19, 4097), bfloat16)):
        compile_kernel(plan(name, [spec(shape, dtype)] * n_inputs, -1).kernel, 100)
    compile_kernel(plan(name, [spec((8, 300, 256))] * n_inputs, 1).kernel, 80)
