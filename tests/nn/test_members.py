"""Parameters, buffers and submodules: registration, attributes, iterators, paths, repr.

Orders, names and reprs are PyTorch 2.13's for the same class.
"""

# Wrong calls, fields of errors, and gradients that are there:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

import copy
import pickle
from typing import Any

import pytest

import tfw
from tfw import nn


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(2, 3)
        self.b = nn.Linear(2, 3, bias=False)
        self.w = nn.Parameter(tfw.ones(2))
        self.register_buffer("buf", tfw.zeros(2))
        self.register_buffer("temporary", tfw.ones(1), persistent=False)
        self.register_parameter("absent", None)
        self.assigned = nn.Buffer(tfw.ones(3))
        self.c = self.a
        self.items = nn.ModuleList([nn.ReLU(), nn.Sequential(nn.Linear(1, 1), nn.ReLU(True))])


def test_repr_is_pytorchs():
    assert repr(Net()) == (
        "Net(\n"
        "  (a): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (b): Linear(in_features=2, out_features=3, bias=False)\n"
        "  (c): Linear(in_features=2, out_features=3, bias=True)\n"
        "  (items): ModuleList(\n"
        "    (0): ReLU()\n"
        "    (1): Sequential(\n"
        "      (0): Linear(in_features=1, out_features=1, bias=True)\n"
        "      (1): ReLU(inplace=True)\n"
        "    )\n"
        "  )\n"
        ")"
    )


def test_iterators_yield_pytorchs_names_in_its_order():
    net = Net()
    own = ["w", "a.weight", "a.bias", "b.weight"]
    inner = ["items.1.0.weight", "items.1.0.bias"]
    assert [n for n, _ in net.named_parameters()] == own + inner
    again = [n for n, _ in net.named_parameters(remove_duplicate=False)]
    assert again == [*own, "c.weight", "c.bias", *inner]
    assert [n for n, _ in net.named_parameters("p", recurse=False)] == ["p.w"]
    assert [n for n, _ in net.named_buffers()] == ["buf", "temporary", "assigned"]
    modules = ["", "a", "b", "items", "items.0", "items.1", "items.1.0", "items.1.1"]
    assert [n for n, _ in net.named_modules()] == modules
    assert [n for n, _ in net.named_modules(remove_duplicate=False)] == (
        [*modules[:3], "c", *modules[3:]]
    )
    assert [n for n, _ in net.named_children()] == ["a", "b", "items"]
    assert len(list(net.parameters())) == 6
    assert len(list(net.modules())) == 8


def test_attributes_follow_registration():
    net = Net()
    net.extra = 5
    net.extra = nn.Parameter(tfw.ones(1))
    assert "extra" not in net.__dict__
    assert net.extra is net._parameters["extra"]
    net.extra2 = nn.ReLU()
    net.extra2 = nn.Parameter(tfw.ones(1))
    assert "extra2" not in net._modules
    net.w = None
    assert net.w is None
    assert "w" not in dict(net.named_parameters())
    net.buf = tfw.ones(4)
    assert dict(net.named_buffers())["buf"].shape == (4,)
    net.temporary = tfw.ones(2)
    assert "temporary" not in net.state_dict()
    del net.extra
    assert not hasattr(net, "extra")
    assert {"a", "w", "buf", "forward"} <= set(dir(net))
    assert "0" not in dir(net.items)


def test_wrong_types_are_refused_by_name():
    net = Net()
    for name, value in (("w", tfw.ones(2)), ("a", 3), ("buf", 3)):
        with pytest.raises(TypeError, match=f"cannot be .* {name!r}") as caught:
            setattr(net, name, value)
        assert caught.value.argument == name
        assert caught.value.value is value
    with pytest.raises(TypeError):
        net.register_parameter("q", tfw.ones(2))
    with pytest.raises(TypeError):
        net.register_buffer("q", 3)
    with pytest.raises(TypeError):
        net.add_module("q", 3)


@pytest.mark.parametrize("name", ["x.y", "", "forward", "a", "training"])
def test_bad_and_taken_names_are_refused(name: str):
    with pytest.raises(KeyError) as caught:
        Net().register_buffer(name, tfw.ones(1))
    assert caught.value.argument == "name"
    assert caught.value.value == name
    assert str(caught.value).startswith("Net: ")


def test_a_name_must_be_a_string():
    with pytest.raises(TypeError):
        Net().add_module(3, nn.ReLU())


