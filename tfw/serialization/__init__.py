"""Saving and loading: safetensors files that no code runs to read. See `checkpoint.py`."""

from tfw.serialization.checkpoint import load, save

__all__ = ["load", "save"]
