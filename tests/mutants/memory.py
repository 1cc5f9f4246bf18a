"""Faults in versions, views, in-place rules and who shares memory with whom."""

from __future__ import annotations

from mutants.mutant import Mutant

ASSIGN = "tests/autograd/test_inplace_assign.py::"
VIEWS = "tests/autograd/test_inplace_views.py::"
REFUSED = "tests/autograd/test_inplace_refusals.py::"
ACCUMULATION = "tests/autograd/test_accumulation.py::"
MEMORY = "tests/autograd/test_memory_rules.py::"

MUTANTS = [
    Mutant(
        "version-not-bumped",
        "tfw/inplace.py",
        "        cell[0] += 1\n",
        "        pass\n",
        (ASSIGN + "test_versions_count_changes",),
    ),
    Mutant(
        "version-not-bumped-on-the-fast-path",
        "tfw/templates.py",
        "                    cell[0] += 1\n",
        "",
        (ASSIGN + "test_versions_count_changes",),
    ),
    Mutant(
        "version-not-checked",
        "tfw/graph.py",
        "    if saved.cell[0] != saved.version:\n",
        "    if False:\n",
        (ASSIGN + "test_values_saved_before_a_change_are_noticed",),
    ),
    Mutant(
        "rebase-forgotten",
        "tfw/inplace.py",
        "    set_history(parent, out._node)\n",
        "",
        (VIEWS + "test_two_overlapping_views",),
    ),
    Mutant(
        "view-not-replayed",
        "tfw/graph.py",
        "(view.node is not None and view.version == tensor._cell[0])",
        "view.node is not None",
        (VIEWS + "test_base_modified_after_the_view",),
    ),
    Mutant(
        "retained-gradient-left-behind",
        "tfw/inplace.py",
        "        _move_retained(node, edge)\n",
        "",
        ("tests/autograd/test_gradient_hooks.py::test_retained_gradient_is_of_the_final_value",),
    ),
    Mutant(
        "overwritten-value-not-kept",
        "tfw/inplace.py",
        'if ("input", 0) in plan.saves:',
        "if False:",
        (VIEWS + "test_mul_needs_the_value_it_overwrites",),
    ),
    Mutant(
        "assignment-keeps-the-old-history",
        "tfw/ops/convert.py",
        "copy.vjp(input=lambda g: filled_like(g, 0), src",
        "copy.vjp(input=lambda g: g, src",
        (ASSIGN + "test_copy_from_a_constant_cuts_the_history",),
    ),
    Mutant(
        "leaf-check-dropped",
        "tfw/inplace.py",
        "    if node is LEAF:\n        raise",
        "    if False:\n        raise",
        (REFUSED + "test_views_of_a_leaf_are_refused",),
    ),
    Mutant(
        "view-of-leaf-check-dropped",
        "tfw/inplace.py",
        "        if above is LEAF:\n",
        "        if False:\n",
        (REFUSED + "test_views_of_a_leaf_are_refused",),
    ),
    Mutant(
        "several-views-check-dropped",
        "tfw/inplace.py",
        "        if view.op.views:\n",
        "        if False:\n",
        (REFUSED + "test_outputs_of_split_and_chunk_are_refused",),
    ),
    Mutant(
        "no-grad-view-check-dropped",
        "tfw/inplace.py",
        "        if not view.tracked and (",
        "        if False and (",
        (REFUSED + "test_view_taken_under_no_grad_then_modified",),
    ),
    Mutant(
        "self-overlap-check-dropped",
        "tfw/inplace.py",
        "        if may_overlap(spec.shape, spec.strides):\n            raise",
        "        if False:\n            raise",
        (REFUSED + "test_expanded_tensors_are_refused",),
    ),
    Mutant(
        "overlap-check-dropped",
        "tfw/inplace.py",
        "            and backend.share_memory(target._a, x._a)\n",
        "            and False\n",
        (REFUSED + "test_source_and_destination_that_overlap",),
    ),
    Mutant(
        "detach-with-a-version-of-its-own",
        "tfw/tensor.py",
        "        result._cell = graph.cell_of(self)\n",
        "",
        (VIEWS + "test_detach_shares_memory_and_version",),
    ),
    Mutant(
        "gradient-aliased-into-grad",
        "tfw/autograd/engine.py",
        " and _owned(g):",
        ":",
        (ACCUMULATION + "test_one_gradient_for_two_leaves_is_two_arrays",),
    ),
    Mutant(
        "hooks-that-keep-gradients-forgotten",
        "tfw/autograd/engine.py",
        "elif not shared and g._kind",
        "elif g._kind",
        (ACCUMULATION + "test_hook_that_keeps_the_gradient_keeps_its_value",),
    ),
    Mutant(
        "retained-gradient-aliased",
        "tfw/autograd/engine.py",
        "                    _accumulate(tensor, g, True)\n",
        "                    tensor._grad = g\n",
        (
            ACCUMULATION + "test_retained_gradient_is_its_own",
            ACCUMULATION + "test_retained_gradients_add_up",
        ),
    ),
    Mutant(
        "strided-taken-for-dense",
        "tfw/runtime/cpu/backend.py",
        "return kind if payload.flags.c_contiguous else kind.strided",
        "return kind",
        ("tests/test_tensor.py::test_what_a_tensor_tells",),
    ),
    Mutant(
        "saved-values-kept-after-backward",
        "tfw/autograd/engine.py",
        "            if not keep:\n",
        "            if False:\n",
        (MEMORY + "test_saved_values_go_when_backward_has_used_them",),
    ),
    Mutant(
        "needs-ignored",
        "tfw/recording.py",
        "            if not any(self.needs[i] for i in indices):\n",
        "            if False:\n",
        (MEMORY + "test_only_the_operand_whose_partner_needs_it_is_kept",),
    ),
    Mutant(
        "function-context-in-a-cycle",
        "tfw/autograd/function.py",
        "            ctx._node = None",
        "            pass",
        ("tests/autograd/test_function_edges.py::test_no_reference_cycle",),
    ),
]
