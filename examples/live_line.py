"""One line that follows a run: rewritten on a terminal, repeated now and then in a pipe."""

from __future__ import annotations

import os
import shutil
import sys
import time
from typing import TextIO

_PIPE_INTERVAL_S = 10.0


def duration(seconds: float) -> str:
    """Return `seconds` as 0:42, 12:05 or 1:02:03."""
    minutes, second = divmod(round(seconds), 60)
    hours, minute = divmod(minutes, 60)
    return f"{hours}:{minute:02}:{second:02}" if hours else f"{minute}:{second:02}"


def count(number: float) -> str:
    """Return `number` in three figures: 950, 12.3k, 4.56M."""
    for limit, divisor, unit in ((1e3, 1.0, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if number < limit:
            return f"{number / divisor:.3g}{unit}"
    return f"{number / 1e9:.3g}G"


class LiveLine:
    """Writes progress to `stream` (default: standard output), with permanent lines between.

    On a terminal the line is rewritten in place and cut to the window. Elsewhere, and on a
    terminal that cannot move its cursor (TERM=dumb), it is printed at most every ten seconds.
    NO_COLOR switches bold and dim text off.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stdout if stream is None else stream
        self._rewrites = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._styles = self._rewrites and not os.environ.get("NO_COLOR")
        self._shown = False
        self._next_plain = time.monotonic() + _PIPE_INTERVAL_S

    def update(self, text: str) -> None:
        """Show `text` as the state of the moment."""
        if self._rewrites:
            columns = shutil.get_terminal_size().columns
            # One column stays free: a full line would wrap on some terminals.
            self._write("\r" + self._style("2", text[: columns - 1]) + "\x1b[K")
            self._shown = True
        elif time.monotonic() >= self._next_plain:
            self._write(text + "\n")
            self._next_plain = time.monotonic() + _PIPE_INTERVAL_S

    def note(self, text: str, *, strong: bool = False) -> None:
        """Print `text` to stay, above the live line."""
        self.clear()
        self._write((self._style("1", text) if strong else text) + "\n")

    def clear(self) -> None:
        """Remove the live line, if one is shown."""
        if self._shown:
            self._write("\r\x1b[K")
            self._shown = False

    def _style(self, code: str, text: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._styles else text

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
