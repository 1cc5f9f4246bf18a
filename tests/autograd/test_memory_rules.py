"""Memory goes with the last reference: no cycle, no object left, no recursion on long chains."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import tfw
from tfw.errors import AutogradError

STEPS = 3000


@contextmanager
def _collector_off() -> Generator[None]:
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _objects_left(step: Callable[[], object], steps: int, warm_up: int = 20) -> int:
    """Return how many objects `steps` steps leave behind, with the collector off."""
    for _ in range(warm_up):  # plans, caches and layouts are made once
        step()
    with _collector_off():
        before = len(gc.get_objects())
        for _ in range(steps):
            step()
        return len(gc.get_objects()) - before


class _Scale(tfw.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any, factor: float) -> Any:
        y = x * factor
        ctx.save_for_backward(x, y)
        ctx.factor = factor
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        _, _ = ctx.saved_tensors
        return g * ctx.factor, None


def _leaves() -> tuple[tfw.Tensor, tfw.Tensor, tfw.Tensor]:
    draw = np.random.default_rng(0).standard_normal
    w = tfw.tensor(draw((4, 3)), requires_grad=True)
    b = tfw.tensor(draw(3), requires_grad=True)
    return tfw.tensor(draw((5, 4))), w, b


def _training_step() -> Callable[[], None]:
    x, w, b = _leaves()

    def step() -> None:
        h = tfw.relu(x @ w + b)
        y = tfw.softmax(h, -1) * 1.0
        y[0].mul_(2.0)
        loss = (y * y).sum() + h.reshape(-1)[::2].sum()
        loss.backward()
        with tfw.no_grad():
            for p in (w, b):
                assert p.grad is not None
                p.sub_(p.grad, alpha=1e-4)
                p.grad = None

    return step


def test_training_steps_leave_nothing() -> None:
    assert _objects_left(_training_step(), STEPS) <= 2


def _raising() -> Callable[[], None]:
    _, w, _ = _leaves()

    def step() -> None:
        y = tfw.exp(w)
        loss = (y * y).sum()
        y.add_(1.0)
        with pytest.raises(AutogradError):
            loss.backward()

    return step


def _failing_forward() -> Callable[[], None]:
    x, w, _ = _leaves()

    def step() -> None:
        h = x @ w
        with pytest.raises(RuntimeError):
            _ = h @ w
        with pytest.raises(RuntimeError):
            h.add_(tfw.ones(7))

    return step


def _hooked() -> Callable[[], None]:
    x, w, _ = _leaves()

    def step() -> None:
        h = x @ w
        h.register_hook(lambda g: g * 2.0)
        h.retain_grad()
        assert h.grad_fn is not None
        h.grad_fn.register_prehook(lambda grads: None)
        h.grad_fn.register_hook(lambda into, out: None)
        with w.register_hook(lambda g: g + 0.0):
            (h * h).sum().backward()
        w.grad = None

    return step


def _through_function() -> Callable[[], None]:
    x, w, _ = _leaves()

    def step() -> None:
        _Scale.apply(x @ w, 3.0).sum().backward()
        _Scale.apply(x @ w, 3.0)
        w.grad = None

    return step


def _second_order() -> Callable[[], None]:
    x, w, _ = _leaves()

    def step() -> None:
        (g,) = tfw.autograd.grad(tfw.tanh(x @ w).sum(), w, create_graph=True)
        assert g is not None
        tfw.autograd.grad((g * g).sum(), w)
        tfw.autograd.grad(tfw.tanh(x @ w).sum(), w, create_graph=True)

    return step


def _in_place_on_views() -> Callable[[], None]:
    x, w, _ = _leaves()

    def step() -> None:
        h = x @ w
        rows = h[1:]
        rows.mul_(2.0)
        h.T[0].copy_(w[:1].sum().expand(5))
        rows.view(-1)[2:5] = 1.0
        (h.sum() + rows.sum()).backward()
        w.grad = None

    return step


@pytest.mark.parametrize(
    "make",
    [_raising, _failing_forward, _hooked, _through_function, _second_order, _in_place_on_views],
)
def test_nothing_is_left_by(make: Callable[[], Callable[[], None]]) -> None:
    assert _objects_left(make(), 200) <= 2


def _payload(t: tfw.Tensor) -> weakref.ref[Any]:
    return weakref.ref(t._a)


def test_saved_values_go_when_backward_has_used_them() -> None:
    with _collector_off():
        x = tfw.ones(4, requires_grad=True)
        h = x * 3.0
        loss = (h * h).sum()
        saved = _payload(h)
        del h
        assert saved() is not None
        loss.backward()
        assert saved() is None


def test_saved_values_stay_with_retain_graph_until_the_graph_goes() -> None:
    with _collector_off():
        x = tfw.ones(4, requires_grad=True)
        h = x * 3.0
        loss = (h * h).sum()
        saved = _payload(h)
        del h
        loss.backward(retain_graph=True)
        assert saved() is not None
        del loss
        assert saved() is None


def test_values_that_no_gradient_needs_are_not_kept() -> None:
    with _collector_off():
        x = tfw.ones(4, requires_grad=True)
        h = x + 1.0
        y = h * 2.0
        kept = _payload(h)
        del h
        assert kept() is None
        y.sum().backward()


def test_only_the_operand_whose_partner_needs_it_is_kept() -> None:
    with _collector_off():
        x = tfw.ones(4, requires_grad=True)
        c = tfw.ones(4) * 2.0
        h = x * 3.0
        y = h * c
        partner, needless = _payload(c), _payload(h)
        del c, h
        assert partner() is not None
        assert needless() is None
        y.sum().backward()


def test_gradients_go_as_backward_passes() -> None:
    # A chain's backward holds few gradients at a time, not one for each of its nodes.
    seen: list[weakref.ref[Any]] = []
    alive: list[int] = []

    class Watch(tfw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            alive.append(sum(r() is not None for r in seen))
            result = g * 1.0
            seen.append(weakref.ref(result._a))
            return result

    with _collector_off():
        x = tfw.ones(4, requires_grad=True)
        h = x
        for _ in range(30):
            h = Watch.apply(h)
        h.sum().backward()
    assert max(alive) <= 2


def test_an_exception_in_backward_frees_with_its_traceback() -> None:
    with _collector_off():
        x = tfw.ones(4, requires_grad=True)
        h = tfw.exp(x)
        loss = h.sum()
        h.add_(1.0)
        memory = _payload(h)
        with pytest.raises(AutogradError) as raised:
            loss.backward()
        del raised, h, loss
        assert memory() is None


def test_views_keep_the_memory_they_show_and_no_more() -> None:
    with _collector_off():
        base = tfw.ones(100) * 2.0
        memory = _payload(base)
        view = base[1:3]
        del base
        assert memory() is not None
        assert view.tolist() == [2.0, 2.0]
        copy = view.clone()
        del view
        assert memory() is None
        assert copy.tolist() == [2.0, 2.0]


_LONG_CHAINS = """
import threading
import tfw

