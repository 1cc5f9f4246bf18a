"""The generated kernels as code: every op and dtype types, and accesses are 128 bits wide."""

import inspect

import numpy as np
import pytest
from kernel_specs import (
    ARCHES,
    accesses,
    lower,
    number,
    plan_of,
    pointwise_ops,
    sample_inputs,
    spec,
    spec_of,
    taken_dtypes,
)

from tfw import dtypes
from tfw.dtypes import bfloat16, float16, float32, float64
from tfw.errors import CompileError, DtypeError
from tfw.kernels.elementwise import plan_copy, plan_elementwise, plan_gradient
from tfw.kernels.trace import trace
from tfw.registry import OPS
from tfw.runtime.cuda.compile import compile_kernel
from tfw.shapes import Spec


def line_plan(op, dtype):
    """Return the plan of an op on vectors."""
    inputs, attrs = sample_inputs(op, dtype, np.random.default_rng(0))
    specs = [spec((1001,), spec_of(x).dtype) for x in inputs]
    program, _ = trace(op, specs, attrs)
    result = program.nodes[program.outputs[0]].dtype
    return plan_elementwise(op, [spec((1001,), result)], specs, attrs)


@pytest.mark.compiles
@pytest.mark.parametrize("op", pointwise_ops(), ids=lambda op: op.name)
def test_every_dtype_types(op):
    for dtype in taken_dtypes(op):
        lower(line_plan(op, dtype).kernel, 90)


@pytest.mark.compiles
@pytest.mark.parametrize("op", pointwise_ops(), ids=lambda op: op.name)
def test_every_op_compiles_to_wide_accesses(op):
    """In bfloat16 where it is taken: without spills, and 128 bits for each operand's full block."""
    dtype = bfloat16 if bfloat16 in taken_dtypes(op) else taken_dtypes(op)[-1]
    plan = line_plan(op, dtype)
    compiled = compile_kernel(plan.kernel, 90)
    assert not compiled.facts.spills
    elements = plan.kernel.constants["BLOCK"] // (32 * plan.kernel.num_warps)
    expected = sum(
        elements * int("".join(filter(str.isdigit, p.type))) // 128
        for p in plan.kernel.parameters
        if p.type.startswith("*")
    )
    assert [bits for _, bits in accesses(compiled)].count(128) == expected


@pytest.mark.compiles
@pytest.mark.parametrize("arch", ARCHES)
@pytest.mark.parametrize("dtype", [bfloat16, float32], ids=str)
def test_add_keeps_128_bits_at_odd_lengths(arch, dtype):
    plan = plan_of("add", [spec((1001,), dtype)] * 2, [1])
    compiled = compile_kernel(plan.kernel, arch)
    assert (compiled.facts.stack_bytes, compiled.facts.spills, compiled.facts.traps) == (0, 0, 0)
    wide = [access for access, bits in accesses(compiled) if bits == 128]
    per_operand = 1 if dtype is bfloat16 else 2
    assert wide == ["ld"] * 2 * per_operand + ["st"] * per_operand


WALKS = {
    "bias": ([spec((64, 1024), bfloat16), spec((1024,), bfloat16)], {128}),
    "scale of rows": ([spec((64, 1024), bfloat16), spec((64, 1), bfloat16)], {16, 128}),
    "rows of a wider matrix": (
        [Spec((64, 1000), (1024, 1), bfloat16, spec(()).device), spec((64, 1000), bfloat16)],
        {128},
    ),
    "transposed": (
        [spec((512, 512), bfloat16), Spec((512, 512), (1, 512), bfloat16, spec(()).device)],
        {128},
    ),
    "transposed in a batch": (
        [spec((4, 64, 96)), Spec((4, 64, 96), (6144, 1, 64), float32, spec(()).device)],
        {128},
    ),
    "scalar in memory": ([spec((64, 1000)), spec(())], {32, 128}),
    "permuted alike": ([Spec((64, 33), (1, 64), float32, spec(()).device)] * 2, {32, 128}),
}


@pytest.mark.compiles
@pytest.mark.parametrize("name", WALKS)
def test_walks_access_memory_in_runs(name):
    inputs, widths = WALKS[name]
    compiled = compile_kernel(plan_of("mul", inputs).kernel, 90)
    assert {bits for _, bits in accesses(compiled)} == widths


