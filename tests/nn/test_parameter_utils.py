"""Clipping, total norms, parameters as one vector. Expected values by hand."""

# Wrong calls, fields of errors, and gradients that are there:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

import math
from typing import Any

import pytest

import tfw
from tfw import nn
from tfw.nn import utils


def _parameters(*gradients: Any, dtype: Any = None) -> list[nn.Parameter]:
    parameters = []
    for values in gradients:
        gradient = tfw.tensor(values, dtype=dtype or tfw.float64)
        p = nn.Parameter(tfw.zeros_like(gradient))
        p.grad = gradient
        parameters.append(p)
    return [*parameters, nn.Parameter(tfw.zeros(3))]


@pytest.mark.parametrize(
    ("norm_type", "norm"),
    [
        *((2, 13.0), (2.0, 13.0), (1, 19.0), (math.inf, 12.0)),
        # As in PyTorch, the 0-norm of the 0-norms: the number of gradients that are not zero.
        (0, 2.0),
        (3.0, (27 + 64 + 1728) ** (1 / 3)),
    ],
)
def test_clip_by_norm(norm_type: float, norm: float):
    parameters = _parameters([[3.0, -4.0]], [12.0])
    total = utils.clip_grad_norm_(parameters, 2.0, norm_type)
    assert total.item() == pytest.approx(norm, rel=1e-12)
    factor = 2.0 / (norm + 1e-6)
    assert parameters[0].grad.tolist() == [pytest.approx([3 * factor, -4 * factor], rel=1e-12)]
    assert parameters[1].grad.tolist() == pytest.approx([12 * factor], rel=1e-12)
    assert parameters[2].grad is None


def test_clip_leaves_small_gradients_and_takes_one_tensor_or_a_generator():
    parameters = _parameters([3.0, 4.0])
    utils.clip_grad_norm_(parameters, 5.1)
    assert parameters[0].grad.tolist() == [3.0, 4.0]
    assert utils.clip_grad_norm_(parameters[0], 1.0).item() == 5.0
    assert utils.clip_grad_norm_((p for p in parameters), 10.0).item() == pytest.approx(1.0)
    assert utils.clip_grad_norm_([], 1.0).item() == 0.0
    with pytest.warns(UserWarning, match="nothing to clip"):
        utils.clip_grad_norm_((p for p in ()), 1.0)


def test_half_gradients_do_not_overflow():
    # 300^2 is past float16's largest number.
    parameters = _parameters([300.0, 400.0], dtype=tfw.float16)
    assert utils.clip_grad_norm_(parameters, 5.0).item() == 500.0
    assert parameters[0].grad.dtype is tfw.float16
    assert parameters[0].grad.tolist() == pytest.approx([3.0, 4.0], rel=1e-3)


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_non_finite_norms(bad: float):
    parameters = _parameters([1.0, bad])
    with pytest.raises(RuntimeError, match=r"norm of order 2\.0") as caught:
        utils.clip_grad_norm_(parameters, 1.0, error_if_nonfinite=True)
    assert caught.value.argument == "tensors"
    assert parameters[0].grad.tolist()[0] == 1.0
    utils.clip_grad_norm_(parameters, 1.0)
    assert parameters[0].grad.tolist()[0] != 1.0


def test_total_norm():
    tensors = [tfw.tensor([3.0]), tfw.tensor([[4.0]])]
    assert utils.get_total_norm(tensors).item() == 5.0
    assert utils.get_total_norm(tensors, -math.inf).item() == 3.0


def test_clip_by_value():
    parameters = _parameters([-3.0, 0.5, 4.0])
    utils.clip_grad_value_(parameters, 1.0)
    assert parameters[0].grad.tolist() == [-1.0, 0.5, 1.0]


def test_parameters_as_a_vector_and_back():
    layer = nn.Linear(2, 2)
    with tfw.no_grad():
        layer.weight.copy_(tfw.tensor([[1.0, 2.0], [3.0, 4.0]]))
        layer.bias.copy_(tfw.tensor([5.0, 6.0]))
    vector = utils.parameters_to_vector(layer.parameters())
    assert vector.tolist() == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    (vector * tfw.arange(6)).sum().backward()
    assert layer.bias.grad.tolist() == [4.0, 5.0]
    weight, new = layer.weight, tfw.arange(6).float()
    utils.vector_to_parameters(new, layer.parameters())
    assert layer.weight is weight
    assert weight.tolist() == [[0.0, 1.0], [2.0, 3.0]]
    new.fill_(7.0)
    assert layer.bias.tolist() == [7.0, 7.0]
    for n in (5, 7):
        with pytest.raises(RuntimeError, match="vec has shape") as caught:
            utils.vector_to_parameters(tfw.zeros(n), layer.parameters())
        assert caught.value.value == (n,)
    with pytest.raises(TypeError):
        utils.vector_to_parameters([1.0], layer.parameters())
    with pytest.raises(TypeError, match="parameters are on"):
        utils.parameters_to_vector([layer.weight, nn.Parameter(tfw.zeros(1, device="meta"))])
