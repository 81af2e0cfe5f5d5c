"""Standard output that may be lost: a full disk under the log must not end the process that writes to it."""

import io
import os
import sys
from typing import Any

from typing_extensions import override


class _Lossy(io.RawIOBase):
    """A file descriptor; what cannot be written is dropped."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    @override
    def writable(self) -> bool:
        return True

    @override
    def fileno(self) -> int:
        return self._descriptor

    @override
    def isatty(self) -> bool:
        return os.isatty(self._descriptor)

    @override
    def write(self, content: Any) -> int:
        try:
            return os.write(self._descriptor, content)
        except OSError:
            return len(content)


def forgive() -> None:
    """Make this process and its forks print line by line, and drop what a full disk does not take."""
    sys.stdout = io.TextIOWrapper(io.BufferedWriter(_Lossy(1)), "utf-8", "backslashreplace", line_buffering=True)
    sys.stderr = io.TextIOWrapper(io.BufferedWriter(_Lossy(2)), "utf-8", "backslashreplace", line_buffering=True)
