"""Bad calls: the right error with the right fields, in section 10's form, and nothing corrupted."""

from __future__ import annotations

from typing import Any

import numpy as np

import tfw
from harness.calls import (
    PATHS,
    Case,
    all_on_meta,
    bound,
    call,
    flat_tensors,
    map_tensors,
    on_meta,
    tensors,
)
from harness.compare import same_bits
from tfw.errors import ArgumentError, OutOfRangeError, TfwError
from tfw.registry import Call, Op, Reject
from tfw.tensor import Tensor


def rejects_of(op: Op) -> list[Reject]:
    """Return the op's declared bad calls, and those that follow from its signature."""
    declared = [] if op.reject_maker is None else list(op.reject_maker())
    return [*declared, *_wrong_types(op)]


def _wrong_types(op: Op) -> list[Reject]:
    """Return good calls with one tensor replaced by an object that is none."""
    assert op.sample_maker is not None
    first = next(iter(op.sample_maker(np.random.default_rng(0))))
    args = bound(op, first)
    result: list[Reject] = []
    for name, position in zip(op.inputs, op.tensor_positions, strict=True):
        spoiled = list(args)
        spoiled[position] = object()
        keywords = dict(
            zip([n for n, _ in op.parameters if n not in ("*", "out")], spoiled, strict=True)
        )
        result.append(Reject(Call(**keywords), ArgumentError, argument=name))
    return result


def _depends_on_data(reject: Reject, args: tuple[Any, ...]) -> bool:
    """Return whether only the values of an index tensor make a call bad: meta has no values."""
    integers = [x for x in flat_tensors(args) if not x.is_floating_point()]
    return reject.error is OutOfRangeError and bool(integers)


def form_fault(op: Op, error: TfwError) -> str | None:
    """Return what is wrong with an error's message or fields, or None."""
    first, *rest = str(error).split("\n")
    if not error.op:
        return "the error names no op"
    if error.op not in (op.shown, op.shown + "_"):
        return f"the error names op {error.op!r}"
    if not first.startswith(f"{error.op}: ") or first.endswith("."):
        return f"first line {first!r} is not 'op: what is wrong'"
    if not error.argument:
        return "the error names no argument"
    wanted = [
        f"  {word}: {text}"
        for word, text in (("allowed", error.rule), ("remedy", error.remedy))
        if text
    ]
    return None if rest == wanted else f"lines {rest!r}, expected {wanted!r}"


def check(op: Op, reject: Reject) -> list[str]:
    """Make a bad call on each path; return what is wrong."""
    case = Case(op, "reject", bound(op, reject.call))
    faults: list[str] = []
    for path, run in {**PATHS, "meta": call}.items():
        args = tensors(case)
        if path == "meta":
            args = all_on_meta(args)
        before = [] if path == "meta" else [np.array(x._a) for x in flat_tensors(args)]
        try:
            run(op, args)
        except TfwError as error:
            faults += [f"{path}: {f}" for f in _error_faults(op, reject, error)]
        except Exception as error:
            faults.append(f"{path}: raised {type(error).__name__}: {error}")
        else:
            if path == "meta" and _depends_on_data(reject, args):
                continue
            faults.append(f"{path}: nothing raised")
        faults += [f"{path}: {f}" for f in _corruption(args, before)]
    return [f"{_shown(reject)}: {f}" for f in faults]


def _error_faults(op: Op, reject: Reject, error: TfwError) -> list[str]:
    if type(error) is not reject.error:
        return [f"raised {type(error).__name__}: {error}"]
    faults = [
        f"{name}={getattr(error, name)!r}, expected {wanted!r}"
        for name, wanted in reject.fields.items()
        if getattr(error, name) != wanted
    ]
    fault = form_fault(op, error)
    return [*faults, fault] if fault else faults


def _corruption(args: tuple[Any, ...], before: list[Any]) -> list[str]:
    faults: list[str] = []
    for x, old in zip(flat_tensors(args), before, strict=False):
        if not same_bits(np.asarray(x._a), old):
            faults.append("an input was changed")
        if x._version or x._node is not None:
            faults.append("an input's version or history was changed")
    return faults


def _shown(reject: Reject) -> str:
    def word(x: Any) -> str:
        if isinstance(x, np.ndarray):
            return f"{x.dtype}{list(x.shape)}"
        return repr(x) if not isinstance(x, Tensor) else str(tuple(x.shape))

    given = [word(x) for x in reject.call] + [
        f"{n}={word(x)}" for n, x in reject.call.keywords.items()
    ]
    return f"({', '.join(given)}) must raise {reject.error.__name__}"


def device_faults(case: Case) -> list[str]:
    """Move one input with dims to meta and leave the others: DeviceError, naming one of them."""
    args = tensors(case)
    found = [x for x in flat_tensors(args) if x.ndim]
    if len(found) < 2:
        return []
    moved = map_tensors(args, lambda x: on_meta(x) if x is found[-1] else x)
    try:
        with tfw.no_grad():
            call(case.op, moved)
    except tfw.errors.DeviceError as error:
        return [f for f in [form_fault(case.op, error)] if f]
    except Exception as error:
        return [f"tensors on cpu and meta raised {type(error).__name__}: {error}"]
    return ["tensors on cpu and meta were taken together"]
