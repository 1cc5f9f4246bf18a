"""Hooks around forward and in backward. Orders and gradients are PyTorch 2.13's."""

# Wrong calls, fields of errors, and gradients that are there:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

from typing import Any

import pytest

import tfw
from tfw import nn


class Scale(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.k = nn.Parameter(tfw.tensor([2.0, 5.0]))

    def forward(self, x: Any) -> Any:
        return x * self.k


def test_order_prepend_kwargs_and_removal():
    log: list[Any] = []
    m = nn.Identity()
    m.forward = lambda *args, **kwargs: args[0] if args else kwargs["x"]
    handles = [
        m.register_forward_pre_hook(lambda m, args: log.append("pre")),
        m.register_forward_pre_hook(
            lambda m, args, kwargs: log.append(sorted(kwargs)), with_kwargs=True
        ),
        m.register_forward_pre_hook(lambda m, args: log.append("first"), prepend=True),
        m.register_forward_hook(lambda m, args, out: log.append(out)),
        m.register_forward_hook(lambda m, args, kwargs, out: out + 1, with_kwargs=True),
    ]
    assert m(x=1) == 2
    assert log == ["first", "pre", ["x"], 1]
    for handle in handles:
        handle.remove()
    log.clear()
    assert m(1) == 1
    assert log == []
    with m.register_forward_hook(lambda m, args, out: 7):
        assert m(1) == 7
    assert m(1) == 1


def test_pre_hooks_replace_arguments():
    m = nn.Identity()
    m.register_forward_pre_hook(lambda m, args: args[0] * 2)
    m.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    m.register_forward_pre_hook(lambda m, args, kwargs: ((args[0] * 10,), kwargs), with_kwargs=True)
    assert m(3) == 70
    m.register_forward_pre_hook(lambda m, args, kwargs: 3, with_kwargs=True)
    with pytest.raises(RuntimeError, match="pre-hook") as caught:
        m(3)
    assert caught.value.value == 3


def test_a_hook_may_remove_itself():
    m = nn.Identity()
    log: list[int] = []

    def once(m: Any, args: Any, out: Any) -> None:
        log.append(1)
        handle.remove()

    handle = m.register_forward_hook(once)
    m.register_forward_hook(lambda m, args, out: log.append(2))
    m(0)
    m(0)
    assert log == [1, 2, 2]


def test_always_call_runs_after_an_error():
    class Bad(nn.Module):
        def forward(self, x: Any) -> Any:
            raise KeyError(x)

    log: list[Any] = []
    m = Bad()
    m.register_forward_hook(lambda m, args, out: log.append(("always", out)), always_call=True)
    m.register_forward_hook(lambda m, args, out: log.append("never"))
    with pytest.raises(KeyError):
        m(3)
    assert log == [("always", None)]
    m.register_forward_hook(lambda m, args, out: 1 / 0, always_call=True)
    with pytest.warns(UserWarning, match="ZeroDivisionError"), pytest.raises(KeyError):
        m(3)


def _run_logged(input_requires_grad: bool) -> tuple[list[Any], Any]:
    m = Scale()
    log: list[Any] = []
    m.register_full_backward_pre_hook(lambda m, out: log.append(("pre", out[0].tolist())))
    m.register_full_backward_hook(
        lambda m, in_, out: log.append(
            ("full", None if in_[0] is None else in_[0].tolist(), out[0].tolist())
        )
    )
    x = tfw.tensor([1.0, 2.0], requires_grad=input_requires_grad)
    (m(x) * tfw.tensor([3.0, 4.0])).sum().backward()
    return log, x.grad


def test_full_backward_hooks_see_both_gradients():
    log, gradient = _run_logged(True)
    assert log == [("pre", [3.0, 4.0]), ("full", [6.0, 20.0], [3.0, 4.0])]
    assert gradient.tolist() == [6.0, 20.0]


def test_full_backward_hook_without_input_gradients_warns_and_runs():
    with pytest.warns(UserWarning, match="no input requires grad"):
        log, gradient = _run_logged(False)
    assert log == [("pre", [3.0, 4.0]), ("full", None, [3.0, 4.0])]
    assert gradient is None


def test_full_backward_hooks_replace_gradients():
    m = Scale()
    m.register_full_backward_hook(lambda m, in_, out: (in_[0] * 100,))
    x = tfw.ones(2, requires_grad=True)
    m(x).sum().backward()
    assert x.grad.tolist() == [200.0, 500.0]
    assert m.k.grad.tolist() == [1.0, 1.0]
    m = Scale()
    m.register_full_backward_pre_hook(lambda m, out: (out[0] * 100,))
    x = tfw.ones(2, requires_grad=True)
    m(x).sum().backward()
    assert x.grad.tolist() == [200.0, 500.0]
    assert m.k.grad.tolist() == [100.0, 100.0]


def test_several_inputs_and_outputs():
    class Two(nn.Module):
        def forward(self, x: Any, n: Any, y: Any) -> Any:
            return x * 2, y * 3, n

    def values(grads: Any) -> list[Any]:
        return [None if g is None else g.tolist() for g in grads]

    m = Two()
    log: list[Any] = []
    m.register_full_backward_hook(lambda m, in_, out: log.append((values(in_), values(out))))
    x, y = tfw.ones(1, requires_grad=True), tfw.ones(1, requires_grad=True)
    a, b, n = m(x, 3, y)
    assert n == 3
    (a + b * 10).sum().backward()
    assert log == [([[2.0], None, [30.0]], [[1.0], [10.0], None])]
    assert x.grad.tolist() == [2.0]
    assert y.grad.tolist() == [30.0]


def test_bad_results_of_backward_hooks():
    m = Scale()
    m.register_full_backward_hook(lambda m, in_, out: (in_[0], in_[0]))
    out = m(tfw.ones(2, requires_grad=True)).sum()
    with pytest.raises(RuntimeError, match="returned 2 gradients") as caught:
        out.backward()
    assert caught.value.argument == "grad_input"
    m = Scale()
    m.register_full_backward_hook(lambda m, in_, out: (out[0],))
    out = m(tfw.ones(2)).sum()
    with (
        pytest.warns(UserWarning, match="no input requires grad"),
        pytest.raises(RuntimeError, match="require none"),
    ):
        out.backward()


def test_in_place_on_a_hooked_modules_tensors_is_refused():
    m = Scale()
    m.register_full_backward_hook(lambda m, in_, out: None)
    out = m(tfw.ones(2, requires_grad=True))
    with pytest.raises(RuntimeError, match="modified in place"):
        out.relu_()
    inplace = nn.ReLU(inplace=True)
    inplace.register_full_backward_hook(lambda m, in_, out: None)
    with pytest.raises(RuntimeError, match="modified in place"):
        inplace(tfw.ones(2, requires_grad=True) * 2)


def test_a_write_outside_autograd_passes_and_one_inside_is_noticed():
    m = Scale()
    m.register_full_backward_hook(lambda m, in_, out: None)
    x = tfw.ones(2, requires_grad=True) * 1.0
    y = m(x)
    with tfw.no_grad():
        y.mul_(3.0)
    y.sum().backward()
    assert m.k.grad.tolist() == [1.0, 1.0]
    source = tfw.ones(2, requires_grad=True) * 1.0
    m.forward = lambda x: source.mul_(2.0) * 0 + x
    with pytest.raises(RuntimeError, match="modified in place"):
        m(source)


def test_double_backward_passes_the_module_twice():
    m = Scale()
    log: list[Any] = []
    m.register_full_backward_hook(lambda m, in_, out: log.append(in_[0].tolist()))
    x = tfw.ones(2, requires_grad=True)
    (g,) = tfw.autograd.grad((m(x) ** 2).sum(), x, create_graph=True)
    g.sum().backward()
    assert log == [[8.0, 50.0], [8.0, 50.0]]
    assert x.grad.tolist() == [8.0, 50.0]


def test_an_output_that_is_no_tensor_warns():
    m = nn.Identity()
    m.register_full_backward_hook(lambda m, in_, out: None)
    with pytest.warns(UserWarning, match="Tensor or a tuple"):
        assert m([1]) == [1]
