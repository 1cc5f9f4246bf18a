"""Calls of an op: a sample's ndarrays as tensors of a dtype, layout and device, and the paths."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

import tfw
import tfw.ops
from tfw import dtypes
from tfw.dispatch import dispatch, intercepting
from tfw.dtypes import Category, dtype
from tfw.errors import DtypeError, TfwError
from tfw.registry import OPS, Call, Op
from tfw.runtime.meta import meta
from tfw.shapes import META
from tfw.tensor import Tensor, new_tensor

FLOATS = (dtypes.float64, dtypes.float32, dtypes.float16, dtypes.bfloat16)
OTHERS = (dtypes.int64, dtypes.int32, dtypes.int8, dtypes.uint8, dtypes.bool_)

# Inputs that hold statistics: float32 beside half types.
WIDE = ("lse", "total", "mean", "rstd")


class Case(NamedTuple):
    """One call of an op: its arguments in signature order, ndarrays standing for tensors."""

    op: Op
    label: str
    args: tuple[Any, ...]

    def arrays(self) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
        """Yield every ndarray with the name of its input."""
        for name, position in zip(self.op.inputs, self.op.tensor_positions, strict=True):
            value = self.args[position]
            for x in value if isinstance(value, (list, tuple)) else (value,):
                if isinstance(x, np.ndarray):
                    yield name, x

    def change(self, label: str, function: Callable[[str, Any], Any]) -> Case:
        """Return the case with every ndarray replaced by function(input name, ndarray)."""

        def convert(name: str, x: Any) -> Any:
            if isinstance(x, (list, tuple)):
                return [convert(name, e) for e in x]
            if not isinstance(x, np.ndarray):
                return x
            changed = function(name, x)
            # NumPy turns results without dims into scalars.
            return np.asarray(changed) if isinstance(changed, np.generic) else changed

        args = list(self.args)
        for name, position in zip(self.op.inputs, self.op.tensor_positions, strict=True):
            args[position] = convert(name, args[position])
        return Case(self.op, label, tuple(args))


def rng_of(op: Op) -> np.random.Generator:
    """Return the op's own stream of random numbers, the same in every run."""
    return np.random.default_rng(zlib.crc32(op.name.encode()))


def samples(op: Op) -> list[Case]:
    """Return the op's own samples as cases."""
    assert op.sample_maker is not None, f"{op.name} has no samples"
    calls = list(op.sample_maker(rng_of(op)))
    return [Case(op, f"sample {i}", bound(op, call)) for i, call in enumerate(calls)]


def bound(op: Op, call: Call) -> tuple[Any, ...]:
    """Return a call's arguments in signature order."""
    return op.bind(call, call.keywords)


def writes(op: Op) -> bool:
    """Return whether the op writes its inputs and returns nothing: its name ends in _."""
    return op.name.endswith("_")


# ---- dtypes


def differentiable(op: Op) -> tuple[str, ...]:
    """Return the inputs that an op's gradient reaches: those with a vjp, or all of a body's."""
    served = [name for names in op.vjps for name in names]
    return tuple(n for n in op.inputs if not op.vjps or n in served)


def is_floating(x: np.ndarray[Any, Any]) -> bool:
    """Return whether an ndarray of a sample stands for a floating-point tensor."""
    return x.dtype.kind == "f"


def as_dtype(case: Case, d: dtype) -> Case:
    """Return the case with its floating-point ndarrays in dtype d."""

    def convert(name: str, x: Any) -> Any:
        if not is_floating(x):
            return x
        counter = name == "tensors" and writes(case.op) and x.ndim == 0
        if d.category is Category.FLOATING:
            chosen = dtypes.accumulation(d) if name in WIDE or counter else d
            with np.errstate(all="ignore"):
                return np.asarray(x).astype(chosen.numpy)
        if x.size and not np.isfinite(x).all():
            return x  # such a variant has no integer form: the caller asks for finite ones
        whole = np.asarray(np.rint(x * 3))
        if not d.is_signed:
            whole = np.asarray(np.abs(whole))
        return whole.astype(d.numpy)

    return case.change(case.label, convert)


def taken(op: Op) -> list[dtype]:
    """Return the dtypes that the op takes for the floating-point arrays of its first sample."""
    first = samples(op)[0]
    if not any(is_floating(x) for _, x in first.arrays()):
        return [dtypes.float64]
    return [d for d in (*FLOATS, *OTHERS) if _takes(as_dtype(first, d))]


def _takes(case: Case) -> bool:
    try:
        call(case.op, tensors(case))
    except DtypeError:
        return False
    return True


# ---- tensors


def from_array(x: np.ndarray[Any, Any]) -> Tensor:
    """Return a CPU tensor on an ndarray's memory, strides and all."""
    return tfw.from_numpy(x)


def on_meta(x: Tensor) -> Tensor:
    """Return a meta tensor laid out as x."""
    payload = meta.empty(x._kind.backend.spec(x._a)._replace(device=META))
    return new_tensor(payload, meta.kind(payload))


