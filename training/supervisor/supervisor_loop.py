"""The supervisor: one small process per workspace that starts jobs in order, watches them, and records the end of those
that die (`python -m scalebook.training.supervisor.supervisor_loop FOLDER`).

It outlives the browser and the Streamlit server, imports neither torch nor MLflow, and holds no state beyond the job
folders: if it is killed, the next `ensure` starts another, which adopts what runs. Its turns: listen, keep drivers,
discover, watch, start, record; all from files.

Nothing that one job, one search or the disk does ends the supervisor: a step that fails is reported once in the log and
tried again, and a job's end that cannot be written is kept until it can.
"""

import argparse
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal

from scalebook.training.base import (
    OWNER_ONLY,
    Children,
    ConfigError,
    FailureClass,
    ProcessId,
    Workspace,
    failures,
    processes,
    safe_path,
    trust,
)
from scalebook.training.base.files import EXIT_NO_ROOM, BrokenRecord, disk_problem, forgive
from scalebook.training.cluster import RayExecutor, RayLauncher
from scalebook.training.jobs import (
    CLAIMED_ELSEWHERE,
    GPUS_TAKEN,
    LOCAL,
    PRELOAD,
    RUNNER,
    Allocation,
    DurationEstimates,
    Executor,
    JobFolder,
    Launcher,
    LauncherLost,
    Lease,
    LocalExecutor,
    LocalLauncher,
    ProcessEnded,
    Result,
    Start,
    configured_executor,
    forget_environment,
    in_order,
    plan,
    supervisor_handle,
    time_left,
)
from scalebook.training.supervisor.job_watch import JobLimits, JobWatch
from scalebook.training.supervisor.lost_jobs import LostJobRecorder, explain, memory_kills, write_result
from scalebook.training.supervisor.notifier import Notifier
from scalebook.training.supervisor.search_drivers import DRIVER, SearchDrivers, any_open
from scalebook.training.tracking import run_start

CODE_PATIENCE_S = 1.0
"""Grace period for an exit code to arrive from the fork server, s."""
LOOK_AROUND_S = 1.0
"""Interval between checks for owners, and of the job folders when nothing indicates a new one, s."""

MakesLauncher = Callable[[Workspace, Children, str | None, Sequence[str] | None], Launcher]
LAUNCHERS: Final[dict[str, MakesLauncher]] = {LocalExecutor.name: LocalLauncher, RayExecutor.name: RayLauncher}
"""Makers of launchers, by the executor's name. `runner`: the `module:function` that runs a job's folder and returns an
exit code; `preload`: the modules to import beforehand; None for the defaults."""

ATTEMPTS: Final = 3
"""How often a start may fail (the launcher dies, or no process appears) before the job fails."""


@dataclass(frozen=True)
class OrderedStart:
    """A job that was ordered and has not claimed its folder yet; `since` is a time.monotonic(), s."""

    lease: Lease
    since: float


