"""The nanoGPT-style program gives in tfw the losses that it gives in PyTorch."""

from __future__ import annotations

import pytest
import torch
from nanogpt_program import built, load

import tfw


def test_losses_norms_and_evaluations_agree() -> None:
    told = []
    for framework in ("torch", "tfw"):
        program = load(framework)
        told.append(program.train(built(framework, program)))
    (losses, norms, evaluations), (our_losses, our_norms, our_evaluations) = told
    assert our_losses == pytest.approx(losses, abs=1e-5)
    assert our_norms == pytest.approx(norms, rel=1e-3)
    assert our_evaluations == [pytest.approx(e, abs=1e-5) for e in evaluations]
    assert torch.is_grad_enabled()
    assert tfw.is_grad_enabled()
