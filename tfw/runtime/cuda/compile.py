"""From a Kernel to a cubin, without a GPU, and the checks that Triton leaves out.

Triton's own launcher would check shared and tensor memory when it loads a module; tfw loads cubins
itself, so what would fail only at a launch, or run badly, is refused here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from tfw.errors import CompileError, ValueRangeError
from tfw.runtime.cuda.cubin import CubinFacts, read_facts
from tfw.runtime.cuda.plan import Kernel

if TYPE_CHECKING:
    from triton.compiler import ASTSource

E = TypeVar("E", bound=CompileError)

_WARP: Final = 32
# 32-bit registers of one block, and of one thread, on every architecture below.
_REGISTER_FILE: Final = 65536
_MAX_REGISTERS: Final = 255


class Limits(NamedTuple):
    """What one block may use. Source: CUDA programming guide, table of compute capabilities."""

    shared_bytes: int
    tensor_columns: int = 0


LIMITS: Final = {
    80: Limits(163 * 1024),
    86: Limits(99 * 1024),
    87: Limits(163 * 1024),
    89: Limits(99 * 1024),
    90: Limits(227 * 1024),
    100: Limits(227 * 1024, 512),
    103: Limits(227 * 1024, 512),
    120: Limits(99 * 1024),
}


class LimitError(CompileError):
    """A kernel that asks for more than its chip has, or than tfw lets it use.

    Attributes:
        required: how much it asks for.
        limit: how much there is.

    """

    required: int = 0
    limit: int = 0


@dataclass(frozen=True, slots=True)
class CompiledKernel:
    """A cubin that is fit to load, and what a launch must know of it.

    Attributes:
        name: the function's name in the cubin.
        arch: e.g. 90.
        cubin: the file.
        num_warps: warps of one block; more than asked for if the compiler specialised warps.
        num_ctas: blocks of one cluster.
        shared_bytes: dynamic shared memory to launch with.
        tensor_columns: tensor memory it allocates, in columns.
        global_scratch_bytes, profile_scratch_bytes: memory for each block that Triton's two hidden
            last parameters point to; usually 0, and their pointers null.
        global_scratch_align, profile_scratch_align: its alignment.
        facts: what the machine code says.
        texts: intermediate texts by stage (``"ttir"``, ``"ttgir"``, ``"llir"``, ``"ptx"``).

    """

    name: str
    arch: int
    cubin: bytes
    num_warps: int
    num_ctas: int
    shared_bytes: int
    tensor_columns: int
    global_scratch_bytes: int
    global_scratch_align: int
    profile_scratch_bytes: int
    profile_scratch_align: int
    facts: CubinFacts
    texts: dict[str, str]


def compile_kernel(kernel: Kernel, arch: int, *, allow_spills: bool = False) -> CompiledKernel:
    """Compile a kernel for an architecture such as 90 and check that it can run there.

    Args:
        kernel: what to compile, `plan.kernel`.
        arch: compute capability times ten.
        allow_spills: take machine code that keeps values in local memory, e.g. to measure it.

    Errors: ValueRangeError for an unknown architecture; CompileError for source that does not
    compile; LimitError for a limit of the chip that is passed, for spills, and for machine code
    that traps.

    """
    if arch not in LIMITS:
        raise ValueRangeError(
            f"arch={arch} is not known",
            op=kernel.name,
            argument="arch",
            value=arch,
            rule=", ".join(map(str, LIMITS)),
        )
    compiled = _wrap(kernel, arch, _triton_compile(kernel, arch))
    if compiled.facts.spills and "maxnreg" not in kernel.options:
        # ptxas gives up a few registers to fit one more block on a processor, and spills for it. A
        # kernel that names a bound is left alone below that bound.
        bound = min(_MAX_REGISTERS, _REGISTER_FILE // (compiled.num_warps * _WARP))
        again = _wrap(kernel, arch, _triton_compile(kernel, arch, maxnreg=bound))
        if again.facts.spills < compiled.facts.spills:
            compiled = again
    _check(kernel, compiled, allow_spills)
    return compiled


def _triton_compile(kernel: Kernel, arch: int, **more: int) -> Any:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.backends.nvidia.compiler import CUDAOptions
    from triton.errors import TritonError

    options = {
        "num_warps": kernel.num_warps,
        "num_stages": kernel.num_stages,
        "num_ctas": kernel.num_ctas,
        **kernel.options,
        **more,
    }
    for name in options:
        if name not in CUDAOptions.__dataclass_fields__:
            raise _error(
                kernel, arch, f"Triton {triton.__version__} has no compile option {name!r}", name
            )
    source = _source(kernel, arch)
    try:
        target = GPUTarget("cuda", arch, _WARP)
        return triton.compile(source, target=target, options=options)  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]  Triton has no types
    except (TritonError, RuntimeError, ValueError) as error:
        # RuntimeError is what a failed pass of the compiler raises.
        raise _error(kernel, arch, str(error).strip() or type(error).__name__, "source") from error


def _source(kernel: Kernel, arch: int) -> ASTSource:
    from triton.compiler import ASTSource

    given = {p.name: p for p in kernel.parameters}
    names: list[str] = [*kernel.function.arg_names]
    signature: dict[str, str] = {}
    attrs: dict[tuple[int, ...], list[list[Any]]] = {}
    for i, name in enumerate(names):
        parameter = given.get(name)
        if parameter is None:
            signature[name] = "constexpr"
            continue
        signature[name] = parameter.type
        if parameter.divisor > 1:
            attrs[(i,)] = [["tt.divisibility", parameter.divisor]]
    run_time = [n for n in names if n in given]
    compile_time = {n for n in names if n not in given}
    if run_time != [p.name for p in kernel.parameters] or compile_time != set(kernel.constants):
        raise _error(
            kernel,
            arch,
            f"the plan gives parameters {[*given]} and constants {[*kernel.constants]}, "
            f"the function takes {names}",
            "parameters",
        )
    return ASTSource(kernel.triton_function(), signature, dict(kernel.constants), attrs)


def _wrap(kernel: Kernel, arch: int, built: Any) -> CompiledKernel:
    metadata = built.metadata
    cubin: bytes = built.asm["cubin"]
    return CompiledKernel(
        name=metadata.name,
        arch=arch,
        cubin=cubin,
        num_warps=metadata.num_warps,
        num_ctas=kernel.num_ctas,
        shared_bytes=metadata.shared,
        tensor_columns=metadata.tmem_size or 0,
        global_scratch_bytes=metadata.global_scratch_size,
        global_scratch_align=metadata.global_scratch_align,
        profile_scratch_bytes=metadata.profile_scratch_size,
        profile_scratch_align=metadata.profile_scratch_align,
        facts=read_facts(cubin),
        texts={k: built.asm[k] for k in ("ttir", "ttgir", "llir", "ptx")},
    )


def _check(kernel: Kernel, compiled: CompiledKernel, allow_spills: bool) -> None:
    facts, limits = compiled.facts, LIMITS[compiled.arch]

    def require(what: str, required: int, limit: int, remedy: str) -> None:
        if required > limit:
            message = f"{required} {what}, the limit is {limit}"
            error = _error(kernel, compiled.arch, message, what, remedy, LimitError)
            error.required, error.limit = required, limit
            raise error

    registers = facts.registers * compiled.num_warps * _WARP
    smaller = "use smaller blocks"
    require(
        "bytes of shared memory",
        compiled.shared_bytes,
        limits.shared_bytes,
        f"{smaller} or fewer num_stages",
    )
    require("columns of tensor memory", compiled.tensor_columns, limits.tensor_columns, smaller)
    require("registers for one block", registers, _REGISTER_FILE, "use fewer num_warps, or maxnreg")
    require("traps in the machine code", facts.traps, 0, "use another configuration")
    if not allow_spills:
        remedy = f"{smaller}, or more num_warps"
        require("bytes of stack frame", facts.stack_bytes, 0, remedy)
        require("accesses to spilled registers", facts.spills, 0, remedy)


def _error(
    kernel: Kernel,
    arch: int,
    message: str,
    argument: str,
    remedy: str = "",
    kind: type[E] = CompileError,
) -> E:
    settings = {**kernel.constants, "num_warps": kernel.num_warps, "num_stages": kernel.num_stages}
    shown = ", ".join(f"{k}={v}" for k, v in settings.items())
    return kind(
        f"for sm_{arch} ({shown}): {message}", op=kernel.name, argument=argument, remedy=remedy
    )
