"""autograd.Function: wrong results, freed values, odd outputs, second derivatives."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest
from twins import refused, twin

import tfw
from tfw.errors import ArgumentError, AutogradError, ShapeError


@twin([[24.0, 96.0], [48.0, 96.0], [[48.0, 48.0]]])
def test_second_derivative_through_a_function(t: Any) -> Any:
    class Cube(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 3.0 * x * x

    x = t.tensor([1.0, 2.0], dtype=t.float64, requires_grad=True)
    m = x * 2.0
    (g,) = t.autograd.grad(Cube.apply(m).sum(), x, create_graph=True)
    (h,) = t.autograd.grad(g.sum(), x, create_graph=True)
    return g, h, t.autograd.grad(h.sum(), x)


@twin([[1.0, 2.71828183], [[1.0, 2.71828183]]])
def test_second_derivative_through_a_saved_output(t: Any) -> Any:
    class Exp(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = t.exp(x)
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (y,) = ctx.saved_tensors
            return g * y

    x = t.tensor([0.0, 1.0], dtype=t.float64, requires_grad=True)
    (g,) = t.autograd.grad(Exp.apply(x).sum(), x, create_graph=True)
    return g, t.autograd.grad(g.sum(), x)


@twin([6.0, 6.0, "RuntimeError"])
def test_once_differentiable(t: Any) -> Any:
    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        @t.autograd.function.once_differentiable
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 2.0 * x

    x = t.tensor(3.0, requires_grad=True)
    Square.apply(x).backward()
    (g,) = t.autograd.grad(Square.apply(x), x, create_graph=True)
    return x.grad, g, refused(lambda: t.autograd.grad(g, x))


@twin(
    [
        ["RuntimeError", None, None],
        ["RuntimeError", None, None],
        ["no error", [1.0, 1.0], [1.0, 1.0]],
        ["no error", [1.0, 1.0], None],
        ["RuntimeError", None, None],
        ["no error", [4.0, 4.0], [1.0, 1.0]],
        ["RuntimeError", None, None],
    ]
)
def test_gradients_of_wrong_number_or_shape(t: Any) -> Any:
    def giving(result: Any) -> Any:
        class Bad(t.autograd.Function):
            @staticmethod
            def forward(ctx: Any, a: Any, b: Any) -> Any:
                return a + b

            @staticmethod
            def backward(ctx: Any, g: Any) -> Any:
                return result(g)

        a = t.tensor([1.0, 2.0], requires_grad=True)
        b = t.tensor([1.0, 2.0], requires_grad=True)
        y = Bad.apply(a, b).sum()
        return refused(y.backward), a.grad, b.grad

    return [
        giving(lambda g: g),
        giving(lambda g: (g, g, g)),
        giving(lambda g: (g, g, None)),
        giving(lambda g: (g, None)),
        giving(lambda g: (t.ones(3), g)),
        giving(lambda g: (t.ones(4, 2), g)),
        giving(lambda g: (1.0, g)),
    ]


@twin(["RuntimeError", "RuntimeError"])
def test_freed_and_modified_saved_tensors(t: Any) -> Any:
    class Square(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            (x,) = ctx.saved_tensors
            return g * 2.0 * x

    x = t.tensor(3.0, requires_grad=True)
    y = Square.apply(x)
    y.backward()
    twice = refused(y.backward)
    m = x * 2.0
    z = Square.apply(m)
    m.add_(1.0)
    return twice, refused(z.backward)


@twin(["KeyError", "ZeroDivisionError", None, True])
def test_errors_in_forward_and_backward_come_out_as_they_are(t: Any) -> Any:
    class Fails(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, where: str) -> Any:
            if where == "forward":
                raise KeyError(where)
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            raise ZeroDivisionError

    x = t.tensor(3.0, requires_grad=True)
    y = Fails.apply(x, "")
    return (
        refused(lambda: Fails.apply(x, "forward")),
        refused(y.backward),
        x.grad,
        t.is_grad_enabled(),
    )


@twin([12.0, 24.0])
def test_calls_inside_a_function(t: Any) -> Any:
    class Doubled(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with t.enable_grad():
                inner = x.detach().requires_grad_()
                y = (inner * inner).sum()
            (ctx.slope,) = t.autograd.grad(y, inner)
            return y.detach() * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return ctx.slope * 2.0 * g

    x = t.tensor([1.0, 2.0], requires_grad=True)
    (Doubled.apply(x) * 3.0).backward()
    return x.grad


class _Holds(tfw.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        y = x * 2.0
        ctx.save_for_backward(x, y)
        return y

    @staticmethod
    def backward(ctx: Any, g: Any) -> Any:
        x, y = ctx.saved_tensors
        return g * y / x


def test_no_reference_cycle() -> None:
    gc.collect()
    gc.disable()
    try:
        x = tfw.tensor([1.0, 2.0], requires_grad=True)
        y = _Holds.apply(x)
        memory, node = weakref.ref(y._a), weakref.ref(y.grad_fn)
        y.sum().backward()
        assert memory() is not None
        del y
        assert memory() is None
        assert node() is None
        # Neither does a graph that is dropped unrun leave anything.
        y = _Holds.apply(x)
        memory = weakref.ref(y._a)
        del y
        assert memory() is None
    finally:
        gc.enable()


def test_errors_name_the_function_and_the_argument() -> None:
    class Bad(tfw.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g, tfw.ones(5)

    a = tfw.ones(2, requires_grad=True)
    with pytest.raises(
        ShapeError, match=r"BadBackward.*shape \(5,\) for argument 1 of shape \(2,\)"
    ):
        Bad.apply(a, a.detach().requires_grad_()).sum().backward()
    Bad.backward = staticmethod(lambda ctx, g: g)
    with pytest.raises(AutogradError, match="returned 1 gradients for 2 arguments"):
        Bad.apply(a, a).sum().backward()
    with pytest.raises(ArgumentError, match=r"call Bad\.apply"):
        Bad()


@twin([[0.0, 5.0, 5.0], "RuntimeError", "RuntimeError"])
def test_an_output_that_is_a_view_of_an_input(t: Any) -> Any:
    class Tail(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x[1:]

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return t.cat([t.zeros(1), g * 5.0])

    x = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
    Tail.apply(x).sum().backward()
    m = x * 2.0
    tail = Tail.apply(m)
    refusal = refused(lambda: tail.mul_(2.0))
    m.mul_(2.0)
    return x.grad, refusal, refused(lambda: (tail * 2.0).sum().backward())


@twin([True, [33.0, 33.0]])
def test_one_tensor_returned_twice(t: Any) -> Any:
    class Twice(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2.0
            return y, y

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            return a * 2.0 + b * 3.0

    x = t.tensor([1.0, 2.0], requires_grad=True)
    a, b = Twice.apply(x)
    (a.sum() + b.sum() * 10.0).backward()
    return a is b, x.grad


@twin(["NotImplementedError", "NotImplementedError", 9.0, 3, None])
def test_missing_methods_and_the_name_vjp(t: Any) -> Any:
    class NoBackward(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0

    class NoForward(t.autograd.Function):
        pass

    class Vjp(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 1.0, 3, None

        @staticmethod
        def vjp(ctx: Any, g: Any, *rest: Any) -> Any:
            return g * 9.0

    x = t.tensor(2.0, requires_grad=True)
    y, three, nothing = Vjp.apply(x)
    y.backward()
    return (
        refused(NoBackward.apply(x).backward),
        refused(lambda: NoForward.apply(x)),
        x.grad,
        three,
        nothing,
    )
