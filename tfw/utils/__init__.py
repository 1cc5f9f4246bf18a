"""Utilities around training."""