def test_a_computed_tensor_is_no_parameter():
    computed = nn.Parameter(tfw.ones(2)) * 2
    computed.__class__ = nn.Parameter
    with pytest.raises(ValueError, match="computed") as caught:
        Net().register_parameter("q", computed)
    assert caught.value.argument == "q"


@pytest.mark.parametrize("value", [nn.Parameter(tfw.ones(1)), nn.ReLU(), nn.Buffer(tfw.ones(1))])
def test_members_before_init_are_refused(value: Any):
    class Early(nn.Module):
        def __init__(self) -> None:
            self.early = value

    with pytest.raises(AttributeError, match="__init__") as caught:
        Early()
    assert caught.value.argument == "early"
    assert "super().__init__()" in caught.value.remedy


def test_missing_attributes_name_the_class():
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'zzz'"):
        Net().zzz  # noqa: B018


def test_paths():
    net = Net()
    assert net.get_submodule("") is net
    assert net.get_submodule("items.1.0") is net.items[1][0]
    assert net.get_parameter("items.1.0.bias") is net.items[1][0].bias
    assert net.get_buffer("buf") is net.buf
    for call in (
        lambda: net.get_submodule("w"),
        lambda: net.get_submodule("a.q"),
        lambda: net.get_parameter("buf"),
        lambda: net.get_parameter("a.q"),
        lambda: net.get_buffer("w"),
        lambda: net.set_submodule("q", nn.ReLU(), strict=True),
    ):
        with pytest.raises(AttributeError) as caught:
            call()
        assert caught.value.argument == "target"
    net.set_submodule("items.0", nn.Tanh())
    assert isinstance(net.items[0], nn.Tanh)
    with pytest.raises(ValueError, match="set_submodule"):
        net.set_submodule("", nn.ReLU())


def test_modes_and_flags_reach_all_modules():
    net = Net()
    assert net.eval() is net
    assert not any(m.training for m in net.modules())
    net.train()
    assert all(m.training for m in net.modules())
    with pytest.raises(ValueError, match="mode=3"):
        net.train(3)
    net.requires_grad_(False)
    assert not any(p.requires_grad for p in net.parameters())
    order: list[str] = []
    net.apply(lambda m: order.append(type(m).__name__))
    assert order == [
        "Linear",
        "Linear",
        "ReLU",
        "Linear",
        "ReLU",
        "Sequential",
        "ModuleList",
        "Net",
    ]


def test_zero_grad():
    layer = nn.Linear(2, 1)
    layer(tfw.ones(1, 2)).sum().backward()
    gradient = layer.weight.grad
    layer.zero_grad(set_to_none=False)
    assert layer.weight.grad is gradient
    assert gradient.tolist() == [[0.0, 0.0]]
    layer.zero_grad()
    assert layer.weight.grad is None


def test_parameter_shares_memory_and_is_a_leaf():
    data = tfw.ones(2)
    p = nn.Parameter(data)
    data.add_(1)
    assert p.tolist() == [2.0, 2.0]
    assert p.is_leaf
    assert p.requires_grad
    assert not nn.Parameter(data, requires_grad=False).requires_grad
    assert type(p * 2) is tfw.Tensor
    assert type(p.detach()) is tfw.Tensor
    assert nn.Parameter().shape == (0,)
    assert repr(nn.Parameter(tfw.ones(2))) == (
        "Parameter containing:\ntensor([1., 1.], requires_grad=True)"
    )
    with pytest.raises(RuntimeError):
        nn.Parameter(tfw.ones(2, dtype=tfw.int64))
    assert not nn.Parameter(tfw.ones(2, dtype=tfw.int64), False).requires_grad
    with pytest.raises(TypeError, match="must be a Tensor") as caught:
        nn.Parameter([1.0])
    assert caught.value.argument == "data"


def test_deepcopy_and_pickle_keep_ties_and_kinds():
    net = Net()
    net.w.grad = tfw.ones(2)
    twin = copy.deepcopy(net)
    assert twin.a is twin.c
    assert twin.a.weight is not net.a.weight
    assert twin.a.weight.tolist() == net.a.weight.tolist()
    assert twin.w.grad is None
    twin.w.detach().add_(1)
    assert net.w.tolist() == [1.0, 1.0]
    again = pickle.loads(pickle.dumps(net))
    assert again.a is again.c
    assert isinstance(again.w, nn.Parameter)
    assert again.w.requires_grad
    assert again._buffers["assigned"].persistent
    assert list(again.state_dict()) == list(net.state_dict())


def test_forward_must_be_defined():
    with pytest.raises(NotImplementedError, match="forward"):
        nn.Module()(1)
