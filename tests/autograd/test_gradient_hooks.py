"""Hooks of tensors, leaves, nodes and accumulators: order, replacement, removal."""

from __future__ import annotations

from typing import Any

import pytest
from twins import refused, twin

import tfw
from tfw.errors import AutogradError, ShapeError


@twin([[[6.0, 12.0], [12.0, 24.0]], [36.0, 72.0]])
def test_tensor_hook_sees_and_replaces(t: Any) -> Any:
    seen: list[Any] = []
    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = x * 3.0

    def double(g: Any) -> Any:
        seen.append(g.tolist())
        return g * 2.0

    y.register_hook(double)
    y.register_hook(lambda g: seen.append(g.tolist()))
    (y * y).sum().backward()
    return seen, x.grad


@twin([[[7.0, 7.0], [1.0, 1.0]], [8.0, 8.0]])
def test_leaf_hook_sees_the_whole_gradient_once(t: Any) -> Any:
    seen: list[Any] = []
    x = t.tensor([1.0, 2.0], requires_grad=True)
    x.register_hook(lambda g: seen.append(g.tolist()))
    (x * 2.0 + x * 3.0 + x.sum()).sum().backward()
    (x * 1.0).sum().backward()
    return seen, x.grad


@twin([[21.0, 21.0], [21.0, 21.0]])
def test_leaf_hook_replaces_what_is_accumulated(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    x.register_hook(lambda g: g * 10.0)
    x.register_hook(lambda g: g + 1.0)
    (x * 2.0).sum().backward()
    (g,) = t.autograd.grad((x * 2.0).sum(), x)
    return x.grad, g


@twin(["kept", "kept"])
def test_removed_hooks_are_silent(t: Any) -> Any:
    calls: list[str] = []
    x = t.tensor(1.0, requires_grad=True)
    handle = x.register_hook(lambda g: calls.append("removed"))
    kept = x.register_hook(lambda g: calls.append("kept"))
    handle.remove()
    handle.remove()
    (x * 2.0).backward()
    with kept:
        (x * 2.0).backward()
    (x * 2.0).backward()
    return calls


@twin(["once", "always", "always"])
def test_a_hook_that_removes_itself(t: Any) -> Any:
    calls: list[str] = []
    x = t.tensor(1.0, requires_grad=True)

    def once(g: Any) -> None:
        calls.append("once")
        handle.remove()

    handle = x.register_hook(once)
    x.register_hook(lambda g: calls.append("always"))
    for _ in range(2):
        (x * 2.0).backward()
    return calls


@twin(["tensor", "node before", "node after", "leaf, grad None", "accumulated 6.0"])
def test_order_of_all_hooks_around_a_node(t: Any) -> Any:
    calls: list[str] = []
    x = t.tensor(1.0, requires_grad=True)
    y = x * 2.0
    y.grad_fn.register_prehook(lambda grads: calls.append("node before"))
    y.grad_fn.register_hook(lambda into, out: calls.append("node after"))
    y.register_hook(lambda g: calls.append("tensor"))
    x.register_post_accumulate_grad_hook(
        lambda leaf: calls.append(f"accumulated {leaf.grad.item()}")
    )
    x.register_hook(lambda g: calls.append(f"leaf, grad {x.grad}"))
    (y * 3.0).backward()
    return calls


@twin([[[15.0, 6.0], [3.0]]])
def test_node_hooks_see_gradients_on_both_sides(t: Any) -> Any:
    seen: list[Any] = []
    a = t.tensor(2.0, requires_grad=True)
    b = t.tensor(5.0, requires_grad=True)
    y = a * b
    y.grad_fn.register_hook(
        lambda into, out: seen.append([[g.item() for g in into], [g.item() for g in out]])
    )
    (y * 3.0).backward()
    return seen


@twin([51.0, None])
def test_node_hooks_replace_gradients(t: Any) -> Any:
    a = t.tensor(2.0, requires_grad=True)
    b = t.tensor(5.0, requires_grad=True)
    y = a * b
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 10.0,))
    y.grad_fn.register_hook(lambda into, out: (into[0] + 1.0, None))
    y.backward()
    return a.grad, b.grad


@twin([[100.0], 400.0])
def test_prehook_sees_what_tensor_hooks_made(t: Any) -> Any:
    seen: list[float] = []
    a = t.tensor(2.0, requires_grad=True)
    y = a * 4.0
    y.grad_fn.register_prehook(lambda grads: seen.append(grads[0].item()))
    y.register_hook(lambda g: g * 100.0)
    y.backward()
    return seen, a.grad


@twin([100.0, 2800.0])
def test_retained_gradient_is_the_one_after_tensor_hooks(t: Any) -> Any:
    a = t.tensor(2.0, requires_grad=True)
    y = a * 4.0
    y.retain_grad()
    y.register_hook(lambda g: g * 100.0)
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 7.0,))
    (y * 1.0).backward()
    return y.grad, a.grad


