"""What a mutant is."""

from __future__ import annotations

from typing import NamedTuple


class Mutant(NamedTuple):
    """One fault: in `file`, `old` (which occurs there once) becomes `new`; `killers` must fail.

    Attributes:
        name: what goes wrong.
        file: path from the repository root.
        old, new: text of the source.
        killers: pytest ids.

    """

    name: str
    file: str
    old: str
    new: str
    killers: tuple[str, ...]
