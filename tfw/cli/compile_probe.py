"""Compile one tiny kernel for each architecture and print the outcome as JSON.

Run as a program of its own: Triton reads its settings when it is imported, and a compiler that
crashes must not take `tfw doctor` with it.
"""

# pyright: basic
# Triton's language has no types to check against.

from __future__ import annotations

import json
import sys
import time

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource


@triton.jit
def double_kernel(x_ptr, y_ptr, n, BLOCK: tl.constexpr):  # noqa: N803 - a compile-time value
    """Write y = 2 x."""
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n, other=0.0)
    tl.store(y_ptr + offsets, x * 2.0, mask=offsets < n)


def probe(capability: int) -> dict[str, object]:
    """Return whether the kernel compiles for `capability`, such as 90, and how fast or why not."""
    source = ASTSource(
        fn=double_kernel,
        signature={"x_ptr": "*fp32", "y_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": 128},
    )
    started = time.perf_counter()
    try:
        target = GPUTarget("cuda", capability, 32)
        # The default of enable_fp_fusion is changing between releases, and Triton warns of it.
        compiled = triton.compile(source, target=target, options={"enable_fp_fusion": True})
        cubin_bytes = len(compiled.asm["cubin"])
    # Whatever a compiler may raise is the answer here, not a fault of this program.
    except Exception as error:
        message = (str(error).strip().splitlines() or [""])[0]
        return {"ok": False, "detail": f"{type(error).__name__}: {message}"}
    elapsed_ms = (time.perf_counter() - started) * 1e3
    return {"ok": True, "detail": f"{cubin_bytes} bytes in {elapsed_ms:.0f} ms"}


if __name__ == "__main__":
    outcome = {f"sm_{number}": probe(int(number)) for number in sys.argv[1:]}
    sys.stdout.write(json.dumps(outcome) + "\n")
