"""Files that a person wrote, read with care: whatever is wrong with one is said in one line that names it.

And files that processes of ours have written, in a folder that may be a stranger's: no link of those is followed.
"""

import errno
import os
import stat
from pathlib import Path
from typing import IO, Final

from scalebook.training.base.errors import ConfigError

MOST_BYTES: Final = 4_000_000
"""Of a notebook, a config, or settings. A notebook of 500 lines has 20 kB."""

MOST_OWN_BYTES: Final = 2**26
"""Of a file that a process of ours has written and that is read at once; a record has 0.2 MB at most."""

MARKS: Final = {b"\xff\xfe": "UTF-16", b"\xfe\xff": "UTF-16"}
"""How a text of another encoding begins."""


def read_bytes(path: Path, *, regular: bool = False) -> bytes:
    """What is in `path`; ConfigError where it is missing, a folder, too large, or cannot be read.

    With `regular` only of a file on disk: a pipe would be waited for, a device never ends. A person who names a pipe
    on the command line means it.
    """
    try:
        facts = path.stat()
    except OSError as error:
        raise _unreadable(path, error) from error
    except ValueError as error:  # a path with a null character
        raise ConfigError(str(path), f"is not a path ({error})", "Check the path.") from error
    if stat.S_ISDIR(facts.st_mode):
        raise ConfigError(str(path), "is a folder", "Name a file in it.")
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
    """`content` as UTF-8 text, a byte order mark included; ConfigError where it is none."""
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
    """Whether `path` is, or lies beyond, a link out of the folder `root`."""
    try:
        return not path.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a loop of links leads nowhere, and cannot be read
        return False


def opened(path: Path) -> IO[bytes]:
    """A file that processes of ours write, such as a log, to be read; it may not be there. OSError, in words, also for
    a link, which is not followed, and for a pipe, which would be waited for."""
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
    """All of such a file; OSError also where it has more than `most` bytes."""
    with opened(path) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"more than {most:,} bytes", str(path))
        return file.read(most)


def written(path: Path, most: int = -1) -> bytes:
    """The last `most` bytes of such a file, or all; of one that is not read why, and of none nothing: to be shown."""
    try:
        with opened(path) as file:
            if most >= 0:
                file.seek(max(0, file.seek(0, os.SEEK_END) - most))
            return file.read()
    except FileNotFoundError:
        return b""
    except OSError as error:
        return f"({path.name} is not shown: {error.strerror})".encode()
