"""From the names and values of a kernel's parameters to a Plan, for kernels written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tfw.runtime.cuda.plan import (
    VECTOR_BYTES,
    Argument,
    Parameter,
    Plan,
    Source,
    Workspace,
    integer,
    kernel,
    pointer,
)
from tfw.shapes import Spec


def build_plan(
    function: Any,
    grid: int,
    *,
    inputs: Mapping[str, Spec],
    outputs: Mapping[str, Spec],
    integers: Mapping[str, int],
    constants: Mapping[str, Any],
    num_warps: int,
    workspaces: Sequence[Workspace] = (),
    **options: Any,
) -> Plan:
    """Return the plan of a kernel on a grid of `grid` programs along x.

    Args:
        function: the kernel, decorated with `triton.jit`.
        grid: number of programs.
        inputs, outputs: Spec of each pointer's tensor, in the order of the op's inputs and outputs.
        integers: sizes and strides. Those that are 0 or 1 become compile-time constants, which lets
            the compiler see runs of memory and drop terms; of others it is told whether they divide
            a vector.
        constants: compile-time parameters.
        num_warps: warps of one program.
        workspaces: scratch memory, whose pointers are parameters `workspace_ptr_0` and so on.
        options: see `plan.OPTIONS`.

    """
    tensors = {**inputs, **outputs}
    itemsize = min(s.dtype.itemsize for s in tensors.values())
    sources = {name: Argument(Source.INPUT, i) for i, name in enumerate(inputs)}
    sources |= {name: Argument(Source.OUTPUT, i) for i, name in enumerate(outputs)}
    fixed = dict(constants)
    parameters: list[Parameter] = []
    arguments: list[Argument] = []
    for name in function.arg_names:
        value = integers.get(name)
        if value in (0, 1):
            fixed[name] = value
        elif value is not None:
            parameters.append(integer(name, value, VECTOR_BYTES // itemsize))
            arguments.append(Argument(Source.VALUE, value))
        elif name in tensors:
            parameters.append(pointer(name, tensors[name]))
            arguments.append(sources[name])
        elif name.startswith("workspace_ptr_"):
            parameters.append(Parameter(name, "*i8", VECTOR_BYTES))
            arguments.append(Argument(Source.WORKSPACE, int(name.rpartition("_")[2])))
    built = kernel(function, tuple(parameters), fixed, num_warps=num_warps, **options)
    return Plan(built, (grid, 1, 1), tuple(arguments), tuple(outputs.values()), tuple(workspaces))
