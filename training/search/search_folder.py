"""A search's folder, `.scalebook/studies/<id>/`: what was asked, how it goes, how it ended.

Who writes what: the process that starts the search writes `search.json` and `search.yaml` (again to extend it), the
empty file `stop`, and files in `given/`, one for each point added by hand; the driver `driver.json`, `progress.json`
and `result.json`. JSON is replaced atomically, a folder appears whole, and the state is derived from the files and the
process table.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from scalebook.training.base import ConfigError, ProcessId, Workspace, trust
from scalebook.training.base.files import BrokenRecord, RecordFolder, load_once, records, yaml
from scalebook.training.jobs import forget_environment
from scalebook.training.search.study.storage import journal_path

if TYPE_CHECKING:
    from scalebook.training.experiments import Description
    from scalebook.training.experiments.search import SearchSpec

BODY: Final = "search.yaml"
State = Literal["waiting", "running", "stopping", "finished", "stopped", "failed", "interrupted"]
ENDED: tuple[State, ...] = ("finished", "stopped", "failed")


@dataclass(frozen=True)
class SearchRequest:
    """What was asked (`search.json`). `id` is that of the MLflow run which is the parent of the trials' runs."""

    id: str
    created: float
    """Unix time, s."""
    name: str
    mlflow_experiment: str
    tracking_uri: str
    identity: str
    """Of what may not change while the study goes on; see scalebook.training.experiments.search.definition.identity."""
    storage: str
    """`journal:PATH` or an Optuna URL."""
    notebook: str | None = None
    """File name within the workspace."""
    cell: str | None = None
    trials_experiment: str = ""
    """Id of the MLflow experiment of its trials' runs. "" in records of earlier versions: that of its own run."""
    modules: str = ""
    """The user's own modules that its config uses, as they were when it began (training/base/code_changes.py)."""

    @property
    def study(self) -> str:
        """The study's name within its storage."""
        return f"scalebook-{self.id}"


@dataclass(frozen=True)
class DriverProcess:
    """`driver.json`: the driver's process."""

    process: ProcessId
    started: float


@dataclass(frozen=True)
class SearchProgress:
    """`progress.json`, every second. `best` is of the first objective; times in s."""

    time: float
    done: int
    """Trials that have ended, however."""
    running: int
    """Processes: a trial whose run waits is not among them."""
    trials: int
    """How many were asked for."""
    best: float | None = None
    best_trial: int | None = None
    left_s: float | None = None
    overhead_s: float | None = None
    """Median of what a trial took beyond its own training."""
    note: str = ""
    """What the driver waits for, or has found out (`memory ends at 512 samples a worker`)."""
    now: list[int] | None = None
    """The numbers of the trials that run; None in records of earlier versions."""


@dataclass(frozen=True)
class SearchResult:
    """`result.json`."""

    status: Literal["finished", "stopped", "failed"]
    ended: float
    cause: str = ""
    advice: str = ""
    failed: int = 0
    """Trials that ran and failed, of a search that finished."""


