"""The end of a job that could not record it itself: its result, and telling MLflow.

The supervisor writes the result at once, and leaves MLflow to a short-lived process (`python -m
scalebook.training.supervisor.lost_jobs MARK...`), so that it never imports MLflow itself. The mark `unrecorded` stays
in the folder until that process has succeeded.
"""

import signal
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from signal import SIGKILL

from scalebook.training.base import Children, ConfigError, FailureClass, ProcessId, Workspace, processes, safe_path
from scalebook.training.base.files import EXIT_NO_ROOM, disk_problem, says_full
from scalebook.training.jobs import MLFLOW_STATUS, UNWATCHED, JobFolder, Result, StopRequest
from scalebook.training.supervisor.job_watch import JobWatch
from scalebook.training.tracking import names, require_known, run_start


def explain(watch: JobWatch, code: int | None, memory_kills: int) -> Result:
    """The result of a job whose process left none.

    `code` is its exit code, minus the signal's number, or None if that is not known; `memory_kills`: how many processes
    the kernel has killed for lack of memory while it ran.
    """
    ended, description = watch.ended or time.time(), watch.started.executor.describe(watch.started.handle)
    how = f"its main process ({description}) {_how(code)}"
    if watch.doomed:
        return _failed(watch.job, ended, FailureClass.WORKER_LOST, watch.doomed)
    request, sent = watch.job.stop_request(), " and ".join(watch.signals)
    if watch.timed_out:
        return _failed(watch.job, ended, FailureClass.TIMED_OUT, f"{watch.timed_out}; ended by {sent}")
    if request is not None and request.failure:  # by a supervisor that has died since
        return _failed(
            watch.job, ended, FailureClass(request.failure), request.why + (f"; ended by {sent}" if sent else "")
        )
    if full := _full(watch.job, code):
        return _failed(watch.job, ended, FailureClass.DISK_FULL, f"{how}; {full}")
    if request is not None:
        if _ended_by(request, watch, code):
            forced = f"; it did not stop by itself and got {sent}" if sent else ""
            return Result("stopped", ended, cause=f"{request.why}{forced}")
        how = f"its main process ({description}), which had been asked to stop, {_how(code)}"
    if code is None or code < 0:
        if code == -signal.SIGKILL and memory_kills:
            return _failed(watch.job, ended, FailureClass.OUT_OF_MEMORY, f"{how}; the machine ran out of memory")
        return _failed(watch.job, ended, FailureClass.KILLED, how)
    last = watch.job.tail(1).strip()
    words = f"{how} without a result" + (f"; the last line of its log: {last}" if last else "")
    return _failed(watch.job, ended, FailureClass.UNKNOWN, words)


def _ended_by(request: StopRequest, watch: JobWatch, code: int | None) -> bool:
    """Whether a process without a result has ended because of the request: by a signal that the supervisor has sent for
    it, or by a SIGTERM that came before or after the time in which that is handled. Any other end is a failure: a job
    that stops by itself writes a result."""
    if code is None:  # nobody saw how
        return bool(watch.signals)
    if code == -signal.SIGTERM:
        return bool(watch.signals) or request.when <= watch.ended
    return code == -signal.SIGKILL and signal.SIGKILL.name in watch.signals


def _full(job: JobFolder, code: int | None) -> str:
    """What speaks for a full disk as the cause: the process's own word, its log's end, or the disk as it is now."""
    if code == EXIT_NO_ROOM:
        return "a disk is full"
    last = next((line.strip() for line in reversed(job.tail(20).splitlines()) if says_full(line)), "")
    if last and code != -signal.SIGKILL:
        return last
    return disk_problem(job.path) if code is None else ""


def _how(code: int | None) -> str:
    if code is None:
        return UNWATCHED
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"


def _failed(job: JobFolder, ended: float, failure: FailureClass, cause: str) -> Result:
    return Result("failed", ended, failure.value, cause, job.advice(failure))


def write_result(job: JobFolder, result: Result) -> None:
    """Write the result, and mark it as not yet known to MLflow."""
    job.unrecorded.touch()
    job.write(result)


