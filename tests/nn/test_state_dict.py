"""state_dict and load_state_dict. Keys and orders are PyTorch 2.13's for the same class."""

# Wrong calls, fields of errors, and gradients that are there:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

import tfw
from tfw import nn
from tfw.errors import StateDictError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(1, 2)
        self.w = nn.Parameter(tfw.ones(2))
        self.register_buffer("buf", tfw.zeros(2))
        self.register_buffer("temporary", tfw.ones(1), persistent=False)
        self.tied = self.a


KEYS = ["w", "buf", "a.weight", "a.bias", "tied.weight", "tied.bias"]


def test_keys_prefix_metadata_and_sharing():
    net = Net()
    state = net.state_dict()
    assert list(state) == KEYS
    assert list(net.state_dict(prefix="x.")) == ["x." + key for key in KEYS]
    assert dict(state._metadata) == {k: {"version": 1} for k in ("", "a", "tied")}
    assert not state["w"].requires_grad
    state["w"].fill_(5.0)
    assert net.w.tolist() == [5.0, 5.0]
    assert net.state_dict(keep_vars=True)["w"] is net.w
    destination: dict[str, Any] = {"other": 1}
    assert net.state_dict(destination=destination) is destination
    assert list(destination) == ["other", *KEYS]


def test_load_copies_and_converts():
    net = Net()
    state = {k: v.double() + 1 for k, v in net.state_dict().items()}
    before = net.w
    result = net.load_state_dict(state)
    assert repr(result) == "<All keys matched successfully>"
    assert net.w is before
    assert net.w.dtype is tfw.float32
    assert net.w.tolist() == [2.0, 2.0]
    assert net.buf.tolist() == [1.0, 1.0]


def _values(net: nn.Module) -> dict[str, Any]:
    return {k: v.tolist() for k, v in net.state_dict().items()}


def test_strict_lists_everything_and_loads_nothing():
    net = Net()
    before = _values(net)
    state = {k: v + 1 for k, v in net.state_dict().items()}
    del state["w"], state["a.bias"]
    state |= {"zz": tfw.ones(1), "a.qq": tfw.ones(1), "buf": tfw.ones(3), "a.weight": 3}
    with pytest.raises(StateDictError) as caught:
        net.load_state_dict(state)
    error = caught.value
    assert isinstance(error, RuntimeError)
    assert error.missing_keys == ["w", "a.bias"]
    assert error.unexpected_keys == ["zz", "a.qq"]
    assert error.mismatches == [
        "size mismatch for buf: (3,) in the state, (2,) in the module",
        "a.weight: expected a Tensor, found int",
    ]
    for text in (
        "load_state_dict of Net: the state does not fit; nothing was loaded",
        "missing keys: w, a.bias",
        "unexpected keys: zz, a.qq",
        "size mismatch for buf",
    ):
        assert text in str(error)
    assert _values(net) == before


def test_not_strict_loads_what_matches_but_no_mismatch():
    net = Net()
    state = {"w": tfw.full((2,), 9.0), "zz": 1}
    missing, unexpected = net.load_state_dict(state, strict=False)
    assert missing == KEYS[1:]
    assert unexpected == ["zz"]
    assert net.w.tolist() == [9.0, 9.0]
    with pytest.raises(StateDictError, match="size mismatch for buf"):
        net.load_state_dict({"w": tfw.zeros(2), "buf": tfw.ones(3)}, strict=False)
    assert net.w.tolist() == [9.0, 9.0]


def test_a_state_must_be_a_mapping():
    with pytest.raises(TypeError, match="mapping") as caught:
        Net().load_state_dict([1])
    assert caught.value.argument == "state_dict"


def test_assign_takes_the_tensors_themselves():
    net = Net()
    net.w.requires_grad_(False)
    state = {k: v.double() for k, v in net.state_dict().items()}
    state["w"] = nn.Parameter(tfw.zeros(2))
    net.load_state_dict(state, assign=True)
    assert net.w is state["w"]
    assert not net.w.requires_grad
    assert net.buf is state["buf"]
    assert isinstance(net.a.weight, nn.Parameter)
    assert net.a.weight.dtype is tfw.float64
    assert net.a.weight.requires_grad


