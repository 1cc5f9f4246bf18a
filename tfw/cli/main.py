"""Entry point of the `tfw` command: chooses a subcommand and imports only what that one needs."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import sys
from collections.abc import Sequence


def version() -> str:
    """Return the installed version of tfw."""
    try:
        return importlib.metadata.version("tfw")
    except importlib.metadata.PackageNotFoundError:
        return "unknown (run from a source tree that is not installed)"


def _doctor(options: argparse.Namespace) -> int:
    from tfw.cli import doctor

    return doctor.run(as_json=options.json)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="tfw", description="A deep-learning framework whose GPU compute is Triton kernels."
    )
    parser.add_argument("--version", action="version", version=f"tfw {version()}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    doctor = commands.add_parser(
        "doctor",
        help="say what is installed, what works and what to do about the rest",
        description="Say what is installed, which devices work, where caches live, and what to do "
        "about what is missing. Exit code 0: the CPU works; 1: something essential is missing.",
    )
    doctor.add_argument("--json", action="store_true", help="print one JSON object instead")
    doctor.set_defaults(run=_doctor)
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code."""
    options = _parser().parse_args(arguments)
    try:
        code = options.run(options)
        sys.stdout.flush()
    except BrokenPipeError:
        # The reader (head, a pager) has left. Python would complain once more when it flushes
        # at exit, so give it somewhere to flush to.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