class Starter:
    """Owns the launcher. `ordered` jobs already hold their devices; the owner removes those that have appeared."""

    def __init__(self, launcher: Launcher, limits: JobLimits) -> None:
        self.launcher, self.limits = launcher, limits
        self.ordered: dict[str, OrderedStart] = {}
        self.problem = ""
        """Why no job can be started, for people."""
        self._retry_at = 0.0
        self._failures = 0
        self._attempts: dict[str, int] = {}

    @property
    def state(self) -> Literal["none", "loading", "ready"]:
        return self.launcher.state

    def listen(self, wait_s: float) -> list[ProcessEnded]:
        """Wait at most `wait_s` for events of the launcher; returns those of ended jobs."""
        ended: list[ProcessEnded] = []
        for event in self.launcher.events(wait_s):
            if isinstance(event, LauncherLost):
                self._lost(event)
            else:
                ended.append(event)
        if self.launcher.state == "ready":
            self._failures, self.problem = 0, ""
        return ended

    def prepare(self, fresh: bool) -> bool:
        """Prepare the launcher; True when it is ready and, if `fresh`, has the package's present sources."""
        if self.launcher.state == "none" and time.monotonic() < self._retry_at:
            return False
        return self.launcher.prepare(fresh and not self.ordered)

    def order(self, job: JobFolder, start: Start) -> None:
        """Order the job on its planned devices."""
        if self.launcher.start(job, start.lease):
            self.ordered[job.id] = OrderedStart(start.lease, time.monotonic())

    def note_started(self, name: str) -> bool:
        """Note that the job has started; returns whether it was ordered here, also from a launcher lost since then."""
        return self.ordered.pop(name, None) is not None or name in self._attempts

    def join(self, job: JobFolder, lent: Allocation) -> None:
        """Add another node to a running job."""
        self.launcher.join(job, lent)

    def leases(self) -> list[Lease]:
        """The leases of the jobs that are being started."""
        return [start.lease for start in self.ordered.values()]

    def hopeless(self, waiting: Sequence[str]) -> dict[str, str]:
        """The waiting jobs to give up, with the cause. `waiting` is in order: its first takes the blame."""
        if any(time.monotonic() - start.since > self.limits.start_s for start in self.ordered.values()):
            print(f"scalebook: a run did not start within {self.limits.start_s:g} s", flush=True)
            self.launcher.close()
            self._lost(LauncherLost(True, ""))
        causes = {
            name: "none of the run's processes started" for name in waiting if self._attempts.get(name, 0) >= ATTEMPTS
        }
        if self._failures >= ATTEMPTS and waiting:
            self._failures = 0
            causes[waiting[0]] = self.problem
        return causes

    def close(self) -> None:
        """End the launcher; its jobs go on."""
        self.launcher.close()

    def _lost(self, event: LauncherLost) -> None:
        for name in self.ordered:
            self._attempts[name] = self._attempts.get(name, 0) + 1
        self.ordered.clear()
        if not event.ready:
            self._failures += 1
            self._retry_at = time.monotonic() + self.limits.retry_s
            self.problem = event.problem


