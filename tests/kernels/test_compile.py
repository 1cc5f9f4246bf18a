"""Compilation without a GPU: facts of the cubin, and the checks that a launch would fail on."""

import pickle
import subprocess
from pathlib import Path

import pytest
import triton
import triton.language as tl
from kernel_specs import lower, plan_of, spec

from tfw.dtypes import int16
from tfw.errors import CompileError, ValueRangeError
from tfw.kernels.emit import _define
from tfw.runtime.cuda.compile import LIMITS, LimitError, compile_kernel
from tfw.runtime.cuda.cubin import read_facts
from tfw.runtime.cuda.plan import LazyFunction, Parameter, kernel

pytestmark = pytest.mark.compiles
_POINTERS = tuple(Parameter(n, "*fp32", 16) for n in ("x_ptr", "y_ptr"))


@triton.jit
def trap_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):  # noqa: N803 - a compile-time value
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets)
    y = tl.inline_asm_elementwise(
        "trap; mov.b32 $0, $1;", "=r,r", [x], dtype=tl.float32, is_pure=False, pack=1
    )
    tl.store(y_ptr + offsets, y)


@triton.jit
def transpose_kernel(x_ptr, y_ptr, BLOCK: tl.constexpr):  # noqa: N803 - a compile-time value
    rows, cols = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    tl.store(y_ptr + rows * BLOCK + cols, tl.load(x_ptr + cols * BLOCK + rows))


@pytest.mark.parametrize("arch", [80, 100])
def test_facts_are_those_of_cuobjdump(arch, tmp_path):
    """Registers and stack as NVIDIA's own tool reads them from the same file."""
    spilling = plan_of("mul", [spec((999,))] * 2).kernel
    spilling = kernel(spilling.function, spilling.parameters, {"BLOCK": 4096}, maxnreg=24)
    compiled = compile_kernel(spilling, arch, allow_spills=True)
    path = tmp_path / "kernel.cubin"
    path.write_bytes(compiled.cubin)
    tool = Path(triton.__file__).parent / "backends/nvidia/bin/cuobjdump"
    text = subprocess.run(
        [tool, "-res-usage", path], capture_output=True, text=True, check=True
    ).stdout
    assert f"REG:{compiled.facts.registers} STACK:{compiled.facts.stack_bytes} " in text
    sass = subprocess.run([tool, "-sass", path], capture_output=True, text=True, check=True).stdout
    local = sum("STL" in line or "LDL" in line for line in sass.splitlines())
    assert compiled.facts.spills == local > 0


def test_a_spill_is_refused_unless_allowed():
    small = plan_of("mul", [spec((999,))] * 2).kernel
    spilling = kernel(small.function, small.parameters, {"BLOCK": 4096}, maxnreg=24)
    with pytest.raises(LimitError) as error:
        compile_kernel(spilling, 90)
    assert error.value.limit == 0
    assert error.value.required > 0
    assert "mul_kernel" in str(error.value)
    assert "use smaller blocks" in str(error.value)


@pytest.mark.parametrize("arch", [90, 100])
def test_a_spill_for_the_sake_of_occupancy_is_undone(arch):
    """NVIDIA's assembler spills a register of this one to fit one more block on a processor."""
    compiled = compile_kernel(plan_of("maximum", [spec((1001,), int16)] * 2).kernel, arch)
    assert compiled.facts.spills == compiled.facts.stack_bytes == 0


def test_shared_memory_over_the_limit_is_refused():
    large = kernel(transpose_kernel, _POINTERS, {"BLOCK": 256}, num_warps=32)
    with pytest.raises(LimitError) as error:
        compile_kernel(large, 80, allow_spills=True)
    assert error.value.required > error.value.limit == LIMITS[80].shared_bytes
    assert error.value.argument == "bytes of shared memory"
    copy = pickle.loads(pickle.dumps(error.value))
    assert (copy.required, str(copy)) == (error.value.required, str(error.value))


def test_a_trap_is_refused():
    with pytest.raises(LimitError) as error:
        compile_kernel(kernel(trap_kernel, _POINTERS, {"BLOCK": 128}), 90)
    assert error.value.argument == "traps in the machine code"


def test_source_that_does_not_compile_names_its_line():
    source = "def bad_kernel(x_ptr, y_ptr):\n    tl.store(y_ptr, tl.exp(x_ptr))\n"
    lazy = LazyFunction("bad_kernel", ("x_ptr", "y_ptr"), source, _define)
    with pytest.raises(CompileError, match=r"tl\.exp\(x_ptr\)"):
        compile_kernel(kernel(lazy, _POINTERS, {}), 90)


def test_unknown_arch_and_parameters_are_refused():
    with pytest.raises(ValueRangeError) as error:
        compile_kernel(kernel(trap_kernel, _POINTERS, {"BLOCK": 128}), 42)
    assert error.value.argument == "arch"
    with pytest.raises(CompileError, match="the function takes"):
        compile_kernel(kernel(trap_kernel, _POINTERS, {}), 90)
    with pytest.raises(CompileError, match="the function takes"):
        compile_kernel(kernel(trap_kernel, _POINTERS[::-1], {"BLOCK": 128}), 90)


def test_what_is_no_cubin_is_refused():
    with pytest.raises(ValueError, match="ELF"):
        read_facts(b"#!/bin/sh")


def test_no_driver_is_asked():
    compile_kernel(plan_of("neg", [spec((8,))]).kernel, 90)
    lower(plan_of("neg", [spec((8,))]).kernel, 90)
    assert triton.runtime.driver._active is None
