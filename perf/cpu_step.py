"""Time and memory of one training step on the CPU, beside PyTorch's: two threads each.

    python perf/cpu_step.py [--only NAME] [--json] [--rounds N]

Each framework runs in a process of its own and steps when told to, in turn, so that a busy machine
slows both and each one's peak memory is its own. The same model code serves both: the GPT is
tfw/models/gpt.py with `tfw` bound to the framework under test. Without torch in the interpreter,
tfw's figures stand alone. Budgets: DESIGN.md section 9. Exit code 1 if one is missed.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 1.5
THREADS = 2
GPT_SOURCE = Path(__file__).parents[1] / "tfw" / "models" / "gpt.py"

Step = Callable[[], Any]


def gpt_step(framework: Any, dropout: float) -> Step:
    """Return a step of a GPT: 4 layers, 128 wide, 4 heads, batch 16 x 128, vocabulary 96."""
    gpt = _load_gpt(framework)
    framework.manual_seed(0)
    model = gpt.GPT(
        gpt.GPTConfig(
            vocab_size=96, block_size=128, n_layer=4, n_head=4, n_embd=128, dropout=dropout
        )
    )
    optimizer = framework.optim.AdamW(model.decay_groups(0.1), lr=1e-3)
    symbols = np.random.default_rng(0).integers(0, 96, (16, 129))
    inputs = framework.from_numpy(np.ascontiguousarray(symbols[:, :-1]))
    targets = framework.from_numpy(np.ascontiguousarray(symbols[:, 1:]))

    def step() -> Any:
        optimizer.zero_grad()
        _, loss = model(inputs, targets)
        loss.backward()
        optimizer.step()
        return loss

    return step


def mlp_step(framework: Any, optimizer_name: str) -> Step:
    """Return a step of an MLP: 784-512-512-10, batch 256."""
    nn = framework.nn
    framework.manual_seed(0)
    model = nn.Sequential(
        nn.Linear(784, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)
    )
    optimizer = getattr(framework.optim, optimizer_name)(model.parameters(), lr=1e-3)
    rng = np.random.default_rng(0)
    inputs = framework.from_numpy(rng.standard_normal((256, 784)).astype(np.float32))
    targets = framework.from_numpy(rng.integers(0, 10, 256))
    cross_entropy = nn.functional.cross_entropy

    def step() -> Any:
        optimizer.zero_grad()
        loss = cross_entropy(model(inputs), targets)
        loss.backward()
        optimizer.step()
        return loss

    return step


#: name: (what builds a step, its argument, steps per round)
WORKLOADS: dict[str, tuple[Callable[[Any, Any], Step], Any, int]] = {
    "gpt": (gpt_step, 0.0, 3),
    "gpt dropout 0.1": (gpt_step, 0.1, 3),
    "mlp SGD": (mlp_step, "SGD", 10),
    "mlp Adam": (mlp_step, "Adam", 10),
}


def _load_gpt(framework: Any) -> Any:
    """Load tfw's GPT source with `framework` in the place of tfw."""
    name = framework.__name__
    for part in ("", ".nn", ".nn.functional", ".optim"):
        sys.modules["tfw" + part] = importlib.import_module(name + part)
    spec = importlib.util.spec_from_file_location("gpt_under_test", GPT_SOURCE)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(GPT_SOURCE)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def _memory_bytes(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise OSError(f"/proc/self/status has no {field}")


def work(framework_name: str, workload: str) -> None:
    """Build a step, then run a round per line on stdin and answer with its seconds per step."""
    framework = importlib.import_module(framework_name)
    framework.set_num_threads(THREADS)
    build, argument, n_steps = WORKLOADS[workload]
    # Pages of program code that are read in meanwhile say nothing of the step: leave them out.
    before = _memory_bytes("VmRSS") - _memory_bytes("RssFile")
    Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew, from here
    step = build(framework, argument)
    loss = 0.0
    for _ in range(3):
        loss = float(step().item())
    print("ready", flush=True)
    for _ in sys.stdin:
        started = time.perf_counter()
        for _ in range(n_steps):
            loss = float(step().item())
        print((time.perf_counter() - started) / n_steps, flush=True)
    peak = _memory_bytes("VmHWM") - _memory_bytes("RssFile")
    print(json.dumps({"peak_bytes": peak - before, "loss": loss}), flush=True)


class Worker:
    """A process that runs one workload in one framework."""

    def __init__(self, framework: str, workload: str) -> None:
        command = [sys.executable, __file__, "--worker", framework, workload]
        threads = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(THREADS))
        self._process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **threads},
        )
        self.step_s: list[float] = []
        self._answer()  # ready

    def round(self) -> None:
        """Run one round and keep its time."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        self.step_s.append(float(self._answer()))

    def finish(self) -> dict[str, Any]:
        """End the process and return its figures."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        figures = json.loads(self._answer())
        self._process.wait()
        # The best rounds are those that other programs disturbed least.
        figures["step_ms"] = 1e3 * statistics.median(
            sorted(self.step_s)[: len(self.step_s) // 2 + 1]
        )
        return figures

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"worker ended with code {self._process.wait()}")
        return line


