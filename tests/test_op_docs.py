"""docs/adding-an-op.md works to the letter; docs/ops.md is current."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
GUIDE = ROOT / "docs" / "adding-an-op.md"
_BLOCK = re.compile(r"<!-- (\w+)(?:: (\S+))? -->\n```python\n(.*?)```", re.DOTALL)


def blocks() -> list[tuple[str, str, str]]:
    """Return (what to do, file, code) of each marked block of the guide."""
    return _BLOCK.findall(GUIDE.read_text())


def run(where: Path, *command: str) -> str:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=where,
        env={**os.environ, "PYTHONPATH": str(where)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_op_table_is_current() -> None:
    run(ROOT, "scripts/generate_op_table.py", "--check")


@pytest.fixture(scope="module")
def followed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Follow the guide on a copy of the tree."""
    tree = tmp_path_factory.mktemp("tree")
    skipped = shutil.ignore_patterns("__pycache__")
    for name in ("tfw", "tests", "scripts"):
        shutil.copytree(ROOT / name, tree / name, ignore=skipped)
    shutil.copy(ROOT / "pyproject.toml", tree)
    (tree / "docs").mkdir()
    n_lines = 0
    for what, name, code in blocks():
        path = tree / name
        if what == "insert":
            # Among the imports: after the first of them.
            first = re.search(r"^(from|import) .*\n", path.read_text(), re.MULTILINE)
            assert first
            text = path.read_text()
            path.write_text(text[: first.end()] + code + text[first.end() :])
        elif what == "append":
            path.write_text(path.read_text() + "\n\n" + code)
        else:
            continue
        n_lines += len([line for line in code.split("\n") if line.strip()])
    assert n_lines < 20
    return tree


def test_the_walk_passes_on_the_new_op(followed: Path) -> None:
    chosen = ("tests/test_ops.py", "tests/test_op_forms.py", "tests/kernels", "-k", "softplus")
    out = run(followed, "-m", "pytest", "-p", "no:cacheprovider", "-rA", *chosen)
    passed = set(re.findall(r"PASSED \S+::(\w+)\[softplus", out))
    assert {"test_values_are_the_references", "test_second_derivative_and_jvp"} <= passed
    assert {"test_rejects", "test_docstring", "test_every_op_compiles_to_wide_accesses"} <= passed


def test_it_has_a_kernel_a_stub_and_a_row(followed: Path) -> None:
    codes = [code for what, _, code in blocks() if what == "run" and "softplus" in code]
    source = run(followed, "-c", codes[0])
    assert "def softplus_kernel(" in source
    assert "tl.store(" in source
    run(followed, "scripts/generate_stubs.py")
    assert "def softplus(self) -> Tensor:" in (followed / "tfw" / "tensor.pyi").read_text()
    run(followed, "scripts/generate_op_table.py")
    row = "| softplus | floating |  | body | own | generated |"
    assert row in (followed / "docs" / "ops.md").read_text()


def test_an_op_outside_the_package(tmp_path: Path) -> None:
    code = next(code for what, _, code in blocks() if what == "run" and "squared_relu" in code)
    check = """
from tfw.kernels import plan
from tfw.shapes import contiguous, device
x = contiguous((3000,), tfw.float32, device("cuda:0"))
found = plan(squared_relu.op, [x], [x], [])
assert (found.kernel.name, found.grid) == ("squared_relu_kernel", (3, 1, 1)), found
"""
    (tmp_path / "mylib.py").write_text(code + check)
    run(ROOT, "-c", f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import mylib")
