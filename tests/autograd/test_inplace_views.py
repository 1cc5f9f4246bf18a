"""In-place changes seen through views: values and gradients agree with PyTorch's."""

from __future__ import annotations

from typing import Any

from twins import refused, twin


def _four(t: Any) -> Any:
    return t.tensor([1.0, 2.0, 3.0, 4.0], dtype=t.float64, requires_grad=True)


@twin([[2.0, 40.0, 60.0, 8.0], [40.0, 60.0], [208.0, 2020.0, 2820.0, 232.0]])
def test_view_of_a_computed_tensor_used_before_and_after(t: Any) -> Any:
    x = _four(t)
    y = x * 2.0
    v = y[1:3]
    before = (v + 1.0).sum() + y.sum()
    v.mul_(10.0)
    after = v.sum() + (y * y).sum()
    (before * 100.0 + after).backward()
    return y, v, x.grad


@twin([[6.0, 18.0, 24.0, 6.0], [6.0, 18.0, 24.0], [18.0, 24.0, 6.0], [716.0, 276.0, 348.0, 10.0]])
def test_two_overlapping_views(t: Any) -> Any:
    x = _four(t)
    y = x * 1.0
    a, b = y[:3], y[1:]
    a.mul_(2.0)
    b.add_(a[:1])
    a.mul_(3.0)
    ((a * a).sum() + b.sum() * 10.0).backward()
    return y, a, b, x.grad


@twin([[9.0, 16.0], [9.0, 12.0], [0.0, 0.0, 9.0, 11.0], True])
def test_base_modified_after_the_view(t: Any) -> Any:
    x = _four(t)
    y = x * 1.0
    v = y[2:]
    w = v * 3.0
    y.mul_(x)
    (v.sum() + w.sum()).backward()
    return v, w, x.grad, v.requires_grad


@twin([[7.0, 2.0, 3.0, 4.0], False, 1, 1, "RuntimeError"])
def test_detach_shares_memory_and_version(t: Any) -> Any:
    x = _four(t)
    y = x * 1.0
    d = y.detach()
    z = (y * y).sum()
    d[0] = 7.0
    return y, d.requires_grad, y._version, d._version, refused(z.backward)


@twin([[0.0, 0.0, 0.0, 0.0], 0, [0.0, 0.0, 0.0, 0.0]])
def test_data_shares_memory_but_not_the_version(t: Any) -> Any:
    x = _four(t)
    y = x * 1.0
    z = (y * y).sum()
    y.data.zero_()
    z.backward()
    return y, y._version, x.grad


@twin([[[3.0, 4.0], [0.0, 0.0]], True, False, True, [0.0, 10.0]])
def test_base_gains_grad_through_an_old_view(t: Any) -> Any:
    base = t.zeros(2, 2, dtype=t.float64)
    row, column = base[0], base[:, 1]
    other = base[1]
    w = t.tensor([3.0, 4.0], dtype=t.float64, requires_grad=True)
    row.add_(w)
    (column * t.tensor([10.0, 1.0], dtype=t.float64)).sum().backward()
    return base, base.requires_grad, base.is_leaf, other.requires_grad, w.grad


@twin(
    [
        [[1.0, 20.0, 30.0], [4.0, 500.0, 600.0]],
        [1, 3],
        [[2.0, 400.0, 600.0], [8.0, 100000.0, 120000.0]],
    ]
)
def test_chain_of_transposes(t: Any) -> Any:
    x = t.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=t.float64, requires_grad=True)
    y = x * 1.0
    v = y.transpose(0, 1)[1:].T.permute(1, 0)
    v.mul_(t.tensor([10.0, 100.0], dtype=t.float64))
    (y * y).sum().backward()
    return y, v.stride(), x.grad


@twin([[9.0, 18.0, 9.0, 12.0], [9.0, 9.0, 3.0, 3.0], 25.0, [1.0, 4.0, 9.0, 16.0], "RuntimeError"])
def test_mul_needs_the_value_it_overwrites(t: Any) -> Any:
    x = _four(t)
    w = t.tensor(3.0, dtype=t.float64, requires_grad=True)
    y = x * 1.0
    y.mul_(w)
    y[:2].mul_(w)
    y.sum().backward()
    squared = x * 1.0
    squared.mul_(squared)
    return y, x.grad, w.grad, squared, refused(squared.sum().backward)


@twin([[0.0, 3.0, 5.0, 7.0], True, 2, [3.0, 9.0, 13.0, 17.0]])
def test_a_leaf_may_be_modified_under_no_grad(t: Any) -> Any:
    x = _four(t)
    z = (x * 3.0).sum()
    with t.no_grad():
        x[1:].mul_(2.0)
        x -= 1.0
    w = (x * x).sum()
    z.backward()
    w.backward()
    return x, x.is_leaf, x._version, x.grad


