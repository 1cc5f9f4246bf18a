"""copy_, fill_, masked_fill_ and x[...] = value, with and without gradients in the value."""

from __future__ import annotations

from typing import Any

from twins import refused, twin


def _start(t: Any) -> Any:
    x = t.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]], dtype=t.float64, requires_grad=True)
    w = t.tensor([0.5, -1.0, 2.0], dtype=t.float64, requires_grad=True)
    return x, w, x * 1.0


@twin(
    [[[1.5, -3.0, 6.0], [0.5, -1.0, 2.0]], [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], [10.0, -20.0, 40.0]]
)
def test_copy_from_a_tracked_value(t: Any) -> Any:
    x, w, y = _start(t)
    y.copy_(w)
    y[0].copy_(w * 3.0)
    (y * y).sum().backward()
    return y, x.grad, w.grad


@twin(
    [
        [[1.0, 7.0, 8.0], [4.0, 7.0, 8.0]],
        [[1.0, 0.0, 0.0], [1.0, 0.0, 0.0]],
        True,
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
    ]
)
def test_copy_from_a_constant_cuts_the_history(t: Any) -> Any:
    x, _, y = _start(t)
    y[:, 1:].copy_(t.tensor([7.0, 8.0]))
    y.sum().backward()
    whole = x * 1.0
    whole.copy_(t.ones(2, 3))
    (g,) = t.autograd.grad(whole.sum(), x)
    return y, x.grad, whole.requires_grad, g


@twin([[1.5, 2.5], True, [1.0, 1.0], "float32", [1, 2], False])
def test_copy_converts(t: Any) -> Any:
    w = t.tensor([1.5, 2.5], requires_grad=True)
    y = t.zeros(2, dtype=t.float64)
    y.copy_(w)
    y.sum().backward()
    whole = t.zeros(2, dtype=t.int64)
    whole.copy_(w)
    return y, y.requires_grad, w.grad, str(w.grad.dtype).split(".")[1], whole, whole.requires_grad


@twin(
    [
        [[9.0, 9.0, 9.0], [4.0, 0.0, 1.5]],
        [[0.0, 0.0, 0.0], [8.0, 0.0, 0.0]],
        [3.0, 3.0, 3.0],
        True,
        [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]],
    ]
)
def test_fill_and_zero(t: Any) -> Any:
    x, w, y = _start(t)
    y[0].fill_(9.0)
    y[1, 1:].zero_()
    y[1, 2:].fill_(w.sum())
    (y * y).sum().backward()
    z = x * 1.0
    z.zero_()
    (g,) = t.autograd.grad(z.sum(), x)
    return y, x.grad, w.grad, z.requires_grad, g


@twin([[[1.5, 0.0, 3.0], [4.0, -1.0, -1.0]], [[0.0, 0.0, 6.0], [8.0, 0.0, 0.0]], [3.0, 3.0, 3.0]])
def test_masked_fill(t: Any) -> Any:
    x, w, y = _start(t)
    y.masked_fill_(y > 4.5, -1.0)
    y[0].masked_fill_(t.tensor([True, False, False]), w.sum())
    y.T.masked_fill_(t.tensor([[False, False], [True, False], [False, False]]), 0.0)
    (y * y).sum().backward()
    return y, x.grad, w.grad


@twin([[[40.0, 10.0, 30.0], [20.0, 20.0, 30.0]], [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]]])
def test_setitem_with_numbers(t: Any) -> Any:
    x, _, y = _start(t)
    y[0, 1] = 10.0
    y[1] = 20.0
    y[:, -1] = 30
    y[..., None][0, 0] = 40.0
    y.sum().backward()
    return y, x.grad


@twin([[[4.0, -1.0, 2.0], [4.0, 0.5, -1.0]], [[0.0, 0.0, 0.0], [0.0, 0.0, 0.0]], [1.0, -4.0, 36.0]])
def test_setitem_with_tracked_values(t: Any) -> Any:
    x, w, y = _start(t)
    y[0] = w
    y[:, 0] = w[2] * 2.0
    y[1:, 1:] = w[:2]
    (y * y).sum().backward()
    return y, x.grad, w.grad


@twin([[[1.0, 3.0, 3.0], [0.5, 3.0, -1.0]], [[2.0, 0.0, 6.0], [0.0, 0.0, 0.0]], [1.0, -2.0, 0.0]])
def test_setitem_by_arrays_and_masks(t: Any) -> Any:
    x, w, y = _start(t)
    y[t.tensor([1]), t.tensor([0, 2])] = w[:2]
    y[y > 5.5] = w.sum()
    y[:, t.tensor([1])] = 3.0
    (y * y).sum().backward()
    return y, x.grad, w.grad


