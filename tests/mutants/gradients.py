"""Faults in the engine, in modes and hooks, and in gradients of ops."""

from __future__ import annotations

from mutants.mutant import Mutant

BACKWARD = "tests/autograd/test_backward.py::"
HOOKS = "tests/autograd/test_gradient_hooks.py::"
MODES = "tests/autograd/test_grad_modes.py::"
KINKS = "tests/test_dispatch.py::test_gradients_at_kinks_and_of_what_was_not_chosen"
SLOPE = "tests/test_ops.py::test_gradient_is_the_slope"

MUTANTS = [
    Mutant(
        "oldest-node-first",
        "tfw/autograd/engine.py",
        "heapq.heappush(heap, (-edge.sequence, edge))",
        "heapq.heappush(heap, (edge.sequence, edge))",
        (BACKWARD + "test_paths_that_meet_add_up",),
    ),
    Mutant(
        "leaves-in-the-order-of-their-first-use",
        "tfw/autograd/engine.py",
        "self._leaves.pop(id(edge), None)",
        "self._leaves.get(id(edge))",
        (HOOKS + "test_leaves_complete_in_the_order_of_their_last_use",),
    ),
    Mutant(
        "grad-mode-lost-after-an-exception",
        "tfw/autograd/calls.py",
        "    finally:\n        state.grad_enabled = before\n    return walk.found",
        "    except ZeroDivisionError:\n        pass\n    state.grad_enabled = before\n"
        "    return walk.found",
        (BACKWARD + "test_a_failed_backward_leaves_no_half_gradient_and_no_mode_behind",),
    ),
    Mutant(
        "grad-mode-not-restored-by-its-context",
        "tfw/autograd/modes.py",
        "*exc: object) -> None:\n        state.grad_enabled = self._before\n",
        "*exc: object) -> None:\n        state.grad_enabled = True\n",
        (MODES + "test_contexts_nest_and_restore",),
    ),
    Mutant(
        "modes-shared-by-threads",
        "tfw/runtime/thread_state.py",
        "class ThreadState(threading.local):",
        "class ThreadState:",
        (MODES + "test_every_thread_has_its_own_modes",),
    ),
    Mutant(
        "what-a-hook-returns-ignored",
        "tfw/autograd/engine.py",
        "            g = replaced\n",
        "",
        (HOOKS + "test_tensor_hook_sees_and_replaces",),
    ),
    Mutant(
        "prehooks-before-grad-collects",
        "tfw/autograd/engine.py",
        "        if node._retained is not None:\n            for",
        "        if node._prehooks is not None:\n            grads = _run_prehooks(node, grads)\n"
        "        if node._retained is not None:\n            for",
        (HOOKS + "test_retained_gradient_is_the_one_after_tensor_hooks",),
    ),
    Mutant(
        "nan-not-looked-for",
        "tfw/autograd/engine.py",
        "bool(any_(ne(g, g)))",
        "not bool(any_(g))",
        ("tests/autograd/test_anomaly.py::test_nan_is_found_where_it_arises",),
    ),
    Mutant(
        "unused-outputs-not-materialized",
        "tfw/autograd/function.py",
        "        if ctx._materialize:\n",
        "        if False:\n",
        (
            "tests/autograd/test_autograd_function.py"
            "::test_several_outputs_with_unused_ones_materialized",
        ),
    ),
    Mutant(
        "backward-of-function-recorded-always",
        "tfw/autograd/calls.py",
        "    state.grad_enabled = create_graph\n",
        "    state.grad_enabled = True\n",
        (BACKWARD + "test_create_graph_keeps_the_graph_unless_told_otherwise",),
    ),
    Mutant(
        "unbroadcast-missing",
        "tfw/recording.py",
        "                    result[i] = _sum_to(g, shape)\n",
        "                    pass\n",
        (BACKWARD + "test_several_roots",),
    ),
    Mutant(
        "input-saved-for-output",
        "tfw/recording.py",
        '("outputs" if tag.startswith("output") else "inputs")',
        '"inputs"',
        (BACKWARD + "test_three_orders", SLOPE + "[exp]"),
    ),
    Mutant(
        "mul-gradients-swapped",
        "tfw/ops/elementwise.py",
        "mul.vjp(input=lambda g, other: mul(g, other), other=lambda g, input: mul(g, input))",
        "mul.vjp(other=lambda g, other: mul(g, other), input=lambda g, input: mul(g, input))",
        (HOOKS + "test_node_hooks_see_gradients_on_both_sides", SLOPE + "[mul]"),
    ),
    Mutant(
        "quotient-keeps-its-result",
        "tfw/ops/elementwise.py",
        "other=lambda g, input, other: neg(div(mul(g, div(input, other)), other))",
        "other=lambda g, y, other: neg(div(mul(g, y), other))",
        ("tests/autograd/test_inplace_assign.py::test_what_an_op_does_not_need_may_change",),
    ),
    Mutant(
        "where-multiplies",
        "tfw/ops/compare.py",
        "    input=lambda g, condition: where(condition, g, 0.0),\n",
        "    input=lambda g, condition: g * condition,\n",
        (KINKS,),
    ),
    Mutant(
        "relu-slope-at-zero",
        "tfw/ops/elementwise.py",
        "choose(np.less_equal(y, _ZERO[y.dtype])",
        "choose(np.less(y, _ZERO[y.dtype])",
        (KINKS,),
    ),
    Mutant(
        "reduced-dims-not-restored",
        "tfw/ops/reduce.py",
        "    if keepdim or not spec.shape:\n        return g\n",
        "    if True:\n        return g\n",
        (SLOPE + "[sum]",),
    ),
    Mutant(
        "cat-gradients-in-reverse",
        "tfw/ops/join.py",
        "else None for x in tensors_spec]",
        "else None for x in tensors_spec][::-1]",
        (SLOPE + "[cat]",),
    ),
    Mutant(
        "overwritten-part-keeps-its-gradient",
        "tfw/ops/parts.py",
        "    return view_scatter(g, zeros_of(src_spec.shape, g), view_op, attrs, index)\n",
        "    return g\n",
        ("tests/autograd/test_inplace_views.py::test_mul_needs_the_value_it_overwrites",),
    ),
    Mutant(
        "cross-entropy-gradient-of-ignored-rows",
        "tfw/runtime/cpu/losses.py",
        "    valid = targets != ignore_index\n    smooth",
        "    valid = targets == targets\n    smooth",
        (SLOPE + "[cross_entropy_rows]",),
    ),
    Mutant(
        "layer-norm-gradient-without-its-mean",
        "tfw/runtime/cpu/norm.py",
        "        np.add(result, shift[:, None], out=result)\n",
        "",
        (SLOPE + "[layer_norm_stats]",),
    ),
    Mutant(
        "padding-row-gets-a-gradient",
        "tfw/runtime/cpu/embedding.py",
        "    if padding_idx is not None:\n",
        "    if False:\n",
        ("tests/test_ops.py::test_values_are_the_references[embedding_grad]",),
    ),
]