class SearchFolder(RecordFolder):
    """One search's files."""

    FILES = MappingProxyType(
        {
            SearchRequest: "search.json",
            DriverProcess: "driver.json",
            SearchProgress: "progress.json",
            SearchResult: "result.json",
        }
    )
    DURABLE = (SearchRequest, SearchResult)

    @property
    def workspace(self) -> Workspace:
        return Workspace(self.path.parent.parent.parent)

    @property
    def lock(self) -> Path:
        """Held by the driver while it lives."""
        return self.path / "lock"

    @property
    def given_points(self) -> Path:
        """Where points added by hand wait for the driver."""
        return self.path / "given"

    def request(self) -> SearchRequest:
        """The request; it never changes. FileNotFoundError when the folder is gone, or Broken."""
        return load_once(self.path / "search.json", SearchRequest)

    def name(self) -> str:
        """The search's name; "" if its folder is gone or cannot be read."""
        try:
            return self.request().name
        except (OSError, BrokenRecord):
            return ""

    def body(self) -> dict[str, Any]:
        """What is searched and how long, as a search file says it. Broken where it cannot be read."""
        body = records.mapping(self.path / BODY)
        if body is None:
            raise BrokenRecord(self.path / BODY, "missing")
        return body

    def spec(self, description: "Description") -> "SearchSpec":
        from scalebook.training.experiments.search import read_search

        return read_search(self.body(), None, description)

    def driving(self) -> DriverProcess | None:
        return records.peek(self.path / "driver.json", DriverProcess)

    def progress(self) -> SearchProgress | None:
        return records.peek(self.path / "progress.json", SearchProgress)

    def result(self) -> SearchResult | None:
        """How it ended. None if that cannot be read: a driver will find out and write it again."""
        try:
            return records.load(self.path / "result.json", SearchResult)
        except BrokenRecord as error:
            if not error.newer:
                return None
            return SearchResult("failed", 0.0, f"{error.path} {error.why}", error.problem.fix)

    def broken(self) -> list[BrokenRecord]:
        errors = super().broken()
        try:
            self.body()
        except BrokenRecord as error:
            errors.append(error)
        return errors

    def write_body(self, body: Mapping[str, Any]) -> None:
        records.put(self.path / BODY, yaml.dump(body).encode(), durable=True)

    def write(self, record: Any) -> None:
        super().write(record)
        if isinstance(record, SearchResult):
            forget_environment(self.path)

    def stamp(self) -> int:
        """Changes when the body is written again."""
        try:
            return (self.path / BODY).stat().st_mtime_ns
        except OSError:
            return 0

    def may_run(self) -> bool:
        """Whether this user has submitted it as it stands, or trusts its folder."""
        return trust.may_run(self.workspace, self.path, trust.SEARCH)

    def require_trust(self, *, reading: bool = False) -> None:
        """ConfigError unless `may_run`: its driver runs what it says, and its storage may be anywhere.

        `reading`: a journal within the workspace may be read in any case.
        """
        journal = journal_path(self.request().storage)
        if reading and journal is not None and journal.resolve().is_relative_to(self.workspace.root.resolve()):
            return
        if not self.may_run():
            raise ConfigError(f"search {self.path.name[:8]}", f"was {trust.FOUND}", "")

    def driven(self) -> bool:
        """Whether its driver lives."""
        driving = self.driving()
        return driving is not None and driving.process.alive()

    def undriven(self) -> None:
        """Forget a driver that ended in order; one that is not forgotten has died."""
        (self.path / "driver.json").unlink(missing_ok=True)

    def state(self) -> State:
        """`interrupted`: its driver died; the supervisor starts another one as soon as there is a supervisor."""
        if result := self.result():
            return result.status
        if self.driven():
            return "stopping" if self.stop_file.exists() else "running"
        if result := self.result():  # written between the first look and the driver's end
            return result.status
        return "waiting" if self.driving() is None else "interrupted"

    def standing(self) -> str:
        """Its state in words."""
        return standing(self.state(), self.result(), self.progress())


def standing(state: State, result: SearchResult | None, progress: SearchProgress | None) -> str:
    """The state; of a finished search also how many trials failed, if any: `finished, 3 of 12 failed`."""
    if state != "finished" or result is None or not result.failed:
        return state
    return f"finished, {result.failed:,}{f' of {progress.done:,}' if progress else ''} failed"


def all_searches(workspace: Workspace) -> list[SearchFolder]:
    """Every search of the workspace whose request can be read, the newest first."""
    dated = []
    for folder in _folders(workspace):
        try:
            dated.append((folder.request().created, folder.id, folder))
        except (FileNotFoundError, BrokenRecord):
            continue  # deleted meanwhile; or `broken_searches` has it
    return [folder for _, _, folder in sorted(dated, key=lambda entry: entry[:2], reverse=True)]


def broken_searches(workspace: Workspace) -> list[BrokenRecord]:
    """Every record of a search that cannot be read."""
    return [error for folder in _folders(workspace) for error in folder.broken()]


def _folders(workspace: Workspace) -> list[SearchFolder]:
    if not workspace.studies.is_dir():
        return []
    paths = [path for path in sorted(workspace.studies.iterdir()) if not path.name.startswith(".")]
    return [SearchFolder(path) for path in paths if not path.is_symlink() or trust.within(workspace, path)]
