"""Blocks that stay in the cache: buffers per thread, computation dtype, maps over blocks."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from .memory import Array, empty
from .threads import parallel_for, run_quietly

# Elements per block at most. A pass costs 0.15 ns per element while its operands stay in the
# second-level cache (2 MiB per core here: three float32 buffers of this size take 1.5). Between two
# passes a thread needs the GIL and often has to sleep for it, so that smaller blocks scale badly:
# GELU of 2^20 elements takes 4.4, 2.4, 1.9 and 2.1 ms on two threads with blocks of 2^15, 16, 17
# and 18 (3.7 ms on one thread with any of them).
_LARGEST = 1 << 17
# Smaller ones serve to give two threads some work each.
_SMALLEST = 1 << 15
# Blocks begin at a cache line if the array does.
_LINE = 1024
SMALL = 1 << 11
COMPUTED = frozenset((np.dtype(np.float32), np.dtype(np.float64)))
_MAX_KEPT_BYTES = 1 << 22


class _Local(threading.local):
    def __init__(self) -> None:
        self.buffers: dict[int, Array] = {}


_local = _Local()


def compute_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the dtype to compute in: float32 for half-precision types, else the type itself."""
    dtype = np.dtype(dtype)
    return dtype if dtype.itemsize >= 4 else np.dtype(np.float32)


def scratch(slot: int, shape: tuple[int, ...], dtype: DTypeLike) -> Array:
    """Return this thread's buffer number `slot`, uninitialised; valid until asked for again.

    Fresh memory costs a page fault per 4 KiB, more than a pass over it. Buffers over 4 MiB are
    not kept.
    """
    dtype = np.dtype(dtype)
    size = dtype.itemsize
    for n in shape:
        size *= n
    if size > _MAX_KEPT_BYTES:
        return empty(shape, dtype)
    buffer = _local.buffers.get(slot)
    if buffer is None or buffer.size < size:
        buffer = _local.buffers[slot] = empty((size,), np.uint8)
    return buffer[:size].view(dtype).reshape(shape)


def load(x: Array, slot: int) -> Array:
    """Return x in its computation dtype and C order: itself if it is so, else a copy in `slot`."""
    dtype = compute_dtype(x.dtype)
    if x.dtype == dtype and x.flags.c_contiguous:
        return x
    copy = scratch(slot, x.shape, dtype)
    np.copyto(copy, x)
    return copy


def target(out: Array, slot: int) -> Array:
    """Return where to compute `out`: itself, or a buffer in `slot` that `store` rounds into it."""
    dtype = compute_dtype(out.dtype)
    if out.dtype == dtype and out.flags.c_contiguous:
        return out
    return scratch(slot, out.shape, dtype)


def store(result: Array, out: Array) -> None:
    """Round `result` into `out` unless it was computed there."""
    if result is not out:
        np.copyto(out, result, casting="unsafe")


def block_size(n: int) -> int:
    """Return how many of n elements make a block: a function of n alone."""
    return min(_LARGEST, max(_SMALLEST, -(-n // (2 * _LINE)) * _LINE))


def is_small(*arrays: Array) -> bool:
    """Tell whether arrays of one shape are best worked on as they are, in one piece.

    Up to SMALL elements the calls cost more than the work, and cutting only adds calls.
    """
    if arrays[0].size > SMALL:
        return False
    return all(x.dtype in COMPUTED and x.flags.c_contiguous for x in arrays)


def rows_per_block(n_rows: int, n_columns: int) -> int:
    """Return how many rows make a block (at least one), so that all blocks are about equal."""
    n_blocks = n_rows * n_columns / block_size(n_rows * n_columns)
    return max(1, math.ceil(n_rows / max(1, math.ceil(n_blocks))))


def memory_order(x: Array) -> list[int]:
    """Return the axes of x from the largest stride to the smallest; ties keep their order."""
    return sorted(range(x.ndim), key=lambda axis: -abs(x.strides[axis]))


def flatten(x: Array, order: list[int]) -> Array | None:
    """Return x as a 1-D view with its axes taken in `order`, or None where that needs a copy."""
    x = x.transpose(order)
    return x.reshape(-1) if x.flags.c_contiguous else None


def map_blocks(body: Callable[..., object], out: Array | tuple[Array, ...], *inputs: Array) -> None:
    """Call `body(*out_blocks, *input_blocks)` on 1-D contiguous blocks in the computation dtype.

    All arrays have one shape, outputs one memory order; inputs may be an output. Buffers 0 to 3
    belong to this function, later ones to the body.
    """
    outputs = out if isinstance(out, tuple) else (out,)
    arrays = (*outputs, *inputs)
    if is_small(*arrays) and not any(np.may_share_memory(x, y) for x in inputs for y in outputs):
        run_quietly(body, *[x.reshape(-1) for x in arrays])
        return
    order = memory_order(outputs[0])
    flat_outputs = [flatten(x, order) for x in outputs]
    targets = [x for x in flat_outputs if x is not None]
    if len(targets) < len(outputs):
        layouts = [(x.shape, x.strides) for x in outputs]
        raise ValueError(f"map_blocks: outputs have gaps or differ in order: {layouts}")
    flat: list[Array] = []
    for x in inputs:
        view = flatten(x, order)
        if view is None or any(np.may_share_memory(x, y) for y in outputs):
            view = np.array(x.transpose(order), order="C").reshape(-1)
        flat.append(view)

    def block(start: int, stop: int) -> None:
        out_blocks = [x[start:stop] for x in targets]
        results = [target(x, slot) for slot, x in enumerate(out_blocks)]
        loaded = [load(x[start:stop], slot) for slot, x in enumerate(flat, len(targets))]
        body(*results, *loaded)
        for result, out_block in zip(results, out_blocks, strict=True):
            store(result, out_block)

    n = targets[0].size
    parallel_for(n, block_size(n), block)
