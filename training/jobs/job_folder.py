"""A job's folder: its request, its progress and its result.

Who writes what: the submitter `config.yaml` and `job.json`, once; whoever moves the job in the queue `turn.json`; the
job's own process `process.json` (its first creator owns the job), `log.txt`, `progress.json`, `lost.jsonl` and
`result.json`; whoever stops the job the file `stop`; the supervisor `joined.json`, if nodes join while it runs, and
`standstill.json`, while something of it stands still. For a process that died without a result the supervisor writes
`result.json`, and the empty file `unrecorded`, which stays until MLflow knows. All JSON is replaced atomically, a
folder appears whole, and the state is derived. A record that cannot be read fails its job, and nothing else; without
`turn.json` a job keeps its original place in the queue.
"""

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal
from zipfile import is_zipfile

from scalebook.training.base import FailureClass, ProcessId, Workspace, failures
from scalebook.training.base.files import BrokenRecord, RecordFolder, disk_problem, load_once, records, safe_reading
from scalebook.training.experiments import paths_today, without_written_out
from scalebook.training.jobs.begin_request import JOINED, JoinedParts
from scalebook.training.jobs.devices import Allocation
from scalebook.training.jobs.executor import EXECUTORS, Executor, Handle, LocalHandle, executor_of
from scalebook.training.tracking import store_with

State = Literal["waiting", "running", "stopping", "finished", "failed", "stopped"]
ENDED: tuple[State, ...] = ("finished", "failed", "stopped")
STOPPED = "stopped on request"
"""How the cause of a run begins that a person has stopped, or a signal."""
LOST = "lost.jsonl"
UNWATCHED = "died while no supervisor was watching it"
"""How a cause ends that says nothing about the run: the machine, or all of Scalebook, ended with it."""

MLFLOW_STATUS = {"finished": "FINISHED", "failed": "FAILED", "stopped": "KILLED"}


@dataclass(frozen=True)
class TrialOf:
    """The trial that a job belongs to, and what its search demands."""

    search: str
    """Id of the search: the MLflow run that is the parent of its trials' runs."""
    number: int
    point: str = ""
    """The trial's values, in words."""
    exclusive: bool = False
    """Whether it has its machine for itself, because its times are compared."""
    memory_mb: int | None = None
    """How much memory each of its processes may take beyond what it starts with, MB."""
    holds_all: bool = False
    """Whether it has all nodes for itself, though some may be idle."""
    experiment: str = ""
    """Id of the MLflow experiment of the search's trials; "" if that is the notebook's."""


@dataclass(frozen=True)
class JobRequest:
    """A job as submitted (`job.json`). `id` is the MLflow run id. `notebook` is a file name within the workspace."""

    id: str
    created: float
    """Unix time, s."""
    mlflow_experiment: str
    tracking_uri: str
    seed: int
    workers: int
    """On each node."""
    threads: int = 1
    nodes: int = 1
    """Nodes that it runs on at the same time."""
    least: int = 0
    """How many nodes it needs to start, while others may join later; 0 if it needs all at once."""
    spreads: bool = False
    """Whether its workers may be spread over several nodes if none has devices for all: the run stays the same."""
    part: int = 0
    """The number of the node whose part of a run this is; part 0 is the run itself, and alone records it."""
    accelerator: Literal["cpu", "gpu"] = "cpu"
    devices: int = 0
    """GPUs for its workers on each node; 0: one for each worker."""
    gpu_share: float = 1.0
    """Share of its GPU's memory; jobs that also state a share may have the rest."""
    notebook: str | None = None
    cell: str | None = None
    config_hash: str = ""
    priority: int = 0
    """Higher goes first; equal ones go in the order of `created`."""
    strategy: str = "single"
    resumed_from: str | None = None
    name: str = ""
    """Its name for people; the MLflow run has the same."""
    trial: TrialOf | None = None
    stays: dict[str, str] = field(default_factory=dict)
    """By key, the paths in its config that are not copied to other nodes: a node needs them in place."""

    @property
    def gpus(self) -> int:
        """How many GPUs it uses on each node, if there are so many."""
        return min(self.devices or self.workers, self.workers) if self.accelerator == "gpu" else 0

    @property
    def fewest(self) -> int:
        """How many nodes must be free before it starts."""
        return self.least or self.nodes

    @property
    def grows(self) -> bool:
        """Whether nodes may join and leave while it trains."""
        return self.least > 0 and self.nodes > 1

    @property
    def title(self) -> str:
        """The name; without one, the beginning of the id."""
        return self.name or self.id[:8]


