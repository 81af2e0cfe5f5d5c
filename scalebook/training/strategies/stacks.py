"""Where a forked process stands, also when it hangs in C: told by a handler in C that needs nothing of the process."""

import faulthandler
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Final

from scalebook.training.ps.launch import anonymous_file

_ANSWER_S: Final = 2.0
MOST_LINES: Final = 40


def _ask() -> int:
    """The signal that asks for a stack. Looked up when called: the module is also imported where `require_linux` then
    refuses."""
    return signal.SIGRTMAX - 5


def stack_file() -> int:
    """The descriptor of an anonymous file for one process's stack."""
    return anonymous_file("stack")


@contextmanager
def answering(file: int) -> Iterator[None]:
    """Processes forked in this block write their stack to `file` when asked, from their first instruction on."""
    faulthandler.register(_ask(), file=file, all_threads=True)
    try:
        yield
    finally:
        faulthandler.unregister(_ask())


def stack_of(pid: int, file: int) -> str:
    """Ask a process that was forked in `answering(file)`: its threads' Python frames, the latest call first."""
    os.ftruncate(file, 0)
    os.kill(pid, _ask())
    size, until = 0, monotonic() + _ANSWER_S
    while monotonic() < until:
        sleep(0.1)
        before, size = size, os.fstat(file).st_size
        if 0 < before == size:
            break
    lines = os.pread(file, size, 0).decode(errors="replace").splitlines()
    more = [f"  ... {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else []
    return "\n".join(lines[:MOST_LINES] + more) or "  (it does not answer: stopped, or in the kernel)"