def compare(workload: str, frameworks: list[str], rounds: int) -> dict[str, Any]:
    """Return each framework's figures for a workload, and the ratios if there are two."""
    workers = {name: Worker(name, workload) for name in frameworks}
    for _ in range(rounds):
        for worker in workers.values():
            worker.round()
            time.sleep(0.05)  # OpenMP's threads spin for a while after their work
    row: dict[str, Any] = {name: worker.finish() for name, worker in workers.items()}
    if "torch" in row:
        row["time_ratio"] = row["tfw"]["step_ms"] / row["torch"]["step_ms"]
        row["memory_ratio"] = row["tfw"]["peak_bytes"] / row["torch"]["peak_bytes"]
        row["time_verdict"] = "PASS" if row["time_ratio"] <= LIMIT else "FAIL"
        row["memory_verdict"] = "PASS" if row["memory_ratio"] <= LIMIT else "FAIL"
    return row


def show(workload: str, row: dict[str, Any]) -> None:
    """Print one line of the table."""
    line = f"{workload:<17}{row['tfw']['step_ms']:>9.1f}"
    tfw_mib = row["tfw"]["peak_bytes"] / 2**20
    if "torch" not in row:
        print(f"{line}{tfw_mib:>33.0f}", flush=True)
        return
    print(
        f"{line}{row['torch']['step_ms']:>9.1f}{row['time_ratio']:>7.2f} {row['time_verdict']}"
        f"{tfw_mib:>9.0f}{row['torch']['peak_bytes'] / 2**20:>9.0f}{row['memory_ratio']:>7.2f} "
        f"{row['memory_verdict']}",
        flush=True,
    )


def main() -> int:
    """Measure, print, and return 1 if a budget is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument(
        "--only", default="", metavar="NAME", help="workloads with NAME in the name"
    )
    parser.add_argument("--rounds", type=int, default=12, help="alternating rounds (default: 12)")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")
    parser.add_argument("--worker", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        work(*options.worker)
        return 0
    chosen = [name for name in WORKLOADS if options.only in name]
    if not chosen:
        parser.error(f"no workload has {options.only!r} in its name")
    frameworks = ["tfw"]
    if importlib.util.find_spec("torch") is not None:
        frameworks.append("torch")
    elif not options.json:
        print("torch is not installed in this interpreter: nothing to compare with")
    if not options.json:
        print(
            f"{'':<17}{'tfw ms':>9}{'torch ms':>9}{'ratio':>7}     "
            f"{'tfw MiB':>9}{'torch':>9}{'ratio':>7}   limits {LIMIT}"
        )
    rows: dict[str, Any] = {}
    for workload in chosen:
        rows[workload] = compare(workload, frameworks, options.rounds)
        if not options.json:
            show(workload, rows[workload])
    if options.json:
        print(json.dumps(rows, indent=2))
    return int(any("FAIL" in row.values() for row in rows.values()))


if __name__ == "__main__":
    sys.exit(main())
