"""Replacing a file in one step: whoever looks sees the old one or the new one, whole."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Generator
from typing import IO

from tfw.serialization.failure import SaveError

_REASONS = {
    errno.ENOENT: "the folder does not exist",
    errno.ENOTDIR: "what should be a folder is a file",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EROFS: "the file system is read-only",
    errno.EISDIR: "it is a folder",
    errno.ENOSPC: "no space is left on the device",
    errno.EDQUOT: "the disk quota is used up",
}


@contextlib.contextmanager
def replacing(path: str | os.PathLike[str]) -> Generator[IO[bytes]]:
    """Yield a file that takes the place of `path` when the block ends without an error.

    It is a temporary file in the same folder, on disk before it is renamed; an error, Ctrl-C
    included, removes it and leaves `path` as it was. A link stays a link, to the new contents; a
    device or pipe is written directly.

    Errors: OSError and RuntimeError (SaveError) where the system refuses.
    """
    target = os.path.realpath(path)
    try:
        if _is_special(target):
            with open(target, "wb") as file:
                yield file
            return
        folder, name = os.path.split(target)
        if os.path.isdir(target):
            raise IsADirectoryError(errno.EISDIR, "", target)
        if os.path.exists(target) and not os.access(target, os.W_OK):
            # Renaming would replace a file that its owner made read-only.
            raise PermissionError(errno.EACCES, "", target)
        temporary = os.path.join(folder, f".{name[:200]}.{secrets.token_hex(6)}.tmp")
        try:
            # Like `open`, and unlike tempfile: with the permissions that the user's umask says.
            with open(temporary, "xb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            with contextlib.suppress(OSError):
                os.chmod(temporary, stat.S_IMODE(os.stat(target).st_mode))
            os.replace(temporary, target)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise
        _sync_folder(folder)
    except OSError as error:
        raise _refused(error, os.fspath(path)) from error


def _is_special(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


def _sync_folder(folder: str) -> None:
    """Put the renaming itself on disk. Some file systems cannot, and then need not."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _refused(error: OSError, path: str) -> SaveError:
    reason = _REASONS.get(error.errno or 0, error.strerror or str(error))
    refused = SaveError(
        f"{path!r} cannot be written: {reason}",
        op="save",
        argument="f",
        value=path,
        remedy="make the folder first" if error.errno == errno.ENOENT else "",
    )
    refused.errno, refused.filename = error.errno, path
    return refused
