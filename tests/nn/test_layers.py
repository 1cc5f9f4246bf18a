"""Layers and losses: values, gradients, reprs, arguments.

Constants are torch 2.13's in float64, from the expression beside them, with X, W, B as below.
"""

# Wrong calls, fields of errors, and gradients that are there:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import tfw
from tfw import nn
from tfw.nn import functional as F  # noqa: N812

X = [[1.0, 2.0, -1.0], [0.5, 0.0, 3.0]]


def _x() -> Any:
    return tfw.tensor(X, dtype=tfw.float64, requires_grad=True)


def _near(actual: Any, expected: Any, tolerance: float = 1e-9) -> None:
    np.testing.assert_allclose(
        np.ravel(actual.detach().double().numpy()), np.ravel(expected), rtol=0, atol=tolerance
    )


def _set(parameter: Any, values: Any) -> None:
    with tfw.no_grad():
        parameter.copy_(tfw.tensor(values, dtype=parameter.dtype))


def test_linear_by_hand():
    layer = nn.Linear(3, 2, dtype=tfw.float64)
    _set(layer.weight, [[1.0, -1.0, 0.5], [2.0, 0.0, 1.0]])
    _set(layer.bias, [0.25, -0.25])
    x = _x()
    y = layer(x)
    assert y.tolist() == [[-1.25, 0.75], [2.25, 3.75]]
    y.sum().backward()
    assert layer.weight.grad.tolist() == [[1.5, 2.0, 2.0], [1.5, 2.0, 2.0]]
    assert layer.bias.grad.tolist() == [2.0, 2.0]
    assert x.grad.tolist() == [[3.0, -1.0, 1.5], [3.0, -1.0, 1.5]]
    assert nn.Linear(3, 2, bias=False).bias is None
    assert layer(tfw.ones(4, 5, 3, dtype=tfw.float64)).shape == (4, 5, 2)
    with pytest.raises(RuntimeError, match="linear"):
        layer(tfw.ones(2, 4, dtype=tfw.float64))


def test_linear_initial_values():
    tfw.manual_seed(0)
    layer = nn.Linear(64, 500)
    for p in layer.parameters():
        assert p.abs().max().item() <= 1 / 8
    # The standard deviation of U(-b, b) is b / sqrt(3); 32,000 draws give it to 1%.
    assert layer.weight.detach().numpy().std() == pytest.approx(1 / 8 / math.sqrt(3), rel=0.02)


@pytest.mark.parametrize(
    ("layer", "text"),
    [
        (nn.Linear(2, 3, bias=False), "Linear(in_features=2, out_features=3, bias=False)"),
        (nn.Embedding(5, 3), "Embedding(5, 3)"),
        (
            nn.Embedding(5, 3, padding_idx=1, max_norm=1.0, norm_type=1.0),
            "Embedding(5, 3, padding_idx=1, max_norm=1.0, norm_type=1.0)",
        ),
        (nn.LayerNorm(4), "LayerNorm((4,), eps=1e-05, elementwise_affine=True, bias=True)"),
        (
            nn.LayerNorm((2, 4), elementwise_affine=False),
            "LayerNorm((2, 4), eps=1e-05, elementwise_affine=False, bias=False)",
        ),
        (nn.Dropout(), "Dropout(p=0.5, inplace=False)"),
        (nn.ReLU(), "ReLU()"),
        (nn.ReLU(True), "ReLU(inplace=True)"),
        (nn.GELU(), "GELU(approximate='none')"),
        (nn.Tanh(), "Tanh()"),
        (nn.Softmax(), "Softmax(dim=None)"),
        (nn.LogSoftmax(-1), "LogSoftmax(dim=-1)"),
        (nn.Identity(3, x=1), "Identity()"),
        (nn.CrossEntropyLoss(), "CrossEntropyLoss()"),
        (nn.MSELoss(), "MSELoss()"),
    ],
)
def test_repr(layer: nn.Module, text: str):
    assert repr(layer) == text


