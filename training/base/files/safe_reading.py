"""Safe reading of files that people wrote: whatever is wrong with one is reported in one line that names it.

Also of files that Scalebook's processes have written, in a folder that may be a stranger's: their links are not
followed.
"""

import errno
import os
import stat
from pathlib import Path
from typing import IO, Final

from scalebook.training.base.errors import ConfigError

MOST_BYTES: Final = 4_000_000
"""The largest notebook, config or settings file, bytes. A notebook of 500 lines has 20 kB."""

MOST_OWN_BYTES: Final = 2**26
"""The largest file of Scalebook's own that is read whole, bytes; a record has 0.2 MB at most."""

MARKS: Final = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
"""Byte order marks of other encodings."""


def read_bytes(path: Path, *, regular: bool = False) -> bytes:
    """The content of `path`; ConfigError if it is missing, a folder, too large, or cannot be read.

    `regular` allows only a file on disk: reading a pipe would wait, a device never ends. A pipe named on the command
    line is allowed.
    """
    try:
        facts = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:  # a path with a null character
        raise ConfigError(str(path), f"is not a path ({error})", "Check the path.") from error
    if stat.S_ISDIR(facts.st_mode):
        raise ConfigError(str(path), "is a folder", "Name a file in this folder.")
    if regular and not stat.S_ISREG(facts.st_mode):
        raise ConfigError(str(path), "is a pipe or a device, not a file", "Name a file on disk.")
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1) if facts.st_size <= MOST_BYTES else b""
    except OSError as error:
        raise _unreadable(path, error) from error
    if max(len(content), facts.st_size) > MOST_BYTES:
        raise ConfigError(str(path), f"has more than {MOST_BYTES:,} bytes", "Split it into several files.")
    return content


def _unreadable(path: Path, error: OSError) -> ConfigError:
    return ConfigError(str(path), f"cannot be read ({error.strerror})", "Check the path.")


def decoded(path: Path, content: bytes) -> str:
    """`content` as UTF-8 text, a byte order mark included; ConfigError if it is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        other = MARKS.get(content[:2])
        problem = f"is {other}" if other else f"is not UTF-8 at byte {error.start}"
        raise ConfigError(str(path), problem, "Save it as UTF-8.") from error


def read_text(path: Path) -> str:
    """The text in `path`, without a byte order mark."""
    return decoded(path, read_bytes(path)).removeprefix("\ufeff")


def leads_out(path: Path, root: Path) -> bool:
    """Whether a link leads from `path` out of the folder `root`."""
    try:
        return not path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a loop of links leads nowhere, and cannot be read
        return False


def opened(path: Path) -> IO[bytes]:
    """Open a file that Scalebook's processes write, such as a log. OSError if it is missing, a link (which is not
    followed), or a pipe (which would block)."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, "a link, which Scalebook does not follow", str(path)) from error
        raise
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return open(handle, "rb")


def whole(path: Path, most: int = MOST_OWN_BYTES) -> bytes:
    """The whole content of such a file; OSError also if it has more than `most` bytes."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(path))
        return file.read(most)


def read_end(path: Path, most: int = -1) -> bytes:
    """The last `most` bytes of such a file, or all, for display; if it cannot be read, the reason; if it is missing,
    nothing."""
    try:
        with opened(path) as file:
            if most >= 0:
                file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        return f"({path.name} is not shown: {error.strerror})".encode()
