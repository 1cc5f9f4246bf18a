"""Adam and AdamW."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfw.autograd import enable_grad, set_grad_enabled
from tfw.dtypes import float32
from tfw.ops.creation import zeros, zeros_like
from tfw.ops.optim_steps import adam_step
from tfw.optim.optimizer import Group, Optimizer
from tfw.optim.options import as_lr, by_device, check, check_implementation, check_lr
from tfw.tensor import Tensor


class Adam(Optimizer):
    """Adam: m = b1 m + (1 - b1) g; v = b2 v + (1 - b2) g^2; p -= lr m^ / (sqrt(v^) + eps).

    m^ = m / (1 - b1^t), v^ = v / (1 - b2^t) with t the number of steps; amsgrad uses the largest v
    so far in v^. weight_decay * p is added to the gradient; with decoupled_weight_decay (AdamW)
    p *= 1 - lr * weight_decay first. maximize turns the gradient's sign.

    A step is one call over all parameters of a group; foreach and fused are accepted and change
    nothing. t lives on the parameter's device, so a step can always be captured in a graph:
    capturable changes nothing either. With differentiable, gradients flow through the step. lr may
    be a 0-d tensor, on the CPU or the parameters' device.

    State: step (a float32 0-d tensor), exp_avg, exp_avg_sq and, with amsgrad, max_exp_avg_sq.
    Errors: ValueError for an option out of range; RuntimeError for fused with foreach or
    differentiable.
    Source: Kingma and Ba 2015, Adam, arXiv:1412.6980; Reddi, Kale and Kumar 2018, On the
    Convergence of Adam and Beyond.
    Example: `optim.Adam(model.parameters(), lr=1e-3, betas=(0.9, 0.95))`
    """

    shaped_like_parameter = frozenset({"exp_avg", "exp_avg_sq", "max_exp_avg_sq"})

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0,
        amsgrad: bool = False,
        *,
        foreach: bool | None = None,
        maximize: bool = False,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
        decoupled_weight_decay: bool = False,
    ) -> None:
        op = type(self).__name__
        check_lr(op, lr)
        if isinstance(lr, Tensor):
            check(
                op,
                "foreach",
                foreach,
                not foreach or capturable,
                "not with a tensor lr, unless capturable",
            )
        check(op, "eps", eps, eps >= 0.0, "eps >= 0")
        numbers = tuple(b.item() if isinstance(b, Tensor) else b for b in betas)
        for i, beta in enumerate(numbers):
            check(op, f"betas[{i}]", beta, 0.0 <= beta < 1.0, "0 <= beta < 1")
        check(op, "weight_decay", weight_decay, weight_decay >= 0.0, "weight_decay >= 0")
        check_implementation(op, foreach, fused, differentiable)
        defaults = {
            "lr": lr,
            "betas": numbers,
            "eps": eps,
            "weight_decay": weight_decay,
            "amsgrad": amsgrad,
            "maximize": maximize,
            "foreach": foreach,
            "capturable": capturable,
            "differentiable": differentiable,
            "fused": fused,
            "decoupled_weight_decay": decoupled_weight_decay,
        }
        super().__init__(params, defaults)

    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Change the parameters that have gradients; return what closure() returns."""
        loss = None
        if closure is not None:
            with enable_grad():
                loss = closure()
        with set_grad_enabled(bool(self.defaults["differentiable"])):
            for group in self.param_groups:
                for parameters in by_device(group["params"]):
                    self._step(group, parameters)
        return loss

    def _step(self, group: Group, parameters: list[Tensor]) -> None:
        amsgrad = group["amsgrad"]
        states = [self._state(p, amsgrad) for p in parameters]
        adam_step(
            parameters,
            [p.grad for p in parameters if p.grad is not None],
            [s["exp_avg"] for s in states],
            [s["exp_avg_sq"] for s in states],
            [s["max_exp_avg_sq"] for s in states] if amsgrad else [],
            [s["step"] for s in states],
            lr=as_lr(group["lr"]),
            betas=group["betas"],
            eps=group["eps"],
            weight_decay=group["weight_decay"],
            decoupled=group["decoupled_weight_decay"],
            amsgrad=amsgrad,
            maximize=group["maximize"],
        )

    def _state(self, p: Tensor, amsgrad: bool) -> dict[str, Any]:
        """Return a parameter's state, made if this is its first step."""
        state = self.state[p]
        if "step" not in state:
            state["step"] = zeros((), dtype=float32, device=p.device)
            state["exp_avg"] = zeros_like(p)
            state["exp_avg_sq"] = zeros_like(p)
        if amsgrad and "max_exp_avg_sq" not in state:
            state["max_exp_avg_sq"] = zeros_like(p)
        return state


class AdamW(Adam):
    """Adam with decoupled weight decay: p *= 1 - lr * weight_decay before each step of Adam.

    Options and state are Adam's, see there.

    Source: Loshchilov and Hutter 2019, Decoupled Weight Decay Regularization, arXiv:1711.05101.
    Example: `optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)`
    """

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        betas: tuple[float | Tensor, float | Tensor] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 1e-2,
        amsgrad: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        capturable: bool = False,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        super().__init__(
            params,
            lr,
            betas,
            eps,
            weight_decay,
            amsgrad,
            foreach=foreach,
            maximize=maximize,
            capturable=capturable,
            differentiable=differentiable,
            fused=fused,
            decoupled_weight_decay=True,
        )

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        for group in self.param_groups:  # a state of Adam, or of before the option existed
            group["decoupled_weight_decay"] = True
