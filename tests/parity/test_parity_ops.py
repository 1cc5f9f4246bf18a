"""Every op against PyTorch on the walk's cases: values, layouts, gradients, error classes."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from harness.calls import (
    OP_NAMES,
    Case,
    bound,
    call,
    flat_tensors,
    from_array,
    rng_of,
    spread,
    tensors,
)
from harness.cases import all_cases
from harness.compare import comparable, difference, layout_of

import tfw
from parity.twins import TFW_DTYPES, WITHOUT, outputs_of, to_torch, twin, values
from tfw.errors import ArgumentError, DtypeError, ShapeError, ValueRangeError
from tfw.registry import OPS, Op
from tfw.tensor import Tensor

each_op = pytest.mark.parametrize("name", [n for n in OP_NAMES if n not in WITHOUT])


def _torch_call(op: Op, args: tuple[Any, ...]) -> Any:
    inputs = [args[i] for i in op.tensor_positions]
    attrs = [args[i] for i in op.attr_positions]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return twin(op.name)(*inputs, *attrs)


def cases_of(op: Op) -> list[Case]:
    """Return the walk's cases but for dropout, whose random bits are not PyTorch's."""
    if op.name != "attention_stats":
        return all_cases(op)
    return [case for case in all_cases(op) if not case.args[op.attr_positions[2]]]


def _both(case: Case) -> tuple[list[Tensor], list[torch.Tensor]] | str:
    """Return both results, or what PyTorch says against the case."""
    try:
        theirs = _torch_call(case.op, to_torch(tensors(case)))
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError) as error:
        return f"PyTorch: {type(error).__name__}: {str(error).splitlines()[0]}"
    ours = call(case.op, tensors(case))
    return outputs_of(case.op.name, ours), outputs_of(case.op.name, theirs)


# tfw chooses a layout of its own: heads side by side; gathered rows row-major.
OTHER_LAYOUT = ("attention_stats", "relu_grad", "take_at")

# Where PyTorch is wrong: gelu(inf) is inf, not NaN; the sign of NaN and abs' slope there are NaN.
# Attention hides NaN and inf behind a mask, where PyTorch adds -inf to them.
BETTER = {("gelu", "one inf in input"), ("sign", "one NaN in input"), ("abs", "one NaN in input")}


def _special(case: Case) -> str:
    """Return what is special about a case."""
    return case.label.split(", ")[-1]


def _better(case: Case) -> bool:
    special = _special(case)
    hides = case.op.name == "attention_stats" and ("inf" in special or "NaN" in special)
    return hides or (case.op.name, special) in BETTER


@each_op
def test_results(name: str) -> None:
    op = OPS[name]
    faults = [f"{case.label}: {f}" for case in cases_of(op) for f in _result_faults(case)]
    assert not faults, "\n".join(faults[:20])


def _result_faults(case: Case) -> Iterator[str]:
    found = _both(case)
    if isinstance(found, str):
        if not _beyond_torch(found):
            yield found
        return
    ours, theirs = found
    assert len(ours) == len(theirs)
    terms = max((x.size for _, x in case.arrays()), default=1)
    for k, (y, t) in enumerate(zip(ours, theirs, strict=True)):
        expected = comparable(tuple(t.shape), t.stride(), TFW_DTYPES[t.dtype])
        found_layout = layout_of(y)
        if case.op.name in OTHER_LAYOUT:
            found_layout, expected = found_layout[::2], expected[::2]
        if found_layout != expected:
            yield f"output {k} is {found_layout}, PyTorch's {expected}"
            continue
        array, wanted = np.asarray(y.detach()._a), values(t)
        if case.op.name == "topk_along" and k:
            # Equal elements come in any order: look at what the indices point to.
            x, _, dim, *_ = tensors(case)
            source = np.asarray(x._a)
            array, wanted = (np.take_along_axis(source, i, dim) for i in (array, wanted))
        fault = difference(array, wanted, factor=max(4.0, terms**0.5))
        if fault and case.op.reference_rule and not case.op.pointwise:
            fault = difference(array, wanted, factor=terms**0.5 + 4, spread=spread(case, k))
        if fault and not _better(case):
            yield f"output {k}: {fault}"


def _beyond_torch(error: str) -> bool:
    """Return whether tfw takes more than PyTorch: other dtypes, numbers where it wants tensors."""
    more = ("not implemented for", "does not support bool", "must be Tensor, not", "any schema")
    return any(text in error for text in more)


# ---- gradients


@each_op
def test_gradients(name: str) -> None:
    op = OPS[name]
    if not op.differentiable:
        return
    faults = [f"{case.label}: {f}" for case in cases_of(op) for f in _gradient_faults(case)]
    assert not faults, "\n".join(faults[:20])


# Rows of equal elements: what is normalised is rounding error divided by sqrt(eps).
# Attention's gradient takes sum(g * y) from g v: what should be 0 is rounding error, huge if v is.
ILL_CONDITIONED = {
    *(("layer_norm_stats", "expanded"), ("layer_norm_stats", "equal")),
    *(("attention_stats", "equal"), ("attention_stats", "huge")),
}


def _eps(x: Any) -> float:
    """Return the rounding of the upstream gradients, which are about 1."""
    return float(ml_dtypes.finfo(x.dtype).eps)


def _has_ties(case: Case) -> bool:
    """Return whether equal elements leave open which of them topk takes."""
    return case.op.name == "topk_along" and any(
        len(np.unique(x)) < x.size or np.isnan(x.astype(np.float64)).any() for _, x in case.arrays()
    )


def _gradient_faults(case: Case) -> Iterator[str]:
    if _has_ties(case):
        return
    args = tensors(case)
    leaves = [x.requires_grad_() for x in flat_tensors(args) if x.is_floating_point()]
    twins = {id(x): to_torch(x).requires_grad_() for x in leaves}

    def other(x: Any) -> Any:
        if isinstance(x, (list, tuple)) and any(isinstance(e, Tensor) for e in x):
            return [other(e) for e in x]
        return twins[id(x)] if id(x) in twins else to_torch(x)

    try:
        theirs = outputs_of(case.op.name, _torch_call(case.op, tuple(map(other, args))))
    except (RuntimeError, IndexError, TypeError, ValueError, NotImplementedError):
        return  # test_results tells
    ours = outputs_of(case.op.name, call(case.op, args))
    pairs = [(y, t) for y, t in zip(ours, theirs, strict=True) if t.requires_grad]
    tracked = [y.requires_grad for y in ours]
    wanted_tracked = [t.requires_grad for t in theirs]
    if tracked != wanted_tracked:
        yield f"requires_grad is {tracked}, PyTorch's {wanted_tracked}"
        return
    if not pairs:
        return
    rng = rng_of(case.op)
    seeds = [
        from_array(np.asarray(rng.standard_normal(y.shape)).astype(y._a.dtype)) for y, _ in pairs
    ]
    found = tfw.autograd.grad([y for y, _ in pairs], leaves, seeds, allow_unused=True)
    wanted = torch.autograd.grad(
        [t for _, t in pairs],
        [twins[id(x)] for x in leaves],
        [to_torch(s) for s in seeds],
        allow_unused=True,
    )
    terms = max((x.size for _, x in case.arrays()), default=1)
    for i, (g, t) in enumerate(zip(found, wanted, strict=True)):
        if g is None or t is None:
            present = g if t is None else t
            if present is None or not present.any():
                continue  # none and zeros say the same
            yield f"gradient {i}: {g is None and 'none'}, PyTorch's {t is None and 'none'}"
        else:
            array, expected = np.asarray(g._a), values(t)
            special = _special(case)
            if "inf" in special or "NaN" in special:
                # Formulas differ in whether inf - inf or 0 * inf comes about.
                good = np.isfinite(array.astype(np.float64)) & np.isfinite(expected)
                array, expected = array[good], expected[good]
            fault = difference(array, expected, factor=max(8.0, 2 * terms**0.5), spread=_eps(array))
            if fault and (case.op.name, special) not in BETTER | ILL_CONDITIONED:
                yield f"gradient {i}: {fault}"


# ---- errors

# A number that does not fit the dtype is cut silently by PyTorch; sign of bool is bool there.
# PyTorch's CPU attention reads past the end of value where key is longer.
STRICTER = {
    *(("masked_fill", DtypeError), ("sign", DtypeError)),
    ("attention_stats", ShapeError),
}

# An unknown option is a ValueError everywhere in tfw; hidden ops lie behind checks of their own.
OTHER_ERRORS = {
    ("gelu", ValueRangeError),
    ("gelu_grad", ValueRangeError),
    ("take_at", DtypeError),
    ("relu_grad", ArgumentError),
}


@each_op
def test_error_classes(name: str) -> None:
    op = OPS[name]
    faults: list[str] = []
    for reject in () if op.reject_maker is None else op.reject_maker():
        args = tensors(Case(op, "reject", bound(op, reject.call)))
        try:
            _torch_call(op, to_torch(args))
        except AttributeError:
            continue  # the twin is a method, which a wrong type does not have
        except Exception as error:
            raised = RuntimeError if type(error) is NotImplementedError else type(error)
            if not issubclass(reject.error, raised) and (op.name, reject.error) not in OTHER_ERRORS:
                faults.append(
                    f"{reject.error.__name__} for {args}: PyTorch raises {type(error).__name__}: "
                    f"{str(error).splitlines()[0]}"
                )
        else:
            if (op.name, reject.error) in STRICTER:
                continue
            faults.append(f"{reject.error.__name__} for {args}: PyTorch takes it")
    assert not faults, "\n".join(faults)


# ---- names of arguments

# PyTorch's are positional-only, or methods without keywords.
POSITIONAL = ("clone", "gelu", "linear", "masked_fill", "expand", "view", "permute")


@pytest.mark.parametrize("name", [n for n in OP_NAMES if not OPS[n].hidden and n not in POSITIONAL])
def test_keywords_are_pytorchs(name: str) -> None:
    op = OPS[name]
    names = [n for n, _ in op.parameters if n not in ("*", "out")]
    for case in all_cases(op)[: len(list(op.sample_maker(rng_of(op))))]:  # pyright: ignore[reportOptionalCall]  every op has samples
        keywords = dict(zip(names, to_torch(tensors(case)), strict=True))
        given = {n: v for n, v in keywords.items() if n not in op.defaults or v != op.defaults[n]}
        fault = ""
        try:
            getattr(torch, name)(**given)
        except (TypeError, RuntimeError) as error:
            fault = str(error)
        assert not fault or _beyond_torch(fault), f"{list(given)}: {fault}"