def all_on_meta(args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments with every tensor and device moved to meta."""
    moved = map_tensors(args, on_meta)
    return tuple(META if isinstance(x, tfw.device) else x for x in moved)


def map_tensors(args: Any, function: Callable[[Tensor], Any]) -> Any:
    """Return arguments with function applied to every tensor, also within lists."""
    if isinstance(args, Tensor):
        return function(args)
    if isinstance(args, (list, tuple)) and any(isinstance(x, (Tensor, list, tuple)) for x in args):
        return type(args)(map_tensors(x, function) for x in args)
    return args


def tensors(case: Case) -> tuple[Any, ...]:
    """Return the arguments with CPU tensors on the ndarrays, or on copies if the op writes."""
    place = own if writes(case.op) else lambda x: x
    return case.change(case.label, lambda _, x: from_array(place(x))).args


def own(x: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Return a copy at the same place and with the same strides in memory of its own."""
    base = x if x.base is None else x.base
    assert isinstance(base, np.ndarray)
    memory = base.copy("K").ravel("K")
    start = x.__array_interface__["data"][0] - base.__array_interface__["data"][0]
    return np.ndarray(x.shape, x.dtype, memory, start, x.strides)


def flat_tensors(args: Any) -> list[Tensor]:
    """Return every tensor among arguments or results, in order."""
    found: list[Tensor] = []
    map_tensors(args if isinstance(args, (list, tuple)) else (args,), found.append)
    return found


def values_of(x: Tensor) -> np.ndarray[Any, Any]:
    """Return a tensor's values."""
    return np.asarray(x.detach()._a)


# ---- the paths


def call(op: Op, args: tuple[Any, ...]) -> Any:
    """Call the public function as a user would, keyword-only arguments by name."""
    positional: list[Any] = []
    keywords: dict[str, Any] = {}
    names = [n for n, _ in op.parameters if n != "out"]
    values = iter(args)
    by_name = False
    for name in names:
        if name == "*":
            by_name = True
        elif by_name:
            keywords[name] = next(values)
        else:
            positional.append(next(values))
    return op.function(*positional, **keywords)


def call_slow(op: Op, args: tuple[Any, ...]) -> Any:
    """Call the public function so that the fast path hands the op itself over."""
    with intercepting(dispatch):
        return call(op, args)


def call_body(op: Op, args: tuple[Any, ...]) -> Any:
    """Run the op's definition."""
    assert op.body is not None
    names = [n for n, _ in op.parameters if n not in ("*", "out")]
    kinds = inspect.signature(op.body).parameters
    given = dict(zip(names, args, strict=True))
    keywords = {n: v for n, v in given.items() if kinds[n].kind is kinds[n].KEYWORD_ONLY}
    return op.body(*[v for n, v in given.items() if n not in keywords], **keywords)


PATHS: dict[str, Callable[[Op, tuple[Any, ...]], Any]] = {"fast": call, "slow": call_slow}


def observe(
    path: Callable[[Op, tuple[Any, ...]], Any], op: Op, args: tuple[Any, ...]
) -> list[Tensor]:
    """Return a call's results, or for an op that writes its inputs the tensors afterwards."""
    with tfw.no_grad():
        result = path(op, args)
    return flat_tensors(args) if writes(op) else flat_tensors(result)


def applies(case: Case) -> bool:
    """Return whether the op takes a derived case: one that it refuses by name is no case of it."""
    if case.op.hidden:
        # Arguments that belong together, as a target and its classes, may no longer do so.
        try:
            reference(case)
        except (IndexError, ValueError):
            return False
    try:
        observe(call, case.op, tensors(case))
    except TfwError:
        return False
    return True


def reference(case: Case) -> list[Any]:
    """Return the values from outside tfw: floats computed in float64, integers in int64."""
    assert case.op.reference_rule is not None

    def widen(_: str, x: Any) -> Any:
        if case.op.promotion == "float":
            return x.astype(np.float64)
        # ml_dtypes' types are of kind "V".
        wide = {"f": np.float64, "V": np.float64, "i": np.int64, "u": np.int64}
        return x.astype(wide.get(x.dtype.kind, x.dtype))

    wide = case.change(case.label, widen)
    inputs = [wide.args[i] for i in case.op.tensor_positions]
    attrs = [wide.args[i] for i in case.op.attr_positions]
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)  # the mean of nothing
        result = case.op.reference_rule(*inputs, *attrs)
    return list(result) if isinstance(result, (tuple, list)) else [result]


def spread(case: Case, k: int) -> float:
    """Return how far output k moves when the inputs move by their own rounding.

    Where a definition loses digits, as layer norm of equal elements does, no dtype can keep them.
    """
    rng = rng_of(case.op)

    def nudged(_: str, x: Any) -> float:
        if x.dtype.kind not in "fV":
            return x
        eps = float(np.finfo(np.float32).eps if x.dtype.itemsize < 8 else np.finfo(x.dtype).eps)
        with np.errstate(all="ignore"):
            return x.astype(np.float64) * (1 + eps * rng.uniform(-1, 1, x.shape))

    with np.errstate(invalid="ignore"):  # inf - inf
        moved = reference(case.change(case.label, nudged))[k] - reference(case)[k]
    return np.abs(np.where(np.isfinite(moved), moved, 0.0)).max(initial=0.0)


for _module in pkgutil.iter_modules(tfw.ops.__path__):
    importlib.import_module(f"tfw.ops.{_module.name}")
OP_NAMES = sorted(OPS)
