"""Every planted fault is noticed by the tests that it names, which pass without it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mutants import MUTANTS

ROOT = Path(__file__).parents[1]
FAILED = 1  # pytest's exit status: tests ran and some failed
BATCHES = 6


def test_mutants_are_many_and_fit_the_source() -> None:
    assert len(MUTANTS) >= 25
    assert len({m.name for m in MUTANTS}) == len(MUTANTS)
    for m in MUTANTS:
        assert m.old != m.new
        assert (ROOT / m.file).read_text().count(m.old) == 1, f"{m.name}: {m.file} has changed"


@pytest.mark.parametrize("batch", range(BATCHES))
def test_mutants_are_killed(batch: int) -> None:
    names = [m.name for m in MUTANTS][batch::BATCHES]
    result = subprocess.run(
        [sys.executable, str(ROOT / "tests" / "mutants" / "run.py"), *names],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [t["name"] for t in told] == names, result.stderr[-1000:]
    alive = [
        f"{t['name']}: status {t['status']}\n{t['end']}" for t in told if t["status"] != FAILED
    ]
    assert not alive, "\n\n".join(alive)
