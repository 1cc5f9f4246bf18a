"""All that belongs to one thread, behind one `threading.local` read."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import numpy as np


def _quiet_context() -> contextvars.Context:
    """Return a context in which NumPy ignores floating-point errors, as PyTorch does.

    NumPy keeps its error state in a context variable: running a rule inside this context leaves the
    user's own state alone and costs 0.01 us, where `np.errstate` costs 0.9 us.
    """
    context = contextvars.copy_context()
    context.run(np.seterr, all="ignore")
    return context


class ThreadState(threading.local):
    """Gradient modes and the NumPy context of the current thread.

    Attributes:
        grad_enabled: whether ops record nodes for backward.
        inference: whether `inference_mode` is on.
        anomaly: whether nodes keep the traceback of their forward line.
        check_nan: whether anomaly mode looks for NaN.
        handler: what op calls go to while something intercepts them.
        run: calls a function with NumPy's floating-point errors ignored.

    """

    grad_enabled: bool = True
    inference: bool = False
    anomaly: bool = False
    check_nan: bool = True
    handler: Callable[..., Any] | None = None
    run: Callable[..., Any]

    def __init__(self) -> None:
        self.run = _quiet_context().run
        # Set here as well, since an instance value reads faster than a class default.
        self.grad_enabled = True


state = ThreadState()
