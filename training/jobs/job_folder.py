"""A job's folder: what was asked, what is going on, how it ended.

Who writes what: the submitter `config.yaml` and `job.json`, once; whoever moves it in the queue `turn.json`; the job's
own process `process.json` (whoever creates it first owns the job), `log.txt`, `progress.json` and `result.json`;
whoever wants it ended, the empty file `stop`; the supervisor `joined.json`, where machines join in mid-run. For a
process that died without a word the supervisor writes `result.json`, and the empty file `unrecorded`, which stays until
MLflow has been told. All JSON is replaced atomically, a folder appears whole, and the state is derived. A record that
is there and cannot be read is the end of its job, which has failed for it, and of nothing else; without its `turn.json`
a job stands where it was put.
"""

import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal

from scalebook.training.base.failures import ADVICE, FailureClass
from scalebook.training.base.files import records
from scalebook.training.base.files.record_folder import RecordFolder, load_once
from scalebook.training.base.files.records import BrokenRecord
from scalebook.training.base.files.safe_reading import written
from scalebook.training.jobs.begin_request import JOINED, JoinedParts
from scalebook.training.jobs.devices import Allocation
from scalebook.training.jobs.executor import Executor
from scalebook.training.jobs.executors import EXECUTORS, Handle, executor_of
from scalebook.training.jobs.local.local_executor import LocalHandle
from scalebook.training.jobs.process import ProcessId

State = Literal["waiting", "running", "stopping", "finished", "failed", "stopped"]
ENDED: tuple[State, ...] = ("finished", "failed", "stopped")
STOPPED = "stopped on request"
UNWATCHED = "died while nobody watched it"
"""How a cause ends that says nothing about the run: the machine, or everything of ours, was ended with it."""

MLFLOW_STATUS = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


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
    holds_all: bool = False
    """Alone on all machines, of which some may be idle meanwhile."""
    experiment: str = ""
    """Id of the MLflow experiment of the search's trials; "" where they are in that of the notebook."""


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
    """On each machine."""
    threads: int = 1
    nodes: int = 1
    """Machines that it runs on at the same time."""
    least: int = 0
    """With so many of these it begins, and others join while it trains; 0 where it needs all at once."""
    spreads: bool = False
    """Whether its workers may be spread over machines where none has devices for all: it is the same run then."""
    part: int = 0
    """Which machine's share of a run this is; the first one's, 0, is the run, and alone records it."""
    accelerator: Literal["cpu", "gpu"] = "cpu"
    devices: int = 0
    """GPUs for its workers on each machine; 0: one for each of them."""
    gpu_share: float = 1.0
    """Of the memory of its GPU: what is left others may have that say so too."""
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
    stays: dict[str, str] = field(default_factory=dict)
    """What its config names, by key, that does not go to other machines: where it lies on each that has it."""

    @property
    def gpus(self) -> int:
        """That it uses on each machine, where there are so many."""
        return min(self.devices or self.workers, self.workers) if self.accelerator == "gpu" else 0

    @property
    def fewest(self) -> int:
        """Machines that must be free before it begins."""
        return self.least or self.nodes

    @property
    def grows(self) -> bool:
        """Whether machines may join and leave while it trains."""
        return self.least > 0 and self.nodes > 1

    @property
    def title(self) -> str:
        """The name, or the beginning of the id where it has none."""
        return self.name or self.id[:8]


@dataclass(frozen=True)
class QueuePlace:
    """`turn.json`: where a job stands in the queue since somebody has moved it, in place of what was asked."""

    priority: int
    created: float


@dataclass(frozen=True)
class JobStart:
    """`process.json`: who runs the job, and what it was given."""

    handle: Handle
    started: float
    cores: list[int] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    """UUIDs."""
    inline: bool = False
    """True when `scalebook fit` runs it in the foreground, outside the supervisor's queue."""
    machine: str = ""
    """Whose devices these are; "" for this one."""
    others: list[Allocation] = field(default_factory=list)
    """What it holds of other machines."""

    def __post_init__(self) -> None:
        if self.handle.executor not in EXECUTORS:
            choices = ", ".join(EXECUTORS)
            raise ValueError(f"handle.executor is {self.handle.executor!r}, not one of {choices}")

    @property
    def executor(self) -> Executor[Any]:
        return executor_of(self.handle)

    @property
    def lent(self) -> list[Allocation]:
        """Of all machines, the first one's first."""
        return [Allocation(self.machine, self.cores, self.gpus), *self.others]

    def alive(self) -> bool:
        """Whether its main process runs."""
        return self.executor.alive(self.handle)


@dataclass(frozen=True)
class Progress:
    """`progress.json`, every second. `fraction` and `left_s` are None where the budget has no end; `epoch`: epochs that
    have ended."""

    time: float
    phase: Literal["starting", "training", "validating", "ending"]
    updates: int = 0
    samples: int = 0
    seconds: float = 0.0
    epoch: int = 0
    fraction: float | None = None
    left_s: float | None = None
    metrics: dict[str, float] = field(default_factory=dict)

    @property
    def epoch_under_way(self) -> int:
        """From 1, as people count; at the end the last one."""
        return self.epoch if self.phase == "ending" else self.epoch + 1


