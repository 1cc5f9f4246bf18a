"""The registry walk: every op through every check, on its samples and hard variants."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
from harness import docs, gradients, rejected
from harness.calls import (
    OP_NAMES,
    PATHS,
    Case,
    all_on_meta,
    applies,
    as_dtype,
    call_body,
    differentiable,
    flat_tensors,
    from_array,
    is_floating,
    map_tensors,
    observe,
    reference,
    rng_of,
    samples,
    spread,
    tensors,
    values_of,
    writes,
)
from harness.cases import all_cases
from harness.compare import comparable, difference, layout_of, same_bits
from harness.variants import block_variants

import tfw
import tfw.nn  # pyright: ignore[reportUnusedImport]  its ops register themselves
from tfw import dtypes
from tfw.errors import NoKernelError
from tfw.registry import OPS, Op
from tfw.shapes import CPU, META, Spec

LIMIT_S = 4.0

each_op = pytest.mark.parametrize("name", OP_NAMES)


@pytest.fixture(autouse=True)
def _within_limit() -> Iterator[None]:
    """An op that takes long makes the walk one that nobody runs."""
    start = time.process_time()
    yield
    assert time.process_time() - start < LIMIT_S


def report(faults: Iterable[str]) -> None:
    """Fail with all that was found at once."""
    found = list(faults)
    assert not found, f"{len(found)} faults:\n  " + "\n  ".join(found[:20])


# ---- 0: every slot is there


@each_op
def test_slots_are_filled(name: str) -> None:
    op = OPS[name]
    missing = [
        slot
        for slot, value in (("samples", op.sample_maker), ("reference", op.reference_rule))
        if value is None
    ]
    reason = docs.sections(op.doc).get("Errors", "")
    if op.reject_maker is None and not reason.startswith("none"):
        missing.append("rejects (or a docstring that says why there are none: 'Errors: none ...')")
    if not op.vjps and op.body is None and op.differentiable and op.inputs:
        missing.append("vjp (or differentiable=False)")
    floats = {n for case in samples(op) for n, x in case.arrays() if is_floating(x)}
    missing += [
        f"a vjp of {n} (or a docstring that says '{n} gets no gradient')"
        for n in sorted(floats - set(differentiable(op)))
        if f"{n} gets no gradient" not in " ".join(op.doc.split())
    ]
    assert not missing, f"{name} lacks {', '.join(missing)}"
    assert samples(op), f"{name} yields no sample"


# ---- 1: infer is the real output's layout, on every path; aliasing is as declared


@each_op
def test_paths_agree_on_layout(name: str) -> None:
    report(f"{case.label}: {f}" for case in all_cases(OPS[name]) for f in _layout_faults(case))


def _layout_faults(case: Case) -> Iterator[str]:
    op = case.op
    seen = {
        path: [layout_of(y) for y in observe(run, op, tensors(case))] for path, run in PATHS.items()
    }
    if seen["fast"] != seen["slow"]:
        yield f"fast path gives {seen['fast']}, slow path {seen['slow']}"
    args = tensors(case)
    metas = all_on_meta(args)
    if op.data_dependent:
        with pytest.raises(NoKernelError):
            observe(PATHS["fast"], op, metas)
        return
    results = observe(PATHS["fast"], op, metas)
    if (found := [layout_of(y) for y in results]) != seen["fast"]:
        yield f"cpu gives {seen['fast']}, meta {found}"
    if any(y.device.type != "meta" for y in results):
        yield "meta inputs gave a result elsewhere"
    if op.infer is None or writes(op):
        return
    # Rules promise what holds after promotion, so the Specs are those of the promoted inputs.
    if op.promotion and len({x.dtype for x in flat_tensors(args)}) > 1:
        return
    specs = map_tensors(
        tuple(args[i] for i in op.tensor_positions), lambda x: x._kind.backend.spec(x._a)
    )
    if any(isinstance(s, (bool, int, float)) for s in specs):
        return
    found = op.infer(*specs, *[args[i] for i in op.attr_positions])
    found = [found] if isinstance(found, Spec) else list(found)
    if (inferred := [comparable(s.shape, s.strides, s.dtype) for s in found]) != seen[
        "fast"
    ] and not (op.promotion == "float" and not specs[0].dtype.is_floating_point):
        yield f"cpu gives {seen['fast']}, infer {inferred}"
    if any(s.device not in (CPU, META) for s in found):
        yield "infer names another device"


@each_op
def test_aliasing(name: str) -> None:
    report(f"{case.label}: {f}" for case in all_cases(OPS[name]) for f in _aliasing_faults(case))


def _aliasing_faults(case: Case) -> Iterator[str]:
    op = case.op
    if writes(op):
        return
    for path, run in PATHS.items():
        args = tensors(case)
        inputs = flat_tensors(args)
        result = run(op, args)
        for k, y in enumerate(flat_tensors(result)):
            sharing = [x for x in inputs if np.shares_memory(x._a, y._a)]
            if op.layout is not None:
                yield from (f"{path}: output {k}: {f}" for f in _view_faults(case, args, k, y))
            elif op.body is None and sharing:
                yield f"{path}: output {k} shares memory with an input"
            elif any(x is not y and x._cell is not y._cell for x in sharing):
                yield f"{path}: output {k} shares memory but no version with an input"


def _view_faults(case: Case, args: tuple[Any, ...], k: int, y: Any) -> Iterator[str]:
    """Hold a view on the CPU against the op's layout rule."""
    op = case.op
    x = args[op.tensor_positions[0]]
    if y._base is not x or y._cell is None or y._cell is not x._cell:
        yield "is no view of the input by its base and version"
    assert op.layout is not None
    layout = op.layout(x._kind.backend.spec(x._a), *[args[i] for i in op.attr_positions])
    shape, strides, offset = layout[k] if op.views else layout
    if layout_of(y) != comparable(shape, strides, x.dtype):
        yield f"shape and strides {tuple(y.shape)}, {y.stride()}; the rule says {shape}, {strides}"
    if y.numel():
        start = x._a.__array_interface__["data"][0] + offset * x._a.itemsize
        if y._a.__array_interface__["data"][0] != start:
            yield "starts elsewhere than the rule says"


