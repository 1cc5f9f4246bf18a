"""Runs the killers of mutants: `python tests/mutants/run.py NAME...` prints a JSON line for each.

Every mutant gets a process of its own, forked from this one, which has pytest and NumPy loaded but
not tfw; an import hook gives it the mutated source. So nothing on disk is touched, and a mutant
costs the import of tfw.
"""

from __future__ import annotations

import importlib
import importlib.abc
import importlib.machinery
import json
import os
import signal
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import Any

os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests")]

import pytest  # noqa: E402

from mutants import MUTANTS  # noqa: E402
from mutants.mutant import Mutant  # noqa: E402

SECONDS = 60
importlib.import_module("ml_dtypes")  # and NumPy with it: loaded once for all


class _Loader(importlib.machinery.SourceFileLoader):
    """Compiles the file with the mutant's text in place of the original."""

    def __init__(self, name: str, path: str, mutant: Mutant) -> None:
        super().__init__(name, path)
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text()
        return compile(source.replace(self._mutant.old, self._mutant.new), self.path, "exec")


class _Finder(importlib.abc.MetaPathFinder):
    """Hands out the loader for the one module that the mutant changes."""

    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant
        self._module = mutant.file.removesuffix(".py").replace("/", ".")

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> Any:
        if fullname != self._module:
            return None
        file = str(ROOT / self._mutant.file)
        return importlib.machinery.ModuleSpec(
            fullname, _Loader(fullname, file, self._mutant), origin=file
        )


def run(mutant: Mutant) -> tuple[int, str]:
    """Return pytest's exit status for the mutant's killers, and the end of what it printed."""
    with tempfile.TemporaryFile("w+") as output:
        pid = os.fork()
        if not pid:
            signal.alarm(SECONDS)
            os.dup2(output.fileno(), 1)
            os.dup2(output.fileno(), 2)
            sys.meta_path.insert(0, _Finder(mutant))
            options = ["-x", "-q", "--tb=line", "-p", "no:cacheprovider", f"--rootdir={ROOT}"]
            status = pytest.main([*options, *(str(ROOT / k) for k in mutant.killers)])
            sys.stdout.flush()
            os._exit(int(status))
        _, code = os.waitpid(pid, 0)
        output.seek(0)
        return os.waitstatus_to_exitcode(code), output.read()[-600:]


def main(names: Sequence[str]) -> None:
    """Run the named mutants."""
    os.chdir(ROOT)
    for mutant in MUTANTS:
        if mutant.name in names:
            status, end = run(mutant)
            line = json.dumps({"name": mutant.name, "status": status, "end": end})
            sys.stdout.write(line + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main(sys.argv[1:])
