"""A full disk at 30 moments: `python -m benchmarks.disk_drills [--moments N] [--hold S] [--only WORDS]`. As root.

The workspace is on a tmpfs of 20 MB. Each drill fills it to the last byte at a moment of its own (while a run is
submitted, starts, trains, saves a checkpoint or ends; while a journal grows; while a notebook is saved), keeps it full
for a while, and makes room again. Then everything must be as before, or say that the disk was full: the supervisor is
the same process, every run has ended and its record and MLflow agree, a later run finishes, and no temporary file is
left. Read the lines with NOT AS PROMISED: there must be none, else the exit code is 1. Takes about 6 minutes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks.common import parser, until
from benchmarks.drills import STRATEGIES, Scene, classifier, perform, scene
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files.machine_errors import NoRoom
from scalebook.training.experiments.search.definition import read_search
from scalebook.training.jobs import job_requests
from scalebook.training.jobs.job_folder import ENDED, JobFolder
from scalebook.training.notebook import store
from scalebook.training.notebook.edit import put_experiment
from scalebook.training.search.study.storage import StorageLost
from scalebook.training.search.study.study import Study
from scalebook.training.tracking.run_start import open_store

SIZE_MB: Final = 20
SAVES: Final[dict[str, Any]] = {
    "callbacks": [{"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": {"every_n_epochs": 1}}]
}
CONFIG: Final[dict[str, Any]] = classifier(devices=1, max_epochs=30, **SAVES)
SPACE: Final = {"learning_rate": {"log_uniform": [0.001, 1.0]}}


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


class OnDisk(NamedTuple):
    """The workspace of the drills, and the disk that it is on."""

    disk: Disk
    scene: Scene

    def settled(self, jobs: Sequence[JobFolder]) -> str:
        """Check everything that must hold once there is room; returns how the jobs ended."""
        words, workspace = [], self.scene.workspace
        for job in jobs:
            result = self.scene.recorded(job)
            assert (result.status, result.failure) in (("finished", None), ("failed", "disk full")), result
            assert job.stop_request() is None, job.stop_request()
            words.append(f"{result.status}{f': {result.cause}' if result.failure else ''}")
        after = self.scene.submit(CONFIG)
        until(lambda: after.state() in ENDED, "a later run")
        room = f"{shutil.disk_usage(workspace.root).free / 1e6:.1f} MB left"
        assert after.state() == "finished", f"a later run: {until(after.result, 'its result')}, {room}"
        left = [path for path in workspace.hidden.rglob("*") if _temporary(path)]
        assert left == [], left
        job_ids = {job.id for job in job_requests.all_jobs(workspace)}
        client = open_store(workspace)
        experiments = [experiment.experiment_id for experiment in client.search_experiments()]
        runs = client.search_runs(experiments, max_results=1000)
        open_ = [run.info.run_id for run in runs if run.info.status in ("RUNNING", "SCHEDULED")]
        assert not [run for run in open_ if run not in job_ids], "a run without a job"
        for job in [*jobs, after]:
            until(partial(_deleted, self.scene, job), "its processes to end")
        return "; ".join(words) or "refused"


def _temporary(path: Path) -> bool:
    parts = path.name.split(".")
    return path.suffix == ".part" or (path.name.startswith(".") and len(parts) > 3 and parts[-1].isdigit())


def _deleted(scene: Scene, job: JobFolder) -> bool:
    with suppress(ConfigError):
        job_requests.delete(scene.workspace, job)
        return True
    return False


def a_run(after_s: float, hold_s: float, on: OnDisk) -> str:
    """Fill the disk so long after a run's submission."""
    job = on.scene.submit(CONFIG)
    time.sleep(after_s)
    with on.disk.full():
        time.sleep(hold_s)
    return on.settled([job])


def several_workers(strategy: str, hold_s: float, on: OnDisk) -> str:
    """Fill the disk under two workers, until their run has failed and could not write that."""
    job = on.scene.train(STRATEGIES[strategy], **SAVES)
    with on.disk.full():
        until(lambda: job.state() == "failed", "the run to fail")
        told = job.outcome()
        assert told is not None
        assert told.failure == "disk full", told
        time.sleep(hold_s)
    return on.settled([job])


