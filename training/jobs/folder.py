"""A job's folder: what was asked, what is going on, how it ended.

Who writes what: the submitter `config.yaml` and `job.json`, once; the job's own process `process.json` (whoever creates
it first owns the job), `log.txt`, `progress.json` and `result.json`; whoever wants it ended, the empty file `stop`. For
a process that died without a word the supervisor writes `result.json`, and the empty file `unrecorded`, which stays
until MLflow has been told. All JSON is replaced atomically, a folder appears whole, and the state is derived.
"""

import json
import os
import time
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from training.jobs.process import ProcessId, alive

State = Literal["waiting", "running", "stopping", "finished", "failed", "stopped"]
ENDED: tuple[State, ...] = ("finished", "failed", "stopped")
STOPPED = "stopped on request"


@dataclass(frozen=True)
class TrialOf:
    """Which trial of which search a job belongs to, and what the search demands of it."""

    search: str
    """Id of the search: the MLflow run that is the parent of its trials' runs."""
    number: int
    point: str = ""
    """What the trial tries, in words."""
    exclusive: bool = False
    """Alone on the machine, because its times are compared."""
    memory_mb: int | None = None
    """What each of its processes may take beyond what it starts with, MB."""


@dataclass(frozen=True)
class JobRequest:
    """What was asked (`job.json`). `id` is the MLflow run id. `notebook` is a file name within the workspace."""

    id: str
    created: float
    """Unix time, s."""
    mlflow_experiment: str
    tracking_uri: str
    seed: int
    workers: int
    threads: int = 1
    accelerator: Literal["cpu", "gpu"] = "cpu"
    notebook: str | None = None
    cell: str | None = None
    config_hash: str = ""
    priority: int = 0
    """Higher goes first; equal ones in the order of `created`."""
    strategy: str = "single"
    resumed_from: str | None = None
    name: str = ""
    """What people call it; the MLflow run has the same name."""
    trial: TrialOf | None = None

    @property
    def title(self) -> str:
        """The name, or the beginning of the id where it has none."""
        return self.name or self.id[:8]


@dataclass(frozen=True)
class Started:
    """`process.json`: the job's main process, and what it was given."""

    process: ProcessId
    started: float
    cores: list[int] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    """UUIDs."""
    inline: bool = False
    """True when `scalebook fit` runs it in the foreground, outside the supervisor's queue."""


@dataclass(frozen=True)
class Progress:
    """`progress.json`, every second. `fraction` and `left_s` are None where the budget has no end."""

    time: float
    phase: Literal["starting", "training", "validating", "ending"]
    updates: int = 0
    samples: int = 0
    seconds: float = 0.0
    epoch: int = 0
    fraction: float | None = None
    left_s: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Result:
    """`result.json`. The last four are for failures; `worker` where one worker is to blame."""

    status: Literal["finished", "failed", "stopped"]
    ended: float
    failure: str | None = None
    cause: str = ""
    advice: str = ""
    worker: int | None = None


Record = TypeVar("Record", JobRequest, Started, Progress, Result)


@dataclass(frozen=True)
class JobFolder:
    """Access to one job's files. Reading is safe at any time: a file is there whole or not at all."""

    path: Path

    @property
    def id(self) -> str:
        return self.path.name

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def log(self) -> Path:
        return self.path / "log.txt"

    @property
    def stop_file(self) -> Path:
        return self.path / "stop"

    def ask_to_stop(self, why: str) -> None:
        """Make the file; what it says becomes the cause on record. A signal makes an empty one."""
        beside = self.path / f".stop.{os.getpid()}.{time.monotonic_ns()}"
        beside.write_text(why, encoding="utf-8")
        beside.replace(self.stop_file)

    def why_stopped(self) -> str:
        """What `ask_to_stop` was told, `stopped on request` where it was told nothing."""
        return self.told_to_stop() or STOPPED

    def told_to_stop(self) -> str:
        """The words in the stop file; "" where there is none, or a signal made it."""
        try:
            return self.stop_file.read_text(encoding="utf-8").strip()
        except FileNotFoundError:
            return ""

    @property
    def curve(self) -> Path:
        return self.path / "curve.jsonl"

    @property
    def unrecorded(self) -> Path:
        return self.path / "unrecorded"

    def request(self) -> JobRequest:
        """What was asked. It never changes, so it is read once; FileNotFoundError when the folder is gone."""
        return _request(str(self.path))

    def started(self) -> Started | None:
        raw = read_json(self.path / "process.json")
        return None if raw is None else Started(**{**raw, "process": ProcessId(**raw["process"])})

    def progress(self) -> Progress | None:
        return self._read("progress.json", Progress)

    def result(self) -> Result | None:
        return self._read("result.json", Result)

    def write(self, record: JobRequest | Started | Progress | Result) -> None:
        """Write the file that belongs to the record's type."""
        write_json(self.path / FILES[type(record)], asdict(record))

    def claim(self, started: Started) -> bool:
        """Write `process.json` unless there is one: of several that try, exactly one gets True and runs the job."""
        beside = self.path / f".process.{os.getpid()}"
        beside.write_text(json.dumps(asdict(started), indent=1), encoding="utf-8")
        try:
            os.link(beside, self.path / "process.json")
        except FileExistsError:
            return False
        finally:
            beside.unlink()
        return True

    def state(self) -> State:
        """Derived from the files and the process table; a dead process without a result counts as failed."""
        if result := self.result():
            return result.status
        started = self.started()
        if started is None:
            return "stopped" if self.stop_file.exists() else "waiting"
        if not alive(started.process):
            return result.status if (result := self.result()) else "failed"
        return "stopping" if self.stop_file.exists() else "running"

    def tail(self, lines: int = 200) -> str:
        """The last lines of the log, read from its end (at most 256 KiB)."""
        if not self.log.exists():
            return ""
        with self.log.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - 2**18))
            return "\n".join(file.read().decode("utf-8", "replace").splitlines()[-lines:])

    def _read(self, name: str, kind: type[Record]) -> Record | None:
        raw = read_json(self.path / name)
        return None if raw is None else kind(**raw)


FILES: dict[type, str] = {
    JobRequest: "job.json",
    Started: "process.json",
    Progress: "progress.json",
    Result: "result.json",
}


@lru_cache(maxsize=8192)
def _request(path: str) -> JobRequest:
    raw = json.loads((Path(path) / "job.json").read_text(encoding="utf-8"))
    return JobRequest(**{**raw, "trial": TrialOf(**raw["trial"]) if raw.get("trial") else None})


def read_json(path: Path) -> dict[str, Any] | None:
    """What `write_json` has written; None where there is no such file."""
    try:
        found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return found


def write_json(path: Path, content: dict[str, Any]) -> None:
    """Replace `path` in one step, so that a reader sees the old or the new content and never a part."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.{time.monotonic_ns()}")
    beside.write_text(json.dumps(content, indent=1), encoding="utf-8")
    beside.replace(path)
