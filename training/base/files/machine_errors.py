"""Errors of the machine, reported in one line: a full disk, a folder that cannot be written, a locked database."""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from scalebook.training.base.errors import ConfigError

LEAST: Final = 2**20
"""A disk with fewer bytes left counts as full: the store and the logs need some for every run."""

ERRORS: Final = (errno.ENOSPC, errno.EDQUOT)
WORDS: Final = ("no space left on device", "disk quota exceeded", "database or disk is full")
"""Messages of the operating system and of SQLite, in lower case."""

EXIT_NO_ROOM: Final = 74
"""Exit code (EX_IOERR) of a process that could not write because a disk is full, and for no other reason."""


def is_full(error: BaseException) -> bool:
    """Whether an exception says that a disk is full."""
    return (isinstance(error, OSError) and error.errno in ERRORS) or says_full(str(error))


def says_full(text: str) -> bool:
    """Whether an error message, or the end of a log, says that a disk is full."""
    return any(words in text.lower() for words in WORDS)


class NoRoom(ConfigError):
    """Something could not be written because the disk is full. Nothing of it is left."""


@contextmanager
def disk_errors(folder: Path) -> Iterator[None]:
    """Turn every error of a full disk into a NoRoom, while something is written below `folder`."""
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


def disk_problem(folder: Path) -> str:
    """What is wrong with the disk of `folder`: `the disk of /data is full (0.2 MB left)`; "" if it has room."""
    try:
        disk = os.statvfs(folder)
    except OSError:
        return ""
    free_bytes = disk.f_frsize * (disk.f_bfree if os.geteuid() == 0 else disk.f_bavail)
    if free_bytes < LEAST:
        return f"the disk of {folder} is full ({free_bytes / 2**20:.1f} MB left)"
    if disk.f_files and not disk.f_favail:
        return f"the disk of {folder} cannot hold more files"
    return ""


def require_room(folder: Path) -> None:
    """Raise NoRoom if the disk of `folder` is full."""
    if full := disk_problem(folder):
        raise NoRoom(str(folder), f"cannot be written to ({full})", "Free disk space, then try again.")


REMEDIES: Final = {
    errno.EACCES: "Grant access, or choose another folder.",
    errno.EPERM: "Grant access, or choose another folder.",
    errno.EROFS: "Choose a folder that can be written to.",
    errno.ENOSPC: "Free disk space, then try again.",
    errno.EDQUOT: "Free disk space, then try again.",
    errno.ENAMETOOLONG: "Choose a shorter name.",
}
DATABASE: Final = {
    "database is locked": (
        "is locked by another process",
        "Close the program that holds it (a backup, a database browser), then try again.",
    ),
    "attempt to write a readonly database": ("is read-only", "Grant access, or choose another folder."),
    "database or disk is full": ("is full", "Free disk space, then try again."),
}


@contextmanager
def refusals_told() -> Iterator[None]:
    """Turn errors of the machine into a ConfigError; others pass."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        if (config_error := refusal(error)) is None:
            raise
        raise config_error from error


def refusal(error: BaseException | None) -> ConfigError | None:
    """The ConfigError for `error`, or for a cause of it, if that is a known error of the machine; else None."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in REMEDIES and error.filename is not None:
            return ConfigError(str(error.filename), f"cannot be used ({error.strerror})", REMEDIES[error.errno])
        if isinstance(error, OSError) and error.errno in ERRORS:
            return ConfigError("the disk", f"is full ({error.strerror})", REMEDIES[error.errno])
        for words, (problem, fix) in DATABASE.items():
            if words in str(error):
                return ConfigError("the database of runs", problem, fix)
        error = error.__cause__ or error.__context__
    return None
