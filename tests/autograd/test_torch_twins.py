"""The literals of all twins hold in PyTorch itself. Collected only where PyTorch is installed."""

from __future__ import annotations

import importlib
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from twins import TWINS, Program, assert_told

HERE = Path(__file__).parent
for file in sorted([*HERE.glob("test_*.py"), *HERE.parent.glob("test_*.py")]):
    if "from twins import" in file.read_text() and file.stem != __name__:
        importlib.import_module(file.stem)


@pytest.mark.parametrize(
    ("program", "expected"), TWINS, ids=[f"{p.__module__}.{p.__name__}" for p, _ in TWINS]
)
def test_literal_is_pytorchs(program: Program, expected: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what PyTorch deprecates is not the subject
        assert_told(program(torch), expected)
