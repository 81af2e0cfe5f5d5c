"""Tests in forked processes: what they import is imported, and they are collected, once, before the fork.

    python -m pytest -p tests.forks --forks 4

Files are given out one by one, in their order, to whoever is free: a file is run by one process as a whole. Files that
are marked `waits` are for the first process, and for the others when nothing else is left: so there is always something
to compute while something waits. Tests that are marked `alone` are run by one process when all others have ended. A
process that dies fails the test that it was at; another one takes its place, and the rest of the file.
"""

import os
import signal
import sys
import time
import traceback
from collections import deque
from contextlib import suppress
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn

import pytest

from tests import huge_pages

LOOK_S = 0.5
"""Between two looks at whether a process has died: what it has started may hold its connection open."""
END_S = 30.0
"""For processes that are interrupted, to end what they have started."""


class Child(NamedTuple):
    """A process that runs tests, as its parent sees it. `rest`: numbers of the items that it has been given and has not
    ended; it is at the first. `waits`: files that wait are its first choice."""

    pid: int
    connection: Connection
    rest: deque[int]
    waits: bool


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="run the tests in so many forks of this process")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """In place of pytest's own loop; None leaves the tests to that."""
    count: int = session.config.getoption("--forks")
    if not count or session.config.option.collectonly or session.testsfailed:
        return None
    forks = Forks(session)
    try:
        forks.run(count)
    finally:
        forks.end()
    return True


class Forks:
    """The processes, and the files that none has been given yet; used by pytest's own process, which runs no test."""

    def __init__(self, session: pytest.Session) -> None:
        self._session, self._config = session, session.config
        files: dict[Path, deque[int]] = {}
        alone: dict[Path, deque[int]] = {}
        for number, item in enumerate(session.items):
            (alone if item.get_closest_marker("alone") else files).setdefault(item.path, deque()).append(number)
        waiting = {item.path for item in session.items if item.get_closest_marker("waits")}
        self._files = deque(numbers for path, numbers in files.items() if path not in waiting)
        self._waiting = deque(numbers for path, numbers in files.items() if path in waiting)
        self._alone = deque(alone.values())
        self._children: list[Child] = []
        self._started = 0

    def run(self, count: int) -> None:
        """Run all tests, to their end or to the failure that ends pytest."""
        self._config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]  # made once; pytest has no other way
        self._run(count)
        self._files, self._alone = self._alone, deque()
        self._run(1)

    def _run(self, count: int) -> None:
        for number in range(min(count, len(self._files) + len(self._waiting))):
            self._start(waits=number == 0)
        while self._children:
            wait([child.connection for child in self._children], LOOK_S)
            for child in self._children[:]:
                self._hear(child)
            if self._session.shouldfail:
                raise self._session.Failed(self._session.shouldfail)
            if self._session.shouldstop:
                raise self._session.Interrupted(self._session.shouldstop)

    def end(self) -> None:
        """End whoever still runs: by Ctrl+C, which a terminal has sent to all, or else from here; then by force."""
        for signal_, within_s in ((0, LOOK_S), (signal.SIGINT, END_S), (signal.SIGKILL, END_S)):
            for child in self._children:
                os.kill(child.pid, signal_)
            until = time.monotonic() + within_s
            while self._children and time.monotonic() < until:
                self._children = [child for child in self._children if not _has_ended(child)]
                time.sleep(0.01)

    def _start(self, *, waits: bool) -> None:
        self._started += 1
        ours, theirs = Pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if not pid:
            for connection in (ours, *(child.connection for child in self._children)):
                connection.close()
            _serve(self._session, theirs, f"fork{self._started}")
        theirs.close()
        child = Child(pid, ours, deque(), waits)
        self._children.append(child)
        self._give(child)

    def _give(self, child: Child) -> None:
        """The next file, or nothing more."""
        first, second = (self._waiting, self._files) if child.waits else (self._files, self._waiting)
        files = first or second
        child.rest.extend(files.popleft() if files else ())
        with suppress(OSError):  # it has died, which is seen soon
            child.connection.send([*child.rest])

    def _hear(self, child: Child) -> None:
        """Take all that it has said, and see whether it has ended."""
        has_ended = _has_ended(child)  # first: then all that it will ever say is there
        with suppress(EOFError, OSError):
            while child.connection.poll():
                report = child.connection.recv()
                if report is not None:
                    self._report(self._config.hook.pytest_report_from_serializable(config=self._config, data=report))
                    continue
                child.rest.popleft()
                if not child.rest:
                    self._give(child)
        if not has_ended:
            return
        self._children.remove(child)
        child.connection.close()
        if child.rest:
            item = self._session.items[child.rest.popleft()]
            self._report(_failed(item, "call", "The process that ran this test has died."))
        if child.rest:
            self._files.appendleft(child.rest)
        if self._files or self._waiting:
            self._start(waits=child.waits)

    def _report(self, report: pytest.TestReport) -> None:
        self._config.hook.pytest_runtest_logreport(report=report)


def _has_ended(child: Child) -> bool:
    return os.waitpid(child.pid, os.WNOHANG)[0] == child.pid


def _failed(item: pytest.Item, when: Literal["call", "teardown"], why: str) -> pytest.TestReport:
    return pytest.TestReport(item.nodeid, item.location, {item.name: 1}, "failed", why, when)


class _Reports:
    """A plugin in the fork: it sends each report."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config, self._connection = config, connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(data)


class _NoTerminal:
    """In place of pytest's terminal: only where a timeout writes to."""

    def __init__(self, terminal: Any) -> None:
        self._tw = terminal._tw


def _serve(session: pytest.Session, connection: Connection, name: str) -> NoReturn:
    """The life of a fork: it runs the files that it is given, sends a report of each phase of a test and None after
    each test, and ends when it is given nothing, or when its parent is gone."""
    last = session.items[0]
    reports = _Reports(session.config, connection)
    code = 0
    try:
        _settle_in(session.config, name)
        session.config.pluginmanager.register(reports)
        with suppress(EOFError):
            while numbers := connection.recv():
                items = [session.items[number] for number in numbers]
                following: list[Any] = [*items[1:], session]  # what the session has lives on
                for last, next_ in zip(items, following, strict=True):  # the last is named below
                    last.ihook.pytest_runtest_protocol(item=last, nextitem=next_)
                    connection.send(None)
    except (KeyboardInterrupt, BrokenPipeError):  # it is to end, or its parent is gone
        code = 1
    except BaseException:  # noqa: BLE001  # an error of pytest's or of a plugin's
        code = 1
        reports.pytest_runtest_logreport(_failed(last, "teardown", traceback.format_exc()))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        session._setupstate.teardown_exact(None)
        session.config._ensure_unconfigure()
    except BaseException:  # noqa: BLE001  # whatever it is, the last test fails by it, as it does without forks
        with suppress(OSError):
            reports.pytest_runtest_logreport(_failed(last, "teardown", traceback.format_exc()))
    os._exit(code)


def _settle_in(config: pytest.Config, name: str) -> None:
    """Its own folder, output and memory; its parent can interrupt it, also where a shell has it ignore Ctrl+C."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    huge_pages.collapse()
    plugins, factory = config.pluginmanager, config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory._basetemp / name
    factory._basetemp.mkdir(mode=0o700)
    if (terminal := plugins.unregister(name="terminalreporter")) is not None:
        plugins.register(_NoTerminal(terminal), "terminalreporter")
    capture: Any = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
