"""Which ends of drivers the supervisor counts as deaths, and when it gives a search up. Drivers are `sh`."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base import processes as process
from scalebook.training.base.trust import SEARCH, sign
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.job_environment import has_environment, keep_environment
from scalebook.training.search.search_folder import SearchFolder, SearchProgress, SearchRequest
from scalebook.training.supervisor import search_drivers

DIES = "echo it is broken; exit 1"
LEAVES = 'rm "$0/driver.json"'


@pytest.fixture
def search(tmp_path: Path) -> SearchFolder:
    """Submitted, not driven."""
    made = SearchFolder(Workspace(tmp_path).create().studies / "s")
    made.path.mkdir()
    made.write(SearchRequest("s", 1.0, "s", "e", "u", "i", "journal:x"))
    made.write_body({})
    sign(made.path, made.id, SEARCH)
    return made


def turned(drivers: search_drivers.SearchDrivers, folder: SearchFolder) -> bool:
    """One look of the supervisor; whether it has started a driver, which has ended."""
    before = folder.driving()
    drivers._looked = 0.0
    drivers.poll()
    now = folder.driving()
    if now is None or now == before:
        return False
    _, status = os.waitpid(now.process.pid, 0)
    return os.waitstatus_to_exitcode(status) in (0, 1)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """What a driver does from now on: a program of the shell, with the search's folder as $0."""

    def does(program: str) -> None:
        words = ["/bin/sh", "-c", f'while [ ! -e "$0/driver.json" ]; do sleep 0.01; done; {program}']
        monkeypatch.setattr(process, "python", lambda *told: [*words, told[-1]])

    return does


def test_one_that_dies_again_and_again_without_getting_further_is_given_up(
    search: SearchFolder, driver: Callable[[str], None]
) -> None:
    driver(DIES)
    drivers = search_drivers.SearchDrivers(search.workspace)
    assert [turned(drivers, search) for _ in range(search_drivers.ATTEMPTS + 1)] == [True] * search_drivers.ATTEMPTS + [
        False
    ]
    result = search.result()
    assert result is not None
    assert result.status == "failed"
    assert result.cause == "its driver died 3 times without progress; the end of its log: it is broken"


def test_getting_further_counts_anew(search: SearchFolder, driver: Callable[[str], None]) -> None:
    driver(DIES)
    drivers = search_drivers.SearchDrivers(search.workspace)
    for done in range(2 * search_drivers.ATTEMPTS):
        assert turned(drivers, search)
        search.write(SearchProgress(1.0, done, 0, 9))
    assert search.result() is None


def test_one_that_leaves_in_order_has_not_died_however_often(
    search: SearchFolder, driver: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    driver(LEAVES)
    spawn, started = os.posix_spawn, list[int]()

    def noted(*told: Any, **more: Any) -> int:
        started.append(spawn(*told, **more))
        return started[-1]

    monkeypatch.setattr(os, "posix_spawn", noted)
    drivers = search_drivers.SearchDrivers(search.workspace)
    for number in range(2 * search_drivers.ATTEMPTS):
        drivers._looked = 0.0
        drivers.poll()
        assert len(started) == number + 1
        os.waitpid(started[-1], 0)  # it has left by then; this process may have other children
        assert search.driving() is None
    assert search.result() is None
    assert search.log.read_text() == ""


def test_a_driver_has_the_environment_of_whoever_started_the_search(
    search: SearchFolder, driver: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as shell:
        shell.setenv("ROWS", "64")
        keep_environment(search.path, search.id)
    monkeypatch.setenv("ROWS", "1")
    monkeypatch.setenv("SUPERVISORS", "1")
    driver(f'echo "rows $ROWS, $SUPERVISORS"; {DIES}')
    drivers = search_drivers.SearchDrivers(search.workspace)
    while turned(drivers, search):
        assert search.result() is not None or has_environment(search.path)
    assert set(search.log.read_text().splitlines()) == {"rows 64, ", "it is broken"}
    assert search.state() == "failed"
    assert not has_environment(search.path), "not kept longer than it is needed"
