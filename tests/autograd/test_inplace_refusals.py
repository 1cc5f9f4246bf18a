"""In-place changes that must not happen, or that backward must notice."""

from __future__ import annotations

from typing import Any

import pytest
from twins import refused, twin

import tfw
from tfw.errors import AutogradError, LayoutError, VersionError


def _four(t: Any) -> Any:
    return t.tensor([1.0, 2.0, 3.0, 4.0], dtype=t.float64, requires_grad=True)


@twin(
    [
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        [1.0, 2.0, 3.0, 4.0],
        0,
    ]
)
def test_views_of_a_leaf_are_refused(t: Any) -> Any:
    x = _four(t)
    v = x[1:].view(3, 1)
    return [
        refused(lambda: x.mul_(2.0)),
        refused(lambda: v.mul_(2.0)),
        refused(lambda: x.unsqueeze(0).zero_()),
        refused(lambda: x.__setitem__(0, 1.0)),
        refused(lambda: x.view(2, 2)[0].copy_(x[:2])),
        x,
        x._version,
    ]


@twin(
    [
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        [1.0, 1.0, 0.0, 0.0],
        [1.0, 2.0, 3.0, 4.0],
        [1.0, 2.0],
    ]
)
def test_outputs_of_split_and_chunk_are_refused(t: Any) -> Any:
    x = _four(t)
    y = x * 1.0
    a, b = y.split(2)
    c, d = y.chunk(2)
    (only,) = y.split(4)
    plain = t.zeros(4)
    p, _ = plain.split(2)
    p.add_(1.0)  # nothing is tracked: allowed
    return [
        refused(lambda: a.mul_(2.0)),
        refused(lambda: b[0:1].mul_(2.0)),
        refused(lambda: d.zero_()),
        refused(lambda: only.mul_(2.0)),
        refused(lambda: p.add_(x[0])),
        plain,
        y,
        c,
    ]


@twin([[1.0, 4.0, 6.0, 8.0], "RuntimeError", [1.0, 1.0, 1.0, 1.0]])
def test_view_taken_under_no_grad_then_modified(t: Any) -> Any:
    x = _four(t)
    y = x * 1.0
    with t.no_grad():
        v = y[1:]
        v.mul_(2.0)
    refusal = refused(lambda: v.mul_(2.0))
    (y * 1.0).sum().backward()
    return y, refusal, x.grad


@twin(
    [
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        "RuntimeError",
        [[0.0, 0.0], [0.0, 0.0], [0.0, 0.0]],
    ]
)
def test_expanded_tensors_are_refused(t: Any) -> Any:
    x = _four(t)
    v = (x * 1.0).expand(3, 4)
    plain = t.zeros(1, 2).expand(3, 2)
    return [
        refused(lambda: v.mul_(2.0)),
        refused(lambda: v.add_(x)),
        refused(lambda: plain.add_(1.0)),
        refused(lambda: plain.copy_(t.ones(3, 2))),
        refused(lambda: plain.T.mul_(t.ones(2, 3))),
        plain,
    ]


@twin(["RuntimeError", "RuntimeError", "RuntimeError", [16.0, 36.0, 9.0, 16.0]])
def test_source_and_destination_that_overlap(t: Any) -> Any:
    x = _four(t)
    y = x * 1.0
    plain = t.tensor([1.0, 2.0, 3.0, 4.0])
    plain[:2].add_(plain[2:])  # disjoint parts: allowed
    plain.mul_(plain)  # the same elements: allowed
    return [
        refused(lambda: y[1:].add_(y[:-1])),
        refused(lambda: plain[1:].copy_(plain[:-1])),
        refused(lambda: plain.view(2, 2).mul_(plain.view(2, 2).T)),
        plain,
    ]


def test_requires_grad_on_the_base_after_a_view() -> None:
    # PyTorch 2.13: the view says requires_grad=True, but backward through it fills no gradient.
    # In tfw the view shows a leaf, and its gradient arrives there.
    x = tfw.ones(3)
    v = x[1:]
    w = x * 2.0
    x.requires_grad_()
    assert v.requires_grad
    assert not w.requires_grad
    (v * 2.0).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [0.0, 2.0, 2.0]
    with pytest.raises(AutogradError, match="leaf"):
        v.mul_(2.0)


def test_a_stale_value_is_named() -> None:
    x = tfw.ones(3, requires_grad=True)
    y = x * 2.0
    z = tfw.exp(y)
    total = z.sum()
    z.view(3)[0] = 5.0
    z.add_(1.0)
    with pytest.raises(VersionError, match="version 2, version 0 was saved") as raised:
        total.backward()
    assert raised.value.op == "exp"
    assert raised.value.value == 2
    assert "clone()" in raised.value.remedy
    assert x.grad is None


def test_refusals_name_the_op_and_change_nothing() -> None:
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    for change, op in [
        (lambda: x.mul_(2.0), "mul_"),
        (lambda: x[0:1].add_(2.0), "add_"),
        (lambda: x.masked_fill_(x > 0, 0.0), "masked_fill_"),
    ]:
        with pytest.raises(AutogradError) as raised:
            change()
        assert raised.value.op == op
    wide = tfw.zeros(1).expand(3)
    with pytest.raises(LayoutError, match="one place in memory") as overlapping:
        wide.add_(1.0)
    assert overlapping.value.op == "add_"
    assert x.tolist() == [1.0, 2.0]
    assert x._version == 0
    assert wide.tolist() == [0.0, 0.0, 0.0]


def test_a_failed_change_leaves_value_version_and_history_alone() -> None:
    x = tfw.tensor([[1.0, 2.0]], requires_grad=True)
    y = x * 1.0
    node, version = y.grad_fn, y._version
    for change in (
        lambda: y.add_(tfw.ones(3)),
        lambda: y.add_(tfw.ones(2, 2)),
        lambda: y.copy_(tfw.ones(5)),
        lambda: y.__setitem__(4, 1.0),
        lambda: y.add_("a"),  # pyright: ignore[reportArgumentType]
    ):
        with pytest.raises((RuntimeError, IndexError, TypeError)):
            change()
        assert y.grad_fn is node
        assert y._version == version
    assert y.tolist() == [[1.0, 2.0]]
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [[1.0, 1.0]]


@twin(
    [
        ["RuntimeError", None],
        ["RuntimeError", None],
        ["RuntimeError", None],
        ["no error", [3.0, 3.0]],
        ["no error", [0.0, 0.0]],
    ]
)
def test_an_operand_that_shares_the_overwritten_memory(t: Any) -> Any:
    def slope(change: Any) -> Any:
        x = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
        y = x * 3.0
        change(y)
        error = refused(y.sum().backward)
        return error, x.grad

    return [
        slope(lambda y: y.mul_(y.detach())),
        slope(lambda y: y.div_(y.detach())),
        slope(lambda y: y.mul_(y.view(2))),
        slope(lambda y: y.add_(y.detach())),
        slope(lambda y: y.sub_(y)),
    ]
