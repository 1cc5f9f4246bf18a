"""Concatenation over threads."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from .blocks import rows_per_block
from .elementwise import THREADED_SIZE
from .memory import Array, empty
from .threads import parallel_for


def concatenate(arrays: Sequence[Array], axis: int) -> Array:
    """Return arrays of one dtype one after the other along an axis, as `np.concatenate` does.

    A large result is in C order, and each thread writes rows of its own.
    """
    first = arrays[0]
    if len(arrays) * first.size < THREADED_SIZE or not axis % first.ndim:
        return np.concatenate(arrays, axis)
    shape = list(first.shape)
    shape[axis] = sum(x.shape[axis] for x in arrays)
    out = empty(tuple(shape), first.dtype)

    def rows(start: int, stop: int) -> None:
        np.concatenate([x[start:stop] for x in arrays], axis, out=out[start:stop])

    parallel_for(shape[0], rows_per_block(shape[0], math.prod(shape[1:])), rows)
    return out
