"""Optimizer steps against the update rules of the papers, written out in float64."""

from __future__ import annotations

from itertools import product
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tfw.runtime.cpu.optim import adam_step, sgd_step

Array = np.ndarray[Any, np.dtype[Any]]
SHAPES = [(3, 5), (70001,), (1,), (0,), (2, 3, 4)]


def draw(seed: int, dtype: Any = np.float64) -> list[Array]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(s).astype(dtype) for s in SHAPES]


def compare(actual: list[Array], expected: list[Array], tolerance: float) -> None:
    for a, e in zip(actual, expected, strict=True):
        np.testing.assert_allclose(a.astype(np.float64), e, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    ("momentum", "dampening", "nesterov", "decay", "maximize"),
    [
        (m, d, n, w, x)
        for m, d, n, w, x in product((0, 0.9), (0, 0.1), (False, True), (0, 0.05), (False, True))
        if not n or (m and not d)
    ],
)
def test_sgd(
    momentum: float, dampening: float, nesterov: bool, decay: float, maximize: bool
) -> None:
    p, buffers = draw(0), draw(99) if momentum else []
    expected, expected_buffers = [x.copy() for x in p], [np.zeros_like(x) for x in p]
    for step in range(3):
        gradients = draw(step + 1)
        kept = [g.copy() for g in gradients]
        sgd_step(
            p, gradients, buffers, lr=0.1, momentum=momentum, dampening=dampening,
            nesterov=nesterov, weight_decay=decay, maximize=maximize, first=step == 0,
        )  # fmt: skip
        for i, g in enumerate(gradients):
            np.testing.assert_array_equal(g, kept[i])
            g = (-g if maximize else g) + decay * expected[i]
            if momentum:
                b = g if step == 0 else momentum * expected_buffers[i] + (1 - dampening) * g
                expected_buffers[i] = b
                g = g + momentum * b if nesterov else b
            expected[i] = expected[i] - 0.1 * g
    compare(p, expected, 1e-13)
    if momentum:
        compare(buffers, expected_buffers, 1e-13)


@pytest.mark.parametrize(
    ("amsgrad", "decay", "maximize", "decoupled"),
    list(product((False, True), (0, 0.05), (False, True), (False, True))),
)
def test_adam(amsgrad: bool, decay: float, maximize: bool, decoupled: bool) -> None:
    lr, b1, b2, eps = 0.1, 0.8, 0.95, 1e-6
    p = draw(0)
    m, v, largest = ([np.zeros_like(x) for x in p] for _ in range(3))
    expected = [x.copy() for x in p]
    em, ev, el = ([np.zeros_like(x) for x in p] for _ in range(3))
    for step in range(1, 4):
        gradients = draw(step)
        adam_step(
            p, gradients, m, v, largest if amsgrad else [], [step] * len(p), lr=lr, betas=(b1, b2),
            eps=eps, weight_decay=decay, decoupled=decoupled, maximize=maximize,
        )  # fmt: skip
        for i, g in enumerate(gradients):
            g = -g if maximize else g
            if decoupled:
                expected[i] = expected[i] * (1 - lr * decay)
            else:
                g = g + decay * expected[i]
            em[i] = b1 * em[i] + (1 - b1) * g
            ev[i] = b2 * ev[i] + (1 - b2) * g * g
            el[i] = np.maximum(el[i], ev[i])
            second = (el[i] if amsgrad else ev[i]) / (1 - b2**step)
            expected[i] = expected[i] - lr * em[i] / (1 - b1**step) / (np.sqrt(second) + eps)
    compare(p, expected, 1e-12)
    compare(m, em, 1e-13)
    compare(v, ev, 1e-13)


def test_first_adam_step_moves_by_lr() -> None:
    # By hand: m / (1 - b1) = g and v / (1 - b2) = g^2, so p -= lr * g / (|g| + eps).
    p, g = np.zeros(3, np.float32), np.array([5.0, -0.25, 0.0], np.float32)
    adam_step([p], [g], [np.zeros_like(p)], [np.zeros_like(p)], [], [1], lr=0.5)
    np.testing.assert_allclose(p, [-0.5, 0.5, 0.0], rtol=1e-6)


@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(np.float32, 1e-6), (np.float16, 2e-3), (ml_dtypes.bfloat16, 2e-2)]
)
def test_lower_precision(dtype: Any, tolerance: float) -> None:
    p, g = draw(0, dtype), draw(1, dtype)
    expected = [
        x.astype(np.float64) - 0.1 * y.astype(np.float64) for x, y in zip(p, g, strict=True)
    ]
    sgd_step(p, g, [], lr=0.1)
    compare(p, expected, tolerance)
    assert p[0].dtype == dtype


def test_memory_layouts() -> None:
    p, g, buffer = np.ones((3, 4)).T, draw(0)[0][:, :4][:3].T[:, ::-1], np.zeros((3, 4)).T
    sgd_step([p], [g], [buffer], lr=1.0, momentum=0.5, first=True)
    np.testing.assert_allclose(p, 1 - g)
    with pytest.raises(ValueError, match="differ in memory layout"):
        sgd_step([p], [g], [np.zeros((4, 3))], lr=1.0, momentum=0.5)