# ---- 2: values from outside tfw


@each_op
def test_values_are_the_references(name: str) -> None:
    op = OPS[name]
    blocks = [b for case in samples(op)[:1] for b in block_variants(as_dtype(case, dtypes.float32))]
    cases = [*all_cases(op), *[b for b in blocks if applies(b)]]
    report(f"{case.label}: {f}" for case in cases for f in _value_faults(case))


def _value_faults(case: Case) -> Iterator[str]:
    op = case.op
    expected = reference(case)
    actual = observe(PATHS["fast"], op, tensors(case))
    if len(actual) != len(expected):
        yield f"{len(actual)} results, the reference gives {len(expected)}"
        return
    terms = max((x.size for _, x in case.arrays()), default=1)
    for k, (y, e) in enumerate(zip(actual, expected, strict=True)):
        relative = op.pointwise and op.body is None
        factor = max(1.0, terms**0.5 / 8)
        fault = difference(values_of(y), e, relative=relative, factor=factor)
        if fault and not relative:
            fault = difference(values_of(y), e, factor=factor, spread=spread(case, k))
        if fault:
            yield f"output {k}: {fault}"


# ---- 3: an override against the definition; the fast path against the slow one


@each_op
def test_override_is_the_definition(name: str) -> None:
    op = OPS[name]
    if op.body is None or "cpu" not in op.rules:
        return
    report(f"{case.label}: {f}" for case in all_cases(op) for f in _override_faults(case))


def _override_faults(case: Case) -> Iterator[str]:
    op = case.op
    actual = observe(PATHS["fast"], op, tensors(case))
    wide = case.change(
        case.label,
        lambda _, x: x.astype(np.float32) if x.dtype.itemsize == 2 and x.dtype.kind in "fV" else x,
    )
    defined = observe(call_body, op, tensors(wide))
    plain = observe(call_body, op, tensors(case))
    terms = max((x.size for _, x in case.arrays()), default=1)
    for k, (y, d, p) in enumerate(zip(actual, defined, plain, strict=True)):
        fault = difference(values_of(y), values_of(d), factor=max(1.0, terms**0.5 / 4))
        if fault:
            yield f"output {k}: {fault}"
        if (p.shape, p.dtype) != (y.shape, y.dtype):
            yield f"output {k}: the body gives {layout_of(p)}, the override {layout_of(y)}"


@each_op
def test_fast_path_is_the_slow_path(name: str) -> None:
    report(f"{case.label}: {f}" for case in all_cases(OPS[name]) for f in _fast_faults(case))


