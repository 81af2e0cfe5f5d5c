"""Where a forked process stands, also when it hangs in C: told by a handler in C that needs nothing of the process."""

import faulthandler
import os
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Final

_ASK: Final = signal.SIGRTMAX - 5 if sys.platform == "linux" else signal.SIGUSR2
_ANSWER_S: Final = 2.0
MOST_LINES: Final = 40


def stack_file() -> int:
    """The descriptor of an anonymous file for one process's stack."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("stack")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


@contextmanager
def answering(file: int) -> Iterator[None]:
    """Processes forked in this block write their stack to `file` when asked, from their first instruction on."""
    faulthandler.register(_ASK, file=file, all_threads=True)
    try:
        yield
    finally:
        faulthandler.unregister(_ASK)


def stack_of(pid: int, file: int) -> str:
    """Ask a process that was forked in `answering(file)`: its threads' Python frames, the latest call first."""
    os.ftruncate(file, 0)
    os.kill(pid, _ASK)
    size, until = 0, monotonic() + _ANSWER_S
    while monotonic() < until:
        sleep(0.1)
        before, size = size, os.fstat(file).st_size
        if 0 < before == size:
            break
    lines = os.pread(file, size, 0).decode(errors="replace").splitlines()
    more = [f"  ... {len(lines) - MOST_LINES} lines more"] if len(lines) > MOST_LINES else []
    return "\n".join(lines[:MOST_LINES] + more) or "  (it does not answer: stopped, or in the kernel)"
