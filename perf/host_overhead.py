"""Host cost of one eager op on tiny CPU tensors, beside PyTorch's in the same process.

    python perf/host_overhead.py [--only NAME] [--json] [--rounds N]

One thread. Rounds of tfw and PyTorch alternate, so that a busy machine slows both; the best round
counts. "grad" means that inputs require gradients, so the op records a node; backward is measured
by the chain and by the SGD step. Without torch in the interpreter, tfw's times stand alone.
Budgets: DESIGN.md section 9. Exit code 1 if one is missed.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import importlib.util
import json
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from itertools import repeat
from typing import Any

# Before NumPy and PyTorch are imported: both size their thread pools when they load.
os.environ.update(
    dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "TFW_NUM_THREADS"), "1")
)

import numpy as np

MEDIAN_LIMIT = 0.9
LIMIT = 1.3
SOFTMAX_LIKE_LIMIT = 1.9
#: Ops that NumPy composes of several calls and PyTorch makes one of.
SOFTMAX_LIKE = frozenset({"softmax", "layer_norm", "gelu", "cross_entropy"})
IMPORT_LIMIT = 2.5
UNWANTED_IMPORTS = ("triton", "cuda", "rich", "safetensors", "torch")

Body = Callable[[], object]


class Inputs:
    """Small tensors of one framework, the same numbers in each."""

    def __init__(self, framework: Any, *, grad: bool) -> None:
        self.framework = framework
        self.grad = grad
        self._rng = np.random.default_rng(0)

    def real(self, *shape: int) -> Any:
        """Return a float32 tensor that requires a gradient if the case asks for it."""
        values = self._rng.standard_normal(shape).astype(np.float32)
        return self.framework.from_numpy(values).requires_grad_(self.grad)

    def integers(self, high: int, *shape: int) -> Any:
        """Return an int64 tensor below `high`."""
        return self.framework.from_numpy(self._rng.integers(0, high, shape))

    def mask(self, *shape: int) -> Any:
        """Return a bool tensor."""
        return self.framework.from_numpy(self._rng.random(shape) < 0.5)


def ops(make: Inputs) -> dict[str, Body]:
    """Return one call per op, on tensors so small that arithmetic does not count."""
    fw = make.framework
    functional = importlib.import_module(f"{fw.__name__}.nn.functional")
    a, b = make.real(4, 8), make.real(4, 8)
    square = make.real(8, 8)
    table, rows = make.real(16, 8), make.integers(16, 4)
    scale, shift = make.real(8), make.real(8)
    classes, mask = make.integers(8, 4), make.mask(4, 8)
    target = make.real(4, 8).detach()
    return {
        "add": lambda: a + b,
        "mul_scalar": lambda: a * 2.0,
        "relu": lambda: fw.relu(a),
        "exp": lambda: fw.exp(a),
        "where": lambda: fw.where(mask, a, b),
        "sum": lambda: a.sum(),
        "sum_dim": lambda: a.sum(1),
        "max_dim": lambda: fw.max(a, 1),
        "getitem": lambda: a[1],
        "reshape": lambda: a.reshape(8, 4),
        "transpose": lambda: a.transpose(0, 1),
        "expand": lambda: scale.expand(4, 8),
        "matmul": lambda: a @ square,
        "softmax": lambda: fw.softmax(a, -1),
        "layer_norm": lambda: functional.layer_norm(a, (8,), scale, shift),
        "gelu": lambda: functional.gelu(a),
        "embedding": lambda: functional.embedding(rows, table),
        "cross_entropy": lambda: functional.cross_entropy(a, classes),
        "cat": lambda: fw.cat((a, b)),
        "masked_fill": lambda: a.masked_fill(mask, 0.0),
        # In place on a fresh alias: the graph would grow from call to call otherwise.
        "add_": lambda: target.detach().add_(b),
        "dropout": lambda: functional.dropout(a, 0.5),
    }


def chain_of_40(make: Inputs) -> Body:
    """Return forty elementwise ops and their backward."""
    a, b = make.real(4, 8), make.real(4, 8)

    def body() -> None:
        y = a
        for _ in range(20):
            y = y * 1.01
            y = y + b
        y.sum().backward()
        a.grad = b.grad = None

    return body


def sgd_step(make: Inputs) -> Body:
    """Return one training step of a linear layer."""
    fw = make.framework
    model = fw.nn.Linear(8, 8)
    optimizer = fw.optim.SGD(model.parameters(), lr=1e-3)
    x, y = make.real(4, 8).detach(), make.real(4, 8).detach()

    def body() -> None:
        optimizer.zero_grad()
        (model(x) * y).sum().backward()
        optimizer.step()

    return body


def cases(framework: Any) -> dict[str, Body]:
    """Return every case by its name."""
    found: dict[str, Body] = {}
    for grad in (False, True):
        suffix = " grad" if grad else ""
        bodies = ops(Inputs(framework, grad=grad))
        found |= {name + suffix: body for name, body in bodies.items()}
    found["chain of 40 + backward"] = chain_of_40(Inputs(framework, grad=True))
    found["SGD step of a Linear"] = sgd_step(Inputs(framework, grad=True))
    return found


def seconds(body: Body, n: int) -> float:
    """Return the time of one call, over n."""
    started = time.perf_counter()
    for _ in repeat(None, n):
        body()
    return (time.perf_counter() - started) / n


def best_us(bodies: list[Body], rounds: int, round_s: float = 0.002) -> list[float]:
    """Return each body's best time in µs over alternating rounds."""
    counts = [max(3, int(round_s / max(seconds(body, 20), 1e-7))) for body in bodies]
    best = [math.inf] * len(bodies)
    for _ in range(rounds):
        for i, (body, n) in enumerate(zip(bodies, counts, strict=True)):
            best[i] = min(best[i], seconds(body, n))
    return [1e6 * value for value in best]


