"""Parity tests need PyTorch beside tfw: where it is absent they are not collected at all."""

from __future__ import annotations

import importlib.util

collect_ignore = [] if importlib.util.find_spec("torch") else ["parity"]
