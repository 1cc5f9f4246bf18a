"""What a kernel slot returns: which kernel to compile, and how to launch it.

A `Kernel` is all that the compiler must know; a `Plan` adds what one layout of the inputs decides:
grid, sizes and strides. Plans of many shapes share one Kernel, hence one cubin. Both are plain
data: building them imports neither Triton nor cuda, reads no memory and compiles nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from tfw.errors import ArgumentError, ValueRangeError
from tfw.shapes import Spec

# Alignment, in bytes, of a pointer that may be read 128 bits at a time.
VECTOR_BYTES: Final = 16

# Compile options besides warps, stages and CTAs. Triton itself drops unknown names in silence.
OPTIONS: Final = (
    "enable_fp_fusion",
    "enable_reflect_ftz",
    "maxnreg",
    "launch_cooperative_grid",
    "launch_pdl",
)

# Contraction of a * b + c into one rounding is on, as in nvcc. Triton lets its math library flush
# subnormal numbers to zero unless told otherwise; PyTorch's does not flush.
_DEFAULT_OPTIONS: Final = {"enable_fp_fusion": True, "enable_reflect_ftz": False}


class LazyFunction:
    """A generated kernel's source, made a Triton function when it is first compiled.

    Attributes:
        name: of the kernel.
        arg_names: of its parameters.
        source: its text.

    """

    __slots__ = ("_define", "_function", "arg_names", "name", "source")

    def __init__(
        self,
        name: str,
        arg_names: tuple[str, ...],
        source: str,
        define: Callable[[str, str], Any],
    ) -> None:
        self.name, self.arg_names, self.source = name, arg_names, source
        self._define, self._function = define, None

    def function(self) -> Any:
        """Return the Triton function, made by `define(name, source)` at the first call."""
        if self._function is None:
            self._function = self._define(self.name, self.source)
        return self._function


class Parameter(NamedTuple):
    """A run-time parameter of a kernel.

    Attributes:
        name: its name in the kernel's source.
        type: Triton's name of its type: ``"*fp32"`` for a pointer, ``"i32"``, ``"i64"``,
            ``"fp32"``, ...
        divisor: a number that is promised to divide the value (bytes for a pointer).

    """

    name: str
    type: str
    divisor: int = 1


@dataclass(frozen=True, eq=False, slots=True)
class Kernel:
    """All that compilation depends on, but the architecture; equal ones are one object.

    Made by `kernel`.

    Attributes:
        function: a function decorated with `triton.jit`, or a LazyFunction.
        parameters: its run-time parameters, in the order of its signature.
        constants: its compile-time parameters.
        num_warps, num_stages, num_ctas: as in Triton.
        options: other compile options, see `OPTIONS`.

    """

    function: Any
    parameters: tuple[Parameter, ...]
    constants: Mapping[str, Any]
    num_warps: int
    num_stages: int
    num_ctas: int
    options: Mapping[str, Any]

    @property
    def name(self) -> str:
        """The kernel's name, e.g. ``"add_kernel"``."""
        return name_of(self.function)

    def triton_function(self) -> Any:
        """Return the function decorated with `triton.jit`; imports Triton if it is generated."""
        function = self.function
        return function.function() if isinstance(function, LazyFunction) else function

    def __repr__(self) -> str:
        constants = ", ".join(f"{k}={v}" for k, v in self.constants.items())
        return f"<Kernel {self.name}({constants}) num_warps={self.num_warps}>"


def name_of(function: Any) -> str:
    """Return the name of a Triton function or a LazyFunction."""
    return function.name if isinstance(function, LazyFunction) else function.__name__


_kernels: dict[tuple[Any, ...], Kernel] = {}
_KERNELS_KEPT: Final = 8192


def kernel(
    function: Any,
    parameters: tuple[Parameter, ...],
    constants: dict[str, Any],
    *,
    num_warps: int = 4,
    num_stages: int = 3,
    num_ctas: int = 1,
    **options: Any,
) -> Kernel:
    """Return the Kernel of these facts, the same object for the same facts.

    Errors: ArgumentError for an option that is not in `OPTIONS`; ValueRangeError for a number of
    warps that is no power of two up to 32.
    """
    # The table keeps `function` alive, so its id stays its own.
    key = (
        *(id(function), parameters, tuple(constants.items())),
        *(num_warps, num_stages, num_ctas, tuple(options.items())),
    )
    found = _kernels.get(key)
    if found is not None:
        return found
    for name in options:
        if name not in OPTIONS:
            raise ArgumentError(
                f"{name!r} is no compile option",
                op=name_of(function),
                argument=name,
                value=options[name],
                rule=", ".join(OPTIONS),
            )
    if num_warps not in (1, 2, 4, 8, 16, 32):
        raise ValueRangeError(
            f"num_warps={num_warps}",
            op=name_of(function),
            argument="num_warps",
            value=num_warps,
            rule="a power of two, 1 to 32",
        )
    made = Kernel(
        function,
        parameters,
        MappingProxyType(dict(constants)),
        num_warps,
        num_stages,
        num_ctas,
        MappingProxyType(_DEFAULT_OPTIONS | options),
    )
    if len(_kernels) >= _KERNELS_KEPT:
        _kernels.clear()
    return _kernels.setdefault(key, made)


class Source(Enum):
    """Where the launcher takes an argument from."""

    INPUT = "input"  # input number `value` of the op: its pointer, or itself if it is a number
    OUTPUT = "output"  # the pointer of output number `value`
    WORKSPACE = "workspace"  # the pointer of workspace number `value`
    ATTR = "attr"  # attribute number `value` of the op, a number
    VALUE = "value"  # `value` itself


class Argument(NamedTuple):
    """What one run-time parameter is given at a launch."""

    source: Source
    value: int


class Workspace(NamedTuple):
    """Scratch memory for one launch: its size, and whether it must start as zeros."""

    bytes: int
    zeroed: bool = False


class Plan(NamedTuple):
    """How to launch a kernel for inputs of one layout.

    Attributes:
        kernel: what to compile.
        grid: number of programs along x, y, z; (0, 1, 1) if there is nothing to do.
        arguments: one for each of `kernel.parameters`, in their order.
        outputs: Specs of the tensors to allocate.
        workspaces: scratch memory to allocate.

    """

    kernel: Kernel
    grid: tuple[int, int, int]
    arguments: tuple[Argument, ...]
    outputs: tuple[Spec, ...]
    workspaces: tuple[Workspace, ...] = ()


POINTER_TYPES: Final = {
    "bool": "*i8",  # one byte, 0 or 1; kernels compare with zero themselves
    "uint8": "*u8",
    "int8": "*i8",
    "int16": "*i16",
    "int32": "*i32",
    "int64": "*i64",
    "float8_e4m3fn": "*fp8e4nv",
    "float8_e5m2": "*fp8e5",
    "float16": "*fp16",
    "bfloat16": "*bf16",
    "float32": "*fp32",
    "float64": "*fp64",
}


def pointer(name: str, spec: Spec) -> Parameter:
    """Return the parameter for a tensor's pointer: its type, and its alignment if that is known."""
    return Parameter(name, POINTER_TYPES[spec.dtype.name], VECTOR_BYTES if spec.aligned else 1)


def integer(name: str, value: int, divisor: int = 1) -> Parameter:
    """Return the parameter for a size or stride: its width, and its divisor if it has it."""
    wide = not -(2**31) <= value < 2**31
    return Parameter(name, "i64" if wide else "i32", divisor if value % divisor == 0 else 1)
