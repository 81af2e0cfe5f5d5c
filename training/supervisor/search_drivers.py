"""Keeps search drivers alive: the supervisor's part of a search. It knows nothing of Optuna."""

import time
from collections.abc import Callable
from typing import Final

from scalebook.training.base import ProcessId, Workspace, processes
from scalebook.training.jobs import kept_environment
from scalebook.training.search import SearchFolder, SearchResult, search_folder

LOOK_EVERY_S: Final = 1.0
ATTEMPTS: Final = 3
"""How often a driver may die without progress before its search is given up."""
DRIVER: Final = "scalebook.training.search.driver.driver_loop"


class SearchDrivers:
    """Starts a driver for every search that needs one. Call `poll` often; it checks once a second, or when the folder
    of searches has changed.

    While a disk is full it starts nothing and counts no death.
    """

    def __init__(
        self, workspace: Workspace, driver: str = DRIVER, ended: Callable[[SearchFolder], None] | None = None
    ) -> None:
        """`driver` is the module that is started with a search's folder; `ended` is called for each search that has
        ended."""
        self.workspace, self.driver, self._ended = workspace, driver, ended
        self.open: set[str] = set()
        """Searches that have not ended."""
        self._deaths: dict[str, tuple[int, int]] = {}  # by id: deaths in a row, and how many trials were done then
        self._looked, self._stamp = 0.0, 0.0
        self._started: dict[str, ProcessId] = {}
        """Drivers of ours that a full disk kept from being recorded."""
        self._full = False

    def poll(self, full: str = "") -> None:
        """Start and check drivers. `full`: why the disk is full, if it is."""
        now, stamp = time.monotonic(), self.workspace.studies.stat().st_mtime
        if stamp == self._stamp and now - self._looked < LOOK_EVERY_S:
            return
        self._looked, self._stamp = now, stamp
        searches = [
            search
            for search in search_folder.all_searches(self.workspace)
            if search.result() is None and search.may_run()
        ]
        before, self.open = self.open, {search.id for search in searches}
        for name in sorted(before - self.open) if self._ended else ():
            if (ended := SearchFolder(self.workspace.studies / name)).path.exists() and self._ended:
                self._ended(ended)
        self._started = {name: process for name, process in self._started.items() if process.alive()}
        self._full = self._full or bool(full)
        self._deaths = {name: deaths for name, deaths in self._deaths.items() if name in self.open}
        if full:
            return
        for folder in searches:
            if folder.id not in self._started and not folder.driven() and folder.result() is None:
                try:
                    self._drive(folder)
                except OSError as error:
                    print(f"scalebook: the driver of search {folder.id} cannot start yet: {error}", flush=True)
        self._full = False

    def _drive(self, folder: SearchFolder) -> None:
        if folder.driving() is not None and not self._may_try_again(folder):
            cause = f"its driver died {ATTEMPTS} times without progress; the end of its log: {_last(folder)}"
            folder.write(SearchResult("failed", time.time(), cause, f"Check {folder.log}, then resume the search."))
            print(f"scalebook: search {folder.id} failed: {cause}", flush=True)
            del self._deaths[folder.id]
            return
        with folder.log.open("ab") as log:
            quiet = {"MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT": "1"}
            base = kept_environment(folder.path)
            driver = processes.start(
                self.driver, str(folder.path), log=log.fileno(), leads=True, environ=quiet, base=base
            )
        print(f"scalebook: the driver of search {folder.id} is process {driver.pid}", flush=True)
        try:
            folder.write(
                search_folder.DriverProcess(driver, time.time())
            )  # at once: nobody starts another one while it loads
        except OSError:
            self._started[folder.id] = driver
            raise

    def _may_try_again(self, folder: SearchFolder) -> bool:
        progress = folder.progress()
        finished = progress.done if progress else 0
        deaths, before = self._deaths.get(folder.id, (0, finished))
        deaths = 0 if self._full else deaths + 1 if finished == before else 1
        self._deaths[folder.id] = (deaths, finished)
        return deaths < ATTEMPTS


def any_open(workspace: Workspace) -> bool:
    """Whether any search has not ended."""
    return any(search.result() is None and search.may_run() for search in search_folder.all_searches(workspace))


def _last(folder: SearchFolder) -> str:
    lines = folder.log.read_text(encoding="utf-8", errors="replace").splitlines()[-20:] if folder.log.exists() else []
    return next((line.strip() for line in reversed(lines) if line.strip()), "empty")