def submissions(hold_s: float, on: OnDisk) -> str:
    """Submissions are refused in one line while there is no room."""
    made: list[JobFolder] = []
    said = ""
    with on.disk.full():
        try:
            made.append(on.scene.submit(CONFIG))
        except NoRoom as error:
            said = str(error).splitlines()[0][:80]
        time.sleep(hold_s)
    return f"{on.settled(made)} ({said})"


def a_checkpoint(hold_s: float, on: OnDisk) -> str:
    """Fill the disk as soon as a checkpoint appears and is being written."""
    job = on.scene.submit(CONFIG)
    until(lambda: any(job.path.rglob("*.ckpt")), "a checkpoint")
    with on.disk.full():
        time.sleep(hold_s)
    return on.settled([job])


def a_journal(hold_s: float, on: OnDisk) -> str:
    """Trials whose result could not be stored are asked for again; none is torn."""
    spec = read_search({"config": CONFIG, "space": SPACE, "objective": "val/loss", "trials": 50}, None,
                       on.scene.description)  # fmt: skip
    path = on.scene.workspace.studies / f"drill-{time.monotonic_ns()}.journal"
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
    with on.disk.full():
        end = time.monotonic() + hold_s
        while time.monotonic() < end:
            tell()
    tell()
    study.close()
    again = Study.open(f"journal:{path}", "drill", spec)
    finished = sum(record.state == "finished" for record in again.records())
    again.close()
    path.unlink()
    assert finished == recorded, (finished, recorded)
    assert lost > 0, "the disk was not full"
    return f"{recorded} told, {lost} refused, all told ones there; {on.settled([])}"


def a_notebook(hold_s: float, on: OnDisk) -> str:
    """The notebook has the old text or the new one, whole."""
    path = on.scene.workspace.root / "drill.md"
    path.write_text("---\ntitle: Drill\n---\n\n" + "words " * 1000, encoding="utf-8")
    stored, refused = store.read(path), 0
    before = stored.notebook.text
    with on.disk.full():
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
    return f"refused, then saved; {on.settled([])}"


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


def drills(moments: int, hold_s: float) -> list[tuple[str, Callable[[OnDisk], str]]]:
    """Two drills at each of the four special moments, one of each strategy with two workers; the others spread over a
    run's first 6 s."""
    special = {"submission": submissions, "checkpoint": a_checkpoint, "journal": a_journal, "notebook": a_notebook}
    made: list[tuple[str, Callable[[OnDisk], str]]] = []
    for name, drill in special.items():
        made += [(name, partial(drill, hold_s)), (f"{name}, longer", partial(drill, 2 * hold_s))]
    made += [(f"two workers, {name}", partial(several_workers, name, hold_s)) for name in STRATEGIES]
    rest = max(1, moments - len(made))
    spread = [6 * moment / rest for moment in range(rest)]
    return made + [
        (f"a run, {after_s:.1f} s after its submission", partial(a_run, after_s, hold_s)) for after_s in spread
    ]


def main() -> int:
    options = parser(__doc__)
    options.add_argument("--moments", type=int, default=30)
    options.add_argument("--only", default="", help="only drills whose name has these words")
    options.add_argument("--hold", type=float, default=1.5, help="how long the disk stays full, s")
    given = options.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ.pop("MLFLOW_TRACKING_URI", None)
    with mounted() as disk, scene(disk.root) as on_it:
        supervisor, on = on_it.supervisor(), OnDisk(disk, on_it)
        failed = perform([(name, partial(drill, on)) for name, drill in drills(given.moments, given.hold)], given.only)
        failed += on_it.supervisor() != supervisor
        if failed:
            log = (on_it.workspace.hidden / "supervisor.log").read_text(encoding="utf-8", errors="replace")
            print(f"supervisor {supervisor}, now {on_it.supervisor()}; the end of its log:\n{log[-4000:]}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