@dataclass(frozen=True)
class Result:
    """`result.json`. The last five are for failures.

    `worker` where one worker is to blame, `frame` where a person's own code is: as a traceback writes it.
    """

    status: Literal["finished", "failed", "stopped"]
    ended: float
    failure: str | None = None
    cause: str = ""
    advice: str = ""
    worker: int | None = None
    frame: str = ""

    @property
    def why(self) -> str:
        """The failure's class and cause; of what has not failed, why it ended, where that is known."""
        return f"{self.failure}: {self.cause}" if self.failure else self.cause


class JobFolder(RecordFolder):
    """One job's files."""

    FILES = MappingProxyType(
        {
            JobRequest: "job.json",
            QueuePlace: "turn.json",
            JobStart: "process.json",
            Progress: "progress.json",
            Result: "result.json",
            JoinedParts: JOINED,
        }
    )
    DURABLE = (JobRequest, JobStart, Result)

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def cut(self) -> Path:
        """Made by a worker that a stop ended before its last sample."""
        return self.path / "cut"

    def ask_to_stop(self, why: str) -> None:
        """Make the file; what it says becomes the cause on record. A signal makes an empty one."""
        records.put(self.stop_file, why.encode())

    def why_stopped(self) -> str:
        """What `ask_to_stop` was told, `stopped on request` where it was told nothing."""
        return self.told_to_stop() or STOPPED

    def told_to_stop(self) -> str:
        """The words in the stop file; "" where there is none, or a signal made it."""
        return written(self.stop_file, 10_000).decode("utf-8", "replace").strip()

    @property
    def curve(self) -> Path:
        return self.path / "curve.jsonl"

    @property
    def unrecorded(self) -> Path:
        return self.path / "unrecorded"

    def write(self, record: Any) -> None:
        super().write(record)
        if isinstance(record, JobStart):
            _keep_open(self.path / self.FILES[JobStart], record)

    def request(self) -> JobRequest:
        """What was asked. It never changes, so it is read once. FileNotFoundError when the folder is gone; Broken."""
        return load_once(self.path / "job.json", JobRequest)

    def queued(self) -> JobRequest:
        """What was asked, with its place in the queue as it stands now."""
        turn = records.peek(self.path / "turn.json", QueuePlace)
        return self.request() if turn is None else replace(self.request(), priority=turn.priority, created=turn.created)

    def content(self) -> dict[str, Any]:
        """The config. Broken where there is none, or something else."""
        content = records.mapping(self.config)
        if content is None:
            raise BrokenRecord(self.config, "missing")
        return content

    def started(self) -> JobStart | None:
        """None also where `process.json` is broken; `result` then says so."""
        started = records.peek(self.path / "process.json", JobStart)
        if started is None or not isinstance(started.handle, LocalHandle):
            return started
        return replace(started, handle=replace(started.handle, folder=str(self.path)))

    def claimed(self) -> bool:
        """Whether a process has begun it, even if `process.json` cannot be read any more."""
        return (self.path / "process.json").exists()

    def progress(self) -> Progress | None:
        return records.peek(self.path / "progress.json", Progress)

    def result(self) -> Result | None:
        """How it ended. Where that, or who runs it, cannot be read, a failure that names the file."""
        try:
            result = records.load(self.path / "result.json", Result)
            if result is None:
                records.load(self.path / "process.json", JobStart)
        except BrokenRecord as error:
            return _ended_by(error)
        return result

    def claim(self, started: JobStart) -> bool:
        """Write `process.json` unless there is one: of several that try, exactly one gets True and runs the job. None
        where its end has been told: who comes so late was given up."""
        if self._has_ended():
            return False
        beside = self.path / f".process.{os.getpid()}"
        try:
            records.save(beside, started, durable=True)
            _keep_open(beside, started)
            os.link(beside, self.path / "process.json")
        except FileExistsError:
            return False
        finally:
            beside.unlink(missing_ok=True)
        records.settle(self.path)
        return True

    def _has_ended(self) -> bool:
        return (self.path / "result.json").exists()

    def state(self) -> State:
        """Derived from the files, and whether its process lives; a dead one without a result counts as failed."""
        if result := self.result():
            return result.status
        started = self.started()
        if started is None:
            return "stopped" if self.stop_file.exists() else "waiting"
        if not started.alive():
            return result.status if (result := self.result()) else "failed"
        return "stopping" if self.stop_file.exists() else "running"

    def is_ending(self) -> bool:
        """Whether it was asked to end, or has said that it has."""
        return self.stop_file.exists() or self._has_ended()

    def tail(self, lines: int = 200) -> str:
        """The last lines of the log, read from its end (at most 256 KiB)."""
        return "\n".join(written(self.log, 2**18).decode("utf-8", "replace").splitlines()[-lines:])


def _keep_open(path: Path, started: JobStart) -> None:
    """The record of this very process stays open until its end: thereby it is known (`LocalExecutor`)."""
    if isinstance(started.handle, LocalHandle) and started.handle.process == ProcessId.of():
        os.open(path, os.O_WRONLY)


def _ended_by(error: BrokenRecord) -> Result:
    """What can be said of a job by a record that cannot be read."""
    try:
        ended = error.path.stat().st_mtime
    except OSError:
        ended = time.time()
    failure = FailureClass.BROKEN_RECORD
    cause = f"{error.problem.key} {error.problem.message}"
    return Result("failed", ended, failure.value, cause, ADVICE[failure])