@twin(
    [
        [0.0, 0.761594156, 0.96402758, 0.995054754, 21.0, 6.0, 31.0, 8.0],
        [[21.0, 31.0]],
        [0.0, 0.639700008, 0.136218687, 0.0196344944, 210.0, 12.0, 310.0, 16.0],
        [0.0, 0.639700008, 0.136218687, 0.0196344944, 220.0, 13.0, 320.0, 17.0],
    ]
)
def test_views_of_views_of_views(t: Any) -> Any:
    x = t.tensor([float(i) for i in range(8)], dtype=t.float64, requires_grad=True)
    y = x * 1.0
    a = y.view(2, 2, 2)
    b = a[1]
    c = b.T
    d = c[0:1, :]
    d.mul_(5.0)
    b.add_(1.0)
    a[0].tanh_()
    (y * y).sum().backward(retain_graph=True)
    first = x.grad.clone()
    (d.sum() + c.sum()).backward()
    return y, d, first, x.grad


@twin([[3.0, 6.0], [9.0, 12.0], [5.0, 5.0, 3.0, 3.0]])
def test_base_of_split_outputs_modified(t: Any) -> Any:
    x = _four(t)
    y = x * 1.0
    a, b = y.split(2)
    used_before = (a * 2.0).sum()
    y.mul_(3.0)
    (used_before + y.sum()).backward()
    return a, b, x.grad


@twin(
    [
        [
            [1.0, -1.0],
            [0.755081338, -1.84828364],
            [-0.0101308751, -2.81483771],
            [-0.981510992, -3.80764771],
        ],
        [[-1.28359093, -5.89393976], [2.50778359, 7.16836161]],
    ]
)
def test_rnn_style_loop(t: Any) -> Any:
    w = t.tensor([[0.5, -0.25], [0.75, 1.0]], dtype=t.float64, requires_grad=True)
    states = t.zeros(4, 2, dtype=t.float64)
    states[0] = t.tensor([1.0, -1.0], dtype=t.float64)
    for i in range(3):
        states[i + 1] = t.tanh(states[i].clone() @ w) + states[i]
    (states * states).sum().backward()
    return states, w.grad


@twin([20.0, 24.0, [24.0, 13.0, 10.0, 9.0], True])
def test_running_total_in_place(t: Any) -> Any:
    x = _four(t)
    total = t.zeros((), dtype=t.float64)
    product = t.ones((), dtype=t.float64)
    for i in range(4):
        total += x[i] * i
        product *= x[i]
    (total + product).backward()
    return total, product, x.grad, total.requires_grad


@twin([[4.0, 4.0, 2.0, 8.0], [0.0, 100.0, 0.0, 2011.0]])
def test_one_element_moved_within_a_tensor(t: Any) -> Any:
    x = _four(t)
    y = x * 1.0
    y[0] = y[3]
    y[1:3] = y[0:2].clone()
    y[3] += y[1]
    (y * t.tensor([1.0, 10.0, 100.0, 1000.0], dtype=t.float64)).sum().backward()
    return y, x.grad


@twin([True, [2.0, 1.0, 2.5, 4.5], [1.0, 2.5, 4.5], [3.0, 2.5, 3.5, 4.5], "RuntimeError"])
def test_augmented_assignment_rebinds_to_the_same_tensor(t: Any) -> Any:
    x = _four(t)
    y = x * 1.0
    same, v = y, y[1:]
    y += 1.0
    y *= x
    v -= 2.0
    v /= 4.0

    def leaf() -> None:
        z = x
        z += 1.0

    (y.sum() + v.sum()).backward()
    return y is same, y, v, x.grad, refused(leaf)


@twin(
    [
        [1.05543065, 1.00029492, 1.01006372, 0.999987712],
        [-1.37377343, -0.0192725624, -0.238669304, 0.000869330451],
        [[15.1252612, 0.571286285, 2.47243429, -0.028222134]],
    ]
)
def test_second_derivatives_through_views_and_changes(t: Any) -> Any:
    x = _four(t)
    y = x * x
    v = y.view(2, 2)
    v[0].mul_(x[2:])
    y[3] = y[0].clone() * x[1]
    v.T.tanh_()
    (g,) = t.autograd.grad((y * x).sum(), x, create_graph=True)
    (h,) = t.autograd.grad((g * g).sum(), x, create_graph=True)
    return g, h, t.autograd.grad(h.sum(), x)


@twin([True, False, True, None, True, 1, False])
def test_a_view_keeps_its_history_when_memory_is_unchanged(t: Any) -> Any:
    x = _four(t)
    y = x * 1.0
    v = y[1:]
    node = v.grad_fn
    same = v.grad_fn is node
    y.add_(1.0)
    return same, v.grad_fn is node, v._base is y, y._base, v[1:]._base is y, v._version, y.is_leaf


@twin([False, True, None, "RuntimeError", True])
def test_detach_in_place(t: Any) -> Any:
    x = _four(t)
    y = x * 2.0
    v = (x * 2.0)[1:]
    y.detach_()
    return y.requires_grad, y.is_leaf, y.grad_fn, refused(v.detach_), y.detach_() is y


@twin([[0.0, 3.0, 3.0, 3.0], [[0.0, 3.0, 3.0, 3.0]]])
def test_gradient_through_a_base_that_is_asked_for(t: Any) -> Any:
    x = _four(t)
    y = x * 1.0
    v = y[1:]
    v.mul_(2.0)
    seen: list[Any] = []
    y.register_hook(lambda g: seen.append(g.tolist()))
    (g,) = t.autograd.grad((v * 3.0).sum(), y)
    return g, seen
