"""autograd.Function in the forms that PyTorch knows."""

from __future__ import annotations

from typing import Any

from twins import refused, twin


@twin(
    [
        [3.0, 8.15484549],
        [3.0, 8.15484549],
        [[[0.0, 1.0], None, 3.0, [True, False]]],
        "ScaledExpBackward",
    ]
)
def test_saved_inputs_outputs_none_and_attributes(t: Any) -> Any:
    seen: list[Any] = []

    class ScaledExp(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any, scale: float) -> Any:
            y = t.exp(x) * scale
            ctx.save_for_backward(x, y, None)
            ctx.scale = scale
            return y

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            x, y, nothing = ctx.saved_tensors
            seen.append([x.tolist(), nothing, ctx.scale, ctx.needs_input_grad])
            return g * y, None

    x = t.tensor([0.0, 1.0], dtype=t.float64, requires_grad=True)
    y = ScaledExp.apply(x, 3.0)
    y.sum().backward()
    return y, x.grad, seen, y.grad_fn.name()


@twin([[24.0, 32.0], [1.0, 2.0]])
def test_setup_context_form(t: Any) -> Any:
    class Product(t.autograd.Function):
        @staticmethod
        def forward(a: Any, b: Any) -> Any:
            return a * b

        @staticmethod
        def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
            a, b = inputs
            ctx.save_for_backward(a, b)
            ctx.largest = output.max().item()

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            a, b = ctx.saved_tensors
            return g * b * ctx.largest, g * a

    a = t.tensor([1.0, 2.0], requires_grad=True)
    b = t.tensor([3.0, 4.0], requires_grad=True)
    Product.apply(a, b).sum().backward()
    return a.grad, b.grad


@twin([1.0, None, [[True, False, False, False], [True, False, False, False]]])
def test_needs_input_grad_and_unneeded_gradients(t: Any) -> Any:
    seen: list[Any] = []

    class Sum3(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, a: Any, b: Any, n: int, c: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            return a + b + c * n

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(ctx.needs_input_grad)
            return g, g * 2.0, None, None

    a = t.tensor(1.0, requires_grad=True)
    b = t.tensor(2.0)
    Sum3.apply(a, b, 5, t.tensor(3.0)).backward()
    return a.grad, b.grad, seen


@twin(
    [
        [[3.0, 3.0], [3.0, 3.0]],
        [[[[1.0, 1.0], [1.0, 1.0]], [0.0, 0.0]], [[[0.0, 0.0], [0.0, 0.0]], [1.0, 1.0]]],
        True,
    ]
)
def test_several_outputs_with_unused_ones_materialized(t: Any) -> Any:
    seen: list[Any] = []

    class Two(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0, x.sum(0)

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            seen.append([g.tolist(), h.tolist()])
            return g * 2.0 + h

    x = t.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    y, z = Two.apply(x)
    y.sum().backward(retain_graph=True)
    z.sum().backward()
    return x.grad, seen, isinstance(Two.apply(x), tuple)


@twin([None, [3.0, 3.0], [[False, True], [True, False]]])
def test_unused_outputs_as_none(t: Any) -> Any:
    seen: list[Any] = []

    class Two(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            ctx.set_materialize_grads(False)
            return x * 2.0, x * 3.0

        @staticmethod
        def backward(ctx: Any, g: Any, h: Any) -> Any:
            seen.append([g is None, h is None])
            return None if h is None else h * 3.0

    x = t.tensor([1.0, 2.0], requires_grad=True)
    y, z = Two.apply(x)
    y.sum().backward(retain_graph=True)
    first = x.grad
    z.sum().backward()
    return first, x.grad, seen


@twin([True, False, False, [0.0, 1.0, 0.0], 1])
def test_mark_non_differentiable(t: Any) -> Any:
    class Largest(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            values, indices = x.max(0)
            rounded = values * 1.0
            ctx.mark_non_differentiable(indices, rounded)
            ctx.save_for_backward(x)
            return values, indices, rounded

        @staticmethod
        def backward(ctx: Any, g: Any, no_indices: Any, no_rounded: Any) -> Any:
            (x,) = ctx.saved_tensors
            return (x == x.max()).to(x.dtype) * g

    x = t.tensor([1.0, 5.0, 3.0], requires_grad=True)
    values, indices, rounded = Largest.apply(x)
    values.backward()
    return values.requires_grad, indices.requires_grad, rounded.requires_grad, x.grad, indices


@twin([True, [3.0, 5.0], [20.0, 20.0], "RuntimeError"])
def test_mark_dirty(t: Any) -> Any:
    class AddOne(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with t.no_grad():
                x.add_(1.0)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 10.0

    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = x * 2.0
    z = AddOne.apply(y)
    z.sum().backward()
    leaf = refused(lambda: AddOne.apply(x))
    return z is y, y, x.grad, leaf


@twin([[1.0, 6.0], [1.0, 3.0]])
def test_mark_dirty_of_a_view_rebases_its_base(t: Any) -> Any:
    class Triple(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            with t.no_grad():
                x.mul_(3.0)
            ctx.mark_dirty(x)
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 3.0

    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = x * 1.0
    Triple.apply(y[1:])
    y.sum().backward()
    return y, x.grad


@twin([False, False, True, [7.0, 7.0]])
def test_returning_an_input(t: Any) -> Any:
    class Identity(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 7.0

    x = t.tensor([1.0, 2.0], requires_grad=True)
    y = Identity.apply(x)
    y.sum().backward()
    return y is x, y.is_leaf, x.is_leaf, x.grad


@twin([False, False, True])
def test_without_anything_to_track(t: Any) -> Any:
    class Double(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            return x * 2.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            return g * 2.0

    x = t.tensor(3.0, requires_grad=True)
    with t.no_grad():
        quiet = Double.apply(x)
    return (
        Double.apply(t.tensor(1.0)).requires_grad,
        quiet.requires_grad,
        Double.apply(x).requires_grad,
    )


@twin([[["forward", False], ["backward", False], ["forward", False], ["backward", True]], True])
def test_forward_runs_unrecorded_and_backward_recorded_only_on_demand(t: Any) -> Any:
    seen: list[Any] = []

    class Probe(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            seen.append(["forward", t.is_grad_enabled()])
            return x * 1.0

        @staticmethod
        def backward(ctx: Any, g: Any) -> Any:
            seen.append(["backward", t.is_grad_enabled()])
            return g * 1.0

    x = t.tensor(3.0, requires_grad=True)
    Probe.apply(x).backward()
    t.autograd.grad(Probe.apply(x), x, create_graph=True)
    return seen, t.is_grad_enabled()


@twin([True, [2.0, 3.0], [2.0, 4.0], [13.0, 13.0]])
def test_a_dirty_input_beside_another_output(t: Any) -> Any:
    class Step(t.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Any) -> Any:
            y = x * 2.0
            x.add_(1.0)
            ctx.mark_dirty(x)
            return x, y

        @staticmethod
        def backward(ctx: Any, a: Any, b: Any) -> Any:
            return a + b * 2.0

    x = t.tensor([1.0, 2.0], requires_grad=True)
    m = x * 1.0
    a, b = Step.apply(m)
    (a.sum() * 3.0 + b.sum() * 5.0).backward()
    return a is m, m, b, x.grad
