"""Utilities around training."""

from tfw.utils import data as data
