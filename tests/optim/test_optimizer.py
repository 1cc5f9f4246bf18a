"""Optimizer: groups, checks, state, hooks, closures, copies. Formats are PyTorch 2.13's."""

# Wrong calls, fields of errors, and gradients that are there:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import tfw
from tfw import nn, optim
from tfw.errors import StateDictError


def _p(n: int = 2) -> nn.Parameter:
    return nn.Parameter(tfw.ones(n))


def test_groups_and_repr():
    optimizer = optim.SGD([{"params": [_p()], "lr": 0.5}, {"params": _p()}], lr=0.1, momentum=0.9)
    assert [g["lr"] for g in optimizer.param_groups] == [0.5, 0.1]
    assert repr(optim.SGD([_p()], lr=0.1)) == (
        "SGD (\n"
        "Parameter Group 0\n"
        "    dampening: 0\n"
        "    differentiable: False\n"
        "    foreach: None\n"
        "    fused: None\n"
        "    lr: 0.1\n"
        "    maximize: False\n"
        "    momentum: 0\n"
        "    nesterov: False\n"
        "    weight_decay: 0\n"
        ")"
    )


def test_named_parameters():
    a, b = _p(), _p()
    optimizer = optim.Adam([("a", a), ("b", b)])
    assert optimizer.param_groups[0]["params"] == [a, b]
    assert optimizer.state_dict()["param_groups"][0]["param_names"] == ["a", "b"]
    model = nn.Linear(2, 2)
    assert optim.SGD(model.named_parameters()).param_groups[0]["param_names"] == ["weight", "bias"]


P = _p()


@pytest.mark.parametrize(
    ("call", "error", "argument"),
    [
        (lambda: optim.SGD(P), TypeError, "params"),
        (lambda: optim.SGD(3), TypeError, "params"),
        (lambda: optim.SGD([]), ValueError, "params"),
        (lambda: optim.SGD([3.0]), TypeError, "params"),
        (lambda: optim.SGD([{"params": {P}}]), TypeError, "params"),
        (lambda: optim.SGD([P * 2]), ValueError, "params"),
        (lambda: optim.SGD([{"params": [P]}, {"params": [P]}]), ValueError, "params"),
        (lambda: optim.SGD([("a", P), _p()]), ValueError, "params"),
        (lambda: optim.SGD([{"params": [("a", P)]}, {"params": [_p()]}]), ValueError, "params"),
        (lambda: optim.SGD([P]).add_param_group([_p()]), TypeError, "param_group"),
        (lambda: optim.SGD([tfw.ones(1, dtype=tfw.complex64)]), RuntimeError, "params"),
        (lambda: optim.SGD([P], lr=-1.0), ValueError, "lr"),
        (lambda: optim.SGD([P], lr=tfw.zeros(2)), ValueError, "lr"),
        (lambda: optim.SGD([P], momentum=-1.0), ValueError, "momentum"),
        (lambda: optim.SGD([P], weight_decay=-1.0), ValueError, "weight_decay"),
        (lambda: optim.SGD([P], nesterov=True), ValueError, "nesterov"),
        (
            lambda: optim.SGD([P], momentum=0.9, dampening=0.1, nesterov=True),
            ValueError,
            "nesterov",
        ),
        (lambda: optim.SGD([P], fused=True, foreach=True), RuntimeError, "fused"),
        (lambda: optim.Adam([P], fused=True, differentiable=True), RuntimeError, "fused"),
        (lambda: optim.Adam([P], lr=tfw.tensor(0.1), foreach=True), ValueError, "foreach"),
        (lambda: optim.Adam([P], betas=(1.0, 0.9)), ValueError, "betas[0]"),
        (lambda: optim.AdamW([P], betas=(0.9, -0.1)), ValueError, "betas[1]"),
        (lambda: optim.Adam([P], eps=-1.0), ValueError, "eps"),
        (lambda: optim.AdamW([P], weight_decay=-1.0), ValueError, "weight_decay"),
    ],
)
def test_bad_arguments(call: Any, error: type[Exception], argument: str):
    with pytest.raises(error) as caught:
        call()
    assert caught.value.argument == argument