def test_a_meta_module_wants_assign():
    layer = nn.Linear(1, 1, bias=False, device="meta")
    state = {"weight": tfw.ones(1, 1)}
    with pytest.warns(UserWarning, match="assign=True"):
        layer.load_state_dict(state)
    layer.load_state_dict(state, assign=True)
    assert layer.weight.tolist() == [[1.0]]


class Counter(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.n = 0

    def get_extra_state(self) -> Any:
        return {"n": self.n}

    def set_extra_state(self, state: Any) -> None:
        self.n = state["n"]


def test_extra_state():
    counter, other = Counter(), Counter()
    counter.n = 7
    state = nn.Sequential(counter).state_dict()
    assert state == OrderedDict([("0._extra_state", {"n": 7})])
    nn.Sequential(other).load_state_dict(state)
    assert other.n == 7
    with pytest.raises(StateDictError) as caught:
        other.load_state_dict({})
    assert caught.value.missing_keys == ["_extra_state"]
    with pytest.raises(StateDictError) as caught:
        nn.ReLU().load_state_dict({"_extra_state": 1})
    assert caught.value.unexpected_keys == ["_extra_state"]


def test_state_dict_hooks():
    layer = nn.Linear(1, 1)
    log: list[Any] = []
    layer.register_state_dict_pre_hook(lambda m, prefix, keep: log.append((prefix, keep)))
    layer.register_state_dict_post_hook(
        lambda m, state, prefix, metadata: state.update({prefix + "more": metadata["version"]})
    )
    state = nn.Sequential(layer).state_dict()
    assert list(state) == ["0.weight", "0.bias", "0.more"]
    assert state["0.more"] == 1
    assert log == [("0.", False)]
    layer.register_state_dict_post_hook(lambda m, state, prefix, metadata: state)
    with pytest.raises(RuntimeError, match="post-hook returned"):
        layer.state_dict()


def _rename(m: Any, state: Any, prefix: str, *_: Any) -> None:
    state[prefix + "weight"] = state.pop(prefix + "w")


def test_load_hooks_adapt_the_state_and_the_lists():
    layer = nn.Linear(1, 1)
    layer.register_load_state_dict_pre_hook(_rename)
    handle = layer.register_load_state_dict_post_hook(lambda m, keys: keys.unexpected_keys.clear())
    state = {"0.w": tfw.full((1, 1), 4.0), "0.bias": tfw.ones(1), "0.junk": 1}
    assert nn.Sequential(layer).load_state_dict(state) == ([], [])
    assert layer.weight.tolist() == [[4.0]]
    handle.remove()
    with pytest.raises(StateDictError) as caught:
        nn.Sequential(layer).load_state_dict(
            {"0.w": tfw.zeros(1, 1), "0.bias": tfw.ones(1), "q": 1}
        )
    assert caught.value.unexpected_keys == ["q"]
    assert layer.weight.tolist() == [[4.0]]


def test_a_post_hook_sees_the_values_and_a_later_failure_takes_them_back():
    layer = nn.Linear(1, 1)
    seen: list[Any] = []
    before = layer.weight.tolist()
    layer.register_load_state_dict_post_hook(lambda m, keys: seen.append(m.weight.tolist()))
    with pytest.raises(StateDictError):
        layer.load_state_dict({"weight": tfw.full((1, 1), 4.0)})
    assert seen == [[[4.0]]]
    assert layer.weight.tolist() == before
    layer.register_load_state_dict_post_hook(lambda m, keys: 3)
    with pytest.raises(RuntimeError, match="post-hook returned int"):
        layer.load_state_dict(layer.state_dict())


def test_a_subclass_may_load_itself():
    class Old(nn.Linear):
        _version = 2

        def _load_from_state_dict(self, *args: Any, **kwargs: Any) -> None:
            state, prefix, metadata = args[:3]
            versions.append(metadata.get("version"))
            state[prefix + "weight"] = state[prefix + "weight"] * 2
            super()._load_from_state_dict(*args, **kwargs)

    versions: list[Any] = []
    layer = Old(1, 1)
    state = layer.state_dict()
    value = layer.weight.item()
    layer.load_state_dict(state)
    assert versions == [2]
    assert layer.weight.item() == 2 * value
