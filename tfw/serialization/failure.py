"""The errors of saving and loading."""

from __future__ import annotations

from tfw.errors import CheckpointError


class SaveError(CheckpointError, OSError):
    """The system refused to write: no such folder, no permission, no space.

    Both a RuntimeError, which PyTorch raises here, and an OSError with `errno` and `filename`.
    """

    def __str__(self) -> str:
        return str(self.args[0])  # OSError's own form would leave out the reason


def refuse_load(message: str, *, value: object = None, remedy: str = "") -> CheckpointError:
    """Return the error for a file that cannot be loaded."""
    return CheckpointError(message, op="load", argument="f", value=value, remedy=remedy)


def refuse_save(message: str, *, value: object = None, remedy: str = "") -> CheckpointError:
    """Return the error for an object that cannot be saved."""
    return CheckpointError(message, op="save", argument="obj", value=value, remedy=remedy)
