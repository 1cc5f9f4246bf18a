"""Gradient modes: contexts, decorators, generators, threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from twins import refused, twin

import tfw


@twin([True, False, True, False, True, False, True])
def test_contexts_nest_and_restore(t: Any) -> Any:
    on = t.is_grad_enabled
    seen = [on()]
    with t.no_grad():
        seen.append(on())
        with t.enable_grad():
            seen.append(on())
            with t.set_grad_enabled(False):
                seen.append(on())
            seen.append(on())
        seen.append(on())
    return [*seen, on()]


@twin([["KeyError", False], ["KeyError", True], ["KeyError", True]])
def test_an_exception_restores_the_mode(t: Any) -> Any:
    def fail(mode: Any) -> None:
        with mode:
            raise KeyError

    seen = []
    for mode in (t.no_grad(), t.inference_mode(), t.set_grad_enabled(False)):
        seen.append([refused(lambda mode=mode: fail(mode)), t.is_grad_enabled()])
        t.set_grad_enabled(True)
    return seen


@twin(
    [
        [
            [False, False, "f", "Doc."],
            [False, False, "f", "Doc."],
            [False, False, "f", "Doc."],
            [False, False, "f", "Doc."],
            [False, False, "f", "Doc."],
            [True, True, "f", "Doc."],
            [True, True],
        ],
        True,
    ]
)
def test_decorators_with_and_without_parentheses(t: Any) -> Any:
    def f(x: Any, y: float = 1.0) -> Any:
        """Doc."""
        return (x * y).requires_grad

    x = t.tensor(1.0, requires_grad=True)
    decorated = [
        t.no_grad()(f),
        t.no_grad(f),
        t.inference_mode()(f),
        t.inference_mode(f),
        t.set_grad_enabled(False)(f),
        t.inference_mode(False)(f),
    ]
    told = [[g(x), g(x, y=2.0), g.__name__, g.__doc__] for g in decorated]
    with t.no_grad():
        told.append([t.enable_grad()(f)(x), t.enable_grad(f)(x)])
    return told, t.is_grad_enabled()


@twin([[False, False, False, True, True], True])
def test_a_decorated_function_may_call_itself(t: Any) -> Any:
    seen: list[Any] = []

    @t.no_grad()
    def down(n: int) -> None:
        seen.append(t.is_grad_enabled())
        if n:
            with t.enable_grad():
                down(n - 1)
                seen.append(t.is_grad_enabled())

    down(2)
    return seen, t.is_grad_enabled()


@twin(
    [
        [
            ["made", True],
            ["inside", False],
            ["outside", True],
            ["received", "hello", False],
            ["inside", False],
            ["outside", True],
            ["thrown", False],
            ["thrown into", -1],
            ["outside", True],
            ["closed", False],
            "result",
        ],
        True,
    ]
)
def test_a_generator_has_its_mode_only_while_it_runs(t: Any) -> Any:
    seen: list[Any] = []

    @t.no_grad()
    def numbers() -> Iterator[Any]:
        try:
            while True:
                seen.append(["inside", t.is_grad_enabled()])
                received = yield len(seen)
                seen.append(["received", received, t.is_grad_enabled()])
        except KeyError:
            seen.append(["thrown", t.is_grad_enabled()])
            yield -1
        finally:
            seen.append(["closed", t.is_grad_enabled()])

    g = numbers()
    seen.append(["made", t.is_grad_enabled()])
    next(g)
    seen.append(["outside", t.is_grad_enabled()])
    g.send("hello")
    seen.append(["outside", t.is_grad_enabled()])
    seen.append(["thrown into", g.throw(KeyError())])
    seen.append(["outside", t.is_grad_enabled()])
    g.close()

    @t.no_grad()
    def returns() -> Iterator[Any]:
        yield 1
        return "result"

    def delegates() -> Iterator[Any]:
        seen.append((yield from returns()))

    list(delegates())
    return seen, t.is_grad_enabled()


@twin([False, True, True, True, True])
def test_set_grad_enabled_as_a_call(t: Any) -> Any:
    seen = []
    t.set_grad_enabled(False)
    seen.append(t.is_grad_enabled())
    t.set_grad_enabled(mode=True)
    seen.append(t.is_grad_enabled())
    with t.set_grad_enabled(False):
        t.set_grad_enabled(True)
        seen.append(t.is_grad_enabled())
    seen.append(t.is_grad_enabled())
    mode = t.set_grad_enabled(False)
    with mode:
        pass
    seen.append(t.is_grad_enabled())
    t.set_grad_enabled(True)
    return seen


@twin([False, True, False, True])
def test_one_mode_object_used_twice(t: Any) -> Any:
    mode = t.no_grad()
    seen = []
    for _ in range(2):
        with mode:
            seen.append(t.is_grad_enabled())
        seen.append(t.is_grad_enabled())
    return seen


@twin([False, [2.0, 3.0], True, True, True, True])
def test_nothing_is_tracked_under_no_grad(t: Any) -> Any:
    x = t.tensor([1.0, 2.0], requires_grad=True)
    with t.no_grad():
        y = x * 2.0
        x.add_(1.0)  # a leaf may be modified here
        fresh = t.ones(2, requires_grad=True)
        z = y.clone().requires_grad_()
    return y.requires_grad, x, x.requires_grad, fresh.requires_grad, z.requires_grad, z.is_leaf


@twin([False, True, False, False, True, False, True, False])
def test_inference_mode_is_told(t: Any) -> Any:
    seen = [t.is_inference_mode_enabled()]
    with t.inference_mode():
        seen += [t.is_inference_mode_enabled(), t.is_grad_enabled()]
        with t.inference_mode(False):
            seen += [t.is_inference_mode_enabled(), t.is_grad_enabled()]
        y = t.ones(2) * 2.0
    return [*seen, t.is_inference_mode_enabled(), t.is_grad_enabled(), y.requires_grad]


@twin(["TypeError", True])
def test_set_grad_enabled_wants_a_bool(t: Any) -> Any:
    return refused(lambda: t.set_grad_enabled("no")), t.is_grad_enabled()


def test_views_taken_under_no_grad_have_no_history() -> None:
    # PyTorch 2.13 says requires_grad=True of such a view of a leaf, though backward reaches neither
    # the view nor the leaf; tfw says what holds.
    x = tfw.tensor([1.0, 2.0], requires_grad=True)
    with tfw.no_grad():
        v = x[1:]
    assert not v.requires_grad
    assert v.is_leaf
    assert not (v * 2.0).requires_grad


@pytest.mark.parametrize("switch", ["grad", "inference", "anomaly"])
def test_every_thread_has_its_own_modes(switch: str) -> None:
    ready, done = threading.Event(), threading.Event()
    seen: list[bool] = []

    def state() -> bool:
        return {
            "grad": tfw.is_grad_enabled,
            "inference": tfw.is_inference_mode_enabled,
            "anomaly": tfw.is_anomaly_enabled,
        }[switch]()

    def other() -> None:
        seen.append(state())
        ready.set()
        done.wait(10)
        seen.append(state())

    mode: Any = {
        "grad": tfw.no_grad,
        "inference": tfw.inference_mode,
        "anomaly": tfw.autograd.detect_anomaly,
    }[switch]
    before = state()
    thread = threading.Thread(target=other)
    with mode():
        assert state() != before
        thread.start()
        ready.wait(10)
        late = threading.Thread(target=lambda: seen.append(state()))
        late.start()
        late.join(10)
    done.set()
    thread.join(10)
    assert seen == [before, before, before]


def test_threads_build_and_run_graphs_at_once() -> None:
    errors: list[BaseException] = []

    def work(k: int) -> None:
        try:
            x = tfw.full((8,), float(k), requires_grad=True)
            for _ in range(50):
                h = x
                for _ in range(5):
                    h = h * x
                x.grad = None
                h.sum().backward()
                assert x.grad is not None
                assert x.grad.tolist() == [6.0 * k**5] * 8
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=(k,)) for k in range(1, 5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert not errors
