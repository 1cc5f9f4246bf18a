"""Faults in values, dtypes, bounds, random numbers and the fast path."""

from __future__ import annotations

from mutants.mutant import Mutant

VALUES = "tests/test_ops.py::test_values_are_the_references"
REJECTS = "tests/test_ops.py::test_rejects"
DISPATCH = "tests/test_dispatch.py::"

MUTANTS = [
    Mutant(
        "softmax-without-the-maximum",
        "tfw/runtime/cpu/softmax.py",
        "        np.subtract(x, axis_max(x, axis), out=y)\n        np.exp(y, out=y)\n",
        "        np.exp(x, out=y)\n",
        (VALUES + "[softmax_along]",),
    ),
    Mutant(
        "softmax-bound-too-wide",
        "tfw/runtime/cpu/softmax.py",
        "np.dtype(np.float32): 40.0",
        "np.dtype(np.float32): 100.0",
        (DISPATCH + "test_softmax_of_values_whose_exponential_overflows",),
    ),
    Mutant(
        "causal-mask-off-by-one",
        "tfw/runtime/cpu/attention.py",
        "rows.start - start + 1",
        "rows.start - start + 2",
        ("tests/runtime/test_cpu_attention.py",),
    ),
    Mutant(
        "dropout-not-scaled",
        "tfw/ops/dropout.py",
        "x.dtype.type(1 / (1 - p))",
        "x.dtype.type(1)",
        (VALUES + "[dropout_at]",),
    ),
    Mutant(
        "philox-counter-off-by-one",
        "tfw/runtime/cpu/philox.py",
        "np.uint64(first % (1 << 64))",
        "np.uint64((first + 1) % (1 << 64))",
        ("tests/runtime/test_cpu_philox.py",),
    ),
    Mutant(
        "philox-nine-rounds",
        "tfw/runtime/cpu/philox.py",
        "_ROUNDS = 10",
        "_ROUNDS = 9",
        ("tests/runtime/test_cpu_philox.py",),
    ),
    Mutant(
        "half-accumulation",
        "tfw/runtime/cpu/backend.py",
        "return _round(half, state.run(rule, *map(_widen, inputs), *attrs))",
        "return _arrays(state.run(rule, *inputs, *attrs))",
        (DISPATCH + "test_half_types_are_computed_in_float32_and_rounded_once",),
    ),
    Mutant(
        "index-bound-off-by-one",
        "tfw/ops/take.py",
        "i.max() >= n",
        "i.max() > n",
        (REJECTS + "[take_at]",),
    ),
    Mutant(
        "embedding-bound-off-by-one",
        "tfw/ops/embedding.py",
        "input.item(input.argmax()) >= n",
        "input.item(input.argmax()) > n",
        (REJECTS + "[embedding_rows]",),
    ),
    Mutant(
        "promotion-rank-wrong",
        "tfw/dtypes.py",
        "        if lower.category > result.category:\n",
        "        if lower.category >= result.category:\n",
        (DISPATCH + "test_promotion_knows_three_ranks",),
    ),
    Mutant(
        "half-types-promote-to-the-first",
        "tfw/dtypes.py",
        "        return float32\n    return a if",
        "        return a\n    return a if",
        (DISPATCH + "test_promotion_knows_three_ranks",),
    ),
    Mutant(
        "zeros-of-both-signs-confused",
        "tfw/fastpath.py",
        "    if found is None or value == 0:",
        "    if found is None:",
        (DISPATCH + "test_numbers_that_compare_equal_are_told_apart",),
    ),
    Mutant(
        "interception-ignored-by-the-fast-path",
        "tfw/templates.py",
        'UNARY = """\n        try:\n            if _dispatch.intercept is None{guard}:\n'
        "                kind = fast[{x}._kind]\n                value = state",
        'UNARY = """\n        try:\n            if True{guard}:\n'
        "                kind = fast[{x}._kind]\n                value = state",
        (DISPATCH + "test_an_interceptor_sees_every_style_of_call[unary]",),
    ),
    Mutant(
        "interceptor-left-behind-by-an-error",
        "tfw/dispatch.py",
        "    try:\n        yield\n    finally:\n        state.handler = outer\n",
        "    try:\n        yield\n        state.handler = outer\n    finally:\n",
        (DISPATCH + "test_interceptors_nest_and_an_error_removes_them",),
    ),
    Mutant(
        "floating-result-stored-in-integers",
        "tfw/dtypes.py",
        "    return to.category >= from_.category\n",
        "    return True\n",
        ("tests/autograd/test_inplace_assign.py::test_values_that_do_not_fit",),
    ),
    Mutant(
        "extra-of-errors-lost-in-pickles",
        "tfw/errors.py",
        "    error.__dict__.update(fields)\n",
        "",
        ("tests/test_errors.py::test_error_crosses_a_process_border_with_its_notes_and_extras",),
    ),
]