failed = []


def chain(length, f):
    y = x
    for _ in range(length):
        y = f(y)
    return y


def main():
    global x
    x = tfw.ones(1, requires_grad=True)
    chain(300_000, lambda y: y + 1.0).backward()
    assert x.grad.item() == 1.0
    chain(300_000, lambda y: y + 1.0)  # dropped without being run
    y = chain(100_000, lambda y: y * 1.0)
    y = y.detach()  # the history goes, the tensor stays
    tfw.autograd.grad(chain(100_000, lambda y: y.view(1)), x)  # views hold their parents
    y = x * 1.0
    for _ in range(2_000):  # each change of a view moves the history of its base on
        y[0:1].mul_(1.0)
    y.sum().backward()
    assert x.grad.item() == 2.0
    y = tfw.ones(1)
    for _ in range(100_000):
        y = y.view(1)  # untracked


def guarded():
    try:
        main()
    except BaseException as error:
        failed.append(error)
        raise


threading.stack_size(256 * 1024)  # deep recursion in C would crash here
thread = threading.Thread(target=guarded)
thread.start()
thread.join()
raise SystemExit(bool(failed))
"""


def test_long_chains_run_and_go_without_recursion() -> None:
    result = subprocess.run(
        [sys.executable, "-c", _LONG_CHAINS],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert result.returncode == 0, result.stderr[-2000:]