def _fast_faults(case: Case) -> Iterator[str]:
    before = [x.copy() for _, x in case.arrays()]
    results = [observe(run, case.op, tensors(case)) for run in PATHS.values()]
    for k, (fast, slow) in enumerate(zip(*results, strict=True)):
        if not same_bits(values_of(fast), values_of(slow)):
            yield f"output {k}: " + str(difference(values_of(fast), values_of(slow)))
        if fast._kind is not slow._kind:
            yield f"output {k}: {fast._kind} and {slow._kind}"
    if not all(same_bits(a, b) for a, (_, b) in zip(before, case.arrays(), strict=True)):
        yield "an input was changed"


# ---- 4 and 5: gradients


def _smooth(op: Op) -> list[Case]:
    """Return the samples whose gradient differences can show: not those that round to half."""
    return [
        case
        for case in samples(op)
        if op.differentiable
        and not writes(op)
        and any(is_floating(x) for _, x in case.arrays())
        and all(
            y.dtype is tfw.float64 and np.isfinite(values_of(y)).all()
            for y in observe(PATHS["fast"], op, tensors(case))
            if y.is_floating_point()
        )
    ]


@each_op
def test_gradient_is_the_slope(name: str) -> None:
    op = OPS[name]
    for case in _smooth(op):
        faults = gradients.check_first(gradients.Projection(case, rng_of(op)))
        report(f"{case.label}: {f}" for f in faults)


@each_op
def test_second_derivative_and_jvp(name: str) -> None:
    op = OPS[name]
    for case in _smooth(op):
        p = gradients.Projection(case, rng_of(op))
        if all(g is None for g in p.gradients()):
            continue
        faults = gradients.check_second(p)
        if op.jvp_rule is not None:
            faults += gradients.check_jvp_rule(p)
        report(f"{case.label}: {f}" for f in faults)


@each_op
def test_gradients_in_every_dtype_and_layout(name: str) -> None:
    op = OPS[name]
    if not op.differentiable or writes(op):
        return
    report(f"{case.label}: {f}" for case in all_cases(op) for f in _gradient_faults(case))


def _gradient_faults(case: Case) -> Iterator[str]:
    """Hold gradients to the inputs' shape and dtype, and both paths' to each other bit for bit."""
    found: list[list[Any]] = []
    for run in PATHS.values():
        args = tensors(case)
        leaves = [x.requires_grad_() for x in flat_tensors(args) if x.is_floating_point()]
        result = run(case.op, args)
        outputs = [y for y in flat_tensors(result) if y.requires_grad]
        if not leaves or not outputs:
            return
        rng = rng_of(case.op)
        seeds = [from_array(rng.standard_normal(y.shape).astype(y._a.dtype)) for y in outputs]
        found.append(list(tfw.autograd.grad(outputs, leaves, seeds, allow_unused=True)))
        for i, (g, x) in enumerate(zip(found[-1], leaves, strict=True)):
            if g is not None and (g.shape, g.dtype) != (x.shape, x.dtype):
                yield f"gradient {i} is {tuple(g.shape)}, {g.dtype} for {tuple(x.shape)}, {x.dtype}"
    for i, (fast, slow) in enumerate(zip(*found, strict=True)):
        if (fast is None) != (slow is None) or (
            fast is not None and not same_bits(values_of(fast), values_of(slow))
        ):
            yield f"gradient {i} differs between the paths"


# ---- 6: bad inputs


@each_op
def test_rejects(name: str) -> None:
    op = OPS[name]
    found = rejected.rejects_of(op)
    report(f for reject in found for f in rejected.check(op, reject))


@each_op
def test_devices_do_not_mix(name: str) -> None:
    op = OPS[name]
    report(f"{case.label}: {f}" for case in samples(op) for f in rejected.device_faults(case))


# ---- 7: docstrings


@each_op
def test_docstring(name: str) -> None:
    report(docs.faults_of(OPS[name].doc, internal=OPS[name].hidden))


_FUNCTIONS = sorted(
    n
    for n in vars(tfw)
    if not n.startswith("_")
    and callable(f := getattr(tfw, n))
    and getattr(f, "__module__", "").startswith("tfw.ops.")
    and not isinstance(f, type)
    and not hasattr(f, "op")
)


@pytest.mark.parametrize("name", _FUNCTIONS)
def test_docstring_of_public_function(name: str) -> None:
    report(docs.faults_of(getattr(tfw, name).__doc__ or ""))
