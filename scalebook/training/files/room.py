"""Whether a disk has room, and whether an error says that it has none."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from scalebook.training.errors import ConfigError

LEAST: Final = 2**20
"""Bytes; with less left a disk counts as full: the store and the logs need some at every run."""

ERRORS: Final = (errno.ENOSPC, errno.EDQUOT)
WORDS: Final = ("no space left on device", "disk quota exceeded", "database or disk is full")
"""Of the operating system and of SQLite, in lower case."""

EXIT_NO_ROOM: Final = 74
"""Exit code (EX_IOERR) of a process that could not write what it had to: for want of room, and of nothing else."""


def is_full(error: BaseException) -> bool:
    """Whether an exception says that a disk is full."""
    return (isinstance(error, OSError) and error.errno in ERRORS) or says_full(str(error))


def says_full(text: str) -> bool:
    """Whether an error message, or the end of a log, says that a disk is full."""
    return any(words in text.lower() for words in WORDS)


class NoRoom(ConfigError):
    """What was asked for could not be written, for want of room. Nothing of it is left."""


@contextmanager
def understood(folder: Path) -> Iterator[None]:
    """While something is written below `folder`: whatever says that a disk is full becomes a NoRoom."""
    try:
        yield
    except Exception as error:
        cause: BaseException | None = error
        while cause is not None and not is_full(cause):
            cause = cause.__cause__ or cause.__context__
        if cause is None or isinstance(error, NoRoom):
            raise
        why = str(cause).splitlines()[0]
        raise NoRoom(str(folder), f"cannot be written to ({why})", "Free disk space, then try again.") from error


def lacking(folder: Path) -> str:
    """What is wrong with the disk of `folder`: `the disk of /data is full (0.2 MB left)`; "" where it has room."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return ""
    left = disk.f_frsize * (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail)
    if left < LEAST:
        return f"the disk of {folder} is full ({left / 2**20:.1f} MB left)"
    if disk.f_files and not disk.f_favail:
        return f"the disk of {folder} cannot hold more files"
    return ""
