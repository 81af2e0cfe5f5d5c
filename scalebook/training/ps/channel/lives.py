"""Which lives of a worker there have been: numbers that the server gives, so that nobody's clock says who is newer."""

import os
import secrets
import weakref
from mmap import mmap
from typing import Final

from scalebook.training.ps.memory.region import anonymous_file

_FIRST_BITS: Final = 40
"""Where numbers begin is drawn, so that one of another launch is none of these."""


class Lives:
    """Made before the fork; then by all processes and threads that have it, but `begin` by one at a time.

    The number given last is where a file, which is empty, is read next: one call of the system adds to it.
    """

    def __init__(self) -> None:
        self._file = anonymous_file("lives")
        weakref.finalize(self, os.close, self._file)
        self._first = os.lseek(self._file, secrets.randbits(_FIRST_BITS), os.SEEK_SET)
        self._newest = memoryview(mmap(-1, 8)).cast("q")
        self._newest[0] = self._first

    @property
    def newest(self) -> int:
        """The incarnation that has begun last."""
        return self._newest[0]

    @property
    def have_begun(self) -> bool:
        """Whether any has."""
        return self.newest > self._first

    def give(self) -> int:
        """A new process has this incarnation; nobody has had it, and who asks later has a larger one."""
        return os.lseek(self._file, 1, os.SEEK_CUR)

    def may_begin(self, incarnation: int) -> bool:
        """Whether it was given, and none that is newer has begun, nor it itself."""
        return self.newest < incarnation <= os.lseek(self._file, 0, os.SEEK_CUR)

    def begin(self, incarnation: int) -> None:
        """It is the newest."""
        self._newest[0] = incarnation
