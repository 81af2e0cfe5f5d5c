"""The jobs of a search's trials: finds those that exist, and submits new ones. `driver_loop.py` ends them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from scalebook.training.base import Workspace
from scalebook.training.base.files import BrokenRecord, records, safe_reading
from scalebook.training.experiments import Experiment, classes
from scalebook.training.experiments.search import SearchSpec, keys, resolve, summary
from scalebook.training.jobs import (
    ENDED,
    ROUNDING,
    JobFolder,
    NodeDevices,
    TrialOf,
    computes_on_gpus,
    configured_executor,
    job_requests,
)
from scalebook.training.search.search_folder import SearchFolder

QUIET = {"enable_checkpointing": False, "enable_model_summary": False}
"""Trainer arguments of a trial unless its config sets them: hundreds of checkpoints are of no use."""


@dataclass
class Trial:
    """One trial on its way. `runs` has the newest job of each seed that was begun, in the order of the seeds."""

    number: int
    point: dict[str, Any]
    runs: dict[int, JobFolder] = field(default_factory=dict)
    curve: "CurveTail | None" = None
    """Of its first seed."""
    pruned: str = ""
    """Why it was asked to end early."""
    compared: set[int] = field(default_factory=set)
    """Seeds whose values the study has, for the pruner over seeds."""
    interruptions: int = 0
    """How often its runs were interrupted with everything else, under this driver."""

    def runs_now(self) -> bool:
        """Whether one of its processes runs."""
        return any(job.state() in ("running", "stopping") for job in self.runs.values())

    def open_jobs(self) -> list[JobFolder]:
        """The jobs of its runs that have not ended."""
        return [job for job in self.runs.values() if job.state() not in ENDED]


class TrialJobs:
    """Submits the runs of a search's trials and finds them again."""

    def __init__(self, folder: SearchFolder) -> None:
        self.folder = folder

    def existing(self) -> dict[int, dict[int, JobFolder]]:
        """The newest job for each seed of each trial of this search: {trial: {seed: job}}. Looks at every job once."""
        by_trial: dict[int, dict[int, JobFolder]] = {}
        for job in reversed(job_requests.all_jobs(self.folder.workspace)):
            request = job.request()
            if request.trial is not None and request.trial.search == self.folder.id:
                by_trial.setdefault(request.trial.number, {})[request.seed] = job
        return by_trial

    def submit(self, spec: SearchSpec, trial: Trial, seed: int) -> JobFolder:
        """A waiting job for one seed of the trial, which also goes into `trial.runs`."""
        request = self.folder.request()
        experiment = resolve(spec, trial.point)
        quiet_trainer = quiet(experiment)
        experiment = experiment.with_config({**experiment.written, "trainer": quiet_trainer})
        trial_of = TrialOf(
            self.folder.id, trial.number, summary(spec, trial.point), exclusive=bool(spec.exclusive),
            holds_all=spec.exclusive == keys.ALL, memory_mb=spec.memory_mb, experiment=request.trials_experiment,
        )  # fmt: skip
        (job,) = job_requests.submit(
            self.folder.workspace,
            experiment,
            seeds=[seed],
            notebook=request.notebook,
            cell=request.name,
            trial=trial_of,
        )
        trial.runs[seed] = job
        return job


def quiet(experiment: Experiment) -> dict[str, Any]:
    """What the config says of the trainer, with `QUIET` where it says nothing. Lightning refuses a ModelCheckpoint
    beside `enable_checkpointing: false`."""
    saves = len(experiment.unsaving_callbacks) < len(experiment.callbacks)
    left_out = {"enable_checkpointing"} if saves else set()
    written = classes.mapping(experiment.written.get("trainer"))
    return {**{key: value for key, value in QUIET.items() if key not in left_out}, **written}


def side_by_side(spec: SearchSpec, workspace: Workspace) -> int:
    """Runs that fit side by side; one where times are compared."""
    if spec.exclusive:
        return 1
    machines = configured_executor(workspace).machines()
    on_gpus = computes_on_gpus(spec.experiment, machines)
    return max(
        1, sum(_room(spec.experiment, machine, on_gpus) for machine in machines) // spec.experiment.strategy.nodes
    )


def _room(experiment: Experiment, machine: NodeDevices, on_gpus: bool) -> int:
    """For how many such runs there are cores, and GPUs, or shares of one."""
    by_cores = len(machine.cores) // max(1, experiment.strategy.processes * experiment.threads)
    if not on_gpus or not machine.gpus:
        return 0 if on_gpus else by_cores
    by_gpus = len(machine.gpus) // max(1, min(experiment.strategy.devices, machine.together))
    return min(by_cores, by_gpus * int(1 / experiment.gpu_share + ROUNDING))


class CurveTail:
    """Reads what a job appends to its curve, a whole line at a time."""

    def __init__(self, job: JobFolder) -> None:
        self.job = job
        self._at = 0

    def news(self) -> list[Mapping[str, Any]]:
        """The points since the last call: updates, samples, seconds and `metrics`."""
        try:
            with safe_reading.opened(self.job.curve) as file:
                file.seek(self._at)
                read = file.read()
        except OSError:
            return []
        whole = read[: read.rfind(b"\n") + 1]
        self._at += len(whole)
        return [dict(vars(point)) for line in whole.splitlines() if (point := _point(self.job.curve, line)) is not None]


@dataclass(frozen=True)
class _Point:
    """A line of `curve.jsonl` (scalebook.training.callbacks.job_files)."""

    updates: int
    samples: int
    seconds: float
    metrics: dict[str, float]


def _point(path: Path, line: bytes) -> _Point | None:
    """A point of the curve from one line; None for a line that is none (torn by a full disk, or something else)."""
    try:
        return records.parse(path, line, _Point)
    except BrokenRecord:
        return None
