"""Loads tests/programs/nanogpt.py for a framework, changing nothing but its import lines."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import numpy as np

PROGRAM = Path(__file__).parent / "programs" / "nanogpt.py"
IMPORTS = {
    "import torch": "import tfw as torch",
    "import torch.nn as nn": "import tfw.nn as nn",
    "from torch.nn import functional as F": "from tfw.nn import functional as F",
}


def load(framework: str) -> Any:
    """Return the program as a module, for "torch" as it is written or for "tfw"."""
    lines = [line.partition("  # noqa")[0] for line in PROGRAM.read_text().splitlines()]
    if framework == "tfw":
        assert set(IMPORTS) <= set(lines)
        lines = [IMPORTS.get(line, line) for line in lines]
        assert not any("import torch" in line for line in lines if not line.endswith("as torch"))
    module = types.ModuleType(f"nanogpt_{framework}")
    sys.modules[module.__name__] = module  # dataclasses look their module up
    exec(compile("\n".join(lines), str(PROGRAM), "exec"), module.__dict__)
    return module


def weights(model: Any) -> dict[str, Any]:
    """Return the same random weights for the same model, whichever the framework."""
    rng = np.random.default_rng(1337)
    values: dict[str, Any] = {}
    for name, p in sorted(model.state_dict().items()):
        if name != "transformer.wte.weight":  # tied to lm_head.weight
            centre = 1.0 if "ln_" in name and name.endswith("weight") else 0.0
            values[name] = centre + 0.02 * rng.standard_normal(tuple(p.shape))
    return values


def built(framework: str, module: Any) -> Any:
    """Return the program's model with those weights."""
    t = sys.modules[framework]
    model = module.GPT(module.Config())
    values = {k: t.tensor(v, dtype=t.float32) for k, v in weights(model).items()}
    values["transformer.wte.weight"] = values["lm_head.weight"]
    model.load_state_dict(values)
    return model
