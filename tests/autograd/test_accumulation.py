"""What arrives in `.grad`: added up, laid out as the leaf, and sharing memory with nothing."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from twins import refused, twin

import tfw


def test_same_gradient_given_twice_is_not_taken_over() -> None:
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    y = x + 0.0
    g = tfw.tensor([1.0, 1.0])
    y.backward(g)
    y.backward(g)
    assert x.grad is not None
    assert x.grad.tolist() == [2.0, 2.0]
    assert g.tolist() == [1.0, 1.0]


def test_one_gradient_for_two_leaves_is_two_arrays() -> None:
    a = tfw.zeros(3, requires_grad=True)
    b = tfw.zeros(3, requires_grad=True)
    (a + b).backward(tfw.ones(3))
    assert a.grad is not None
    assert b.grad is not None
    a.grad.mul_(10.0)
    assert b.grad.tolist() == [1.0, 1.0, 1.0]


def _leaves_of_many_paths() -> list[tfw.Tensor]:
    draw = np.random.default_rng(0).standard_normal
    leaves = [
        tfw.tensor(draw(shape), requires_grad=True)
        for shape in [(3, 4), (4,), (4, 3), (3, 4), (3, 1)]
    ]
    a, b, c, d, e = leaves
    h = tfw.tanh(a + b) * e + d.clone()
    y = (h @ c).sum() + h.reshape(-1).sum() + a.T.sum() + d.expand(2, 3, 4).sum()
    y.backward()
    return leaves


def test_gradients_share_memory_with_nothing() -> None:
    leaves = _leaves_of_many_paths()
    arrays = [x._a for x in leaves] + [x.grad._a for x in leaves if x.grad is not None]
    assert len(arrays) == 10
    for i, a in enumerate(arrays):
        assert not any(np.shares_memory(a, b) for b in arrays[i + 1 :])
        a[...] = 7.0  # writable, not a broadcast
        assert (a == 7.0).all()


def test_hook_that_keeps_the_gradient_keeps_its_value() -> None:
    kept: list[tfw.Tensor] = []
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    x.register_hook(kept.append)
    for _ in range(2):
        (x * 3.0).sum().backward()
    assert x.grad is not None
    x.grad.zero_()
    assert [k.tolist() for k in kept] == [[3.0, 3.0], [3.0, 3.0]]


def test_hook_on_a_computed_tensor_that_keeps_the_gradient_keeps_its_value() -> None:
    kept: list[tfw.Tensor] = []
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    y = x + 1.0
    y.register_hook(kept.append)
    y.sum().backward()
    (x * 5.0).sum().backward()
    assert kept[0].tolist() == [1.0, 1.0]
    assert x.grad is not None
    assert x.grad.tolist() == [6.0, 6.0]


def test_node_hook_that_keeps_gradients_keeps_their_values() -> None:
    kept: list[tfw.Tensor] = []
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2.0
    assert y.grad_fn is not None
    y.grad_fn.register_hook(lambda into, out: kept.extend([into[0], out[0]]))
    y.sum().backward()
    assert x.grad is not None
    x.grad.mul_(100.0)
    assert [k.tolist() for k in kept] == [[2.0, 2.0], [1.0, 1.0]]


def test_retained_gradient_is_its_own() -> None:
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    y = x.clone()
    y.retain_grad()
    y.backward(tfw.ones(2))
    assert x.grad is not None
    assert y.grad is not None
    y.grad.mul_(5.0)
    assert x.grad.tolist() == [1.0, 1.0]


def test_result_of_grad_is_not_the_given_gradient() -> None:
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1.0
    g = tfw.ones(2)
    y.backward(g)
    g.mul_(9.0)
    assert x.grad is not None
    assert x.grad.tolist() == [1.0, 1.0]


def test_a_leaf_that_requires_grad_no_more_gets_none() -> None:
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    y = (x * x).sum()
    x.requires_grad_(False)
    y.backward()
    assert x.grad is None


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 4)])
def test_gradient_has_the_layout_of_its_leaf(shape: tuple[int, ...]) -> None:
    # A leaf with another layout (channels-last, a transposed weight) has it for its gradient too:
    # an optimizer walks both in one order.
    base = tfw.tensor(np.arange(np.prod(shape), dtype=np.float32).reshape(shape))
    leaf = base.transpose(0, 1).detach().requires_grad_()
    (leaf * leaf).sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.stride() == leaf.stride()
    assert leaf.grad.tolist() == (leaf.detach() * 2.0).tolist()
    row_major = tfw.tensor(np.ones(shape, np.float32), requires_grad=True)
    row_major.transpose(0, 1).clone().sum().backward()
    assert row_major.grad is not None
    assert row_major.grad.stride() == row_major.stride()


def test_gradient_of_an_expanded_leaf_is_dense() -> None:
    leaf = tfw.tensor([[1.0], [2.0]]).expand(2, 3).detach().requires_grad_()
    leaf.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.stride() == (3, 1)
    leaf.grad[0, 0] = 5.0
    assert leaf.grad.tolist() == [[5.0, 1.0, 1.0], [1.0, 1.0, 1.0]]


@twin([True, [5.0, 5.0]])
def test_accumulation_is_in_place_without_create_graph(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    (x * 2.0).sum().backward()
    held = x.grad
    (x * 3.0).sum().backward()
    return held is x.grad, held


@twin([[2.0, 4.0], [4.0, 8.0], True])
def test_accumulation_is_out_of_place_with_create_graph(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    (x * x).sum().backward(create_graph=True)
    held = x.grad
    (x * x).sum().backward(create_graph=True)
    return held, x.grad, x.grad.requires_grad


@twin([[[11.0, 21.0], [11.0, 21.0]], ["RuntimeError", "RuntimeError", "TypeError"], None, None])
def test_assigning_a_gradient(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    g = t.tensor([10.0, 20.0])
    x.grad = g
    (x * 1.0).sum().backward()
    seen = x.grad.tolist(), g.tolist()

    def assign(value: Any) -> None:
        x.grad = value

    refusals = [
        refused(lambda: assign(t.ones(3))),
        refused(lambda: assign(t.ones(2, dtype=t.float64))),
        refused(lambda: assign([1.0, 2.0])),
    ]
    x.grad = None
    emptied = x.grad
    x.grad = t.ones(2)
    del x.grad
    return seen, refusals, emptied, x.grad


@twin([24.0, True, False])
def test_retained_gradients_add_up(t: Any) -> Any:
    x = t.tensor(2.0, requires_grad=True)
    m = x * 3.0
    m.retain_grad()
    y = m * m
    y.backward(retain_graph=True)
    y.backward()
    return m.grad, m.retains_grad, x.retains_grad


@twin([False, "RuntimeError"])
def test_retain_grad_on_a_leaf_and_without_history(t: Any) -> Any:
    x = t.tensor(2.0, requires_grad=True)
    x.retain_grad()
    c = t.tensor(2.0)
    return x.retains_grad, refused(c.retain_grad)


def test_threads_add_to_one_leaf() -> None:
    """Every thread's gradients count, though they arrive at once."""
    w = tfw.zeros(200, 200, requires_grad=True)

    def accumulate() -> None:
        for _ in range(100):
            (w * 1.0).sum().backward()

    threads = [threading.Thread(target=accumulate) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert w.grad is not None
    assert w.grad.numpy().min() == w.grad.numpy().max() == 400.0
