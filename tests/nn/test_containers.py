"""Containers: list and dict behaviour, names after changes, repr, errors (PyTorch 2.13's)."""

# Wrong calls, fields of errors, and gradients that are there:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false
# pyright: reportUnusedExpression=false

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest

import tfw
from tfw import nn


def _names(module: nn.Module) -> list[str]:
    return [f"{n}:{type(m).__name__}" for n, m in module.named_children()]


def test_sequential_runs_in_order():
    double, inc = nn.Identity(), nn.Identity()
    double.forward, inc.forward = (lambda x: x * 2), (lambda x: x + 1)
    assert nn.Sequential(double, inc)(3) == 7
    assert nn.Sequential(inc, double)(3) == 8
    named = nn.Sequential(OrderedDict(first=inc, second=double))
    assert named(3) == 8
    assert named.second is double
    assert nn.Sequential()(3) == 3


@pytest.mark.parametrize("kind", [nn.Sequential, lambda *m: nn.ModuleList(m)])
def test_list_methods(kind: Any):
    a, b, c = nn.ReLU(), nn.Tanh(), nn.GELU()
    m = kind(a, b)
    assert len(m) == 2
    assert list(m) == [a, b]
    assert m[-1] is b
    assert type(m[:1]) is type(m)
    assert list(m[:1]) == [a]
    assert m.append(c) is m
    m.insert(0, c)
    assert list(m) == [c, a, b, c]
    m.insert(-1, a)
    assert list(m) == [c, a, b, a, c]
    del m[0]
    assert list(m._modules) == ["0", "1", "2", "3"]
    del m[1:3]
    assert list(m) == [a, c]
    m[0] = b
    assert m.pop(0) is b
    assert list(m) == [c]
    m.extend([a, b])
    m.extend(m)
    assert list(m) == [c, a, b, c, a, b]
    for bad in (6, -7):
        with pytest.raises(IndexError, match="out of range") as caught:
            m[bad]
        assert caught.value.value == bad
    with pytest.raises(IndexError):
        m.insert(9, a)
    with pytest.raises(TypeError):
        m.append(3)
    with pytest.raises(TypeError):
        m.insert(0, 3)
    assert len(m) == 6
    with pytest.raises(TypeError):
        m.extend(3)


def test_sequential_arithmetic():
    a, b = nn.ReLU(), nn.Tanh()
    m = nn.Sequential(a) + nn.Sequential(b)
    assert list(m) == [a, b]
    assert list(m * 2) == list(2 * m) == [a, b, a, b]
    m += nn.Sequential(a)
    m *= 2
    assert list(m) == [a, b, a] * 2
    with pytest.raises(ValueError, match="cannot be added"):
        m + 3
    with pytest.raises(ValueError, match="0 times"):
        m * 0
    with pytest.raises(TypeError):
        m * 1.5
    assert list(nn.ModuleList([a]) + nn.ModuleList([b])) == [a, b]


def test_module_list_repr_joins_equal_neighbours():
    m = nn.ModuleList([nn.Linear(1, 1) for _ in range(3)] + [nn.Tanh()])
    assert repr(m) == (
        "ModuleList(\n"
        "  (0-2): 3 x Linear(in_features=1, out_features=1, bias=True)\n"
        "  (3): Tanh()\n"
        ")"
    )
    assert repr(nn.ModuleList()) == "ModuleList()"


def test_module_dict():
    a, b = nn.ReLU(), nn.Tanh()
    m = nn.ModuleDict({"a": a})
    m["b"] = b
    assert _names(m) == ["a:ReLU", "b:Tanh"]
    assert list(m) == list(m.keys()) == ["a", "b"]
    assert list(m.values()) == [a, b]
    assert dict(m.items()) == {"a": a, "b": b}
    assert "a" in m
    assert "c" not in m
    assert m.pop("a") is a
    m.update([("c", a)])
    m.update(nn.ModuleDict({"d": a}))
    assert list(m) == ["b", "c", "d"]
    del m["b"]
    m.clear()
    assert len(m) == 0
    with pytest.raises(KeyError):
        m["q"]
    with pytest.raises(TypeError):
        m.update(3)
    with pytest.raises(TypeError):
        m.update([3])
    with pytest.raises(ValueError, match="length 3"):
        m.update([("a", a, a)])
    with pytest.raises(KeyError):
        m["x.y"] = a


def test_parameter_list():
    p = nn.Parameter(tfw.zeros(2))
    m = nn.ParameterList([p, tfw.ones(3)])
    assert m[0] is p
    assert isinstance(m[1], nn.Parameter)
    assert [n for n, _ in m.named_parameters()] == ["0", "1"]
    m.append(5)
    m += [tfw.zeros(1)]
    assert len(m) == 4
    assert m[2] == 5
    assert len(list(m.parameters())) == 3
    assert [tuple(q.shape) for q in m[:2]] == [(2,), (3,)]
    m[0] = tfw.ones(4)
    assert m[0].shape == (4,)
    with pytest.raises(IndexError):
        m[4]
    with pytest.raises(TypeError):
        m.extend(tfw.ones(2))
    with pytest.raises(RuntimeError):
        m(1)
    assert repr(nn.ParameterList([tfw.zeros(2, 3)])) == (
        "ParameterList(  (0): Parameter containing: [tfw.float32 of size 2x3])"
    )


def test_parameter_dict():
    m = nn.ParameterDict({"b": tfw.zeros(2), "a": tfw.ones(3)})
    assert list(m) == ["a", "b"]
    assert list(nn.ParameterDict(OrderedDict(b=tfw.zeros(1), a=tfw.zeros(1)))) == ["b", "a"]
    assert [n for n, _ in m.named_parameters()] == ["a", "b"]
    assert m.get("q") is None
    assert m.setdefault("c", tfw.ones(1)) is m["c"]
    assert isinstance(m["c"], nn.Parameter)
    assert [k for k, _ in (m | {"d": 4}).items()] == ["a", "b", "c", "d"]
    assert list({"z": 1} | m) == ["z", "a", "b", "c"]
    m |= {"e": tfw.ones(1)}
    assert m.popitem()[0] == "e"
    twin = m.copy()
    assert twin["a"] is m["a"]
    assert m.pop("a").shape == (3,)
    assert list(m.fromkeys(["x", "y"], 1).values()) == [1, 1]
    assert list(reversed(m)) == ["c", "b"]
    m.clear()
    assert len(m) == 0
    with pytest.raises(KeyError):
        m["a"]
    with pytest.raises(KeyError):
        m.popitem()
    with pytest.raises(TypeError):
        m[3] = tfw.ones(1)
    with pytest.raises(RuntimeError):
        m()
