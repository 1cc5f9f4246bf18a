"""Initialisers: exact where they are exact, bounds and moments where they draw."""

# Wrong calls, fields of errors, and gradients that are there:
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportOptionalMemberAccess=false, reportOperatorIssue=false

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import special, stats

import tfw
from tfw.nn import init


@pytest.mark.parametrize(
    ("nonlinearity", "param", "gain"),
    [
        *(("linear", None, 1.0), ("conv2d", None, 1.0), ("sigmoid", None, 1.0)),
        *(("tanh", None, 5 / 3), ("relu", None, math.sqrt(2)), ("selu", None, 0.75)),
        *(("leaky_relu", None, 1.4141428569978354), ("leaky_relu", 0.2, 1.3867504905630728)),
    ],
)
def test_gain(nonlinearity: str, param: Any, gain: float):
    assert init.calculate_gain(nonlinearity, param) == pytest.approx(gain, abs=1e-15)


def test_bad_gain():
    with pytest.raises(ValueError, match="unknown nonlinearity 'swish'") as caught:
        init.calculate_gain("swish")
    assert caught.value.argument == "nonlinearity"
    for slope in ("0.1", True):
        with pytest.raises(ValueError, match="negative slope"):
            init.calculate_gain("leaky_relu", slope)


def _follows(values: Any, distribution: Any) -> None:
    """Compare with a distribution; the seed is fixed, so this passes always or never."""
    assert stats.kstest(values.detach().numpy().ravel(), distribution.cdf).pvalue > 0.01


def _uniform(bound: float) -> Any:
    return stats.uniform(-bound, 2 * bound)


# fan_in 50, fan_out 40
@pytest.mark.parametrize(
    ("fill", "distribution"),
    [
        (lambda t: init.uniform_(t, -2, 3), stats.uniform(-2, 5)),
        (lambda t: init.normal_(t, 1.0, 0.5), stats.norm(1.0, 0.5)),
        (lambda t: init.xavier_uniform_(t, 2.0), _uniform(2 * math.sqrt(6 / 90))),
        (lambda t: init.xavier_normal_(t), stats.norm(0, math.sqrt(2 / 90))),
        (lambda t: init.kaiming_uniform_(t, math.sqrt(5)), _uniform(1 / math.sqrt(50))),
        (
            lambda t: init.kaiming_normal_(t, mode="fan_out", nonlinearity="relu"),
            stats.norm(0, math.sqrt(2 / 40)),
        ),
        (
            lambda t: init.trunc_normal_(t, 0.5, 2.0, -1.0, 2.0),
            stats.truncnorm(-0.75, 0.75, 0.5, 2.0),
        ),
    ],
)
def test_distributions(fill: Any, distribution: Any):
    tfw.manual_seed(1)
    tensor = tfw.empty(40, 50, requires_grad=True)
    assert fill(tensor) is tensor
    assert tensor.is_leaf
    _follows(tensor, distribution)


def test_a_generator_repeats():
    draws = [
        init.xavier_normal_(tfw.empty(2, 3), generator=tfw.Generator().manual_seed(5)).tolist()
        for _ in range(2)
    ]
    assert draws[0] == draws[1]


def test_erfinv_against_scipy():
    x = np.linspace(-1 + 2.0**-23, 1 - 2.0**-23, 10_001)
    actual = init._erfinv(tfw.from_numpy(x)).numpy()
    np.testing.assert_allclose(actual, special.erfinv(x), rtol=4e-7, atol=1e-12)


def test_trunc_normal_stays_inside_and_has_no_outliers():
    tfw.manual_seed(0)
    half = init.trunc_normal_(tfw.empty(1000, dtype=tfw.bfloat16), std=2.0, a=-1.0, b=1.0)
    assert half.abs().max().item() <= 1.0
    # 100 standard deviations between the mean and a bound: no value may be the bound.
    narrow = init.trunc_normal_(tfw.empty(100_000), std=0.02)
    assert narrow.abs().max().item() < 0.02 * 6
    with pytest.warns(UserWarning, match="more than two std"):
        assert init.trunc_normal_(tfw.empty(3), mean=10.0).tolist() == [2.0] * 3


def test_constants_and_patterns():
    assert init.constant_(tfw.empty(2), 3.0).tolist() == [3.0, 3.0]
    assert init.ones_(tfw.empty(2)).tolist() == [1.0, 1.0]
    assert init.zeros_(tfw.empty(2)).tolist() == [0.0, 0.0]
    assert init.eye_(tfw.empty(2, 3)).tolist() == [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]
    # torch: dirac_(empty(4, 2, 3), groups=2).nonzero()
    dirac = init.dirac_(tfw.empty(4, 2, 3), 2).numpy()
    assert np.argwhere(dirac).tolist() == [[0, 0, 1], [1, 1, 1], [2, 0, 1], [3, 1, 1]]


@pytest.mark.parametrize("shape", [(4, 6), (6, 4), (6, 2, 2)])
def test_orthogonal(shape: tuple[int, ...]):
    tfw.manual_seed(0)
    q = init.orthogonal_(tfw.empty(*shape), 2.0).double().numpy().reshape(shape[0], -1)
    product = q @ q.T if q.shape[0] <= q.shape[1] else q.T @ q
    np.testing.assert_allclose(product, 4.0 * np.eye(len(product)), atol=1e-5)


def test_sparse():
    tfw.manual_seed(0)
    values = init.sparse_(tfw.empty(10, 5), 0.35, 1.0).numpy()
    assert (values == 0).sum(0).tolist() == [4] * 5
    assert len({tuple(column) for column in (values == 0).T.tolist()}) > 1


@pytest.mark.parametrize(
    ("call", "argument"),
    [
        (lambda: init.eye_(tfw.empty(2)), "tensor"),
        (lambda: init.dirac_(tfw.empty(2, 2)), "tensor"),
        (lambda: init.dirac_(tfw.empty(3, 2, 2), 2), "groups"),
        (lambda: init.xavier_uniform_(tfw.empty(2)), "tensor"),
        (lambda: init.kaiming_normal_(tfw.empty(2)), "tensor"),
        (lambda: init.kaiming_uniform_(tfw.empty(2, 2), mode="both"), "mode"),
        (lambda: init.orthogonal_(tfw.empty(2)), "tensor"),
        (lambda: init.sparse_(tfw.empty(2), 0.1), "tensor"),
    ],
)
def test_bad_tensors_and_modes(call: Any, argument: str):
    with pytest.raises(ValueError) as caught:  # noqa: PT011 - the fields tell
        call()
    assert caught.value.argument == argument


def test_empty_tensors_warn():
    with pytest.warns(UserWarning, match="without elements"):
        init.kaiming_uniform_(tfw.empty(0, 2))
