"""What the supervisor does in one turn: listen, keep drivers, discover, watch, start, record; all from files."""

import time
from collections.abc import Sequence

from training.failures import ADVICE, FailureClass
from training.jobs import owners
from training.jobs.closing import close, explain, memory_kills
from training.jobs.devices import Inventory
from training.jobs.folder import JobFolder, Result
from training.jobs.lock import Status, SupervisorLock
from training.jobs.process import ProcessId, alive, reap
from training.jobs.recorder import Recorder
from training.jobs.schedule import Lease, in_order, plan
from training.jobs.starter import Starter
from training.jobs.submitting import abandoned
from training.jobs.warm import CLAIMED_ELSEWHERE
from training.jobs.watch import Limits, Watch
from training.search.keeping import Drivers

CODE_PATIENCE_S = 1.0
"""So long an exit code may take from the warm process, which waits for the job, to the supervisor."""
LOOK_AROUND_S = 1.0
"""Between looks for owners, and at the job folders without a sign that one is new."""


class Turns:
    """The supervisor's working memory. `close` leaves the jobs running."""

    def __init__(
        self, lock: SupervisorLock, limits: Limits, inventory: Inventory, runner: str, preload: Sequence[str]
    ) -> None:
        self.lock, self.limits, self.inventory = lock, limits, inventory
        self.workspace = lock.workspace
        self.starter = Starter(self.workspace, limits, runner, preload)
        self.recorder = Recorder(limits.retry_s)
        self.drivers = Drivers(self.workspace)
        self.open: dict[str, JobFolder] = {}
        """Jobs that have not ended, by id."""
        self.watches: dict[str, Watch] = {}
        self._seen: set[str] = set()
        self._codes: dict[str, int] = {}
        self._mine: set[str] = set()
        self._memory_kills: dict[str, int] = {}
        self._owned = False
        self._looked_around = self._busy = time.monotonic()
        self._stamp = 0.0
        self._said: Status | None = None
        self._me = ProcessId.of()
        self.note()

    def turn(self) -> None:
        """Takes `poll_s` when nothing happens."""
        for report in self.starter.listen(self.limits.poll_s):
            self._hear(report.job, report.code, report.problem)
        ended = reap()
        for name, watch in self.watches.items():
            if watch.started.process.pid in ended:
                self._codes[name] = ended[watch.started.process.pid]
        self.drivers.turn()
        self._discover()
        self._watch()
        self._start()
        self.recorder.turn(ended)
        self.note()

    def idle(self) -> bool:
        """Whether there has been neither job nor owner for `linger_s`."""
        if self.open or self.drivers.open or self.recorder.busy or self._owned:
            self._busy = time.monotonic()
        return time.monotonic() - self._busy > self.limits.linger_s

    def note(self) -> None:
        """Tell the others how things stand, when that has changed."""
        status = Status(self._me, self.starter.state, self.starter.problem)
        if status != self._said:
            self.lock.note(status)
            self._said = status

    def close(self) -> None:
        self.starter.close()
        self.recorder.close()

    def _hear(self, name: str, code: int, problem: str) -> None:
        """A fork has ended; one that never claimed its folder has no watch."""
        ordered = self.starter.ordered.pop(name, None)
        if code == CLAIMED_ELSEWHERE:
            return
        self._codes[name] = code
        job = self.open.get(name)
        if ordered is not None and job is not None and job.started() is None:
            self._fail(job, problem or f"its process ended with code {code} before it could begin")

    def _discover(self) -> None:
        """New folders, and process files in known ones."""
        now = time.monotonic()
        stamp = self.workspace.jobs.stat().st_mtime
        if stamp != self._stamp or now - self._looked_around > LOOK_AROUND_S:
            self._stamp = stamp
            self._looked_around = now
            self._owned = owners.present(self.workspace)
            self.recorder.pending |= set(abandoned(self.workspace))
            for path in self.workspace.jobs.iterdir():
                if path.name not in self._seen and not path.name.startswith("."):
                    self._seen.add(path.name)
                    self._meet(JobFolder(path))
        for name, job in list(self.open.items()):
            if name not in self.watches:
                self._see(job)

    def _meet(self, job: JobFolder) -> None:
        try:
            job.request()
        except (OSError, TypeError, ValueError) as error:
            print(f"scalebook: {job.path} is left alone, its job.json cannot be read: {error}", flush=True)
            return
        if job.unrecorded.exists():
            self.recorder.pending.add(job.unrecorded)
        started = job.started()
        if job.result() is None or (started is not None and alive(started.process)):
            self.open[job.id] = job

    def _see(self, job: JobFolder) -> None:
        """A job without a watch: does it run by now, or is it not wanted any more?"""
        if (started := job.started()) is not None:
            self.watches[job.id] = Watch(job, started, self.limits)
            self._memory_kills[job.id] = memory_kills()
            if self.starter.ordered.pop(job.id, None) is not None:
                self._mine.add(job.id)
        elif job.id not in self.starter.ordered and job.stop_file.exists():
            self._close(job, Result("stopped", time.time(), cause=f"{job.why_stopped()}, before it had begun"))

    def _watch(self) -> None:
        now = time.time()
        for name, watch in list(self.watches.items()):
            watch.look(now)
            if not watch.over:
                continue
            assert watch.died is not None
            if name in self._mine and name not in self._codes and now - watch.died < CODE_PATIENCE_S:
                continue
            self._end(watch, self._codes.get(name))

    def _end(self, watch: Watch, code: int | None) -> None:
        """The last act for a job whose processes are gone."""
        job = watch.job
        said = job.result()
        if said is None or watch.timed_out:
            self._close(job, explain(watch, code, memory_kills() - self._memory_kills[job.id]))
        elif code is None or code < 0:
            self._close(job, said)  # it may have died between saying so here and saying so to MLflow
        else:
            self._forget(job)

    def _start(self) -> None:
        waiting = [
            job.request()
            for name, job in self.open.items()
            if name not in self.watches and name not in self.starter.ordered
        ]
        for name, cause in self.starter.hopeless([request.id for request in in_order(waiting)]).items():
            self._fail(self.open[name], cause)
        if not waiting:
            if self._owned or self.drivers.open:
                self.starter.prepare(fresh=False)
            return
        running = [
            Lease(name, watch.job.request().title, watch.started.cores, watch.started.gpus)
            for name, watch in self.watches.items()
        ]
        starts = plan(waiting, [*running, *self.starter.leases()], self.inventory).starts
        if self.starter.prepare(fresh=bool(starts)):
            for start in starts:
                if start.request.id in self.open:
                    self.starter.order(self.open[start.request.id], start)

    def _fail(self, job: JobFolder, cause: str) -> None:
        failure = FailureClass.UNKNOWN
        self._close(job, Result("failed", time.time(), failure.value, cause, ADVICE[failure]))

    def _close(self, job: JobFolder, result: Result) -> None:
        if job.path.exists():
            close(job, result)
            self.recorder.pending.add(job.unrecorded)
        print(f"scalebook: job {job.id} {result.status}: {result.cause}", flush=True)
        self._forget(job)

    def _forget(self, job: JobFolder) -> None:
        for memory in (self.open, self.watches, self._codes, self._memory_kills):
            memory.pop(job.id, None)
        self._mine.discard(job.id)
