"""How ops are computed on a GPU. Loaded by name when a CUDA device is first used.

`plan` is the one entry: it asks the op's own kernel slot, and for elementwise ops without one the
emitter. The modules of kernels attach their plans to ops when they are imported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tfw.kernels import softmax as softmax
from tfw.kernels.elementwise import plan_elementwise
from tfw.registry import Op
from tfw.runtime.cuda.plan import Plan
from tfw.shapes import Spec


def plan(
    op: Op, outputs: Sequence[Spec], inputs: Sequence[Spec], attrs: Sequence[Any]
) -> Plan | None:
    """Return how to run an op on tensors laid out as the Specs say, or None if it has no kernel.

    Args:
        op: the op.
        outputs: what `op.infer` says of the results.
        inputs: Specs of the inputs; a number is a 0-d Spec on the CPU, passed by value.
        attrs: the op's other arguments.

    """
    slot = op.rules.get("cuda")
    if slot is not None:
        return slot(*outputs, *inputs, *attrs)
    if op.pointwise:
        return plan_elementwise(op, outputs, inputs, attrs)
    return None
