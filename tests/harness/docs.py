"""Docstrings of ops: their sections, and their examples, which run."""

from __future__ import annotations

import re
from typing import Any

import numpy

import tfw

SECTIONS = ("Shapes", "Dtypes", "Errors", "Source", "Example")
_HEADING = re.compile(rf"^\s*({'|'.join(SECTIONS)}):\s*(.*)$")


def sections(doc: str) -> dict[str, str]:
    """Return the text of each section, joined to one line, and the first line as ""."""
    found: dict[str, str] = {"": doc.strip().split("\n")[0]}
    current = None
    for line in doc.split("\n")[1:]:
        heading = _HEADING.match(line)
        if heading:
            current = heading[1]
            found[current] = heading[2]
        elif current is not None and line.strip():
            found[current] += " " + line.strip()
    return found


def example_of(doc: str) -> str | None:
    """Return the expression of a docstring's example, or None if it only says who uses the op."""
    text = sections(doc).get("Example", "")
    found = re.fullmatch(r"`(.+)`\.?", text.strip())
    return found[1] if found else None


def faults_of(doc: str, *, internal: bool = False) -> list[str]:
    """Return what is wrong with a docstring; an internal op may name its user as example."""
    found = sections(doc)
    faults = [f"no section {name}" for name in SECTIONS if not found.get(name)]
    if not found[""].endswith((".", ";", ":")) and len(found[""]) > 98:
        faults.append("the first line is no sentence")
    example = example_of(doc)
    if example is None:
        if not (internal and found.get("Example", "").startswith("used by ")):
            faults.append("the example is no expression in backticks")
        return faults
    scope: dict[str, Any] = {"tfw": tfw, "nn": tfw.nn, "numpy": numpy}
    result = eval(example, scope)
    if result is not True:
        faults.append(f"example `{example}` gave {result!r}, not True")
    return faults
