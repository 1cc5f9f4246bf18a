"""gradcheck: analytical gradients against central differences, in float64."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

import numpy as np

from tfw import dtypes
from tfw.autograd.calls import grad
from tfw.autograd.modes import no_grad
from tfw.errors import AutogradError, DtypeError
from tfw.ops.data import tensor
from tfw.tensor import Tensor


class GradcheckError(AutogradError):
    """Analytical and numerical gradients that differ."""


def gradcheck(
    func: Callable[..., Any],
    inputs: Any,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
) -> bool:
    """Compare every element of the Jacobian of func at `inputs` with central differences.

    Args:
        func: takes the inputs, returns a Tensor or a tuple of them.
        inputs: a Tensor or a tuple; those that require grad are checked and must be float64.
        eps: step of the differences.
        atol, rtol: |analytical - numerical| <= atol + rtol * |numerical|.
        raise_exception: raise GradcheckError on a difference instead of returning False.
        nondet_tol: how far two runs of backward may differ.
        check_undefined_grad: also check that an output without a gradient counts as one with zeros.

    Errors: RuntimeError (GradcheckError), or if no input requires grad or one is not float64.

    """
    args = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    checked = [x for x in args if isinstance(x, Tensor) and x.requires_grad]
    if not checked:
        raise AutogradError("no input requires grad", op="gradcheck", argument="inputs")
    for x in checked:
        if x.dtype is not dtypes.float64:
            raise DtypeError(
                f"an input is {x.dtype!r}; differences need float64",
                op="gradcheck",
                argument="inputs",
                remedy="convert with .double()",
            )
    outputs = [y for y in _outputs(func, args) if y.requires_grad]
    try:
        for k, y in enumerate(outputs):
            _check_output(func, args, checked, y, k, eps, atol, rtol, nondet_tol)
        if check_undefined_grad and len(outputs) > 1:
            _check_undefined(outputs, checked)
    except GradcheckError:
        if raise_exception:
            raise
        return False
    return True


def _outputs(func: Callable[..., Any], args: Sequence[Any]) -> list[Tensor]:
    result = func(*args)
    found = cast("Sequence[Any]", result) if isinstance(result, (tuple, list)) else (result,)
    return [y for y in found if isinstance(y, Tensor) and y.is_floating_point()]


def _values(func: Callable[..., Any], args: Sequence[Any], k: int) -> Any:
    with no_grad():
        return np.array(_outputs(func, args)[k].detach().numpy(), np.float64)


def _check_output(
    func: Callable[..., Any],
    args: Sequence[Any],
    checked: Sequence[Tensor],
    y: Tensor,
    k: int,
    eps: float,
    atol: float,
    rtol: float,
    nondet_tol: float,
) -> None:
    analytical = _jacobian(y, checked)
    again = _jacobian(y, checked)
    position = _positions(func, args)[k]
    for i, x in enumerate(checked):
        if np.abs(analytical[i] - again[i]).max(initial=0.0) > nondet_tol:
            raise GradcheckError(f"two runs of backward differ for input {i}", op="gradcheck")
        numerical = np.zeros_like(analytical[i])
        flat = x._a.reshape(-1) if x._a.flags.c_contiguous else None
        for j in range(x._a.size):
            at = np.unravel_index(j, x._a.shape)
            kept = x._a[at]
            sides: list[Any] = []
            for step in (eps, -eps):
                if flat is None:
                    x._a[at] = kept + step
                else:
                    flat[j] = kept + step
                sides.append(_values(func, args, position))
            x._a[at] = kept
            numerical[j] = ((sides[0] - sides[1]) / (2 * eps)).reshape(-1)
        difference = np.abs(analytical[i] - numerical)
        if (~(difference <= atol + rtol * np.abs(numerical))).any():
            raise GradcheckError(
                f"gradient of output {k} with respect to input {i} differs by up to "
                f"{difference.max():.3g}\n"
                f"  numerical:\n{numerical}\n  analytical:\n{analytical[i]}",
                op="gradcheck",
                argument=f"input {i}",
            )


def _positions(func: Callable[..., Any], args: Sequence[Any]) -> list[int]:
    """Return which floating outputs require grad, by their number."""
    return [n for n, y in enumerate(_outputs(func, args)) if y.requires_grad]


def _jacobian(y: Tensor, checked: Sequence[Tensor]) -> list[Any]:
    """Return d y / d x of each input as (x.numel, y.numel), row by row of backward."""
    result = [np.zeros((x._a.size, y._a.size)) for x in checked]
    for j in range(y._a.size):
        seed = np.zeros(y._a.size)
        seed[j] = 1
        given = tensor(seed.reshape(tuple(y._a.shape)), dtype=y.dtype)
        grads = grad(y, checked, given, retain_graph=True, allow_unused=True)
        for i, g in enumerate(grads):
            if g is not None:
                if g._a.shape != checked[i]._a.shape:
                    raise GradcheckError(
                        f"gradient of shape {tuple(g._a.shape)} for input {i} of shape "
                        f"{tuple(checked[i]._a.shape)}",
                        op="gradcheck",
                    )
                result[i][:, j] = g.detach().numpy().reshape(-1)
    return result


def _check_undefined(outputs: Sequence[Tensor], checked: Sequence[Tensor]) -> None:
    """Hold that an output that gets no gradient counts as one that gets zeros."""
    first = outputs[0]
    ones = tensor(np.ones(tuple(first._a.shape)), dtype=first.dtype)
    zeros = [tensor(np.zeros(tuple(y._a.shape)), dtype=y.dtype) for y in outputs[1:]]
    alone = grad(first, checked, ones, retain_graph=True, allow_unused=True)
    beside = grad(outputs, checked, [ones, *zeros], retain_graph=True, allow_unused=True)
    for i, (a, b) in enumerate(zip(alone, beside, strict=True)):
        x = np.zeros(tuple(checked[i]._a.shape))
        left = x if a is None else a.detach().numpy()
        right = x if b is None else b.detach().numpy()
        if not np.allclose(left, right, rtol=1e-10, atol=1e-12):
            raise GradcheckError(
                f"input {i}: an absent gradient is not taken for zero", op="gradcheck"
            )


def gradgradcheck(
    func: Callable[..., Any],
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
) -> bool:
    """Gradcheck of the gradients of func: second derivatives against central differences.

    Args:
        func, inputs: as gradcheck.
        grad_outputs: gradients of func's outputs; random by default.
        eps, atol, rtol, raise_exception, nondet_tol: as gradcheck.

    Errors: as gradcheck.

    """
    args: tuple[Any, ...] = (inputs,) if isinstance(inputs, Tensor) else tuple(inputs)
    outputs = [y for y in _outputs(func, args) if y.requires_grad]
    if grad_outputs is None:
        rng = np.random.default_rng(0)
        given = [
            tensor(rng.standard_normal(tuple(y._a.shape)), dtype=y.dtype, requires_grad=True)
            for y in outputs
        ]
    else:
        given = [grad_outputs] if isinstance(grad_outputs, Tensor) else list(grad_outputs)
    n = len(args)
    where = [i for i, x in enumerate(args) if isinstance(x, Tensor) and x.requires_grad]

    def first(*values: Any) -> tuple[Tensor, ...]:
        ys = [y for y in _outputs(func, values[:n]) if y.requires_grad]
        xs = [values[i] for i in where]
        grads = grad(ys, xs, list(values[n:]), create_graph=True, allow_unused=True)
        return tuple(g for g in grads if g is not None and g.requires_grad)

    def enabled(*values: Any) -> tuple[Tensor, ...]:
        # gradcheck evaluates values under no_grad; gradients need recording.
        from tfw.autograd.modes import enable_grad

        with enable_grad():
            return first(*values)

    return gradcheck(
        enabled,
        (*args, *given),
        eps=eps,
        atol=atol,
        rtol=rtol,
        raise_exception=raise_exception,
        nondet_tol=nondet_tol,
        check_undefined_grad=False,
    )