@twin([[100.0], [2800.0]])
def test_grad_captures_after_tensor_hooks_and_before_node_prehooks(t: Any) -> Any:
    a = t.tensor(2.0, requires_grad=True)
    y = a * 4.0
    y.register_hook(lambda g: g * 100.0)
    y.grad_fn.register_prehook(lambda grads: (grads[0] * 7.0,))
    return t.autograd.grad(y * 1.0, y, retain_graph=True), t.autograd.grad(y * 1.0, a)


@twin([[[2.0, 2.0], [2.0, 2.0]], [2.0, 2.0]])
def test_post_accumulate_hook_may_take_the_gradient(t: Any) -> Any:
    taken: list[Any] = []
    x = t.tensor([1.0, 2.0], requires_grad=True)

    def step(leaf: Any) -> None:
        taken.append(leaf.grad.tolist())
        leaf.grad = None

    handle = x.register_post_accumulate_grad_hook(step)
    for _ in range(2):
        (x * 2.0).sum().backward()
    handle.remove()
    (x * 2.0).sum().backward()
    return taken, x.grad


@twin([[["after mul_", [1.0, 1.0]], ["before mul_", [5.0, 5.0]]], [10.0, 10.0]])
def test_hooks_stay_with_the_value_they_were_put_on(t: Any) -> Any:
    seen: list[Any] = []
    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2.0
    y.register_hook(lambda g: seen.append(["before mul_", g.tolist()]))
    y.mul_(5.0)
    y.register_hook(lambda g: seen.append(["after mul_", g.tolist()]))
    y.sum().backward()
    return seen, x.grad


@twin([[3.0, 3.0], [30.0, 30.0], True])
def test_retained_gradient_is_of_the_final_value(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2.0
    y.retain_grad()
    y.mul_(5.0)
    (y * 3.0).sum().backward()
    return y.grad, x.grad, y.retains_grad


@twin([[3.0, 3.0], [30.0, 6.0]])
def test_retained_gradient_of_a_base_whose_view_is_modified(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2.0
    y.retain_grad()
    y[0].mul_(5.0)
    (y * 3.0).sum().backward()
    return y.grad, x.grad


@twin([[[[1.0], [1.0]], [10.0, 10.0]], [[11.0, 2.0, 2.0], [1.0, 12.0, 2.0]], False])
def test_hooks_on_one_of_several_outputs(t: Any) -> Any:
    seen: list[Any] = []
    x = t.tensor([[3.0, 1.0, 2.0], [1.0, 5.0, 4.0]], requires_grad=True)
    values, indices = x.max(1)
    values.register_hook(lambda g: g * 10.0)
    values.register_hook(lambda g: seen.append(g.tolist()))
    first, second = x.split([1, 2], 1)
    first.register_hook(lambda g: seen.append(g.tolist()))
    (values.sum() + first.sum() + second.sum() * 2.0).backward()
    return seen, x.grad, indices.requires_grad


@twin([8.0, [8.0]])
def test_hooks_under_create_graph_are_differentiated(t: Any) -> Any:
    x = t.tensor(2.0, dtype=t.float64, requires_grad=True)
    y = x * x
    y.register_hook(lambda g: g * x)
    (g,) = t.autograd.grad(y * 1.0, x, create_graph=True)
    return g, t.autograd.grad(g, x)


@twin(["RuntimeError", "RuntimeError", "RuntimeError"])
def test_where_hooks_are_refused(t: Any) -> Any:
    c = t.tensor(1.0)
    y = t.tensor(1.0, requires_grad=True) * 2.0
    return (
        refused(lambda: c.register_hook(print)),
        refused(lambda: c.register_post_accumulate_grad_hook(print)),
        refused(lambda: y.register_post_accumulate_grad_hook(print)),
    )


@twin(["KeyError", None, True])
def test_an_error_in_a_hook_comes_out(t: Any) -> Any:
    x = t.tensor(1.0, requires_grad=True)

    def fail(g: Any) -> None:
        raise KeyError("hook")

    x.register_hook(fail)
    error = refused(lambda: (x * 2.0).backward())
    return error, x.grad, t.is_grad_enabled()


@twin(["c", "b", "a"])
def test_leaves_complete_in_the_order_of_their_last_use(t: Any) -> Any:
    # The last layer's arrive first: what overlapping communication with backward relies on.
    calls: list[str] = []
    a, b, c = (t.tensor(1.0, requires_grad=True) for _ in range(3))
    for name, leaf in (("a", a), ("b", b), ("c", c)):
        leaf.register_post_accumulate_grad_hook(lambda leaf, name=name: calls.append(name))
    h = t.tanh(a * 2.0)
    h = t.tanh(h * b)
    h = t.tanh(h * c) + a * 0.0
    h.backward()
    return calls


def test_a_hook_may_not_change_the_shape() -> None:
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    x.register_hook(lambda g: g.sum())
    with pytest.raises(ShapeError, match=r"from \(2,\) to \(\)"):
        (x * 2.0).sum().backward()
    y = x.detach().requires_grad_() * 2.0
    assert y.grad_fn is not None
    y.grad_fn.register_hook(lambda into, out: (*into, None, None))
    with pytest.raises(AutogradError, match="gradients for"):
        y.sum().backward()
