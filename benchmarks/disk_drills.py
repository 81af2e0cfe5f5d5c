"""A full disk at 30 moments: `python -m benchmarks.disk_drills [--moments N] [--hold S]`. As root, on Linux.

The workspace lies on a tmpfs of 20 MB. Each drill fills it to the last byte at a moment of its own (while a run is
submitted, starts, trains, saves a checkpoint or ends; while a journal grows; while a notebook is saved), keeps it full
for a while, and makes room again. Then everything must be as before, or say that the disk was full: the supervisor is
the same process, every run has ended and its record and MLflow agree, a later run finishes, and no temporary file is
left. Exits with 1 otherwise. Takes about 6 minutes.
"""

import argparse
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import waiting
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.machine_errors import NoRoom
from scalebook.training.base.processes import ProcessId, alive, send
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.definition import read_search
from scalebook.training.jobs import job_requests, supervisor_handle
from scalebook.training.jobs.job_folder import ENDED, MLFLOW_STATUS, JobFolder
from scalebook.training.jobs.supervisor_handle import status
from scalebook.training.notebook import store
from scalebook.training.notebook.edit import put_experiment
from scalebook.training.search.study.storage import StorageLost
from scalebook.training.search.study.study import Study
from scalebook.training.tracking import names
from scalebook.training.tracking.run_start import open_store

SIZE_MB = 20
DEADLINE_S = 120.0
until = partial(waiting.until, deadline_s=DEADLINE_S)
CHECKPOINT = {"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": {"every_n_epochs": 1}}
CONFIG: dict[str, Any] = {
    "trainer": {"devices": 1, "accelerator": "cpu", "max_epochs": 30, "callbacks": [CHECKPOINT]},
    "model": {"class_path": "scalebook.training.zoo.models.MLPClassifier"},
    "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 64}},
}
STRATEGIES: dict[str, Any] = {
    "AsyncPS": {"class_path": "AsyncPS", "init_args": {"workers": 2}},
    "Peers": {"class_path": "Peers", "init_args": {"workers": 2}},
    "DDP": "ddp",
    "ModelParallel": {"class_path": "ModelParallel", "init_args": {"tensor": 2}},
}
SPACE = {"learning_rate": {"log_uniform": [0.001, 1.0]}}


class Disk:
    """A tmpfs. Within `full` it stays full, even if something frees space meanwhile."""

    def __init__(self, root: Path) -> None:
        self.root, self.filler = root, root / "filler"

    @contextmanager
    def full(self) -> Iterator[None]:
        stop = threading.Event()
        thread = threading.Thread(target=self._fill, args=(stop,))
        self._once()
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
            self.filler.unlink(missing_ok=True)

    def _fill(self, stop: threading.Event) -> None:
        while not stop.wait(0.002):
            self._once()

    def _once(self) -> None:
        with suppress(OSError), self.filler.open("ab", buffering=0) as file:
            for size in (2**20, 2**12):
                with suppress(OSError):
                    while file.write(bytes(size)):
                        pass


