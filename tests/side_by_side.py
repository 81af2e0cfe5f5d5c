"""Tests in several processes that are forked when all tests are collected, a file in one of them: plugin of pytest's.

    python -m pytest -p tests.side_by_side --processes 3

Imports and collection take 13 CPU-s; pytest-xdist does both in each of its processes. A process takes the next file
when it comes to the last test of the one before, so that what a session or a module shares is ended where it would be
otherwise. One that dies has failed the test that it was at; another takes up what it left.
"""

import json
import os
import signal
import traceback
from collections.abc import Iterator
from itertools import groupby
from multiprocessing.connection import Connection, Pipe, wait
from pathlib import Path
from typing import Any, NoReturn

import pytest
from _pytest.config import create_terminal_writer

PROCESS = "PYTEST_PROCESS"
"""The variable with a process's number, in itself and in all that it starts."""
_NUMBER_BYTES = 4
_END_S = 20.0


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=1, help="how many processes share the files of tests")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = session.config.getoption("--processes")
    if count < 2 or session.config.option.collectonly or session.testsfailed:
        return None  # pytest's own loop, which says what could not be collected
    files = [list(items) for _, items in groupby(session.items, lambda item: item.path)]
    with Side(session, files) as side:
        for _ in range(count):
            side.fork([])
        side.listen()
    return True


class Child:
    """One process, as its parent knows it: what it has yet to do of what it has taken."""

    def __init__(self, pid: int, items: list[pytest.Item]) -> None:
        self.pid, self.left = pid, items


class Side:
    """The processes of a session. `files` are taken in order, by number, from a pipe."""

    def __init__(self, session: pytest.Session, files: list[list[pytest.Item]]) -> None:
        self.session, self.files = session, files
        self.children: dict[Connection, Child] = {}
        self.forked = 0
        self.numbers, writing = os.pipe()
        assert len(files) * _NUMBER_BYTES <= 1 << 16, "more than a pipe holds"
        os.write(writing, b"".join(number.to_bytes(_NUMBER_BYTES) for number in range(len(files))))
        os.close(writing)

    def __enter__(self) -> "Side":
        return self

    def __exit__(self, *_: object) -> None:
        """Ask all that still run to end, as Ctrl+C does; kill who does not."""
        for child in self.children.values():
            os.kill(child.pid, signal.SIGINT)
        while self.children and (ended := wait(self.children, _END_S)):
            for end in ended:
                assert isinstance(end, Connection)
                if not _read(end):
                    os.waitpid(self.children.pop(end).pid, 0)
        for child in self.children.values():
            os.kill(child.pid, signal.SIGKILL)
            os.waitpid(child.pid, 0)
        os.close(self.numbers)

    def fork(self, left: list[pytest.Item]) -> None:
        """A process that does what is `left` of a dead one's, then takes files."""
        mine, theirs = Pipe(duplex=False)
        number, self.forked = self.forked, self.forked + 1
        self.session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined]
        if (pid := os.fork()) == 0:
            for other in (mine, *self.children):
                other.close()
            _live(self.session, theirs, number, self._taken(left, theirs))
        theirs.close()
        self.children[mine] = Child(pid, list(left))

    def _taken(self, left: list[pytest.Item], connection: Connection) -> Iterator[pytest.Item]:
        """In a child: one test after the other. A new file is said to the parent when it is taken."""
        yield from left
        while taken := os.read(self.numbers, _NUMBER_BYTES):
            number = int.from_bytes(taken)
            connection.send_bytes(json.dumps(["file", number]).encode())
            yield from self.files[number]

    def listen(self) -> None:
        """Hand reports on to pytest until all processes have ended."""
        while self.children:
            for end in wait(self.children):
                assert isinstance(end, Connection)
                if told := _read(end):
                    self._hear(self.children[end], *told)
                else:
                    self._ended(self.children.pop(end))
                if self.session.shouldfail:
                    raise self.session.Failed(self.session.shouldfail)

    def _hear(self, child: Child, what: str, told: Any) -> None:
        hook = self.session.config.hook
        if what == "file":
            child.left += self.files[told]
        elif what == "report":
            report = hook.pytest_report_from_serializable(config=self.session.config, data=told)
            if isinstance(report.longrepr, list):  # JSON knows no tuples, which skipped tests have there
                report.longrepr = tuple(report.longrepr)
            hook.pytest_runtest_logreport(report=report)
        else:
            item = child.left.pop(0)
            hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _ended(self, child: Child) -> None:
        code = os.waitstatus_to_exitcode(os.waitpid(child.pid, 0)[1])
        if not child.left:
            assert code == 0, f"a process ended with exit code {code}, at no test"
            return
        item = child.left.pop(0)
        why = f"the process of this test ended with exit code {code}"
        died = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        self.session.config.hook.pytest_runtest_logreport(report=died)
        self.fork(child.left)


def _read(end: Connection) -> list[Any]:
    """What a process says; nothing when it has ended."""
    try:
        told: list[Any] = json.loads(end.recv_bytes())
    except (EOFError, ConnectionError):
        return []
    return told


class Teller:
    """In a child, a plugin that sends reports to the parent."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self.config, self.connection = config, connection

    def tell(self, what: str, told: Any) -> None:
        self.connection.send_bytes(json.dumps([what, told]).encode())

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.tell("report", self.config.hook.pytest_report_to_serializable(config=self.config, report=report))


def _live(session: pytest.Session, connection: Connection, number: int, items: Iterator[pytest.Item]) -> NoReturn:
    """A child's life, from the fork to its end."""
    code = 1
    try:
        config = session.config
        os.environ[PROCESS] = str(number)
        _begin_anew(config, number)
        teller = Teller(config, connection)
        config.pluginmanager.register(teller)
        item = next(items, None)
        while item is not None:
            following = next(items, None)
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            teller.tell("done", None)
            item = following
        code = 0
    except KeyboardInterrupt:
        session._setupstate.teardown_exact(None)
    except BaseException:  # noqa: BLE001  # the top of a process: its parent fails the test and goes on with another
        traceback.print_exc()
    finally:
        os._exit(code)


def _begin_anew(config: pytest.Config, number: int) -> None:
    """What a process must not share with others: where pytest's terminal writes, what it captures, folders."""
    terminal: Any = config.pluginmanager.getplugin("terminalreporter")
    terminal._tw = create_terminal_writer(config, open(os.devnull, "w"))  # noqa: SIM115  # until the process ends
    capture: Any = config.pluginmanager.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = Path(factory.getbasetemp()) / f"process-{number}"
    factory._basetemp.mkdir()
