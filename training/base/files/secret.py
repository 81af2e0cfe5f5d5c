"""Files for this user's eyes alone: so from their first byte, and believed only where they are so."""

import errno
import os
import secrets
import stat
from collections.abc import Callable
from pathlib import Path

from scalebook.training.base.files.records import put


def put_secret(path: Path, content: bytes) -> None:
    """Replace it in one step, also after a power cut; its folder is made, where there is none. OSError."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    put(path, content, durable=True, mode=0o600)


def kept_secret(path: Path, make: Callable[[], bytes], is_one: Callable[[bytes], bool]) -> bytes:
    """What the file holds; one that is missing, that others could read, or that holds none is made anew.

    Of several that make one at once, one wins. OSError where that cannot be: also of a link, which is not followed, and
    of another user's file, which this one neither believes nor takes away.
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
        raise PermissionError(errno.EACCES, "somebody else keeps another file there", str(path))
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
