"""tensor.pyi is what the generator writes, and names all that Tensor has."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import tfw
from tfw.tensor import Tensor

ROOT = Path(__file__).parents[1]


def test_stub_is_current() -> None:
    script = ROOT / "scripts" / "generate_stubs.py"
    done = subprocess.run([sys.executable, str(script), "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run: python scripts/generate_stubs.py"


def test_stub_names_every_member() -> None:
    tree = ast.parse((ROOT / "tfw" / "tensor.pyi").read_text())
    node = next(n for n in tree.body if isinstance(n, ast.ClassDef))
    named = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
    members = {n for n, v in vars(Tensor).items() if callable(v) or isinstance(v, property)}
    assert members - named == set()
    # A few by name, so that an empty class would not pass.
    assert {"add_", "__rsub__", "backward", "T", "view_as", "float", "uniform_"} <= named


def test_methods_of_pytorch_that_training_scripts_use() -> None:
    x = tfw.zeros(2, 2)
    for name in (
        *("view", "reshape", "permute", "transpose", "t", "flatten", "unsqueeze", "squeeze"),
        *("expand", "expand_as", "chunk", "split", "contiguous", "clone", "detach", "to"),
        *("cpu", "cuda", "float", "half", "long", "bool", "item", "tolist", "numpy", "size", "dim"),
        *("sum", "mean", "max", "min", "argmax", "any", "all", "topk", "sort", "masked_fill_"),
        *("matmul", "mm", "bmm", "softmax", "exp", "log", "zero_", "fill_", "copy_", "normal_"),
        *("uniform_", "requires_grad_", "backward", "register_hook", "new_zeros", "type_as"),
    ):
        assert callable(getattr(x, name)), name
