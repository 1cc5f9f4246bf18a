"""SGD."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tfw.autograd import enable_grad, set_grad_enabled
from tfw.ops.creation import empty_like
from tfw.ops.optim_steps import sgd_step
from tfw.optim.optimizer import Group, Optimizer
from tfw.optim.options import as_lr, by_device, check, check_implementation, check_lr
from tfw.tensor import Tensor


class SGD(Optimizer):
    """Stochastic gradient descent, with momentum m: b = m b + (1 - dampening) g; p -= lr b.

    g is the gradient plus weight_decay * p (the gradient's negative if maximize). In the first step
    b = g. nesterov uses g + m b in place of b. A step is one call over all parameters of a group;
    foreach and fused are accepted and change nothing. With differentiable, gradients flow through
    the step. lr may be a 0-d tensor.

    State: momentum_buffer of each parameter, if momentum is not 0.
    Errors: ValueError for a negative option, or nesterov without momentum or with dampening;
    RuntimeError for fused with foreach or differentiable.
    Source: Sutskever et al. 2013, On the importance of initialization and momentum in deep
    learning.
    Example: `optim.SGD(model.parameters(), lr=0.1, momentum=0.9)`
    """

    shaped_like_parameter = frozenset({"momentum_buffer"})

    def __init__(
        self,
        params: Any,
        lr: float | Tensor = 1e-3,
        momentum: float = 0,
        dampening: float = 0,
        weight_decay: float = 0,
        nesterov: bool = False,
        *,
        maximize: bool = False,
        foreach: bool | None = None,
        differentiable: bool = False,
        fused: bool | None = None,
    ) -> None:
        check_lr("SGD", lr)
        check("SGD", "momentum", momentum, momentum >= 0.0, "momentum >= 0")
        check("SGD", "weight_decay", weight_decay, weight_decay >= 0.0, "weight_decay >= 0")
        check(
            "SGD",
            "nesterov",
            nesterov,
            not nesterov or (momentum > 0 and dampening == 0),
            "False, unless momentum > 0 and dampening == 0",
        )
        check_implementation("SGD", foreach, fused, differentiable)
        defaults = {
            "lr": lr,
            "momentum": momentum,
            "dampening": dampening,
            "weight_decay": weight_decay,
            "nesterov": nesterov,
            "maximize": maximize,
            "foreach": foreach,
            "differentiable": differentiable,
            "fused": fused,
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
        if not group["momentum"]:
            self._run(group, parameters, [], first=False)
            return
        # Parameters that get their first gradient later than others start their buffer later.
        started = [p for p in parameters if self.state[p].get("momentum_buffer") is not None]
        waiting = [p for p in parameters if self.state[p].get("momentum_buffer") is None]
        if started:
            buffers = [self.state[p]["momentum_buffer"] for p in started]
            self._run(group, started, buffers, first=False)
        if waiting:
            buffers = [empty_like(p) for p in waiting]
            self._run(group, waiting, buffers, first=True)
            for p, buffer in zip(waiting, buffers, strict=True):
                self.state[p]["momentum_buffer"] = buffer

    def _run(
        self, group: Group, parameters: list[Tensor], buffers: list[Tensor], *, first: bool
    ) -> None:
        sgd_step(
            parameters,
            [p.grad for p in parameters if p.grad is not None],
            buffers,
            lr=as_lr(group["lr"]),
            momentum=group["momentum"],
            dampening=group["dampening"],
            nesterov=group["nesterov"],
            weight_decay=group["weight_decay"],
            maximize=group["maximize"],
            first=first,
        )