class SupervisorLoop:
    """The supervisor's loop and its state. `close` leaves the jobs running."""

    def __init__(
        self,
        lock: supervisor_handle.SupervisorLock,
        limits: JobLimits,
        executor: Executor[Any],
        runner: str,
        preload: Sequence[str],
        driver: str = DRIVER,
        unusable: str = "",
    ) -> None:
        """`unusable`: why the cluster that the folder names cannot be used. Until that changes nothing starts."""
        self.lock, self.limits, self.executor, self.unusable = lock, limits, executor, unusable
        self.workspace = lock.workspace
        self.children = Children()
        launcher = LAUNCHERS[executor.name](self.workspace, self.children, runner, preload)
        self.starter = Starter(launcher, limits)
        self.recorder = LostJobRecorder(limits.retry_s, self.children)
        self.notifier = Notifier(self.workspace, self.children)
        self.drivers = SearchDrivers(self.workspace, driver, self.notifier.search_ended)
        self.open: dict[str, JobFolder] = {}
        """Jobs that have not ended, by id."""
        self.watches: dict[str, JobWatch] = {}
        self.held: set[str] = set()
        """Those of them that were not submitted here, and whose folder is not trusted."""
        self.lasting = DurationEstimates()
        self._seen: set[str] = set()
        self._codes: dict[str, int] = {}
        self._results: dict[str, Result] = {}
        """Ends that could not be written yet, by job."""
        self._full = ""
        self._said_of: dict[str, str] = {}
        self._mine: set[str] = set()
        self._memory_kills: dict[str, int] = {}
        self._owned = False
        self._looked_around = self._busy = self._asked = time.monotonic()
        self._stamp = self._noted = self._held_until = 0.0
        self._said: supervisor_handle.Status | None = None
        self._me = ProcessId.of()
        self._guarded("the note", self.publish_status)

    def run_once(self) -> None:
        """Do one turn; it takes `poll_s` if nothing happens."""
        began = time.monotonic()
        if not self._guarded("the fork server", self._listen):
            time.sleep(self.limits.poll_s)
        self.lock.beat()
        self.children.reap()
        self._look_for_room(began)
        self._guarded("the searches", partial(self.drivers.poll, self._full or self.unusable))
        self._guarded("the jobs", self._discover)
        for name in list(self._results):
            self._guarded(name, partial(self._write_end, name))
        self._watch()
        self._guarded("the start of jobs", self._start)
        self._guarded("the records", self.recorder.poll)
        self._guarded("notifications", self.notifier.poll)
        self._guarded("the note", self.publish_status)

    def _guarded(self, task: str, act: Callable[[], Any]) -> bool:
        """Call `act`; report an error once, and try again at the next turn. False after an error."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - one job, or a full disk, must not end the watch over all the others
            message = f"{type(error).__name__}: {error}"
            kind = message
            if isinstance(error, OSError):  # its message names a temporary file, which differs at each turn
                kind = f"{type(error).__name__} {error.errno}"
            if self._said_of.get(task) != kind:
                self._said_of[task] = kind
                if not isinstance(error, BrokenRecord | OSError):
                    traceback.print_exc()
                print(f"scalebook: {task}: {message}", flush=True)
            return False
        self._said_of.pop(task, None)
        return True

    def _listen(self) -> None:
        for report in self.starter.listen(self.limits.poll_s):
            self._guarded(report.job, partial(self._hear, report.job, report.code, report.problem))

    def _look_for_room(self, now: float) -> None:
        if now - self._looked_around > LOOK_AROUND_S or self._full:
            full = disk_problem(self.workspace.hidden)
            if full and not self._full:
                print(f"scalebook: {full}. No job starts until there is space", flush=True)
            self._full = full

    def may_be_usable(self) -> bool:
        """Whether the setting of the cluster that could not be used says something else by now."""
        if not self.unusable or time.monotonic() - self._asked < LOOK_AROUND_S:
            return False
        self._asked = time.monotonic()
        return _executor(self.workspace)[1] != self.unusable

    def idle(self) -> bool:
        """Whether there has been neither a job nor an owner for `linger_s`."""
        if self.open.keys() - self.held or self.drivers.open or self.recorder.busy or self.notifier.busy or self._owned:
            self._busy = time.monotonic()
        return time.monotonic() - self._busy > self.limits.linger_s

    def publish_status(self) -> None:
        """Write the supervisor's status, if it has changed or the file holds another one."""
        status = supervisor_handle.Status(
            self._me, self.starter.state, self._full or self.unusable or self.starter.problem
        )
        now = time.monotonic()
        if status == self._said and now - self._noted < LOOK_AROUND_S:
            return
        self._noted = now
        if status != self._said or supervisor_handle.read_status(self.workspace) != status:
            self._said = None
            self.lock.write_status(status)
            self._said = status

    def close(self) -> None:
        self.starter.close()
        self.recorder.close()

    def _hear(self, name: str, code: int, problem: str) -> None:
        """Handle the end of a fork; one that never claimed its folder has no watch."""
        ordered = self.starter.ordered.pop(name, None)
        if code in (CLAIMED_ELSEWHERE, GPUS_TAKEN):  # the latter waits on: the next plan sees who has come first
            return
        job = self.open.get(name)
        if code == EXIT_NO_ROOM and job is not None and job.started() is None:
            self._held_until = time.monotonic() + self.limits.retry_s
            return  # it waits until there is room
        self._codes[name] = code
        if ordered is not None and job is not None and job.started() is None:
            self._fail(job, problem or f"its process ended with code {code} before it started")

    def _discover(self) -> None:
        """Find new folders, and new process files in known ones. If the workspace was deleted, it has no owner."""
        now = time.monotonic()
        self._owned &= self.workspace.hidden.exists()
        stamp = self.workspace.jobs.stat().st_mtime
        if stamp != self._stamp or now - self._looked_around > LOOK_AROUND_S:
            self._stamp = stamp
            self._looked_around = now
            self._owned = supervisor_handle.present(self.workspace)
            self._guarded("submissions", lambda: self.recorder.pending.update(run_start.abandoned(self.workspace)))
            self.held = {name for name in self.held if not self._may_run(self.open[name])}
            for path in self.workspace.jobs.iterdir():
                if path.name not in self._seen and not path.name.startswith("."):
                    self._guarded(path.name, partial(self._meet, JobFolder(path)))
        for name, job in list(self.open.items()):
            if name not in self.watches and name not in self._results:
                self._guarded(name, partial(self._see, job))

    def _meet(self, job: JobFolder) -> None:
        """Take up a new job. Raises BrokenRecord at every turn until its `job.json` is repaired."""
        with suppress(FileNotFoundError):
            job.request()
        self._seen.add(job.id)
        if not (job.path / "job.json").exists():
            print(f"scalebook: {job.path} is ignored, because it has no job.json", flush=True)
            return
        if job.unrecorded.exists() and self._may_run(job):
            self.recorder.pending.add(job.unrecorded)
        started, result = job.started(), job.result()
        if result is None or (started is not None and started.alive()):
            self.open[job.id] = job
            if not self._may_run(job):
                self.held.add(job.id)
                print(f"scalebook: job {job.id} waits: {trust.FOUND}", flush=True)
        elif not (job.path / "result.json").exists():
            self._broken(job, result)
        else:
            forget_environment(job.path)
            self.lasting.add(job)

    def _see(self, job: JobFolder) -> None:
        """Check a job without a watch: it may run by now, or have been stopped."""
        if (started := job.started()) is not None:
            self.watches[job.id] = JobWatch(job, started, self.limits)
            self._memory_kills[job.id] = memory_kills()
            if self.starter.note_started(job.id):
                self._mine.add(job.id)
        elif (job.path / "process.json").exists():
            if (result := job.result()) is not None:
                self._broken(job, result)
        elif job.id not in self.starter.ordered and (request := job.stop_request()) is not None:
            self._close(job, Result("stopped", time.time(), cause=f"{request.why}, before it started"))

    def _broken(self, job: JobFolder, result: Result) -> None:
        """End a job whose `process.json` cannot be read, unless a newer Scalebook wrote it."""
        newer = any(error.newer for error in job.broken())
        if newer:
            print(f"scalebook: job {job.id} is ignored: {result.cause}", flush=True)
            self._forget(job)
        else:
            self._close(job, result)

    def _watch(self) -> None:
        now = time.monotonic()
        for name, watch in list(self.watches.items()):
            if name not in self._results:
                self._guarded(name, partial(self._look_at, name, watch, now))
            if not self._full:
                self._guarded(f"what {name} takes", partial(watch.meter.sample, now))

    def _look_at(self, name: str, watch: JobWatch, now: float) -> None:
        watch.poll(now)
        if not watch.over:
            return
        assert watch.died is not None
        if name in self._mine and name not in self._codes and now - watch.died < CODE_PATIENCE_S:
            return
        self._end(watch, self._codes.get(name))

    def _end(self, watch: JobWatch, code: int | None) -> None:
        """Record the end of a job whose processes are gone."""
        job = watch.job
        result = job.result()
        if not job.path.exists():
            print(f"scalebook: job {job.id} has ended, and its folder was deleted", flush=True)
            self._forget(job)
        elif result is None or watch.timed_out or watch.doomed:
            self._close(job, explain(watch, code, memory_kills() - self._memory_kills[job.id]))
        elif code is None or code < 0:
            self._close(job, result)  # it may have died between saying so here and saying so to MLflow
        else:
            if job.unrecorded.exists():  # it could not tell MLflow itself
                self.recorder.pending.add(job.unrecorded)
            self._forget(job)

    def _start(self) -> None:
        if self.unusable:
            return
        waiting = [
            job.queued()
            for name, job in self.open.items()
            if name not in self.watches
            and name not in self.starter.ordered
            and name not in self._results
            and name not in self.held
        ]
        for name, cause in self.starter.hopeless([request.id for request in in_order(waiting)]).items():
            self._fail(self.open[name], cause)
        if not waiting and not any(watch.job.request().grows for watch in self.watches.values()):
            if self._owned or self.drivers.open:
                self.starter.prepare(fresh=False)
            return
        if self._full or time.monotonic() < self._held_until:
            return
        running = [Lease.of(watch.job, watch.started, time_left(watch.job)) for watch in self.watches.values()]
        leases = [*running, *self.starter.leases()]
        planned = plan(waiting, leases, self.executor.machines(), self.lasting.of(waiting))
        if self.starter.prepare(fresh=bool(planned.starts)):
            for start in planned.starts:
                if start.request.id in self.open:
                    self.starter.order(self.open[start.request.id], start)
            for join in planned.joins:
                self._guarded(join.job, partial(self.starter.join, self.open[join.job], join.lent))

    def _fail(self, job: JobFolder, cause: str) -> None:
        failure = FailureClass.UNKNOWN
        self._close(job, Result("failed", time.time(), failure.value, cause, failures.ADVICE[failure]))

    def _close(self, job: JobFolder, result: Result) -> None:
        """Write the job's end, now or as soon as possible."""
        self.open[job.id], self._results[job.id] = job, result
        self._write_end(job.id)

    def _write_end(self, name: str) -> None:
        job, result = self.open[name], self._results[name]
        if job.path.exists():
            write_result(job, result)
            if job.id not in self.held:
                self.recorder.pending.add(job.unrecorded)
        print(f"scalebook: job {job.id} {result.status}: {result.cause}", flush=True)
        self._forget(job)

    def _forget(self, job: JobFolder) -> None:
        forget_environment(job.path)
        for hear in (self.lasting.add, self.notifier.job_ended) if job.path.exists() else ():
            self._guarded(job.id, partial(hear, job))
        for memory in (self.open, self.watches, self._codes, self._memory_kills, self._results, self._said_of):
            memory.pop(job.id, None)
        self._mine.discard(job.id)
        self.held.discard(job.id)

    def _may_run(self, job: JobFolder) -> bool:
        return trust.may_run(self.workspace, job.path, trust.JOB)


