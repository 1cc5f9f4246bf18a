"""Threads of the BLAS that NumPy was built with.

Measured on two cores: 64 products of (128, 32) by (32, 128) take 1.5 ms on one thread, 2.1 ms when
OpenBLAS splits each of them over two, 2.2 ms when two Python threads call that OpenBLAS (they
queue on its pool), and 0.7 to 0.9 ms when two Python threads call it with one thread each. So BLAS
runs with one thread inside a parallel loop. OpenBLAS has no setting per thread; the switch is
global and costs 0.5 us.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np

_PREFIX_SUFFIX = (("scipy_", "64_"), ("scipy_", ""), ("", "64_"), ("", ""))


def _find() -> tuple[Callable[[], int], Callable[[int], None]] | None:
    """Find OpenBLAS's two entry points in NumPy's wheel; None with another BLAS."""
    package = Path(np.__file__).parent
    for folder in (package.parent / "numpy.libs", package / ".libs", package / ".dylibs"):
        for path in sorted(folder.glob("*openblas*")):
            library = ctypes.CDLL(str(path))
            for prefix, suffix in _PREFIX_SUFFIX:
                get = getattr(library, f"{prefix}openblas_get_num_threads{suffix}", None)
                put = getattr(library, f"{prefix}openblas_set_num_threads{suffix}", None)
                if get is not None and put is not None:
                    put.restype = None
                    return get, put
    return None


_openblas = _find()


def set_num_threads(n: int) -> None:
    """Set how many threads BLAS uses outside parallel loops; nothing with an unknown BLAS."""
    if _openblas is not None:
        _openblas[1](n)


class _OneThread:
    """A context in which BLAS uses one thread; several Python threads may be inside at once."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.n_inside = 0
        self.outside = 1

    def __enter__(self) -> None:
        if _openblas is None:
            return
        with self.lock:
            if self.n_inside == 0:
                self.outside = _openblas[0]()
                if self.outside != 1:
                    _openblas[1](1)
            self.n_inside += 1

    def __exit__(self, *_: object) -> None:
        if _openblas is None:
            return
        with self.lock:
            self.n_inside -= 1
            if self.n_inside == 0 and self.outside != 1:
                _openblas[1](self.outside)


one_thread = _OneThread()
