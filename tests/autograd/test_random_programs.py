"""Random programs that found faults once or mix most; the literals are PyTorch's."""

from __future__ import annotations

from typing import Any

from twins import twin


def _run(t: Any, program: str) -> Any:
    env: dict[str, Any] = {"t": t}
    exec(program, env)
    return env["told"]


@twin(
    [
        [[2.0, 16.0, 10.0], [30.0, 30.0, 16.0]],
        [[[3.0, 6.5, 5.0], [10.0, 10.0, 6.5]], [[1.0, 1.0, 1.0], [1.0, 1.0, 1.0]]],
    ]
)
def test_constants_assigned_through_a_view_cut_the_history(t: Any) -> Any:
    return _run(
        t,
        """
v1 = t.tensor([[-1.5, 0.25, -0.5], [2.0, 2.0, 0.25]], dtype=t.float64, requires_grad=True)
v4 = t.stack([v1, v1])
v6 = v4 + 3.0
v6[1:] = 0.5
v7 = -v6
v6.add_(v6)
with t.no_grad(): v1.fill_(0.5)
v9 = v1[:2]
((v4 * v4).sum() + (v7 * 2.0 * v7).sum() + (v9 * 2.0 * v9).sum()).backward()
told = v1.grad, v6
""",
    )


@twin(
    [
        [[[0.0, 0.0], [0.0, 0.0]], [[-0.25, 0.5], [0.375, 0.0]]],
        [
            [[-0.75, -0.25], [0.125, 1.0]],
            [[-1.5, -1.5], [0.125, 1.0]],
            [[-1.5, -1.5], [0.125, 1.0]],
        ],
    ]
)
def test_a_gathered_base_seen_through_two_views(t: Any) -> Any:
    return _run(
        t,
        """
v1 = t.tensor(
    [[[1.25, 0.25], [-0.5, 0.5]], [[-1.5, -0.5], [0.25, 2.0]]], dtype=t.float64, requires_grad=True)
v4 = v1[t.tensor([1, 1, 1])]
v4 /= 2.0
v5 = v4[:, 0]
v5[1:] = -1.5
v7 = v4[..., 0:1]
((v7 * v7).sum() + v5.sum()).backward()
told = v1.grad, v4
""",
    )


@twin(
    [
        [
            [1.28, 0.0, 1.7716263, 0.603589617],
            [[-0.780487805, 1.2, -1.88235294], [-0.0975609756, 0.4, -0.470588235]],
        ],
        [[-1.31072, 0.0, 16.2471798, -1.54969469]],
    ]
)
def test_a_base_that_gains_history_through_its_view(t: Any) -> Any:
    return _run(
        t,
        """
v1 = t.tensor([0.5, -1.5, 0.25, 1.25], dtype=t.float64, requires_grad=True)
v2 = t.tensor([[2.0, -1.5, 2.0], [0.25, -0.5, 0.5]], dtype=t.float64)
v4 = v2.expand_as(v2)
v6 = v1[t.tensor([3, 0, 2])]
v4.div_(v6 * v6 + 1.0)
loss = (v4 * -0.5 * v4).sum()
first = t.autograd.grad(loss, [v1, v2], create_graph=True)
second = t.autograd.grad((first[0] * first[0]).sum(), v1)
told = first, second
""",
    )


@twin([[0.768, -0.610624873, 0.0, 0.408], [[-1.6], [0.735294118], [-1.5], [-0.85]]])
def test_a_quotient_overwritten_after_use(t: Any) -> Any:
    return _run(
        t,
        """
v2 = t.tensor([2.0, -0.5, 2.0, 1.25], dtype=t.float64)
v3 = t.tensor([0.5, 0.25, -0.5, 0.5], dtype=t.float64, requires_grad=True)
v5 = v3 / (v3 * v3 + 1.0)
v10 = v5[:, None]
v5[2] = 0.5
v5.sub_(v2)
(v10 * -0.5 * v10).sum().backward()
told = v3.grad, v10
""",
    )