class Range:
    """The workspace on that disk, with a ready supervisor."""

    def __init__(self, disk: Disk, workspace: Workspace, description: Description) -> None:
        self.disk, self.workspace, self.description = disk, workspace, description
        self.supervisor = supervisor_handle.running(workspace)

    def train(self, config: dict[str, Any] = CONFIG) -> JobFolder:
        (job,) = job_requests.submit(self.workspace, Experiment.read(config, self.description), seeds=[1])
        return job

    def settled(self, jobs: Sequence[JobFolder]) -> str:
        """Check everything that must hold once there is room; returns how the jobs ended."""
        words = []
        for job in jobs:
            until(lambda job=job: job.state() in ENDED, f"{job.id} to end")  # type: ignore[misc]  # bound at once
            result = until(job.result, "a result")
            until(lambda job=job: not job.unrecorded.exists(), "MLflow to be told")  # type: ignore[misc]
            assert result is not None
            assert (result.status, result.failure) in (("finished", None), ("failed", "disk full")), result
            run = open_store(self.workspace).get_run(job.id)
            assert run.info.status == MLFLOW_STATUS[result.status], (run.info.status, result)
            assert run.data.tags.get(names.TAG_CAUSE, "") == result.cause, (run.data.tags, result)
            assert job.stop_request() is None, job.stop_request()
            words.append(f"{result.status}{f': {result.cause}' if result.failure else ''}")
        assert supervisor_handle.running(self.workspace) == self.supervisor, "another supervisor"
        after = self.train()
        until(lambda: after.state() in ENDED, "a later run")
        room = f"{shutil.disk_usage(self.workspace.root).free / 1e6:.1f} MB left"
        assert after.state() == "finished", f"a later run: {until(after.result, 'its result')}, {room}"
        left = [path for path in self.workspace.hidden.rglob("*") if _temporary(path)]
        assert left == [], left
        job_ids = {job.id for job in job_requests.all_jobs(self.workspace)}
        client = open_store(self.workspace)
        runs = client.search_runs(
            [experiment.experiment_id for experiment in client.search_experiments()], max_results=1000
        )
        open_ = [run.info.run_id for run in runs if run.info.status in ("RUNNING", "SCHEDULED")]
        assert not [run for run in open_ if run not in job_ids], "a run without a job"
        for job in [*jobs, after]:
            until(lambda job=job: _gone(self.workspace, job), "its processes to end")  # type: ignore[misc]
        return "; ".join(words) or "refused"


def _temporary(path: Path) -> bool:
    parts = path.name.split(".")
    return path.suffix == ".part" or (path.name.startswith(".") and len(parts) > 3 and parts[-1].isdigit())


def _gone(workspace: Workspace, job: JobFolder) -> bool:
    with suppress(ConfigError):
        job_requests.delete(workspace, job)
        return True
    return False


def a_run(after_s: float, hold_s: float, range_: Range) -> str:
    """Fill the disk so long after a run's submission."""
    job = range_.train()
    time.sleep(after_s)
    with range_.disk.full():
        time.sleep(hold_s)
    return range_.settled([job])


def several_workers(strategy: str, hold_s: float, range_: Range) -> str:
    """Fill the disk under two workers, until their run has failed and could not write that."""
    workers = {"devices": 2, "max_epochs": 100_000, "strategy": STRATEGIES[strategy]}
    job = range_.train({**CONFIG, "trainer": {**CONFIG["trainer"], **workers}})
    until(lambda: (progress := job.progress()) is not None and progress.updates > 20, f"{job.id} to train")
    with range_.disk.full():
        until(lambda: job.state() == "failed", "the run to fail")
        told = job.outcome()
        assert told is not None
        assert told.failure == "disk full", told
        time.sleep(hold_s)
    return range_.settled([job])


def submissions(hold_s: float, range_: Range) -> str:
    """Submissions are refused in one line while there is no room."""
    made: list[JobFolder] = []
    said = ""
    with range_.disk.full():
        try:
            made.append(range_.train())
        except NoRoom as error:
            said = str(error).splitlines()[0][:80]
        time.sleep(hold_s)
    return f"{range_.settled(made)} ({said})"


def a_checkpoint(hold_s: float, range_: Range) -> str:
    """Fill the disk as soon as a checkpoint appears and is being written."""
    job = range_.train()
    until(lambda: any(job.path.rglob("*.ckpt")), "a checkpoint")
    with range_.disk.full():
        time.sleep(hold_s)
    return range_.settled([job])


def a_journal(hold_s: float, range_: Range) -> str:
    """Trials whose result could not be stored are asked for again; none is torn."""
    spec = read_search({"config": CONFIG, "space": SPACE, "objective": "val/loss", "trials": 50}, None,
                       range_.description)  # fmt: skip
    path = range_.workspace.studies / f"drill-{time.monotonic_ns()}.journal"
    study, recorded, lost = Study.open(f"journal:{path}", "drill", spec), 0, 0

    def tell() -> None:
        nonlocal recorded, lost
        try:
            study.finish(study.ask().number, [0.5])
            recorded += 1
        except StorageLost:
            lost += 1

    for _ in range(3):
        tell()
    with range_.disk.full():
        until = time.monotonic() + hold_s
        while time.monotonic() < until:
            tell()
    tell()
    study.close()
    again = Study.open(f"journal:{path}", "drill", spec)
    finished = sum(record.state == "finished" for record in again.records())
    again.close()
    path.unlink()
    assert finished == recorded, (finished, recorded)
    assert lost > 0, "the disk was not full"
    return f"{recorded} told, {lost} refused, all told ones there; {range_.settled([])}"


