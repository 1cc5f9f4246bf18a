"""backward and grad in all their forms."""

from __future__ import annotations

from typing import Any

import pytest
from twins import refused, twin

import tfw
from tfw.errors import AutogradError, ShapeError


@twin([[2.0, 4.0, 6.0], [[3.0]]])
def test_backward_of_a_number_needs_no_gradient(t: Any) -> Any:
    x = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
    (x * x).sum().backward()
    one = t.tensor([[2.0]], requires_grad=True)
    (one * 3.0).backward()
    return x.grad, one.grad


@twin([[2.0, 40.0], [4.0, 44.0]])
def test_gradient_is_weighted_by_the_given_one(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    y.backward(t.tensor([1.0, 10.0]), retain_graph=True)
    first = x.grad.clone()
    y.backward(gradient=t.tensor([1.0, 1.0]))
    return first, x.grad


@twin([11.0, [2.0, 4.0]])
def test_several_roots(t: Any) -> Any:
    a = t.tensor(2.0, requires_grad=True)
    b = t.tensor([1.0, 3.0], requires_grad=True)
    y, z = a * b, a * a
    t.autograd.backward([y, z], [t.tensor([1.0, 2.0]), None])
    return a.grad, b.grad


@twin([4.0, [12.0]])
def test_one_root_given_twice_counts_twice(t: Any) -> Any:
    x = t.tensor(3.0, requires_grad=True)
    y = x * 2.0
    t.autograd.backward((y, y))
    return x.grad, t.autograd.grad([x * 5.0, x * 7.0], x)


@twin([1.0, [[5.0, 6.0]]])
def test_backward_from_a_leaf(t: Any) -> Any:
    x = t.tensor(3.0, requires_grad=True)
    x.backward()
    w = t.tensor([1.0, 2.0], requires_grad=True)
    return x.grad, t.autograd.grad(w, w, t.tensor([5.0, 6.0]))


@twin([[12.0, None], None, 4.0])
def test_inputs_limits_where_gradients_arrive(t: Any) -> Any:
    a = t.tensor(2.0, requires_grad=True)
    b = t.tensor(3.0, requires_grad=True)
    m = a * b
    y = m * a
    y.backward(inputs=[a], retain_graph=True)
    only_a = (a.grad.item(), b.grad)
    a.grad = None
    y.backward(inputs=b)
    return only_a, a.grad, b.grad


@twin([12.0, None])
def test_inputs_may_be_computed_tensors(t: Any) -> Any:
    a = t.tensor(2.0, requires_grad=True)
    m = a * 3.0
    m.retain_grad()
    (m * m).backward(inputs=[m])
    return m.grad, a.grad


@twin([[4.0, 8.0], [8.0, 16.0], None])
def test_grad_leaves_accumulators_alone(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    m = x * 2.0
    y = (m * m).sum()
    gm, gx = t.autograd.grad(y, [m, x])
    return gm, gx, x.grad


@twin([4.0, 4.0])
def test_grad_of_the_same_input_twice(t: Any) -> Any:
    x = t.tensor(2.0, requires_grad=True)
    return t.autograd.grad(x * x, [x, x])


@twin(["RuntimeError", [[2.0, 4.0], None], [[2.0, 4.0], [0.0, 0.0, 0.0]], [[0.0, 0.0, 0.0]]])
def test_unused_inputs(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    z = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
    y = (x * x).sum()
    grad = t.autograd.grad
    return (
        refused(lambda: grad(y, [x, z], retain_graph=True)),
        grad(y, [x, z], allow_unused=True, retain_graph=True),
        grad(y, [x, z], materialize_grads=True, retain_graph=True),
        grad(y, z, allow_unused=True, materialize_grads=True, retain_graph=True),
    )


@twin(["RuntimeError", 6.0])
def test_second_backward_through_a_freed_graph(t: Any) -> Any:
    x = t.tensor(2.0, requires_grad=True)
    y = x * x
    y.backward()
    again = refused(y.backward)
    # Nothing was saved by an addition, so nothing was freed.
    z = x + 1.0
    z.backward()
    z.backward()
    return again, x.grad


@twin([[7.0, 7.0], [7.0, 5.0]])
def test_nodes_that_saved_no_tensor_run_again(t: Any) -> Any:
    x = t.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y = t.cat([x.sum(0), x.mean(1), x.reshape(-1)[1:], x.T[0], (x + 1.0).expand(2, 2, 2)[0, 0]])
    y.sum().backward()
    y.sum().backward()
    return x.grad


@twin([36.0, "RuntimeError"])
def test_retain_graph(t: Any) -> Any:
    x = t.tensor(2.0, requires_grad=True)
    y = x * x * x
    y.backward(retain_graph=True)
    y.backward(retain_graph=True)
    y.backward()
    return x.grad, refused(y.backward)


@twin([True, 12.0, False])
def test_create_graph_keeps_the_graph_unless_told_otherwise(t: Any) -> Any:
    x = t.tensor(2.0, requires_grad=True)
    y = x * x * x
    (g,) = t.autograd.grad(y, x, create_graph=True)
    (again,) = t.autograd.grad(y, x)
    return g.requires_grad, again, again.requires_grad


@twin(
    [
        [2.97308191, -13.6115651, 54.1671683],
        [7.12180318, 27.1115651, 77.5562244],
        [17.7705244, -35.6653048, 84.9452805],
    ]
)
def test_three_orders(t: Any) -> Any:
    x = t.tensor([0.5, -1.5, 2.0], dtype=t.float64, requires_grad=True)
    y = (x**4 + t.exp(x) * x).sum()
    orders = []
    for _ in range(3):
        (g,) = t.autograd.grad(y, x, create_graph=True)
        orders.append(g)
        y = g.sum()
    return orders


@twin(
    [
        [-0.106247484, -0.0475428415],
        [[-0.111710542, -0.232819352], [-0.00267488307, -0.00666218762]],
    ]
)
def test_mixed_second_derivatives(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
    w = t.tensor([[1.0, 0.5], [-1.0, 2.0]], dtype=t.float64, requires_grad=True)
    y = t.tanh(w @ x).sum()
    gx, gw = t.autograd.grad(y, [x, w], create_graph=True)
    penalty = (gx * gx).sum() + (gw * gw).sum()
    return t.autograd.grad(penalty, [x, w])


@twin([27.0, True, 18.0])
def test_create_graph_in_backward_gives_a_tracked_gradient(t: Any) -> Any:
    x = t.tensor(3.0, dtype=t.float64, requires_grad=True)
    (x**3).backward(create_graph=True)
    first, tracked = x.grad, x.grad.requires_grad
    x.grad = None
    first.backward()
    return first, tracked, x.grad


@twin(90.0)
def test_paths_that_meet_add_up(t: Any) -> Any:
    x = t.tensor(1.0, dtype=t.float64, requires_grad=True)
    a = x * 2.0
    b = a * a
    c = a + b
    d = b * c
    (d + a).backward()
    return x.grad


@twin([[3.0, 8.0], None, None, False])
def test_what_needs_no_gradient_gets_none(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    c = t.tensor([3.0, 4.0])
    d = x.detach()
    (x * c * d).sum().backward()
    return x.grad, c.grad, d.grad, d.requires_grad


@twin(
    [
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "ValueError",
    ]
)
def test_bad_calls(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    c = t.tensor(1.0)
    y = x * 2.0
    return [
        refused(y.backward),
        refused(c.backward),
        refused(lambda: y.backward(t.ones(3))),
        refused(lambda: t.autograd.backward([y, y], [t.ones(2)])),
        refused(lambda: t.autograd.grad(y.sum(), c)),
        refused(lambda: t.autograd.grad(y, x)),
        refused(lambda: y.sum().backward(inputs=[])),
        refused(lambda: t.autograd.grad(c, x)),
        refused(lambda: t.autograd.grad(y.sum(), x, allow_unused=False, materialize_grads=True)),
    ]


@twin(["MulBackward0", 2, 0, None, True, False, None, 0, True])
def test_graph_can_be_looked_at(t: Any) -> Any:
    x = t.tensor(1.0, requires_grad=True)
    y = x * 2.0
    node = y.grad_fn
    return (
        node.name(),
        len(node.next_functions),
        node.next_functions[0][1],
        x.grad_fn,
        x.is_leaf,
        y.is_leaf,
        y.detach().grad_fn,
        y.output_nr,
        (y * 0.0).grad_fn.next_functions[0][0] is node,
    )


@twin(["float32", [3.0, 4.0], "float64", [1.0, 2.0]])
def test_gradient_of_a_dtype_that_was_converted(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    w = t.tensor([3.0, 4.0], dtype=t.float64, requires_grad=True)
    (x * w).sum().backward()
    return str(x.grad.dtype).split(".")[1], x.grad, str(w.grad.dtype).split(".")[1], w.grad


@twin([False, False, "RuntimeError", "RuntimeError"])
def test_integers_carry_no_gradient(t: Any) -> Any:
    x = t.tensor([1.6, 2.4], requires_grad=True)
    n = x.to(t.int64)
    return (
        n.requires_grad,
        (x > 2).requires_grad,
        refused(lambda: t.tensor([1, 2], requires_grad=True)),
        refused(lambda: t.tensor([1]).requires_grad_()),
    )


@twin([False, True, "RuntimeError", None, False])
def test_requires_grad_switches(t: Any) -> Any:
    x = t.tensor([1.0, 2.0])
    y = x * 2.0
    x.requires_grad = True
    z = x * 3.0
    computed = refused(lambda: z.requires_grad_(False))
    x.requires_grad_(False)
    z.sum().backward()
    return y.requires_grad, z.requires_grad, computed, x.grad, x.requires_grad


def test_errors_say_what_and_how() -> None:
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(AutogradError, match=r"shape \(2,\).*\n.*sum\(\) or mean\(\)") as raised:
        (x * 2).backward()
    assert raised.value.argument == "grad_tensors"
    with pytest.raises(ShapeError, match=r"gradient of shape \(3,\) for a tensor of shape \(2,\)"):
        (x * 2).backward(tfw.ones(3))
    y = (x * x).sum()
    y.backward()
    with pytest.raises(AutogradError, match="second time") as raised:
        y.backward()
    assert "retain_graph=True" in raised.value.remedy


def test_a_failed_backward_leaves_no_half_gradient_and_no_mode_behind() -> None:
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    w = tfw.tensor([1.0, 2.0], requires_grad=True)
    y = x * x
    spoilt = (y * w).sum()
    with tfw.no_grad():
        y.add_(1.0)
    with pytest.raises(AutogradError):
        spoilt.backward()
    assert x.grad is None
    assert w.grad is None
    assert tfw.is_grad_enabled()
    (x * w).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 2.0]
