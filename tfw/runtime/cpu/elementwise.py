"""NumPy functions over large arrays, block by block over threads."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from .blocks import block_size, flatten, memory_order, rows_per_block
from .memory import Array, empty
from .threads import parallel_for

# From this many elements on two threads beat one call. Waking a thread costs 50 us: add takes 24 us
# for 2^17 elements and 100 threaded, 205 us for 2^18 and 110 threaded.
THREADED_SIZE = 1 << 18


def _is_array(x: object) -> TypeGuard[Array]:
    return isinstance(x, np.ndarray) and x.ndim > 0


def threaded(fn: Callable[..., Any], n_inputs: int) -> Callable[..., Array]:
    """Return fn for large arrays: an elementwise function of n_inputs arrays, then maybe `out`.

    Inputs are arrays in C order that broadcast, or 0-d.
    """

    def run(*args: Array) -> Array:
        inputs = args[:n_inputs]
        if len(args) > n_inputs:
            out = args[n_inputs]
            if any(x is not out and np.may_share_memory(x, out) for x in inputs):
                return fn(*args)  # which copies what it would overwrite too early
            return threaded_ufunc(fn, inputs, out)
        shape = np.broadcast_shapes(*[x.shape for x in inputs])
        dtype = fn(*[x.reshape(-1)[:1] for x in inputs]).dtype
        return threaded_ufunc(fn, inputs, empty(shape, dtype))

    return run


def threaded_ufunc(fn: Callable[..., Any], inputs: tuple[object, ...], out: Array) -> Array:
    """Run `fn(*inputs, out=out)` block by block over threads.

    fn is elementwise; inputs are arrays that broadcast to out's shape, or scalars. Worth it from
    THREADED_SIZE elements on.
    """
    arrays = [x for x in inputs if _is_array(x)]
    order = memory_order(out)
    views = [flatten(x, order) for x in (out, *arrays) if x.shape == out.shape]
    if len(views) == 1 + len(arrays) and all(view is not None for view in views):
        # All in one memory order: blocks of a flat array.
        parts: list[Any] = views
        grain = block_size(out.size)
    else:
        # Broadcast or strided: cut along the axis whose slices lie farthest apart.
        if not out.ndim:
            fn(*inputs, out=out)
            return out
        parts = [np.broadcast_to(x, out.shape).swapaxes(0, order[0]) for x in arrays]
        parts.insert(0, out.swapaxes(0, order[0]))
        grain = rows_per_block(len(parts[0]), math.prod(parts[0].shape[1:]))

    def block(start: int, stop: int) -> None:
        target, *sources = [x[start:stop] for x in parts]
        source = iter(sources)
        fn(*[next(source) if _is_array(x) else x for x in inputs], out=target)

    parallel_for(len(parts[0]), grain, block)
    return out
