"""Plans are plain data, built from Specs without Triton, cuda or a GPU."""

import subprocess
import sys

import pytest
from kernel_specs import number, plan_of, spec

from tfw import dtypes
from tfw.errors import ArgumentError, ValueRangeError
from tfw.runtime.cuda import plan
from tfw.runtime.cuda.plan import Argument, LazyFunction, Parameter, Source


def test_import_needs_neither_triton_nor_cuda():
    code = (
        "import sys, tfw, tfw.runtime.cuda.plan, tfw.runtime.cuda.compile\n"
        "print([m for m in ('triton', 'cuda', 'torch') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_equal_kernels_are_one_object():
    first = plan_of("mul", [spec((7, 33)), spec((7, 33))])
    assert plan_of("mul", [spec((9, 1000)), spec((9, 1000))]).kernel is first.kernel
    odd = spec((7, 33))._replace(aligned=False)
    assert plan_of("mul", [odd, spec((7, 33))]).kernel is not first.kernel


def test_arguments_follow_the_parameters():
    made = plan_of("add", [spec((1001,)), number()], [2])
    assert [p.name for p in made.kernel.parameters] == [
        "input_ptr",
        "out_ptr",
        "other",
        "alpha",
        "n",
    ]
    assert [p.type for p in made.kernel.parameters] == ["*fp32", "*fp32", "fp32", "fp32", "i32"]
    assert [p.divisor for p in made.kernel.parameters] == [16, 16, 1, 1, 1]
    assert made.arguments == (
        Argument(Source.INPUT, 0),
        Argument(Source.OUTPUT, 0),
        Argument(Source.INPUT, 1),
        Argument(Source.ATTR, 0),
        Argument(Source.VALUE, 1001),
    )
    assert made.grid == (1, 1, 1)
    assert made.outputs == (spec((1001,)),)


def test_an_empty_tensor_has_an_empty_grid():
    assert plan_of("exp", [spec((0,))]).grid == (0, 1, 1)
    assert plan_of("add", [spec((3, 0)), spec((1, 1))], [1]).grid == (0, 1, 1)
    assert plan_of("add", [spec((3, 0, 4)), spec((4,))], [1]).grid == (0, 1, 1)


def test_numbers_do_not_make_kernels():
    """A scale, an alpha or a length that changes each step must not compile each step."""
    kernels = {
        plan_of("add", [spec((n,)), number()], [a]).kernel for n in (1, 15, 16, 999) for a in (1, 3)
    }
    assert len(kernels) == 1


def test_tensors_past_32_bits_take_64_bit_offsets():
    huge = plan_of("neg", [spec((2**31 + 8,), dtypes.int8)])
    assert ("n", "i64") in [p[:2] for p in huge.kernel.parameters]
    assert "to(tl.int64)" in huge.kernel.function.source
    last = plan_of("neg", [spec((2**31 - 2**20 - 1,), dtypes.int8)])
    assert "to(tl.int64)" not in last.kernel.function.source


def test_refuses_what_triton_would_drop_in_silence():
    lazy = LazyFunction("f_kernel", ("x_ptr",), "", lambda name, source: None)
    with pytest.raises(ArgumentError) as error:
        plan.kernel(lazy, (Parameter("x_ptr", "*fp32"),), {}, num_warp=8)
    assert error.value.argument == "num_warp"
    with pytest.raises(ValueRangeError):
        plan.kernel(lazy, (Parameter("x_ptr", "*fp32"),), {}, num_warps=3)