@twin([[139.3125, 502.0, 0.0], [[3.25, 5.0], [3.25, 5.0]]])
def test_rows_of_an_expanded_view_made_from_a_clone(t: Any) -> Any:
    return _run(
        t,
        """
v2 = t.tensor([0.25, 2.0, 2.0], dtype=t.float64, requires_grad=True)
v4 = v2.chunk(2, 0)[0]
v6 = v4 + 3.0
v8 = v6[...].expand(2, 2).clone()
v8[1] = v8[0]
v11 = v6.expand_as(v6)
v11.mul_(v8[0])
((v11 * v11).sum() + v8.sum()).backward()
told = v2.grad, v8
""",
    )


@twin([[[49.75, 54.75, 51.25]], [[9232.5, 9252.5, 9238.5]]])
def test_masks_fills_and_squeezes_over_one_buffer(t: Any) -> Any:
    return _run(
        t,
        """
v1 = t.tensor([[0.25, 2.0, 1.25], [2.0, -1.5, 1.25]], dtype=t.float64, requires_grad=False)
v2 = t.tensor([-0.5, 2.0, 0.25], dtype=t.float64, requires_grad=True)
v1.masked_fill_(v1 > 0, 0.5)
v3 = v1.unsqueeze(1)
v4 = v1[1:]
v3 /= 2.0
v5 = v2.sum()
v4.masked_fill_(v5 > 0, 2.0)
v1.zero_()
v6 = v3.squeeze()
v1[t.tensor([0, 1])] = 0.5
v7 = v6.expand_as(v6)
v8 = v2.view_as(v2)
v5.masked_fill_(v5 > 0.3, v2.sum())
v7.fill_(v2.sum())
loss = (
    (v4 * 1.0 * v4).sum()
    + (v5 * -0.5 * v5).sum()
    + (v7 * 2.0 * v7).sum()
    + (v8 * 1.0 * v8).sum()
)
first = t.autograd.grad(loss, [v2], create_graph=True, allow_unused=True)
loss = sum((g * g).sum() for g in first if g is not None)
second = t.autograd.grad(loss, [v2], allow_unused=True, materialize_grads=True)
told = first, second
""",
    )


@twin(
    [
        [
            -11.5,
            [
                [[2.2448601, 0.755139904], [5.62467426, 1.37532574]],
                [[2.2448601, 0.755139904], [1.2421583, 8.7578417]],
            ],
        ],
        [
            -253.0,
            [
                [[20.7561662, 3.24383379], [49.5509536, 6.44904642]],
                [[20.7561662, 3.24383379], [11.8226167, 68.1773833]],
            ],
        ],
    ]
)
def test_views_of_a_joined_tensor_changed_with_and_without_gradients(t: Any) -> Any:
    return _run(
        t,
        """
v1 = t.tensor(-0.5, dtype=t.float64, requires_grad=True)
v2 = t.tensor(
    [[[0.5, 0.25], [1.25, 0.5]], [[0.5, 0.25], [0.5, 2.0]]], dtype=t.float64, requires_grad=True)
v3 = t.cat([v2, v2])
v4 = v1.abs()
v5 = t.softmax(v3, -1)
v6 = v4.unsqueeze(0)
with t.no_grad(): v3.mul_(v1)
v3.sub_(v1)
v7 = v3[0:]
v7[2] += v1
v3.masked_fill_(v4 > 0, 0.5)
v8 = v6.flatten()
v6[0] = v6[0]
v6.add_(0.5)
v9 = v3.reshape(-1)
loss = (
    (v1 * -0.5 * v1).sum()
    + (v2 * 2.0 * v2).sum()
    + (v4 * 2.0 * v4).sum()
    + (v5 * 2.0 * v5).sum()
    + (v6 * 2.0 * v6).sum()
    + (v7 * 2.0 * v7).sum()
    + (v8 * 2.0 * v8).sum()
    + (v9 * 2.0 * v9).sum()
)
first = t.autograd.grad(loss, [v1, v2], create_graph=True, allow_unused=True)
loss = sum((g * g).sum() for g in first if g is not None)
second = t.autograd.grad(loss, [v1, v2], allow_unused=True, materialize_grads=True)
told = first, second
""",
    )


