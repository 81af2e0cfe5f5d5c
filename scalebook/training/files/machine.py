"""What a machine refuses, said in one line: folders that cannot be written, a disk that is full, a locked database."""

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from scalebook.training.errors import ConfigError

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
        "Close what holds it (a backup, a browser), then try again.",
    ),
    "attempt to write a readonly database": ("is read-only", "Grant access, or choose another folder."),
    "database or disk is full": ("is full", "Free disk space, then try again."),
}


@contextmanager
def refusals_told() -> Iterator[None]:
    """While something is submitted or written: what the machine refuses becomes a ConfigError, all else passes."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        if (config_error := refusal(error)) is None:
            raise
        raise config_error from error


def refusal(error: BaseException | None) -> ConfigError | None:
    """What `error`, or what it came from, says about the machine; None where that is nothing known."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in REMEDIES and error.filename is not None:
            return ConfigError(str(error.filename), f"cannot be used ({error.strerror})", REMEDIES[error.errno])
        for words, (what, remedy) in DATABASE.items():
            if words in str(error):
                return ConfigError("the database of runs", what, remedy)
        error = error.__cause__ or error.__context__
    return None