def memory_kills() -> int:
    """How many processes of this control group the kernel has killed for lack of memory; 0 if that is not known."""
    try:
        group = Path("/proc/self/cgroup").read_text(encoding="ascii").strip().rpartition("::")[2]
        events = Path(f"/sys/fs/cgroup{group}/memory.events").read_text(encoding="ascii")
    except OSError:
        return 0
    return sum(int(line.split()[1]) for line in events.splitlines() if line.startswith("oom_kill "))


def record(job: JobFolder) -> None:
    """Tell MLflow how the job ended, unless it knows. Raises MLflow's errors."""
    with safe_path.importing():
        from mlflow import MlflowClient
        from mlflow.exceptions import MlflowException

    result = job.result()
    assert result is not None, f"the job in {job.path} has ended with a result"
    tracking_uri = job.tracking_uri()
    require_known(tracking_uri)
    client = MlflowClient(tracking_uri)
    try:
        run = client.get_run(job.id)
        tags = {names.TAG_STATUS: result.status, names.TAG_FAILURE: result.failure, names.TAG_CAUSE: result.cause}
        tags[names.TAG_ADVICE] = result.advice
        for name, value in tags.items():
            if value and run.data.tags.get(name) != value:
                client.set_tag(job.id, name, value)
        if run.info.status != MLFLOW_STATUS[result.status]:
            client.set_terminated(job.id, MLFLOW_STATUS[result.status], int(result.ended * 1000))
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        print(f"scalebook: MLflow has no run {job.id} any more", flush=True)
    job.unrecorded.unlink(missing_ok=True)


def main(marks: Sequence[str]) -> int:
    """Tell MLflow about all of these marks: jobs' `unrecorded`, and abandoned submissions. Returns 0 if all
    succeeded."""
    failed = 0
    for mark in map(Path, marks):
        try:
            if mark.parent.name == run_start.SUBMISSIONS:
                run_start.withdraw(Workspace(mark.parent.parent.parent), mark)
            else:
                record(JobFolder(mark.parent))
        except ConfigError as error:
            print(f"scalebook: {mark}: {error}", file=sys.stderr, flush=True)
            failed += 1
        except Exception:  # noqa: BLE001 - one run that cannot be told must not keep the others from it; the mark stays
            traceback.print_exc()
            failed += 1
    return 1 if failed else 0


DEADLINE_S = 120.0
LONGEST_RETRY_S = 60.0


class LostJobRecorder:
    """Tells MLflow about jobs that could not record their end, and about runs that never got a job: by one helper
    process at a time, again until it succeeds.

    Give it marks (see `main`), which are files that stay until MLflow knows, and call `poll`.
    """

    def __init__(self, retry_s: float, children: Children) -> None:
        self.retry_s, self.children = retry_s, children
        self.pending: set[Path] = set()
        self.failures = 0
        self._helper: ProcessId | None = None
        self._since = 0.0
        """Start of the helper, or earliest time of the next; time.monotonic(), s."""

    @property
    def busy(self) -> bool:
        """Whether something is pending that has not failed repeatedly."""
        return self._helper is not None or (bool(self.pending) and self.failures < 3)

    def poll(self) -> None:
        now = time.monotonic()
        if self._helper is not None:
            if self.children.pop_exit_code(self._helper.pid) is not None:
                self._take_stock(now)
            elif now - self._since > DEADLINE_S:
                self._helper.send(SIGKILL)
        elif self.pending and now >= self._since:
            marks = sorted(map(str, self.pending))[:200]
            self._helper = processes.start("scalebook.training.supervisor.lost_jobs", *marks)
            self._since = now

    def close(self) -> None:
        """End a running helper; the marks stay for the next supervisor."""
        if self._helper is not None:
            self._helper.send(SIGKILL)

    def _take_stock(self, now: float) -> None:
        self._helper = None
        before = len(self.pending)
        self.pending = {mark for mark in self.pending if mark.exists()}
        self.failures = 0 if len(self.pending) < before else self.failures + 1
        wait = min(self.retry_s * 2**self.failures, LONGEST_RETRY_S) if self.failures else 0.0
        self._since = now + wait


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
