"""Public docstrings of nn and optim: their sections are there and their examples run."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Any

import pytest

import tfw
from tfw import nn, optim
from tfw.nn import functional, init, utils

SECTIONS = ("Shapes:", "Dtypes:", "Errors:", "Source:", "Example:")


def _layers() -> Iterator[Any]:
    return (v for v in vars(nn).values() if inspect.isclass(v) and v is not nn.Module)


def _functions(module: Any) -> Iterator[Any]:
    return (
        v
        for n, v in vars(module).items()
        if not n.startswith("_") and callable(v) and v.__module__.startswith("tfw.")
    )


@pytest.mark.parametrize("layer", list(_layers()), ids=lambda layer: layer.__name__)
def test_layers_tell_everything(layer: Any):
    for section in SECTIONS:
        assert section in layer.__doc__
    if layer not in (nn.Parameter, nn.Buffer):
        assert "Parameters:" in layer.__doc__


def _examples() -> Iterator[Any]:
    schedules = [getattr(optim.lr_scheduler, n) for n in dir(optim.lr_scheduler) if n[0].isupper()]
    optimizers = [optim.SGD, optim.Adam, optim.AdamW]
    for thing in (*_layers(), *optimizers, *schedules, *_functions(utils), init.calculate_gain):
        for code in re.findall(r"Example: `([^`]+)`", thing.__doc__ or ""):
            yield pytest.param(code, id=thing.__name__)
    for name in ("relu", "softmax", "log_softmax", "embedding"):
        code = re.findall(r"Example: `([^`]+)`", getattr(functional, name).__doc__)[0]
        yield pytest.param(code, id=f"functional.{name}")


@pytest.mark.parametrize("code", list(_examples()))
def test_examples_run(code: str):
    model = nn.Linear(2, 2)
    model(tfw.ones(1, 2)).sum().backward()
    optimizer = optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scope: dict[str, Any] = {
        **{"tfw": tfw, "nn": nn, "optim": optim, "model": model, "optimizer": optimizer},
        **vars(optim.lr_scheduler),
        **{"validation_loss": 1.0},
        "warmup": optim.lr_scheduler.LinearLR(optimizer),
        "cosine": optim.lr_scheduler.CosineAnnealingLR(optimizer, 10),
    }
    if "==" in code:
        assert eval(code, scope)
    else:
        exec(code, scope)