@dataclass(frozen=True)
class QueuePlace:
    """`turn.json`: the place in the queue of a job that somebody has moved; it overrides the request's."""

    priority: int
    created: float


@dataclass(frozen=True)
class JobStart:
    """`process.json`: the process that runs the job, and the devices it has."""

    handle: Handle
    started: float
    cores: list[int] = field(default_factory=list)
    gpus: list[str] = field(default_factory=list)
    """UUIDs."""
    inline: bool = False
    """True when `scalebook fit` runs it in the foreground, outside the supervisor's queue."""
    machine: str = ""
    """The node of these devices; "" for this machine."""
    others: list[Allocation] = field(default_factory=list)
    """What it holds on the other nodes."""

    def __post_init__(self) -> None:
        if self.handle.executor not in EXECUTORS:
            choices = ", ".join(EXECUTORS)
            raise ValueError(f"handle.executor is {self.handle.executor!r}, not one of {choices}")

    @property
    def executor(self) -> Executor[Any]:
        return executor_of(self.handle)

    @property
    def lent(self) -> list[Allocation]:
        """What it holds on each node, the first node's first."""
        return [Allocation(self.machine, self.cores, self.gpus), *self.others]

    def alive(self) -> bool:
        """Whether its main process runs."""
        return self.executor.alive(self.handle)


@dataclass(frozen=True)
class Progress:
    """`progress.json`, every second. `fraction` and `left_s` are None if the budget is unlimited; `epoch`: completed
    epochs."""

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
        """The current epoch counted from 1; at the end the last one."""
        return self.epoch if self.phase == "ending" else self.epoch + 1


@dataclass(frozen=True)
class Result:
    """`result.json`. `failure` and the fields from `advice` to `frame` are for failures.

    `worker` is set if one worker is to blame; `frame`, as in a traceback, if the user's own code is.
    """

    status: Literal["finished", "failed", "stopped"]
    ended: float
    failure: str | None = None
    cause: str = ""
    advice: str = ""
    worker: int | None = None
    frame: str = ""
    lost: str = ""
    """Which workers it has lost while the others went on, in words."""

    @property
    def why(self) -> str:
        """The failure's class and cause; without a failure, why it ended, if that is known."""
        return f"{self.failure}: {self.cause}" if self.failure else self.cause


@dataclass(frozen=True)
class LostWorker:
    """A line of `lost.jsonl`: a worker that has died, while the others went on training."""

    worker: int
    when: float
    """Unix time, s."""
    cause: str
    samples: int
    """Those that it had trained."""
    restarted: bool

    @property
    def words(self) -> str:
        when = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(self.when))
        again = " and was started again" if self.restarted else ""
        return f"worker {self.worker} died at {when} after {self.samples:,} samples{again} ({self.cause})"


@dataclass(frozen=True)
class Standstill:
    """`standstill.json`: what of a running job stands still, since when (unix time, s). The supervisor writes it, and
    removes it when the job goes on."""

    words: str
    since: float


