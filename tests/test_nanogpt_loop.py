"""A nanoGPT-style training program written for PyTorch runs with its import lines changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from nanogpt_program import built, load

import tfw

# losses, then gradient norms, of the program in PyTorch 2.13 at steps 0, 9, 19 and 29:
# model = built("torch", load("torch")); load("torch").train(model)
LOSSES = [4.1373005, 3.5787687, 3.0887486, 2.8949891]
NORMS = [1.691226, 1.155607, 1.211898, 1.253294]
VALIDATION = [4.1434026, 3.5064042, 3.0622189]
AT = [0, 9, 19, 29]


@pytest.fixture(scope="module")
def program() -> Any:
    return load("tfw")


@pytest.fixture(scope="module")
def trained(program: Any) -> Any:
    model = built("tfw", program)
    return model, *program.train(model)


def test_loss_falls(trained: Any) -> None:
    _, losses, _, evaluations = trained
    assert losses[0] == pytest.approx(np.log(64), abs=0.3)
    assert losses[-1] < 0.75 * losses[0]
    assert evaluations[-1]["val"] < evaluations[0]["val"]


def test_losses_and_norms_are_pytorchs(trained: Any) -> None:
    _, losses, norms, evaluations = trained
    assert [losses[i] for i in AT] == pytest.approx(LOSSES, abs=1e-5)
    assert [norms[i] for i in AT] == pytest.approx(NORMS, rel=1e-3)
    assert [e["val"] for e in evaluations] == pytest.approx(VALIDATION, abs=1e-5)


def test_weights_stay_tied_and_decay_groups_hold_all(trained: Any) -> None:
    model, *_ = trained
    assert model.transformer.wte.weight is model.lm_head.weight
    groups = model.optimizer(0.1, 1e-3).param_groups
    assert [g["weight_decay"] for g in groups] == [0.1, 0.0]
    assert sum(len(g["params"]) for g in groups) == len(list(model.parameters()))
    assert model.count() == sum(p.numel() for p in model.parameters()) - 16 * 32


def test_generate(trained: Any, program: Any) -> None:
    model, *_ = trained
    model.eval()
    _, _, chars = program.prepare(model.config)
    start = tfw.tensor([[chars.index("t")], [chars.index("q")]])
    tfw.manual_seed(7)
    out = model.generate(start, 20, temperature=0.8, top_k=5)
    tfw.manual_seed(7)
    again = model.generate(start, 20, temperature=0.8, top_k=5)
    model.train()
    assert out.shape == (2, 21)
    assert out.tolist() == again.tolist()
    assert all(0 <= i < 64 for row in out.tolist() for i in row)


def test_dropout_trains_and_is_off_in_evaluation(program: Any) -> None:
    tfw.manual_seed(1)
    model = program.GPT(program.Config(dropout=0.2))
    losses, _, _ = program.train(model, steps=6)
    assert losses[-1] < losses[0]
    data, _, _ = program.prepare(model.config)
    x, y = program.batch(data, model.config, 0, 4)
    model.eval()
    a, b = model(x, y)[1].item(), model(x, y)[1].item()
    model.train()
    c, d = model(x, y)[1].item(), model(x, y)[1].item()
    assert a == b
    assert c != d