def supervise(
    workspace: Workspace,
    limits: JobLimits,
    runner: str = RUNNER,
    preload: tuple[str, ...] = PRELOAD,
    driver: str = DRIVER,
) -> int:
    """Run the supervisor until there is nothing to do, or a SIGTERM or SIGINT; jobs go on. Returns 1 if another one
    runs."""
    lock = supervisor_handle.SupervisorLock(workspace)
    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    processes.adopt_orphans()
    os.chdir(safe_path.HOME)  # nothing that this starts begins in a folder of notebooks
    while True:
        if not lock.acquire():
            return 1
        executor, unusable = _executor(workspace)
        if unusable:
            print(f"scalebook: {unusable} No job starts until this is fixed.", flush=True)
        turns, changed = SupervisorLoop(lock, limits, executor, runner, preload, driver, unusable), False
        try:
            while not leaving.is_set() and not turns.idle() and not (changed := turns.may_be_usable()):
                turns.run_once()
        finally:
            turns.close()
            lock.release()
        # a job or search that came after the last look found the lock still held, and relies on this
        if leaving.is_set() or not (changed or _any_waiting(workspace) or any_open(workspace)):
            return 0


def _executor(workspace: Workspace) -> tuple[Executor[Any], str]:
    """The executor that the folder names now, and why it cannot be used. The supervisor goes on all the same: it
    watches what runs, and pages and commands say the reason. Jobs for a cluster do not run here instead."""
    try:
        return configured_executor(Workspace(workspace.root)), ""
    except ConfigError as error:
        return LOCAL, str(error)


