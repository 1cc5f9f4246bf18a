"""All calls that an op is checked on: its samples in every dtype, and the hard variants."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import cache

from harness.calls import FLOATS, Case, applies, as_dtype, samples, taken
from harness.variants import extremes, hard_variants
from tfw import dtypes
from tfw.registry import Op


def base_cases(op: Op) -> Iterator[Case]:
    """Yield the samples in every dtype that the op takes."""
    for d in taken(op):
        for case in samples(op):
            typed = as_dtype(case, d)._replace(label=f"{d.name}, {case.label}")
            if d in FLOATS or applies(typed):
                yield typed


@cache
def all_cases(op: Op) -> list[Case]:
    """Return all cases of an op, made once."""
    return list(_all_cases(op))


def _all_cases(op: Op) -> Iterator[Case]:
    """Yield samples in every dtype; all variants in float32, a rotating one in other dtypes."""
    yield from base_cases(op)
    for k, case in enumerate(samples(op)):
        variants = hard_variants(as_dtype(case, dtypes.float32))
        for variant in variants:
            yield variant._replace(label=f"float32, {case.label}, {variant.label}")
        for d in taken(op):
            if d in FLOATS and d is not dtypes.float32 and variants:
                turn = zlib.crc32(f"{op.name} {d.name} {k}".encode()) % len(variants)
                variant = as_dtype(variants[turn], d)
                if applies(variant):
                    yield variant._replace(label=f"{d.name}, {case.label}, {variant.label}")
            elif d not in FLOATS:
                variant = extremes(case, d)
                if applies(variant):
                    yield variant._replace(label=f"{case.label}, {variant.label}")
