"""The agent: on each node of a cluster, for each workspace with jobs there, it keeps a fork server and starts jobs from
it.

It is the node's local launcher and executor (`jobs/launcher.py`, `executor.py`), reached from another node. It is a Ray
actor that outlives its creator. Ray calls its methods from threads of its own; only one thread here handles processes,
because the kernel ends a fork server together with the thread that started it.
"""

import hashlib
import os
import queue
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scalebook.training.base import OWNER_ONLY, Children, ProcessId, Workspace, processes, trust
from scalebook.training.base.files import records
from scalebook.training.cluster.cluster_token import cluster_home
from scalebook.training.cluster.incoming_files import FilePiece, Has, files_of, news
from scalebook.training.cluster.outgoing_files import Parcel, digest_of, is_shared, package_hash, unpacked
from scalebook.training.cluster.rendezvous import Rendezvous, Rendezvouses
from scalebook.training.jobs import (
    JobFolder,
    JobStart,
    JobUsage,
    LauncherLost,
    Lease,
    LocalExecutor,
    LocalHandle,
    LocalLauncher,
    NodeDevices,
    ProcessEnded,
    StopRequest,
    begin_request,
    this_machine,
)

TURN_S: Final = 0.02
BEGINS_S: Final = 0.004
"""The same while a job's process is starting, until it has asked whether it may begin."""
TAKEN_S: Final = 2.0
PAUSE_S: Final = 0.05
"""Interval between checks of the jobs' files while a caller waits for news, s; everything else is reported at once."""


@dataclass
class _Job:
    """What this machine knows of a job."""

    folder: JobFolder
    asks: Path
    shared: bool
    """Whether it runs in its own folder, which this machine sees, too."""
    lease: Lease
    away: begin_request.RemoteJobContext
    version: int = 0
    handle: LocalHandle | None = None
    begun: str = ""
    """The question of its process, as JSON."""
    ended: bool = False
    code: int | None = None
    problem: str = ""
    clearing: bool = False
    cleared: bool = False
    taken: JobUsage | None = None


@dataclass(frozen=True)
class JobNews:
    """News of a job. `complete`: it has ended, and all its files have been fetched."""

    job: str
    shared: bool
    begun: str
    ended: bool
    code: int | None
    problem: str
    cleared: bool
    taken: JobUsage | None
    complete: bool = False
    paths: list[str] = field(default_factory=list)
    pieces: list[FilePiece] = field(default_factory=list)


