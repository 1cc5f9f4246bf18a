"""Softmax and log-softmax along any dim, and their gradients.

A program takes a block of rows. Rows of up to 32,768 columns fit one block: each element is read
once and written once. Longer rows are read twice: the forward pass keeps a running maximum and a
sum that is rescaled when the maximum grows, the gradient a running sum, and a second pass writes.

Rows need not lie in runs: three merged outer dims with any strides, and any stride along the row; a
block then takes many rows, so that memory is still read in runs where the rows lie side by side.

Limits: four dims after merging, else the op's body runs; 2^31 rows. Half types compute in float32.
A row of -inf, or one with +inf or NaN, gives NaN. Source: M. Milakov and N. Gimelshein 2018, Online
normalizer calculation for softmax, arXiv:1805.02867.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import triton
import triton.language as tl

from tfw.kernels.build import build_plan
from tfw.kernels.walk import merge_dims
from tfw.ops.softmax import log_softmax_along, log_softmax_grad, softmax_along, softmax_grad
from tfw.runtime.cuda.plan import Plan
from tfw.shapes import Spec

# ---- device helpers


@triton.jit
def _widen(x):
    return x if x.dtype == tl.float64 else x.to(tl.float32)


@triton.jit
def _rows_of_block(ROWS: tl.constexpr, WIDE: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    return rows.to(tl.int64) if WIDE else rows


@triton.jit
def _mask(rows, n_rows, ROWS: tl.constexpr):
    """Which rows are there: a block of one row always is."""
    return rows >= 0 if ROWS == 1 else rows < n_rows


@triton.jit
def _cols_of_block(start, COLS: tl.constexpr, WIDE: tl.constexpr):
    cols = start + tl.arange(0, COLS)[None, :]
    return cols.to(tl.int64) if WIDE else cols


@triton.jit
def _row_offsets(rows, size_0, size_1, stride_0, stride_1, stride_2):
    """Where rows start; dim 0 is the innermost of the outer dims."""
    outer = rows // size_0
    return rows % size_0 * stride_0 + outer % size_1 * stride_1 + outer // size_1 * stride_2


# ---- kernels


@triton.jit
def softmax_kernel(
    x_ptr, y_ptr, n_rows, n_cols, size_0, size_1,
    x_stride_0, x_stride_1, x_stride_2, x_stride_col,
    y_stride_0, y_stride_1, y_stride_2, y_stride_col,
    ROWS: tl.constexpr, COLS: tl.constexpr, LOG: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Rows that fit a block."""
    rows = _rows_of_block(ROWS, WIDE)
    cols = _cols_of_block(0, COLS, WIDE)
    mask = _mask(rows, n_rows, ROWS) & (cols < n_cols)
    x_rows = _row_offsets(rows, size_0, size_1, x_stride_0, x_stride_1, x_stride_2)
    y_rows = _row_offsets(rows, size_0, size_1, y_stride_0, y_stride_1, y_stride_2)
    x = _widen(tl.load(x_ptr + x_rows + cols * x_stride_col, mask=mask, other=float("-inf")))
    shifted = x - tl.max(x, axis=1, keep_dims=True)
    e = tl.exp(shifted)
    total = tl.sum(e, axis=1, keep_dims=True)
    y = shifted - tl.log(total) if LOG else e / total
    tl.store(y_ptr + y_rows + cols * y_stride_col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_loop_kernel(
    x_ptr, y_ptr, n_rows, n_cols, size_0, size_1,
    x_stride_0, x_stride_1, x_stride_2, x_stride_col,
    y_stride_0, y_stride_1, y_stride_2, y_stride_col,
    ROWS: tl.constexpr, COLS: tl.constexpr, LOG: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Rows longer than a block, in two passes."""
    rows = _rows_of_block(ROWS, WIDE)
    row_mask = _mask(rows, n_rows, ROWS)
    x_rows = x_ptr + _row_offsets(rows, size_0, size_1, x_stride_0, x_stride_1, x_stride_2)
    y_rows = y_ptr + _row_offsets(rows, size_0, size_1, y_stride_0, y_stride_1, y_stride_2)
    zero = tl.zeros((ROWS, 1), tl.float64 if x_ptr.dtype.element_ty == tl.float64 else tl.float32)
    highest, total = zero - float("inf"), zero
    for start in range(0, n_cols, COLS):
        cols = _cols_of_block(start, COLS, WIDE)
        mask = row_mask & (cols < n_cols)
        x = _widen(tl.load(x_rows + cols * x_stride_col, mask=mask, other=float("-inf")))
        higher = tl.maximum(highest, tl.max(x, axis=1, keep_dims=True))
        # As long as only -inf came, -inf - -inf must not make NaN of the sum.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(highest - base) + tl.sum(tl.exp(x - base), axis=1, keep_dims=True)
        highest = higher
    for start in range(0, n_cols, COLS):
        cols = _cols_of_block(start, COLS, WIDE)
        mask = row_mask & (cols < n_cols)
        x = _widen(tl.load(x_rows + cols * x_stride_col, mask=mask, other=float("-inf")))
        shifted = x - highest
        y = shifted - tl.log(total) if LOG else tl.exp(shifted) / total
        tl.store(y_rows + cols * y_stride_col, y.to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_grad_kernel(
    grad_ptr, y_ptr, dx_ptr, n_rows, n_cols, size_0, size_1,
    grad_stride_0, grad_stride_1, grad_stride_2, grad_stride_col,
    y_stride_0, y_stride_1, y_stride_2, y_stride_col,
    dx_stride_0, dx_stride_1, dx_stride_2, dx_stride_col,
    ROWS: tl.constexpr, COLS: tl.constexpr, LOG: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Gradient for rows that fit a block."""
    rows = _rows_of_block(ROWS, WIDE)
    cols = _cols_of_block(0, COLS, WIDE)
    mask = _mask(rows, n_rows, ROWS) & (cols < n_cols)
    g_rows = _row_offsets(rows, size_0, size_1, grad_stride_0, grad_stride_1, grad_stride_2)
    y_rows = _row_offsets(rows, size_0, size_1, y_stride_0, y_stride_1, y_stride_2)
    dx_rows = _row_offsets(rows, size_0, size_1, dx_stride_0, dx_stride_1, dx_stride_2)
    g = _widen(tl.load(grad_ptr + g_rows + cols * grad_stride_col, mask=mask, other=0.0))
    y = _widen(tl.load(y_ptr + y_rows + cols * y_stride_col, mask=mask, other=0.0))
    total = tl.sum(g if LOG else g * y, axis=1, keep_dims=True)
    dx = g - tl.exp(y) * total if LOG else y * (g - total)
    tl.store(dx_ptr + dx_rows + cols * dx_stride_col, dx.to(dx_ptr.dtype.element_ty), mask=mask)


@triton.jit
def softmax_grad_loop_kernel(
    grad_ptr, y_ptr, dx_ptr, n_rows, n_cols, size_0, size_1,
    grad_stride_0, grad_stride_1, grad_stride_2, grad_stride_col,
    y_stride_0, y_stride_1, y_stride_2, y_stride_col,
    dx_stride_0, dx_stride_1, dx_stride_2, dx_stride_col,
    ROWS: tl.constexpr, COLS: tl.constexpr, LOG: tl.constexpr, WIDE: tl.constexpr,
):  # fmt: skip
    """Gradient for rows longer than a block, in two passes."""
    rows = _rows_of_block(ROWS, WIDE)
    row_mask = _mask(rows, n_rows, ROWS)
    g_rows = grad_ptr + _row_offsets(
        rows, size_0, size_1, grad_stride_0, grad_stride_1, grad_stride_2
    )
    y_rows = y_ptr + _row_offsets(rows, size_0, size_1, y_stride_0, y_stride_1, y_stride_2)
    dx_rows = dx_ptr + _row_offsets(rows, size_0, size_1, dx_stride_0, dx_stride_1, dx_stride_2)
    total = tl.zeros((ROWS, 1), tl.float64 if y_ptr.dtype.element_ty == tl.float64 else tl.float32)
    for start in range(0, n_cols, COLS):
        cols = _cols_of_block(start, COLS, WIDE)
        mask = row_mask & (cols < n_cols)
        g = _widen(tl.load(g_rows + cols * grad_stride_col, mask=mask, other=0.0))
        if not LOG:
            g = g * _widen(tl.load(y_rows + cols * y_stride_col, mask=mask, other=0.0))
        total += tl.sum(g, axis=1, keep_dims=True)
    for start in range(0, n_cols, COLS):
        cols = _cols_of_block(start, COLS, WIDE)
        mask = row_mask & (cols < n_cols)
        g = _widen(tl.load(g_rows + cols * grad_stride_col, mask=mask, other=0.0))
        y = _widen(tl.load(y_rows + cols * y_stride_col, mask=mask, other=0.0))
        dx = g - tl.exp(y) * total if LOG else y * (g - total)
        tl.store(dx_rows + cols * dx_stride_col, dx.to(dx_ptr.dtype.element_ty), mask=mask)


# ---- plans

_LONGEST = 32768  # elements of a block, of all inputs together
_LOOP = 4096  # elements of a block of a longer row
_ELEMENTS = 2048  # of a block of several rows
_SIDE, _LEAST_SIDE = 64, 16  # rows of a block whose rows lie side by side


def _plan(
    one_block: Any,
    looped: Any,
    inputs: dict[str, Spec],
    outputs: dict[str, Spec],
    dim: int,
    log: bool,
) -> Plan | None:
    """Return the plan for tensors of one shape, or None if their rows lie in too many dims."""
    tensors = {**inputs, **outputs}
    (out,) = outputs.values()
    shape = out.shape or (1,)
    dim %= len(shape)
    n_cols = shape[dim]
    strides = {name: s.strides or (1,) for name, s in tensors.items()}
    rest = shape[:dim] + shape[dim + 1 :]
    sizes, merged = merge_dims(rest, [s[:dim] + s[dim + 1 :] for s in strides.values()])
    if len(sizes) > 3:
        return None
    # The outermost place costs no division, so a single dim goes there.
    empty = 3 - len(sizes)
    sizes = (1,) * empty + sizes
    n_rows = math.prod(rest)
    integers = {"n_rows": n_rows, "n_cols": n_cols, "size_0": sizes[0], "size_1": sizes[1]}
    for (name, all_strides), outer in zip(strides.items(), merged, strict=True):
        prefix = name.removesuffix("_ptr")
        for k, stride in enumerate((0,) * empty + outer):
            integers[f"{prefix}_stride_{k}"] = stride if sizes[k] != 1 else 0
        integers[f"{prefix}_stride_col"] = all_strides[dim]
    wide = max(math.prod(shape), *(_reach(shape, s) for s in strides.values())) >= 2**31 - 2**20
    in_runs = n_cols == 1 or all(s[dim] == 1 for s in strides.values())
    rows, cols, num_warps = _blocks(n_rows, n_cols, in_runs, len(inputs))
    constants = {"ROWS": rows, "COLS": cols, "LOG": log, "WIDE": wide}
    if cols == n_cols:  # known to the compiler, it drops the mask
        constants["n_cols"] = integers.pop("n_cols")
    grid = 0 if 0 in shape else -(-n_rows // rows)
    return build_plan(
        one_block if cols >= n_cols else looped,
        grid,
        inputs=inputs,
        outputs=outputs,
        integers=integers,
        constants=constants,
        num_warps=num_warps,
    )


def _reach(shape: Sequence[int], strides: Sequence[int]) -> int:
    return sum((n - 1) * abs(s) for n, s in zip(shape, strides, strict=True))


def _blocks(n_rows: int, n_cols: int, in_runs: bool, n_inputs: int) -> tuple[int, int, int]:
    """Return rows and columns of a block, and its warps."""
    whole = 1 << max(n_cols - 1, 0).bit_length()
    most_rows = 1 << max(n_rows - 1, 0).bit_length()
    # Elements of one thread: so many that 64 warps' registers fit a processor.
    per_thread = 16 // n_inputs
    if in_runs:
        if whole * n_inputs > _LONGEST:
            return 1, _LOOP, _LOOP // (32 * per_thread)
        rows = max(1, min(_ELEMENTS // whole, most_rows))
        return rows, whole, max(1, min(32, rows * whole // (32 * per_thread)))
    rows = min(_SIDE, most_rows)
    while rows > _LEAST_SIDE and rows * whole > 2 * _LOOP // n_inputs:
        rows //= 2
    if rows * whole <= 2 * _LOOP // n_inputs:
        return rows, whole, 8
    rows = min(_SIDE, most_rows)
    return rows, _LOOP // rows // n_inputs, 8


@softmax_along.kernel("cuda")
def _(y: Spec, x: Spec, dim: int) -> Plan | None:
    return _plan(softmax_kernel, softmax_loop_kernel, {"x_ptr": x}, {"y_ptr": y}, dim, False)


@log_softmax_along.kernel("cuda")
def _(y: Spec, x: Spec, dim: int) -> Plan | None:
    return _plan(softmax_kernel, softmax_loop_kernel, {"x_ptr": x}, {"y_ptr": y}, dim, True)


@softmax_grad.kernel("cuda")
def _(dx: Spec, grad: Spec, y: Spec, dim: int) -> Plan | None:
    inputs = {"grad_ptr": grad, "y_ptr": y}
    return _plan(softmax_grad_kernel, softmax_grad_loop_kernel, inputs, {"dx_ptr": dx}, dim, False)


@log_softmax_grad.kernel("cuda")
def _(dx: Spec, grad: Spec, y: Spec, dim: int) -> Plan | None:
    inputs = {"grad_ptr": grad, "y_ptr": y}
    return _plan(softmax_grad_kernel, softmax_grad_loop_kernel, inputs, {"dx_ptr": dx}, dim, True)
