"""What benchmarks share: where one ran and how busy the machine was, the command line, waiting, a row of a table."""

import argparse
import os
import platform
import time
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import psutil

T = TypeVar("T")


def parser(doc: str | None) -> argparse.ArgumentParser:
    """An argument parser that shows a module's docstring as it is."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def row(*cells: object) -> str:
    """A row of a Markdown table."""
    return f"| {' | '.join(map(str, cells))} |"


def until(condition: Callable[[], T], what: str, deadline_s: float = 240.0, every_s: float = 0.02) -> T:
    """Wait for the first true value of `condition`, and return it. TimeoutError says what was waited for."""
    deadline = time.monotonic() + deadline_s
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {deadline_s:g} s for {what}")
        time.sleep(every_s)
    return value


def command_line(pid: int) -> str:
    """Of a process; "" if it is gone."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""


def machine() -> str:
    """The machine, in one line."""
    model = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        names = [line.split(":", 1)[1].strip() for line in info.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    versions = f"torch {version('torch')}, Python {platform.python_version()}"
    return f"{model}, {os.cpu_count()} cores, {platform.system()}, {versions}"


class Others:
    """What other processes have used of the machine since this was made: figures are good only if that is little.

    This process and its children that have ended count as ours; processes left to others (Ray's actors) do not.
    """

    def __init__(self) -> None:
        self._started, self._busy, self._own = time.monotonic(), _busy_s(), _own_s()

    def share(self) -> float:
        """0 to 1, of all cores."""
        others = (_busy_s() - self._busy) - (_own_s() - self._own)
        return max(0.0, others / ((time.monotonic() - self._started) * (os.cpu_count() or 1)))

    def sentence(self) -> str:
        """A sentence for below a table."""
        minutes = (time.monotonic() - self._started) / 60
        return f"{machine()}; {minutes:.1f} minutes, in which other processes used {self.share():.0%} of the machine."


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(times.user + times.system + sum(getattr(times, name, 0.0) for name in ("nice", "irq", "softirq")))


def _own_s() -> float:
    return sum(os.times()[:4])  # this process and its ended children, user and system
