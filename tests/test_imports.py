"""What `import tfw` brings along, and what it must not."""

from __future__ import annotations

import subprocess
import sys

import pytest

# Heavy or optional packages: each is imported by the part that needs it, when it is first used.
NOT_AT_IMPORT = ("triton", "cuda", "rich", "safetensors", "torch", "multiprocessing.pool", "scipy")


def _modules_after(program: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", f"{program}\nimport sys\nprint('\\n'.join(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    return set(result.stdout.split())


@pytest.mark.parametrize(
    "program",
    [
        "import tfw",
        "import tfw, tfw.nn, tfw.optim, tfw.utils.data",
        "import tfw\nx = tfw.ones(2, requires_grad=True)\n(x * x).sum().backward()\nrepr(x)",
    ],
)
def test_nothing_heavy_is_imported(program: str) -> None:
    modules = _modules_after(program)
    assert "tfw" in modules
    assert modules.isdisjoint(NOT_AT_IMPORT)


def test_numpys_error_state_is_left_alone() -> None:
    program = "import numpy\nbefore = numpy.geterr()\nimport tfw\n(tfw.ones(1) / 0.0).log()\n"
    _modules_after(program + "assert numpy.geterr() == before")


def test_every_public_name_is_there_and_documented() -> None:
    import tfw

    for name in [n for n in vars(tfw) if not n.startswith("_")]:
        value = getattr(tfw, name)
        if callable(value) and getattr(value, "__module__", "").startswith("tfw"):
            assert value.__doc__, name
