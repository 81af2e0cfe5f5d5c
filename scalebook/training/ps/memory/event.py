"""One word in shared memory that processes can sleep on: woken when anything happens, never trusted to be woken.

A futex (futex(2)). Unlike a condition variable it has no state that a killed process could leave behind.
"""

import ctypes
import errno
import platform
from collections.abc import Callable
from time import monotonic, monotonic_ns
from typing import Final

STILL_S: Final = 60.0
"""After so long without anything that happens, whoever waits says for what."""
SLICE_S: Final = 0.25  # the longest sleep without looking: bounds what a lost wake-up can cost
_FUTEX: Final = {"x86_64": 202, "aarch64": 98, "riscv64": 98, "ppc64le": 221, "s390x": 238}
_WAIT: Final = 0
_WAKE: Final = 1
_EVERYBODY: Final = 2**31 - 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class Event:
    """`memory` is shared, writable, 8 bytes, and outlives this object. Made before the fork; any process may use it."""

    def __init__(self, memory: memoryview) -> None:
        self._word = memory[:4].cast("i")
        self._storage = ctypes.c_int.from_buffer(memory)
        self._number = _number(platform.machine())
        self._address = ctypes.c_void_p(ctypes.addressof(self._storage))
        self._syscall = ctypes.CDLL(None, use_errno=True).syscall
        self.calls = 0
        """Of `wake`, in this process."""
        self.say: Callable[[str], None] = lambda text: None
        """Told what this process waits for, once nothing has happened for STILL_S, and "" when it goes on."""

    def wake(self) -> None:
        """Let all that wait look again. Call it after the change that they wait for."""
        self.calls += 1
        self._word[0] = monotonic_ns() & 0x7FFFFFFF  # two at the same time still write different words
        self._syscall(self._number, self._address, _WAKE, _EVERYBODY, None, None, 0)

    def wait(self, ready: Callable[[], bool], deadline_s: float, awaited: Callable[[], str]) -> None:
        """Sleep until `ready()`; TimeoutError with `awaited()` when for `deadline_s` seconds nobody has woken us."""
        moved, said = monotonic(), False
        while True:
            seen = self._word[0]
            if ready():
                if said:
                    self.say("")
                return
            self._sleep(seen)
            now = monotonic()
            if self._word[0] != seen:
                moved = now
                continue
            if now > moved + STILL_S and not said:
                self.say(awaited())
                said = True
            if now > moved + deadline_s:
                raise TimeoutError(f"{awaited()}: nothing happened for {deadline_s:g} s")

    def _sleep(self, seen: int) -> None:
        timeout = _Timespec(0, int(SLICE_S * 1e9))
        code = self._syscall(self._number, self._address, _WAIT, seen, ctypes.byref(timeout), None, 0)
        if code != 0 and ctypes.get_errno() not in (errno.EAGAIN, errno.ETIMEDOUT, errno.EINTR):
            raise OSError(ctypes.get_errno(), "futex")


def _number(machine: str) -> int:
    """Of the system call futex; OSError on a processor where it is not known."""
    if machine not in _FUTEX:
        raise OSError(errno.ENOSYS, f"futex: processors known are {', '.join(_FUTEX)}, and this is {machine}")
    return _FUTEX[machine]