@twin(
    [
        [[[1.33333333, 1.33333333], [1.33333333, 1.33333333], [1.33333333, 1.33333333]]],
        [[[5.33333333, 5.33333333], [5.33333333, 5.33333333], [5.33333333, 5.33333333]]],
    ]
)
def test_a_mean_replaced_by_a_constant_under_views(t: Any) -> Any:
    return _run(
        t,
        """
v1 = t.tensor([[-1.5, 0.25], [0.25, -0.5], [0.5, 2.0]], dtype=t.float64, requires_grad=True)
v2 = t.tensor([0.25, 0.25, -0.5], dtype=t.float64, requires_grad=False)
v2.tanh_()
v3 = v1.mean()
v4 = v2.view(-1)
v3.masked_fill_(v3 > 0.3, v4.sum())
v5 = v3[None]
v6 = t.softmax(v1, -1)
with t.enable_grad(): v2.masked_fill_(v2 > 0, 0.5)
v7 = v5.unsqueeze(0)
v8 = v3.view_as(v3)
v9 = v3[None]
v5.add_(0.5)
v9.add_(v9)
v10 = v5.view(-1)
loss = (
    (v4 * -0.5 * v4).sum()
    + (v7 * -0.5 * v7).sum()
    + (v8 * 2.0 * v8).sum()
)
first = t.autograd.grad(loss, [v1], create_graph=True, allow_unused=True)
loss = sum((g * g).sum() for g in first if g is not None)
second = t.autograd.grad(loss, [v1], allow_unused=True, materialize_grads=True)
told = first, second
""",
    )


@twin([[[-31.865452, -1.35653066, -0.5, -4.0]], [[3519.91543, -4.84807421, -2.0, -16.0]]])
def test_old_views_follow_a_base_changed_through_a_new_one(t: Any) -> Any:
    return _run(
        t,
        """
v1 = t.tensor([-1.5, 1.25, 0.25, -1.5], dtype=t.float64, requires_grad=False)
v2 = t.tensor([-0.5, -1.5, -0.5, -0.5], dtype=t.float64, requires_grad=True)
v3 = v1[:2]
v4 = v3.squeeze()
v5 = v3 + 3.0
v6 = v1[None]
v3[0] *= -1.5
v7 = v2[0]
v6[0] += v2
v8 = v6[..., 0:1]
v9 = v3.exp()
v10 = v7.sum()
v11 = v10[...]
loss = (
    (v1 * 1.0 * v1).sum()
    + (v3 * 1.0 * v3).sum()
    + (v4 * -0.5 * v4).sum()
    + (v5 * 2.0 * v5).sum()
    + (v7 * 2.0 * v7).sum()
    + (v9 * -0.5 * v9).sum()
    + (v10 * 1.0 * v10).sum()
    + (v11 * 1.0 * v11).sum()
)
first = t.autograd.grad(loss, [v2], create_graph=True, allow_unused=True)
loss = sum((g * g).sum() for g in first if g is not None)
second = t.autograd.grad(loss, [v2], allow_unused=True, materialize_grads=True)
told = first, second
""",
    )


@twin([[-24.5], [-2009.0]])
def test_fills_that_alternate_between_base_and_views(t: Any) -> Any:
    return _run(
        t,
        """
v1 = t.tensor([[-0.5, 0.5, 2.0]], dtype=t.float64, requires_grad=False)
v2 = t.tensor(-0.5, dtype=t.float64, requires_grad=True)
v3 = v1.expand_as(v1)
v4 = v3[:, None]
v3.fill_(2.0)
v5 = v4[:1]
v1.fill_(v2.sum())
v6 = v5.view_as(v5)
v7 = v6.detach()
v8 = 1.0 - v2
v9 = v5[None]
v5.neg_()
loss = (
    (v1 * 2.0 * v1).sum()
    + (v2 * 2.0 * v2).sum()
    + (v3 * 2.0 * v3).sum()
    + (v4 * -0.5 * v4).sum()
    + (v7 * 2.0 * v7).sum()
    + (v8 * 2.0 * v8).sum()
    + (v9 * 2.0 * v9).sum()
)
first = t.autograd.grad(loss, [v2], create_graph=True, allow_unused=True)
loss = sum((g * g).sum() for g in first if g is not None)
second = t.autograd.grad(loss, [v2], allow_unused=True, materialize_grads=True)
told = first, second
""",
    )