HUGE = {
    "flat": [spec((2**31 + 8,), dtypes.int8)] * 2,
    "rows": [spec((2**21, 1024), dtypes.int8), spec((1024,), dtypes.int8)],
    "tile": [
        spec((65536, 32768), bfloat16),
        Spec((65536, 32768), (1, 65536), bfloat16, spec(()).device),
    ],
    "gather": [spec((2**27, 17), float32), spec((17,), float32)],
    "gather of few far apart": [Spec((9, 7), (2**30, 3), float32, spec(()).device)] * 2,
}


@pytest.mark.compiles
@pytest.mark.parametrize("name", HUGE)
def test_offsets_past_32_bits(name):
    kernel = plan_of("mul", HUGE[name]).kernel
    assert "to(tl.int64)" in kernel.function.source
    assert f"{name.split()[0]} walk" in kernel.function.source
    ttir = lower(kernel, 90)
    narrow = [line for line in ttir.splitlines() if "tt.addptr" in line and "xi32>" in line]
    # A row vector that repeats has few elements.
    assert not [line for line in narrow if "tensor<1x" not in line]


@pytest.mark.compiles
def test_float8_is_stored_where_the_chip_has_it():
    for target, arch in ((dtypes.float8_e5m2, 80), (dtypes.float8_e4m3fn, 90)):
        plan = plan_copy(spec((1001,), target), spec((1001,), bfloat16))
        assert not compile_kernel(plan.kernel, arch).facts.spills
    with pytest.raises(CompileError, match="fp8e4nv"):
        compile_kernel(plan_copy(spec((9,), dtypes.float8_e4m3fn), spec((9,))).kernel, 80)


def test_complex_has_no_kernel():
    with pytest.raises(DtypeError):
        plan_of("mul", [spec((9,), dtypes.complex64)] * 2)


@pytest.mark.compiles
@pytest.mark.parametrize("arch", ARCHES)
def test_composed_op_and_its_gradient_are_one_kernel_each(arch):
    x = spec((1001,), bfloat16)
    forward = plan_of("gelu", [x], ["none"])
    backward = plan_gradient(OPS["gelu"], [x], [x, x], ["none"], [True])
    assert forward.kernel.name == "gelu_kernel"
    assert backward.kernel.name == "gelu_grad_kernel"
    for plan, loads in ((forward, 1), (backward, 2)):
        compiled = compile_kernel(plan.kernel, arch)
        assert accesses(compiled)[: loads + 1] == [("ld", 128)] * loads + [("st", 128)]
        # kernel-bars: elementwise kernels keep 40 warps on a processor.
        assert compiled.facts.registers * 32 * 40 <= 65536


@pytest.mark.compiles
def test_bodies_share_common_expressions():
    source = plan_of("gelu_grad", [spec((9,))] * 2, ["none"]).kernel.function.source
    full, edge = source.split("    else:\n")
    assert full.count("tl.erf(") == edge.count("tl.erf(") == 1
    assert full.count("input * input") == 1


@pytest.mark.compiles
def test_generated_source_can_be_inspected():
    kernel = plan_of("add", [spec((9,)), number()], [1]).kernel
    function = kernel.triton_function()
    assert inspect.getsource(function.fn) == kernel.function.source
    assert kernel.triton_function() is function


def test_equal_programs_share_one_function():
    first = plan_of("add", [spec((9,)), spec((9,))], [1]).kernel.function
    assert plan_of("add", [spec((8, 4)), spec((8, 4))], [7]).kernel.function is first
    assert plan_of("add", [spec((9,), float64)] * 2, [1]).kernel.function is not first


def test_mixed_dtypes_convert_inside_the_kernel():
    plan = plan_elementwise(
        OPS["add"], [spec((9,))], [spec((9,), float16), spec((9,), float32)], [1]
    )
    assert [p.type for p in plan.kernel.parameters[:3]] == ["*fp16", "*fp32", "*fp32"]
    integers = plan_elementwise(
        OPS["add"],
        [spec((9,), dtypes.int64)],
        [spec((9,), dtypes.int32), spec((9,), dtypes.int64)],
        [1],
    )
    assert ".to(tl.int64)" in integers.kernel.function.source
    assert "float" not in integers.kernel.function.source.replace("other=0", "")


def test_numbers_among_attributes_stay_open_until_a_body_decides_with_them():
    x = spec((9,))
    program, fixed = trace(OPS["add"], [x, x], [2])
    assert not fixed
    assert any(node.kind == "attr" for node in program.nodes)
    _, fixed = trace(OPS["gelu"], [x], ["tanh"])
    assert not fixed


def test_ops_that_are_not_elementwise_are_refused():
    with pytest.raises(CompileError, match="neither a Triton expression"):
        trace(OPS["amax"], [spec((3, 4))], [0, False])