def test_a_group_must_give_options_without_default():
    class Needy(optim.Optimizer):
        def __init__(self, params: Any) -> None:
            super().__init__(params, {"lr": optim.optimizer.required})

    with pytest.raises(ValueError, match="'lr'"):
        Needy([P])
    assert Needy([{"params": [P], "lr": 1.0}]).param_groups[0]["lr"] == 1.0


def test_a_parameter_twice_warns():
    with pytest.warns(UserWarning, match="twice"):
        optim.SGD([P, P])


def test_state_dict_format():
    a, b, c = _p(), _p(3), _p()
    optimizer = optim.AdamW([{"params": [a, b]}, {"params": [c], "lr": 0.5}], lr=0.1)
    b.grad = tfw.ones(3)
    optimizer.step()
    state = optimizer.state_dict()
    assert list(state) == ["state", "param_groups"]
    assert list(state["state"]) == [1]
    assert sorted(state["state"][1]) == ["exp_avg", "exp_avg_sq", "step"]
    assert state["state"][1]["step"].item() == 1.0
    assert [g["params"] for g in state["param_groups"]] == [[0, 1], [2]]
    assert state["param_groups"][1] == {
        **{"lr": 0.5, "betas": (0.9, 0.999), "eps": 1e-8, "weight_decay": 0.01, "amsgrad": False},
        **{"foreach": None, "maximize": False, "capturable": False, "differentiable": False},
        **{"fused": None, "decoupled_weight_decay": True, "params": [2]},
    }


def test_load_converts_to_the_parameters_dtype():
    p, q = _p(), nn.Parameter(tfw.ones(2, dtype=tfw.float64))
    optimizer, other = optim.Adam([p], lr=0.5), optim.Adam([q])
    p.grad = tfw.ones(2)
    optimizer.step()
    state = optimizer.state_dict()
    state["state"][0]["step"] = 1  # as old checkpoints have it
    other.load_state_dict(state)
    assert other.param_groups[0]["lr"] == 0.5
    assert other.state[q]["exp_avg"].dtype is tfw.float64
    assert other.state[q]["step"].dtype is tfw.float32
    assert other.state[q]["step"].item() == 1.0


def _broken(change: Any) -> Any:
    p = _p()
    optimizer = optim.Adam([p])
    p.grad = tfw.ones(2)
    optimizer.step()
    state = copy.deepcopy(optimizer.state_dict())
    return change(state) or state


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda s: [1], "it is a list, not a dict"),
        (lambda s: {"state": {}}, "it has no 'param_groups'"),
        (lambda s: {"param_groups": []}, "it has no 'state'"),
        (lambda s: s["param_groups"].append(s["param_groups"][0]), "2 parameter groups, not 1"),
        (lambda s: s["param_groups"][0]["params"].append(1), "group 0 has 2 parameters, not 1"),
        (lambda s: s["param_groups"][0].pop("lr") and None, "group 0 has no learning rate"),
        (lambda s: s["state"][0].update(exp_avg=tfw.ones(3)), r"exp_avg of parameter 0 has shape"),
    ],
)
def test_states_that_do_not_fit(change: Any, text: str):
    optimizer = optim.Adam([_p()], lr=0.25)
    state = [1] if text.startswith("it is a list") else _broken(change)
    with pytest.raises(ValueError, match=text) as caught:
        optimizer.load_state_dict(state)
    assert isinstance(caught.value, StateDictError)
    assert "nothing was loaded" in str(caught.value)
    assert optimizer.param_groups[0]["lr"] == 0.25
    assert not optimizer.state


def test_a_state_without_newer_options_loads():
    optimizer = optim.AdamW([_p()])
    state = optimizer.state_dict()
    del state["param_groups"][0]["maximize"], state["param_groups"][0]["decoupled_weight_decay"]
    optimizer.load_state_dict(state)
    assert optimizer.param_groups[0]["maximize"] is False
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True


