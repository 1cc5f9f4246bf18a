"""Small faults planted in tfw, each with the tests that must notice it."""

from __future__ import annotations

from mutants import gradients, memory, values
from mutants.mutant import Mutant

MUTANTS: list[Mutant] = [*memory.MUTANTS, *gradients.MUTANTS, *values.MUTANTS]