@dataclass
class Row:
    """A case's times, and the ratio where PyTorch is there to compare with."""

    name: str
    tfw_us: float
    torch_us: float | None
    limit: float

    @property
    def ratio(self) -> float | None:
        """Return tfw's time over PyTorch's."""
        return None if self.torch_us is None else self.tfw_us / self.torch_us

    @property
    def verdict(self) -> str:
        """Return PASS, FAIL, or nothing without a comparison."""
        if self.ratio is None:
            return ""
        return "PASS" if self.ratio <= self.limit else "FAIL"


def measure(tfw: Any, torch: Any, only: str, rounds: int) -> list[Row]:
    """Return the rows of all cases whose name contains `only`."""
    mine, theirs = cases(tfw), {} if torch is None else cases(torch)
    rows: list[Row] = []
    for name, body in mine.items():
        if only not in name:
            continue
        times = best_us([body, theirs[name]] if theirs else [body], rounds)
        limit = SOFTMAX_LIKE_LIMIT if name.removesuffix(" grad") in SOFTMAX_LIKE else LIMIT
        rows.append(Row(name, times[0], times[1] if theirs else None, limit))
    return rows


def measure_imports(rounds: int = 7) -> dict[str, Any]:
    """Time `import tfw` and `import numpy` in fresh processes; say what tfw brings along."""
    code = (
        "import sys, time; t = time.perf_counter(); import {0}; print(time.perf_counter() - t); "
        "print(*(m for m in {1} if m in sys.modules))"
    )
    best = {"numpy": math.inf, "tfw": math.inf}
    unwanted = ""
    with tempfile.TemporaryDirectory() as cache:
        # Both from bytecode, as an installed package is: the first round writes it.
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
        env["PYTHONPYCACHEPREFIX"] = cache
        for _ in range(rounds):
            for name in best:
                command = [sys.executable, "-c", code.format(name, UNWANTED_IMPORTS)]
                lines = subprocess.run(
                    command, capture_output=True, text=True, check=True, env=env
                ).stdout
                took, brought = lines.split("\n")[:2]
                best[name] = min(best[name], float(took))
                unwanted = brought if name == "tfw" else unwanted
    ratio = best["tfw"] / best["numpy"]
    return {
        "numpy_ms": best["numpy"] * 1e3,
        "tfw_ms": best["tfw"] * 1e3,
        "ratio": ratio,
        "unwanted": unwanted.split(),
        "verdict": "PASS" if ratio <= IMPORT_LIMIT and not unwanted else "FAIL",
    }


def summary(rows: list[Row]) -> dict[str, Any] | None:
    """Return the median and the worst ratio, or None without a comparison."""
    ratios = {row.name: row.ratio for row in rows if row.ratio is not None}
    if not ratios:
        return None
    worst = max(ratios, key=lambda name: ratios[name])
    median = statistics.median(ratios.values())
    return {
        "median": median,
        "median_verdict": "PASS" if median <= MEDIAN_LIMIT else "FAIL",
        "worst": ratios[worst],
        "worst_name": worst,
        "failed": [row.name for row in rows if row.verdict == "FAIL"],
    }


def show(rows: list[Row], totals: dict[str, Any] | None, imports: dict[str, Any] | None) -> None:
    """Print the table."""
    print(f"{'case':<26}{'tfw µs':>10}{'torch µs':>10}{'ratio':>8}{'limit':>8}")
    for row in rows:
        line = f"{row.name:<26}{row.tfw_us:>10.2f}"
        if row.torch_us is not None:
            line += f"{row.torch_us:>10.2f}{row.ratio:>8.2f}{row.limit:>8.1f}  {row.verdict}"
        print(line)
    if totals is None:
        print("torch is not installed in this interpreter: nothing to compare with")
    else:
        print(
            f"median ratio {totals['median']:.2f} (limit {MEDIAN_LIMIT}) "
            f"{totals['median_verdict']}; worst {totals['worst']:.2f} ({totals['worst_name']}); "
            f"{len(totals['failed'])} of {len(rows)} over their limit"
        )
    if imports is not None:
        print(
            f"import tfw {imports['tfw_ms']:.0f} ms, numpy {imports['numpy_ms']:.0f} ms, ratio "
            f"{imports['ratio']:.2f} (limit {IMPORT_LIMIT}); "
            f"unwanted imports: {' '.join(imports['unwanted']) or 'none'}  {imports['verdict']}"
        )


def main() -> int:
    """Measure, print, and return 1 if a budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--only", default="", metavar="NAME", help="cases whose name has NAME in it"
    )
    parser.add_argument("--rounds", type=int, default=40, help="alternating rounds (default: 40)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    options = parser.parse_args()

    tfw = importlib.import_module("tfw")
    torch = None
    if importlib.util.find_spec("torch") is not None:
        torch = importlib.import_module("torch")
        torch.set_num_threads(1)
    gc.disable()  # a collection in one framework's round would be charged to it
    rows = measure(tfw, torch, options.only, options.rounds)
    if not rows:
        parser.error(f"no case has {options.only!r} in its name")
    imports = None if options.only else measure_imports()
    totals = summary(rows)
    if options.json:
        table = [{**vars(row), "ratio": row.ratio, "verdict": row.verdict} for row in rows]
        print(json.dumps({"rows": table, "summary": totals, "imports": imports}, indent=2))
    else:
        show(rows, totals, imports)
    failed = bool(totals and (totals["failed"] or totals["median_verdict"] == "FAIL"))
    return int(failed or (imports is not None and imports["verdict"] == "FAIL"))


if __name__ == "__main__":
    sys.exit(main())