def test_embedding():
    table = nn.Embedding(4, 2, padding_idx=-1)
    assert table.padding_idx == 3
    assert table.weight[3].tolist() == [0.0, 0.0]
    _set(table.weight, [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    y = table(tfw.tensor([[0, 3], [2, 0]]))
    assert y.tolist() == [[[1.0, 2.0], [7.0, 8.0]], [[5.0, 6.0], [1.0, 2.0]]]
    y.sum().backward()
    assert table.weight.grad.tolist() == [[2.0, 2.0], [0.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    with pytest.raises(IndexError):
        table(tfw.tensor([4]))
    with pytest.raises(ValueError, match="padding_idx=4") as caught:
        nn.Embedding(4, 2, padding_idx=4)
    assert caught.value.argument == "padding_idx"
    for name in ("sparse", "scale_grad_by_freq"):
        with pytest.raises(NotImplementedError, match=name):
            nn.Embedding(4, 2, **{name: True})
        with pytest.raises(NotImplementedError, match=name):
            F.embedding(tfw.tensor([0]), tfw.ones(2, 2), **{name: True})


@pytest.mark.parametrize(
    ("norm_type", "scale"), [(2.0, 2.5 / 5.0), (1.0, 2.5 / 7.0), (math.inf, 2.5 / 4.0)]
)
def test_embedding_limits_norms_of_rows_in_use(norm_type: float, scale: float):
    table = nn.Embedding(3, 2, max_norm=2.5, norm_type=norm_type)
    _set(table.weight, [[3.0, 4.0], [0.5, 1.0], [30.0, 40.0]])
    y = table(tfw.tensor([0, 1, 0]))
    first = [3.0 * scale, 4.0 * scale]
    _near(y, [first, [0.5, 1.0], first], 1e-5)
    _near(table.weight, [first, [0.5, 1.0], [30.0, 40.0]], 1e-5)


def test_embedding_from_pretrained():
    weights = tfw.ones(3, 2)
    table = nn.Embedding.from_pretrained(weights)
    assert not table.weight.requires_grad
    weights.fill_(2.0)
    assert table(tfw.tensor([1])).tolist() == [[2.0, 2.0]]
    assert nn.Embedding.from_pretrained(weights, freeze=False).weight.requires_grad
    with pytest.raises(RuntimeError, match="two dims"):
        nn.Embedding.from_pretrained(tfw.ones(3))
    with pytest.raises(RuntimeError, match="_weight has shape"):
        nn.Embedding(3, 3, _weight=weights)


def test_layer_norm():
    layer = nn.LayerNorm(3, dtype=tfw.float64)
    assert layer.weight.tolist() == [1.0] * 3
    assert layer.bias.tolist() == [0.0] * 3
    _set(layer.weight, [1.0, 2.0, 3.0])
    _set(layer.bias, [0.0, 0.5, 1.0])
    # layer_norm(X, (3,), [1, 2, 3], [0, 0.5, 1])
    expected = [0.2672603829, 2.6380830629, -3.0089057429]
    expected += [-0.5079990332, -1.2779966161, 5.1909920236]
    _near(layer(_x()), expected)
    # layer_norm(X, (2, 3), eps=0.01)
    expected = [0.0637007286, 0.8281094721, -1.4651167584]
    expected += [-0.3185036431, -0.7007080149, 1.5925182156]
    _near(nn.LayerNorm((2, 3), eps=0.01, elementwise_affine=False)(_x()), expected)
    plain = nn.LayerNorm(3, bias=False)
    assert [n for n, _ in plain.named_parameters()] == ["weight"]
    assert list(nn.LayerNorm(3, elementwise_affine=False).parameters()) == []
    with pytest.raises(RuntimeError, match="normalized_shape"):
        layer(tfw.ones(2, 4, dtype=tfw.float64))


def test_activations():
    x = _x()
    # gelu(X), gelu(X, approximate="tanh")
    none = [0.8413447461, 1.9544997361, -0.1586552539, 0.3457312306, 0.0, 2.9959503059]
    tanh = [0.8411919906, 1.9545976941, -0.1588080094, 0.3457140098, 0.0, 2.9963626079]
    _near(nn.GELU()(x), none)
    _near(nn.GELU("tanh")(x), tanh)
    with pytest.raises(ValueError, match="approximate"):
        nn.GELU("erf")(x)
    assert nn.ReLU()(x).tolist() == [[1.0, 2.0, 0.0], [0.5, 0.0, 3.0]]
    _near(nn.Tanh()(x), np.tanh(X))
    # softmax(X, -1), log_softmax(X, 0)
    _near(nn.Softmax(-1)(x)[0], [0.2594964603, 0.7053845127, 0.035119027])
    _near(nn.LogSoftmax(0)(x)[0], [-0.4740769842, -0.126928011, -4.0181499279])
    assert F.softmax(x, -1, dtype=tfw.float32).dtype is tfw.float32
    assert nn.Identity(1, a=2)(x) is x


def test_softmax_without_dim_warns_and_takes_pytorchs_choice():
    with pytest.warns(UserWarning, match="dim=1"):
        _near(nn.Softmax()(_x())[0], [0.2594964603, 0.7053845127, 0.035119027])
    with pytest.warns(UserWarning, match="dim=0"):
        F.log_softmax(tfw.ones(2, 1, 1))


def test_relu_in_place():
    x = tfw.tensor([-1.0, 2.0])
    assert nn.ReLU(inplace=True)(x) is x
    assert x.tolist() == [0.0, 2.0]
    y = tfw.tensor([-1.0])
    assert F.relu_(y) is y
    with pytest.raises(RuntimeError, match="leaf"):
        F.relu(tfw.ones(1, requires_grad=True), inplace=True)


def test_dropout():
    tfw.manual_seed(0)
    layer = nn.Dropout(0.25)
    y = layer(tfw.ones(10_000))
    # The number of zeros has standard deviation sqrt(n p (1 - p)) = 43: five of them.
    assert abs((y == 0).sum().item() - 2500) < 220
    assert {round(v, 6) for v in y.tolist()} == {0.0, round(4 / 3, 6)}
    x = tfw.ones(3)
    assert layer.eval()(x) is x
    for p in (-0.1, 1.5):
        with pytest.raises(ValueError, match=f"p={p}"):
            nn.Dropout(p)


def test_cross_entropy():
    target = tfw.tensor([2, 0])
    weight = tfw.tensor([1.0, 2.0, 0.5], dtype=tfw.float64)
    x = _x()
    # cross_entropy(X, [2, 0]); with weight=[1, 2, 0.5]; reduction="none", label_smoothing=0.1;
    # (X, [-100, 0], reduction="sum"); (X, [[.2, .3, .5], [1, 0, 0]], label_smoothing=0.1)
    _near(nn.CrossEntropyLoss()(x, target), 2.9864425876)
    loss = nn.CrossEntropyLoss(weight=weight)
    assert list(loss.state_dict()) == ["weight"]
    _near(loss(x, target), 2.8655860445)
    each = nn.CrossEntropyLoss(reduction="none", label_smoothing=0.1)(x, target)
    _near(each, [3.1823455501, 2.5572062917])
    summed = nn.CrossEntropyLoss(reduction="sum")(x, tfw.tensor([-100, 0]))
    _near(summed, 2.6238729584)
    probabilities = tfw.tensor([[0.2, 0.3, 0.5], [1.0, 0.0, 0.0]], dtype=tfw.float64)
    _near(nn.CrossEntropyLoss(label_smoothing=0.1)(x, probabilities), 2.2847759209)
    with pytest.raises(IndexError):
        nn.CrossEntropyLoss()(x, tfw.tensor([3, 0]))
    with pytest.raises(ValueError, match="reduction"):
        nn.CrossEntropyLoss(reduction="average")(x, target)


def test_cross_entropy_ignores_a_class():
    # By hand: of rows 0 and 1 only row 0 counts, -log_softmax(X[0])[2].
    loss = nn.CrossEntropyLoss(ignore_index=0)(_x(), tfw.tensor([2, 0]))
    _near(loss, math.log(sum(math.exp(v) for v in X[0])) + 1.0)


def test_mse():
    x, target = _x(), tfw.zeros(2, 3, dtype=tfw.float64)
    assert nn.MSELoss()(x, target).item() == pytest.approx(15.25 / 6, abs=1e-12)
    assert nn.MSELoss(reduction="sum")(x, target).item() == 15.25
    assert nn.MSELoss(reduction="none")(x, target).tolist() == [[1.0, 4.0, 1.0], [0.25, 0.0, 9.0]]


@pytest.mark.parametrize(
    ("flags", "reduction"),
    [
        ({"size_average": True}, "mean"),
        ({"size_average": False}, "sum"),
        ({"reduce": False}, "none"),
        ({"reduce": True}, "mean"),
    ],
)
def test_old_flags_of_losses_warn(flags: dict[str, bool], reduction: str):
    for loss in (nn.MSELoss, nn.CrossEntropyLoss):
        with pytest.warns(UserWarning, match=reduction):
            assert loss(**flags).reduction == reduction


def test_device_and_dtype_arguments():
    for layer in (
        nn.Linear(2, 3, device="meta", dtype=tfw.float16),
        nn.Embedding(2, 3, device="meta", dtype=tfw.float16),
        nn.LayerNorm(3, device="meta", dtype=tfw.float16),
    ):
        assert {(p.device.type, p.dtype) for p in layer.parameters()} == {("meta", tfw.float16)}