@twin(
    [[[1.0, 4.0, 1.0], [-2.0, 5.0, -2.0]], [[0.0, 8.0, 0.0], [0.0, 10.0, 0.0]], [8.0, -16.0, 8.0]]
)
def test_setitem_by_arrays_into_a_view(t: Any) -> Any:
    x, w, y = _start(t)
    v = y.T
    v[t.tensor([2, 0])] = w[:2] * 2.0
    v[1][t.tensor([0])] += w[2]
    (y * y).sum().backward()
    return y, x.grad, w.grad


@twin([[[0.0, 0.0, 0.0], [0.5, -1.0, 2.0], [1.0, -2.0, 4.0]], True, [6.0, -9.0, 21.0]])
def test_setitem_of_an_untracked_tensor_makes_it_tracked(t: Any) -> Any:
    _, w, _ = _start(t)
    buffer = t.zeros(3, 3, dtype=t.float64)
    view = buffer[1]
    buffer[1] = w
    buffer[t.tensor([2])] = w * 2.0
    (view.sum() + (buffer * buffer).sum()).backward()
    return buffer, buffer.requires_grad, w.grad


@twin([[2.0, 2.0, 6.0], [[0.0, 11.0, 0.0], [0.0, 0.0, 100.0]]])
def test_repeated_indices_accumulate_in_the_gradient_of_reading(t: Any) -> Any:
    x, _, _ = _start(t)
    picked = x[t.tensor([0, 0, 1]), t.tensor([1, 1, 2])]
    (picked * t.tensor([1.0, 10.0, 100.0], dtype=t.float64)).sum().backward()
    return picked, x.grad


@twin(
    [
        "RuntimeError",
        "RuntimeError",
        "IndexError",
        "IndexError",
        "IndexError",
        "TypeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]],
    ]
)
def test_values_that_do_not_fit(t: Any) -> Any:
    _, w, y = _start(t)
    return [
        refused(lambda: y.copy_(t.ones(2))),
        refused(lambda: y.__setitem__(0, t.ones(2))),
        refused(lambda: y.__setitem__((0, 0, 0), 1.0)),
        refused(lambda: y.__setitem__(2, 1.0)),
        refused(lambda: y.__setitem__(t.tensor([2]), 1.0)),
        refused(lambda: y.__setitem__(0, "a")),
        refused(lambda: y.fill_(w)),
        refused(lambda: y.masked_fill_(t.ones(2, 3), 0.0)),
        refused(lambda: t.zeros(2, dtype=t.int64).add_(1.5)),
        refused(lambda: t.zeros(2, dtype=t.int64).mul_(t.ones(2))),
        refused(lambda: t.zeros(2).add_(t.ones(3, 2))),
        y,
    ]


@twin([[0, 1, 2, 3, 4, 5, 6, 7], 7])
def test_versions_count_changes(t: Any) -> Any:
    y = t.zeros(4)
    v = y[1:]
    counts = [y._version]
    for change in (
        lambda: y.add_(1.0),
        lambda: v.zero_(),
        lambda: y.__setitem__(0, 2.0),
        lambda: y.__setitem__(t.tensor([1]), 2.0),
        lambda: y.masked_fill_(y > 1.0, 0.0),
        lambda: v[0].fill_(3.0),
        lambda: y.detach().copy_(t.ones(4)),
    ):
        change()
        counts.append(y._version)
    return counts, v._version


@twin(
    [
        "no error",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "no error",
        "no error",
    ]
)
def test_values_saved_before_a_change_are_noticed(t: Any) -> Any:
    def program(change: Any) -> str:
        x, _, y = _start(t)
        z = (y * y).sum()
        change(x, y)
        return refused(z.backward)

    def quietly(x: Any, y: Any) -> None:
        with t.no_grad():
            x.add_(1.0)

    return [
        program(lambda x, y: None),
        program(lambda x, y: y.add_(1.0)),
        program(lambda x, y: y[0, 0:1].zero_()),
        program(lambda x, y: y.T.__setitem__(0, 1.0)),
        program(lambda x, y: y.detach().zero_()),
        program(lambda x, y: y.data.zero_()),
        program(quietly),
    ]


@twin(
    [
        [[5.0, 5.0, 5.0], [5.0, 5.0, 5.0]],
        [
            [0.419974342, 0.0706508249, 0.00986603717],
            [0.00134095068, 0.000181583231, 2.45765474e-05],
        ],
        [[0.25, 0.111111111, 0.0625], [0.04, 0.0277777778, 0.0204081633]],
    ]
)
def test_what_an_op_does_not_need_may_change(t: Any) -> Any:
    x, _, y = _start(t)
    z = (y + 1.0).sum() + (y * 3.0).sum() + y.T.sum()
    y.zero_()
    z.backward()
    a = x * 1.0
    b = t.tanh(a)
    a.add_(1.0)  # tanh needs its result only
    (g,) = t.autograd.grad(b.sum(), x)
    q = x / (x + 1.0)
    q.sub_(1.0)  # a quotient needs its operands only
    (h,) = t.autograd.grad(q.sum(), x)
    return x.grad, g, h