class Agent:
    """The actor on one node. `key`: identifies the workspace; `cores`: how many of the node's cores jobs may have, None
    for all."""

    def __init__(
        self, key: str, name: str, cores: int | None, runner: str | None = None, preload: Sequence[str] | None = None
    ) -> None:
        os.umask(OWNER_ONLY)
        processes.adopt_orphans()
        self.name, self.start_id = name, uuid.uuid4().hex
        machine = this_machine()
        self.machine = NodeDevices(machine.cores[:cores], machine.gpus, name)
        self.folder = cluster_home() / "work" / key
        shutil.rmtree(self.folder, ignore_errors=True)  # of an agent that has died, and its jobs with it
        self.files = self.folder / "files"
        self.files.mkdir(parents=True, mode=0o700)
        self.children, self.local = Children(), LocalExecutor()
        self.launcher = LocalLauncher(Workspace(self.folder / "warm").create(), self.children, runner, preload)
        self.jobs: dict[str, _Job] = {}
        self.meetings = Rendezvouses()
        self._waiting: list[str] = []
        """Jobs that start as soon as the fork server is ready."""
        self._todo: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()
        self._problem = ""
        self._changed = threading.Condition()
        threading.Thread(target=self._serve, name="agent", daemon=True).start()

    # Called from the other machine

    def hello(self) -> dict[str, Any]:
        return {
            "start_id": self.start_id, "machine": self.machine, "package": package_hash(),
            "state": self.launcher.state, "problem": self._problem, "jobs": list(self.jobs),
        }  # fmt: skip

    def rendezvous_of(self, run: str, address: str) -> Rendezvous:
        """Where the nodes of a run meet whose first node this is, at its `address`."""
        return self.meetings.of(run, address)

    def has(self, paths: Sequence[str]) -> list[str]:
        """Those of `paths` that exist on this node."""
        return [path for path in paths if os.path.exists(path)]

    def missing(self, hashes: Sequence[str]) -> list[str]:
        return [digest for digest in hashes if not (self.files / digest).exists()]

    def put(self, digest: str, offset: int, data: bytes, last: bool) -> None:
        """Receive part of a file, which is kept when it is complete and has this hash."""
        beside = self.files / f".{digest}"
        with beside.open("r+b" if offset else "wb") as file:
            file.seek(offset)
            file.write(data)
        if last and digest_of(beside) == digest:
            beside.replace(self.files / digest)

    def start(self, parcel: Parcel, own: Sequence[bytes]) -> None:
        """Start a job; asked again, it does nothing. `own`: the contents of the job's own files."""
        for content in own:
            records.put(self.files / hashlib.sha256(content).hexdigest(), content)
        self._todo.put(lambda: self._take(parcel))

    def permit(self, job: str, allowed: bool) -> None:
        records.put(self.jobs[job].asks / begin_request.ANSWER, begin_request.YES.encode() if allowed else b"no")

    def ask(self, job: str, action: str, request: StopRequest | None = None) -> None:
        """Ask a job to `stop` (with the `request`), `terminate`, `kill` or `clear`. Does nothing for a job that is not
        known here."""
        self._todo.put(lambda: self._obey(job, action, request))

    def news(self, held: Mapping[str, Mapping[str, Has]], seen: Mapping[str, int], wait_s: float) -> Any:
        """News of all jobs, new ones included. `held`: by job, how much of its files the caller has.

        `seen`: the version of the last news of each job. Returns (versions, news) as soon as there is any, or after
        `wait_s`.
        """
        deadline = time.monotonic() + wait_s
        while True:
            reports = [self._told(name, job, held.get(name), seen.get(name)) for name, job in list(self.jobs.items())]
            new_reports = [report for report in reports if report is not None]
            if new_reports or time.monotonic() > deadline:
                return {report.job: version for version, report in new_reports}, [report for _, report in new_reports]
            with self._changed:
                self._changed.wait(PAUSE_S)

    def forget(self, job: str) -> None:
        self.meetings.release(job)  # at once: who asks next meets elsewhere
        self._todo.put(lambda: self._forget(job))

    # In the agent's own thread

    def _serve(self) -> None:
        measured = 0.0
        while True:
            self.children.reap()
            while not self._todo.empty():
                self._todo.get()()
            on_way = any(job.handle is None and not job.ended for job in list(self.jobs.values()))
            for event in self.launcher.events(BEGINS_S if on_way else TURN_S):
                self._hear(event)
            if self.launcher.prepare(fresh=bool(self._waiting)):
                self._start_waiting()
            for job in list(self.jobs.values()):
                self._look_at(job)
            if time.monotonic() - measured > TAKEN_S:
                measured = time.monotonic()
                self._measure()

    def _take(self, parcel: Parcel) -> None:
        if parcel.job in self.jobs:
            return
        shared = is_shared(parcel)
        asks = self.folder / "asks" / parcel.job
        asks.mkdir(parents=True, exist_ok=True)
        folder = Path(parcel.home) if shared else unpacked(parcel, self.folder, self.files)
        lease = Lease(parcel.job, "", parcel.cores, parcel.gpus, machine=self.name)
        where = {} if parcel.rendezvous is None else parcel.rendezvous.environment(parcel.node, asks / "key")
        away = begin_request.RemoteJobContext(
            self.name, self.start_id, parcel.home, str(asks), ProcessId.of(), parcel.parts, parcel.others,
            {**parcel.environment, **where},
        )  # fmt: skip
        self.jobs[parcel.job] = _Job(JobFolder(folder), asks, shared, lease, away)
        self._waiting.append(parcel.job)

    def _start_waiting(self) -> None:
        for name in list(self._waiting):
            job = self.jobs[name]
            if not self.launcher.start(job.folder, job.lease, job.away):
                return
            self._waiting.remove(name)

    def _hear(self, event: ProcessEnded | LauncherLost) -> None:
        if isinstance(event, LauncherLost):
            self._problem = event.problem
            for name, job in self.jobs.items():
                if job.handle is None and not job.ended and name not in self._waiting:
                    self._end(job, 1, event.problem)
            return
        if (ended_job := self.jobs.get(event.job)) is not None:
            self._end(ended_job, event.code, event.problem)

    def _end(self, job: _Job, code: int | None, problem: str = "") -> None:
        self._look_at(job)
        if not job.ended:
            job.ended, job.code, job.problem = True, code, problem
            job.clearing = True  # by itself: to be asked to would take two calls more
            self._look_at(job)
            self._tell(job)

    def _look_at(self, job: _Job) -> None:
        if job.handle is None and (job.asks / begin_request.ASKED).exists():
            started = records.load(job.asks / begin_request.ASKED, JobStart)
            assert started is not None
            job.handle = LocalHandle(started.handle.process)
            job.begun = (job.asks / begin_request.ASKED).read_text(encoding="utf-8")
            self._tell(job)
        if job.clearing and not job.cleared and (job.handle is None or self.local.clear(job.handle)):
            job.cleared = True
            self._tell(job)

    def _tell(self, job: _Job) -> None:
        """There is news of it."""
        job.version += 1
        with self._changed:
            self._changed.notify_all()

    def _measure(self) -> None:
        for job in self.jobs.values():
            if job.handle is not None and not job.ended:
                job.taken = self.local.usage(job.handle)
                job.version += 1

    def _obey(self, name: str, action: str, request: StopRequest | None) -> None:
        job = self.jobs.get(name)
        if job is None:
            return
        if action == "stop" and request is not None and not job.shared:
            records.save(job.folder.stop_file, request)
        elif action == "terminate" and job.handle is not None:
            self.local.stop(job.handle, "terminate")
        elif action == "kill" and job.handle is not None:
            self.local.stop(job.handle, "kill")
        elif action == "clear" and job.ended:
            job.clearing = True

    def _forget(self, name: str) -> None:
        job = self.jobs.pop(name, None)
        if job is None:
            return
        shutil.rmtree(job.asks, ignore_errors=True)
        if not job.shared:
            shutil.rmtree(job.folder.path, ignore_errors=True)

    def close(self) -> None:
        """Remove everything from this node, after all jobs have ended. The actor ends after that."""
        for root in (self.folder / "code").glob("[!.]*"):
            trust.withdraw(Workspace(root))
        self.launcher.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # In a thread of the one who asks: reads alone

    def _told(
        self, name: str, job: _Job, has: Mapping[str, Has] | None, seen: int | None
    ) -> tuple[int, JobNews] | None:
        version, ended = job.version, job.ended
        facts = (name, job.shared, job.begun, ended, job.code, job.problem, job.cleared, job.taken)
        if job.shared or has is None:
            return (2 * version, JobNews(*facts, complete=ended and job.shared)) if seen != 2 * version else None
        paths = files_of(job.folder.path)
        pieces = list(news(job.folder.path, has, paths))
        complete = ended and not pieces
        report_version = 2 * version + complete  # that all has come is news, too
        if not pieces and seen == report_version:
            return None
        return report_version, JobNews(*facts, complete=complete, paths=paths, pieces=pieces)