@dataclass(frozen=True)
class StopRequest:
    """`stop`: who has asked the job to end, why, and when. The first request stays: what came later has not ended it.

    `why` becomes the recorded cause.
    """

    by: Literal["user", "search", "signal", "supervisor"]
    why: str
    when: float
    """Unix time, s."""
    failure: str | None = None
    """The class of failure with which the supervisor ends the job; None for a job that has not failed."""
    sent: list[str] = field(default_factory=list)
    """The signals that the supervisor has sent because the job did not end by itself, in order."""


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
            Standstill: "standstill.json",
        }
    )
    DURABLE = (JobRequest, JobStart, Result)

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def cut(self) -> Path:
        """The file that a worker leaves if a stop ended it before its last sample."""
        return self.path / "cut"

    def ask_to_stop(
        self,
        why: str,
        by: Literal["user", "search", "signal", "supervisor"] = "user",
        failure: FailureClass | None = None,
    ) -> None:
        """Write the file `stop`, unless the job has been asked to stop before. OSError if it cannot be written."""
        if not records.peek(self.stop_file, StopRequest):
            records.save(self.stop_file, StopRequest(by, why, time.time(), failure.value if failure else None))

    def note_sent(self, signal_name: str) -> None:
        """Add a signal to the request: a supervisor that comes later has not sent it, and must know of it."""
        if (request := self.stop_request()) is not None:
            records.save(self.stop_file, replace(request, sent=[*request.sent, signal_name]))

    def stop_request(self) -> StopRequest | None:
        """The content of the file `stop`; None if there is none. Earlier versions wrote the cause as plain text, or an
        empty file for a signal."""
        if (request := records.peek(self.stop_file, StopRequest)) is not None:
            return request
        try:
            when = self.stop_file.lstat().st_mtime
        except FileNotFoundError:
            return None
        text = safe_reading.read_end(self.stop_file, 10_000).decode("utf-8", "replace").strip()
        by: Literal["user", "search", "signal"] = "user" if text == STOPPED else "search" if text else "signal"
        return StopRequest(by, text or STOPPED, when)

    @property
    def curve(self) -> Path:
        return self.path / "curve.jsonl"

    def note_lost(self, worker: LostWorker) -> None:
        """Add a worker that has died. OSError if the disk is full."""
        with (self.path / LOST).open("a", encoding="utf-8") as file:
            file.write(f"{json.dumps(asdict(worker))}\n")

    def lost_workers(self) -> list[LostWorker]:
        """The workers that have died so far while the others went on, each as often as it died."""
        lost = []
        for line in safe_reading.read_end(self.path / LOST, 2**18).splitlines() if (self.path / LOST).exists() else ():
            with suppress(BrokenRecord):  # half a line, of a machine that stopped
                lost.append(records.parse(self.path / LOST, line, LostWorker))
        return lost

    def lost_words(self, afterwards: str = "") -> str:
        """The same in words, "" if there are none. `afterwards`: what became of their data."""
        words = [lost.words for lost in self.lost_workers()]
        return "; ".join([*words, afterwards] if words and afterwards else words)

    @property
    def unrecorded(self) -> Path:
        return self.path / "unrecorded"

    def write(self, record: Any) -> None:
        super().write(record)
        if isinstance(record, JobStart):
            _keep_open(self.path / self.FILES[JobStart], record)

    def request(self) -> JobRequest:
        """The job as submitted. It never changes, so it is read once. FileNotFoundError if the folder is gone,
        BrokenRecord if it cannot be read."""
        return load_once(self.path / "job.json", JobRequest)

    def tracking_uri(self) -> str:
        """The address of the store that has its run, also after the workspace was moved or copied."""
        return store_with(self.id, Workspace(self.path.parent.parent.parent), self.request().tracking_uri)

    def queued(self) -> JobRequest:
        """The job as submitted, with its present place in the queue."""
        turn = records.peek(self.path / "turn.json", QueuePlace)
        return self.request() if turn is None else replace(self.request(), priority=turn.priority, created=turn.created)

    def content(self) -> dict[str, Any]:
        """The config, with classes of ours where they are today. BrokenRecord if it is missing or not a config."""
        content = records.mapping(self.config)
        if content is None:
            raise BrokenRecord(self.config, "missing")
        return without_written_out(paths_today(content))

    def started(self) -> JobStart | None:
        """Who runs the job; None also if `process.json` is broken: `result` then says so."""
        started = records.peek(self.path / "process.json", JobStart)
        if started is None or not isinstance(started.handle, LocalHandle):
            return started
        return replace(started, handle=replace(started.handle, folder=str(self.path)))

    def claimed(self) -> bool:
        """Whether a process has started it, even if `process.json` can no longer be read."""
        return (self.path / "process.json").exists()

    def progress(self) -> Progress | None:
        return records.peek(self.path / "progress.json", Progress)

    def result(self) -> Result | None:
        """How it ended. If that, or who runs it, cannot be read: a failure that names the file."""
        try:
            result = records.load(self.path / "result.json", Result)
            if result is None:
                records.load(self.path / "process.json", JobStart)
        except BrokenRecord as error:
            return _ended_by(error)
        return result

    def claim(self, started: JobStart) -> bool:
        """Write `process.json` unless there is one: of several that try, exactly one gets True and runs the job. None
        gets it once the job has a result: a process that comes so late has been given up."""
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
        records.sync_folder(self.path)
        return True

    def outcome(self) -> Result | None:
        """`result`; for a job whose process has died, and whose end the supervisor has yet to record, what is known so
        far. None for a job that has not ended."""
        if (result := self.result()) is not None or self.state() != "failed":
            return result or self.result()
        full = disk_problem(self.path)
        failure = FailureClass.DISK_FULL if full else FailureClass.KILLED
        cause = f"its process has died; {full or 'the cause is not recorded yet'}"
        return Result("failed", time.time(), failure.value, cause, self.advice(failure))

    def newest_checkpoint(self) -> Path | None:
        """The newest complete checkpoint of the job; None if it left none."""
        return max(filter(is_zipfile, self.path.rglob("*.ckpt")), key=lambda path: path.stat().st_mtime, default=None)

    def advice(self, failure: FailureClass, words: str = "") -> str:
        """The remedy (`words`, or that of the class), and whether the job can be resumed after this failure."""
        resumable = failure in failures.RESUMABLE and self.newest_checkpoint() is not None
        return f"{words or failures.ADVICE[failure]} {failures.OR_RESUME if resumable else ''}".strip()

    def _has_ended(self) -> bool:
        return (self.path / "result.json").exists()

    def state(self) -> State:
        """The state, derived from the files and from whether its process lives; if that died without a result, the job
        has failed."""
        if result := self.result():
            return result.status
        started = self.started()
        if started is None:
            return "stopped" if self.stop_file.exists() else "waiting"
        if not started.alive():
            return result.status if (result := self.result()) else "failed"
        return "stopping" if self.stop_file.exists() else "running"

    def stands_still(self) -> str:
        """What of a running job stands still and since when, for people; "" if it goes on."""
        standstill = records.peek(self.standstill_file, Standstill)
        if standstill is None or self.state() not in ("running", "stopping"):
            return ""
        return f"since {time.strftime('%H:%M:%S', time.localtime(standstill.since))} {standstill.words}"

    @property
    def standstill_file(self) -> Path:
        return self.path / self.FILES[Standstill]

    def is_ending(self) -> bool:
        """Whether it was asked to stop, or reports that it is ending."""
        return self.stop_file.exists() or self._has_ended()

    def tail(self, lines: int = 200) -> str:
        """The last lines of the log, read from its end (at most 256 KiB)."""
        return "\n".join(safe_reading.read_end(self.log, 2**18).decode("utf-8", "replace").splitlines()[-lines:])


def _keep_open(path: Path, started: JobStart) -> None:
    """The record of this very process stays open until its end: thereby it is known (`LocalExecutor`)."""
    if isinstance(started.handle, LocalHandle) and started.handle.process == ProcessId.of():
        os.open(path, os.O_WRONLY)


def keep_claimed(folder: Path) -> None:
    """The same in the program that a process goes on with, which has lost its open files."""
    if (started := records.peek(folder / JobFolder.FILES[JobStart], JobStart)) is not None:
        _keep_open(folder / JobFolder.FILES[JobStart], started)


def _ended_by(error: BrokenRecord) -> Result:
    """What can be said of a job by a record that cannot be read."""
    try:
        ended = error.path.stat().st_mtime
    except OSError:
        ended = time.time()
    failure = FailureClass.BROKEN_RECORD
    cause = f"{error.problem.key} {error.problem.message}"
    return Result("failed", ended, failure.value, cause, failures.ADVICE[failure])
