"""Secret files: only this user can read them, from their first byte on, and others are not trusted."""

import errno
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from scalebook.training.base.files.records import put


def put_secret(path: Path, content: bytes) -> None:
    """Replace the file atomically and durably; create its folder if it is missing. OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    put(path, content, durable=True, mode=0o600)


def kept_secret(path: Path, make: Callable[[], bytes], is_one: Callable[[bytes], bool]) -> bytes:
    """The secret in the file; if the file is missing, readable by others, or holds none, a new one is made.

    If several processes make one at once, one wins. OSError if it cannot be made, and for a link or another user's
    file, which is neither trusted nor removed.
    """
    if (content := _read(path)) is not None and is_one(content):
        return content
    path.unlink(missing_ok=True)
    beside = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    put_secret(beside, make())
    try:
        os.link(beside, path)
    except FileExistsError:
        pass
    finally:
        beside.unlink()
    if (content := _read(path)) is None or not is_one(content):
        raise PermissionError(errno.EACCES, "another user keeps a file there", str(path))
    return content


def _read(path: Path) -> bytes | None:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    with open(handle, "rb") as file:
        about = os.fstat(handle)
        if stat.S_IMODE(about.st_mode) & 0o077:
            return None
        if about.st_uid != os.getuid():
            raise PermissionError(errno.EACCES, "it belongs to another user", str(path))
        return file.read(1000)
