"""The random numbers that samplers, splits and loaders need, as Python integers."""

from __future__ import annotations

from tfw.ops.generator import Generator
from tfw.ops.random import randint, randperm


def seed(generator: Generator | None) -> int:
    """Return a fresh seed, 0 <= seed < 2^63; None draws it from the global random state."""
    return int(randint(0, (1 << 63) - 1, (), generator=generator).item())


def permutation(n: int, generator: Generator | None) -> list[int]:
    """Return 0 ... n - 1 in random order."""
    return randperm(n, generator=generator).tolist()


def integers(high: int, count: int, generator: Generator | None) -> list[int]:
    """Return `count` independent integers in [0, high)."""
    return randint(0, high, (count,), generator=generator).tolist()