def test_adamw_stays_decoupled_with_a_state_of_adam():
    optimizer = optim.AdamW([_p()])
    optimizer.load_state_dict(optim.Adam([_p()]).state_dict())
    assert optimizer.param_groups[0]["decoupled_weight_decay"] is True


def test_pickle_and_deepcopy():
    p = _p()
    optimizer = optim.Adam([p])
    p.grad = tfw.ones(2)
    optimizer.step()
    for twin in (pickle.loads(pickle.dumps(optimizer)), copy.deepcopy(optimizer)):
        (q,) = twin.param_groups[0]["params"]
        assert q is not p
        assert q.tolist() == p.tolist()
        assert twin.state[q]["exp_avg"].tolist() == optimizer.state[p]["exp_avg"].tolist()
        q.grad = tfw.ones(2)
        twin.step()
        assert twin.state[q]["step"].item() == 2.0


def test_zero_grad():
    p, q = _p(), _p()
    optimizer = optim.SGD([p, q])
    p.grad = tfw.ones(2)
    gradient = p.grad
    optimizer.zero_grad(set_to_none=False)
    assert p.grad is gradient
    assert gradient.tolist() == [0.0, 0.0]
    optimizer.zero_grad()
    assert p.grad is None


def test_zero_grad_forgets_the_history_of_gradients():
    p = _p()
    (p**3).sum().backward(create_graph=True)
    assert p.grad.requires_grad
    optim.SGD([p]).zero_grad(set_to_none=False)
    assert not p.grad.requires_grad


def test_closure_runs_with_gradients_and_its_loss_is_returned():
    p = _p()
    optimizer = optim.SGD([p], lr=0.5)

    def closure() -> Any:
        optimizer.zero_grad()
        loss = (p * p).sum()
        loss.backward()
        return loss

    with tfw.no_grad():
        assert optimizer.step(closure).item() == 2.0
    assert p.tolist() == [0.0, 0.0]


def test_step_hooks():
    log: list[Any] = []

    class Twice(optim.SGD):
        def step(self, closure: Any = None) -> Any:
            super().step()
            return super().step(closure)

    p = _p()
    optimizer = Twice([p], lr=0.25)
    handle = optimizer.register_step_pre_hook(lambda o, args, kwargs: log.append("pre"))
    optimizer.register_step_post_hook(lambda o, args, kwargs: log.append("post"))
    p.grad = tfw.ones(2)
    assert optimizer.step(lambda: 5) == 5
    assert log == ["pre", "post"]
    assert p.tolist() == [0.5, 0.5]
    handle.remove()
    optimizer.register_step_pre_hook(lambda o, args, kwargs: ((lambda: 6,), {}))
    assert optimizer.step() == 6
    optimizer.register_step_pre_hook(lambda o, args, kwargs: 3)
    with pytest.raises(RuntimeError, match="step pre-hook") as caught:
        optimizer.step()
    assert caught.value.value == 3


def test_state_hooks():
    log: list[Any] = []
    optimizer = optim.SGD([_p()], lr=0.1)
    optimizer.register_state_dict_pre_hook(lambda o: log.append(1))
    optimizer.register_state_dict_pre_hook(lambda o: log.append(0), prepend=True)
    optimizer.register_state_dict_post_hook(lambda o, state: {**state, "more": 1})
    state = optimizer.state_dict()
    assert log == [0, 1]
    assert state["more"] == 1

    def halve(o: Any, state: Any) -> Any:
        groups = [{**g, "lr": g["lr"] / 2} for g in state["param_groups"]]
        return {**state, "param_groups": groups}

    optimizer.register_load_state_dict_pre_hook(halve)
    optimizer.register_load_state_dict_post_hook(lambda o: log.append(o.param_groups[0]["lr"]))
    optimizer.load_state_dict(state)
    assert log == [0, 1, 0.05]
    assert state["param_groups"][0]["lr"] == 0.1


def test_the_base_class_has_no_step():
    with pytest.raises(NotImplementedError):
        optim.Optimizer([_p()], {}).step()
