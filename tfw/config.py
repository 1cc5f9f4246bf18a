"""Every environment variable that tfw reads, in one table.

A variable is read when it is asked for, not when tfw is imported, so a program may set it in
`os.environ` first. An empty value counts as unset. `tfw doctor` prints the table.

Example:
    config.NUM_THREADS.get()

"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from tfw.errors import ConfigError

T = TypeVar("T")


@dataclass(frozen=True)
class Variable(Generic[T]):
    """One environment variable: how it is read, and what holds when it is unset."""

    name: str
    kind: str  # what a value looks like, for the docs and for error messages
    default_text: str
    meaning: str
    parse: Callable[[str], T]
    default: Callable[[], T]

    def get(self) -> T:
        """Return the value in force.

        Errors: ConfigError if the environment holds something that is not a `kind`.
        """
        text = os.environ.get(self.name, "")
        if not text:
            return self.default()
        try:
            return self.parse(text)
        except ValueError:
            raise ConfigError(
                f"{text!r} cannot be used",
                op=self.name,
                value=text,
                rule=self.kind,
                remedy=f"unset {self.name} for the default: {self.default_text}",
            ) from None


def _flag(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in ("1", "true", "yes", "on"):
        return True
    if lowered in ("0", "false", "no", "off"):
        return False
    raise ValueError(text)


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def _size(text: str) -> int:
    number = int(text)
    if number < 0:
        raise ValueError(text)
    return number


def _usable_cpus() -> int:
    # A container or `taskset` may allow fewer processors than the machine has.
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _directory(text: str) -> Path:
    return Path(text).expanduser().absolute()


def _user_cache() -> Path:
    base = os.environ.get("XDG_CACHE_HOME", "")
    # The XDG base directory specification says that a relative path is to be ignored.
    root = Path(base) if base.startswith("/") else Path("~/.cache").expanduser()
    return root / "tfw"


CACHE_DIR = Variable(
    "TFW_CACHE_DIR",
    kind="a directory",
    default_text="$XDG_CACHE_HOME/tfw, else ~/.cache/tfw",
    meaning="where compiled kernels and tuning results are kept",
    parse=_directory,
    default=_user_cache,
)
NUM_THREADS = Variable(
    "TFW_NUM_THREADS",
    kind="a whole number of 1 or more",
    default_text="the processors that this process may use",
    meaning="threads that one operation on the CPU may use",
    parse=_positive,
    default=_usable_cpus,
)
CPU_KEEP_MB = Variable(
    "TFW_CPU_KEEP_MB",
    kind="a whole number of 0 or more",
    default_text="1024",
    meaning="MiB of freed CPU memory that malloc keeps for the next tensors; 0: as malloc likes",
    parse=_size,
    default=lambda: 1024,
)
ANOMALY = Variable(
    "TFW_ANOMALY",
    kind="1 or 0",
    default_text="0",
    meaning="1: backward stops at the first NaN gradient and names the forward line",
    parse=_flag,
    default=lambda: False,
)
NO_COLOR = Variable(
    "NO_COLOR",
    kind="any text",
    default_text="colours on a terminal",
    meaning="set: no colours anywhere",
    parse=lambda text: True,
    default=lambda: False,
)

VARIABLES: tuple[Variable[Path] | Variable[int] | Variable[bool], ...] = (
    CACHE_DIR,
    NUM_THREADS,
    CPU_KEEP_MB,
    ANOMALY,
    NO_COLOR,
)
