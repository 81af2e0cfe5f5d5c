"""CPU seconds by test file: `pytest -p tests.cpu_table tests/...`, also with `--forks`.

Of pytest's processes and of all that they have waited for; not of what outlives a test or is nobody's child, such as
a supervisor that a command has started. Unlike a duration it says the same on a machine that others use as well.
"""

import resource
from collections import Counter
from collections.abc import Generator
from typing import Any

import pytest

SHOWN = 40
_spent: Counter[str] = Counter()
_last = 0.0


def cpu_s() -> float:
    """Of this process and the children that have ended, user and system."""
    usages = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


def pytest_runtest_logstart() -> None:
    global _last  # noqa: PLW0603  # the one clock of this process
    _last = cpu_s()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, Any, Any]:
    """A report carries what was spent since the one before, from a fork to pytest's own process."""
    global _last
    report = yield
    now = cpu_s()
    report.cpu_s, _last = now - _last, now
    return report


def pytest_runtest_logreport(report: Any) -> None:
    _spent[report.nodeid.partition("::")[0]] += report.cpu_s


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("CPU seconds")
    for file, seconds in _spent.most_common(SHOWN):
        terminalreporter.write_line(f"{seconds:8.1f}  {file}")
    terminalreporter.write_line(f"{sum(_spent.values()):8.1f}  in all")