def _any_waiting(workspace: Workspace) -> bool:
    return any(
        _waits(JobFolder(path)) and trust.may_run(workspace, path, trust.JOB) for path in workspace.jobs.glob("[!.]*")
    )


def _waits(job: JobFolder) -> bool:
    try:
        job.request()
    except (OSError, BrokenRecord):
        return False
    return job.state() == "waiting"


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m scalebook.training.supervisor.supervisor_loop")
    parser.add_argument("workspace", type=Path)
    parser.add_argument("--runner", default=RUNNER, help="module:function that runs the job stored in a folder")
    parser.add_argument(
        "--preload", default=",".join(PRELOAD), help="modules that the fork server imports, separated by commas"
    )
    parser.add_argument("--driver", default=DRIVER, help="module that runs the search stored in a folder")
    for limit in fields(JobLimits):
        parser.add_argument(f"--{limit.name.replace('_', '-')}", type=float, default=limit.default)
    options: Any = parser.parse_args(argv)
    os.umask(OWNER_ONLY)  # its jobs inherit it
    forgive()
    limits = JobLimits(**{limit.name: getattr(options, limit.name) for limit in fields(JobLimits)})
    workspace = Workspace(options.workspace.resolve())
    supervise(workspace, limits, options.runner, tuple(filter(None, options.preload.split(","))), options.driver)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