def a_notebook(hold_s: float, range_: Range) -> str:
    """The notebook has the old text or the new one, whole."""
    path = range_.workspace.root / "drill.md"
    path.write_text("---\ntitle: Drill\n---\n\n" + "words " * 1000, encoding="utf-8")
    stored, refused = store.read(path), 0
    before = stored.notebook.text
    with range_.disk.full():
        try:
            store.save(stored, put_experiment(stored.notebook, "one", CONFIG, 1))
        except NoRoom:
            refused += 1
        time.sleep(hold_s)
    assert path.read_text(encoding="utf-8") == before
    stored = store.save(stored, put_experiment(stored.notebook, "one", CONFIG, 1))
    assert path.read_text(encoding="utf-8") == stored.notebook.text
    assert refused == 1
    assert [path.name for path in path.parent.glob(".drill*")] == []
    path.unlink()
    return f"refused, then saved; {range_.settled([])}"


@contextmanager
def mounted() -> Iterator[Disk]:
    """Mount the disk. SystemExit with one line if no tmpfs can be mounted."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["mount", "-t", "tmpfs", "-o", f"size={SIZE_MB}m", "scalebook-drill", folder]
        done = subprocess.run(words, check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"disk drills: no tmpfs can be mounted here: {done.stderr.strip()}")
        try:
            yield Disk(Path(folder).resolve())
        finally:
            subprocess.run(["umount", "-l", folder], check=True)


@contextmanager
def workplace() -> Iterator[Range]:
    with mounted() as disk:
        workspace = Workspace(disk.root).create()
        open_store(workspace)
        description = describe(workspace)
        with supervisor_handle.hold_supervisor(workspace):
            supervisor_handle.ensure(workspace)
            until(lambda: (now := status(workspace)) and now.warm == "ready", "the warm process")
            try:
                yield Range(disk, workspace, description)
            finally:
                _end(supervisor_handle.running(workspace))


def _end(process: ProcessId | None) -> None:
    if process is not None:
        send(process, signal.SIGTERM)
        until(lambda: not alive(process), "the supervisor to leave")


def drills(moments: int, hold_s: float) -> list[tuple[str, Callable[[Range], str]]]:
    """Two drills at each of the four special moments, one of each strategy with two workers; the others spread over a
    run's first 6 s."""
    drills_: list[tuple[str, Callable[[Range], str]]] = []
    for name, drill in (("submission", submissions), ("checkpoint", a_checkpoint), ("journal", a_journal),
                        ("notebook", a_notebook)):  # fmt: skip
        drills_ += [(name, partial(drill, hold_s)), (f"{name}, longer", partial(drill, 2 * hold_s))]
    drills_ += [(f"two workers, {name}", partial(several_workers, name, hold_s)) for name in STRATEGIES]
    rest = max(1, moments - len(drills_))
    return drills_ + [
        (f"a run, {6 * moment / rest:.1f} s after its submission", partial(a_run, 6 * moment / rest, hold_s))
        for moment in range(rest)
    ]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--moments", type=int, default=30)
    parser.add_argument("--only", default="", help="only drills whose name has these words")
    parser.add_argument("--hold", type=float, default=1.5, help="how long the disk stays full, s")
    options = parser.parse_args(argv)
    logging.getLogger("mlflow").setLevel(logging.CRITICAL)  # it prints a traceback of each refusal
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    failed = 0
    with workplace() as range_:
        for name, drill in drills(options.moments, options.hold):
            if options.only not in name:
                continue
            began = time.monotonic()
            try:
                words = drill(range_)
            except (AssertionError, TimeoutError, OSError, ConfigError) as error:
                failed += 1
                words = f"FAILED: {type(error).__name__}: {error}"
            print(f"{name:40} {time.monotonic() - began:5.1f} s  {words}", flush=True)
        log = (range_.workspace.hidden / "supervisor.log").read_text(encoding="utf-8", errors="replace")
    print(f"{failed} of {options.moments} failed")
    if failed:
        print(f"The end of the supervisor's log:\n{log[-4000:]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
