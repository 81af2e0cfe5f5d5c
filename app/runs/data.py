"""Runs as the pages show them: MLflow's record joined with the job's folder, which knows whether the job is alive; the
runs of an experiment, and what its buttons do; which run holds which devices."""

import copy
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import psutil

from scalebook.app.shared import form, notebooks
from scalebook.app.shared.drafts import SavedDraft
from scalebook.training.base import ConfigError, Workspace
from scalebook.training.cluster import RayExecutor
from scalebook.training.experiments import Description, strategy_words
from scalebook.training.jobs import (
    ENDED,
    STOPPED,
    Allocation,
    JobFolder,
    Progress,
    Result,
    about_gpus,
    gpu_readings,
    gpus_here,
    in_order,
    job_requests,
    lent_to,
    this_machine,
)
from scalebook.training.notebook import ExperimentCell, Stored, results
from scalebook.training.search import SearchFolder, search_requests
from scalebook.training.tracking import RunReader, RunRecord, names, tag_is

STATES = ("waiting", "running", "finished", "failed", "stopped", "pruned")
MOST_PAGES = 900  # of the list of runs
SIBLINGS = 12  # more seeds than that are looked up in the notebook
NOT_LIVING = "Its process has disappeared, and the reason is not known."


@dataclass(frozen=True)
class RunView:
    """One run: MLflow's record joined with the job's folder, which knows whether the job is alive. `state` is one of
    STATES or `stopping`; `reason` says why the run waits, which nodes a running one waits for, or what of it stands
    still."""

    record: RunRecord
    state: str
    progress: Progress | None = None
    result: Result | None = None
    reason: str = ""
    job: JobFolder | None = None

    @property
    def id(self) -> str:
        return self.record.id

    @property
    def ended(self) -> bool:
        return self.state in (*ENDED, "pruned")

    @property
    def title(self) -> str:
        return self.record.title

    @property
    def seed(self) -> str:
        return self.record.tags.get(names.TAG_SEED, "")

    @property
    def strategy(self) -> str:
        """Strategy, workers and rule, as `strategy_words` has them."""
        tags = self.record.tags
        strategy, rule, workers = (tags.get(key) for key in (names.TAG_STRATEGY, names.TAG_RULE, names.TAG_WORKERS))
        return strategy_words(strategy or "", rule, workers, self.is_simulated)

    @property
    def is_simulated(self) -> bool:
        """Whether its workers, and the seconds that it recorded, are virtual."""
        return names.is_simulated(self.record.tags)

    @property
    def workers(self) -> int:
        return int(self.record.tags.get(names.TAG_WORKERS, "1"))

    @property
    def began(self) -> float | None:
        """Unix time at which its process started; None if none did. MLflow's own time is that of the submission."""
        if self.state == "waiting" or (self.job is not None and not self.job.claimed()):
            return None
        started = self.job.started() if self.job else None
        return started.started if started else self.record.started

    @property
    def seconds(self) -> float | None:
        """Wall time from the start of its process until now or its end, s; None if no process started."""
        if self.began is None:
            return None
        ended = self.result.ended if self.result else self.record.ended
        return max(0.0, (ended or time.time()) - self.began)

    @property
    def cause(self) -> str:
        if self.result is not None and self.result.cause:
            return self.result.cause
        return self.record.tags.get(names.TAG_CAUSE, NOT_LIVING)

    @property
    def lost(self) -> str:
        """Which workers it has lost so far while the others went on, in words; "" if none."""
        if self.job is None or self.ended:
            return self.record.tags.get(names.TAG_WORKERS_LOST, "")
        return self.job.lost_words()

    @property
    def pruned(self) -> str:
        """Why its search pruned it; "" for any other run."""
        return self.result.cause if self.state == "pruned" and self.result else ""

    @property
    def stopped(self) -> str:
        """Who stopped it and how, as recorded: `stopped on request by Ctrl+C`."""
        cause = self.result.cause if self.result is not None else self.record.tags.get(names.TAG_CAUSE, "")
        return cause if cause.startswith(STOPPED) else f"stopped: {cause}" if cause else "stopped"

    @property
    def advice(self) -> str:
        if self.result is not None and self.result.advice:
            return self.result.advice
        return self.record.tags.get(names.TAG_ADVICE, "")

    @property
    def metrics(self) -> dict[str, float]:
        """Last values by metric. For an active run, values of its progress, which are read together, win over
        MLflow's."""
        progress = self.progress
        if progress is None:
            return self.record.metrics
        metrics = {**self.record.metrics, **progress.metrics}
        if progress.updates:
            metrics |= {
                names.UPDATES: progress.updates,
                names.SAMPLES: progress.samples,
                names.SECONDS: progress.seconds,
            }
        if progress.updates and progress.seconds > 0:
            metrics[names.UPDATES_PER_SECOND] = progress.updates / progress.seconds
            metrics[names.SAMPLES_PER_SECOND] = progress.samples / progress.seconds
        return metrics

    @property
    def last_word(self) -> str:
        """The word for the last value of a metric: `final`, or `latest` while more may come."""
        return "final" if self.ended else "latest"

    @property
    def resumable(self) -> bool:
        """Whether it failed or was stopped, and left a checkpoint."""
        early = self.state in ("failed", "stopped")
        return early and self.job is not None and self.job.newest_checkpoint() is not None

    @property
    def frame(self) -> str:
        """The lines of the user's own code at which it failed, as in a traceback; "" if there are none."""
        return self.result.frame if self.result else ""

    @property
    def failure(self) -> str:
        if self.result is not None and self.result.failure:
            return self.result.failure
        return self.record.tags.get(names.TAG_FAILURE, "unknown")


Reasons = Callable[[], Mapping[str, str]]
"""Why each waiting job waits, by job id."""


def no_reasons() -> Mapping[str, str]:
    return {}


def view(workspace: Workspace, record: RunRecord, reasons: Reasons = no_reasons) -> RunView:
    """Join a record with its job's folder, if this workspace has one (a shared store also holds others' runs)."""
    job = job_requests.folder_of(workspace, record.id)
    if job is None or not (job.path / "job.json").exists():
        return RunView(record, record.outcome)
    state: str = job.state()
    if state == "stopped" and record.outcome == "pruned":
        state = "pruned"
    says_why = state == "waiting" or (state == "running" and job.request().grows)
    return RunView(
        record=record,
        state=state,
        progress=None if state in (*ENDED, "pruned") else job.progress(),
        result=job.outcome(),
        reason=(reasons().get(record.id, "") if says_why else "") or job.stands_still(),
        job=job,
    )


def views(workspace: Workspace, records: Iterable[RunRecord], reasons: Reasons = no_reasons) -> list[RunView]:
    """`view` of each record; `reasons`, which reads every job, is called only for runs that wait."""
    return [view(workspace, record, reasons) for record in records]


def next_first(views: Sequence[RunView]) -> list[RunView]:
    """The runs that have begun in their order, then those that wait, the one that starts next first."""
    waiting = {view.id: view for view in views if view.state == "waiting"}
    queued = in_order([view.job.queued() for view in waiting.values() if view.job])
    queued_views = [waiting.pop(request.id) for request in queued]
    return [*(view for view in views if view.state != "waiting"), *queued_views, *waiting.values()]


def page_number(text: str) -> int:
    """The number of the page that the address names, from 1; 1 if it names none."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 1
    return min(max(1, number), MOST_PAGES)


NO_SEARCH = f"tags.`{names.TAG_TRIAL}` IS NULL and tags.`{names.TAG_SEARCH}` IS NULL"
TRACEBACK = "Traceback (most recent call last)"


def split_log(log: str) -> tuple[str, str]:
    """The text before the first traceback in a log, and the rest; ("", log) without a traceback."""
    cut = log.rfind("\n", 0, max(0, log.find(TRACEBACK))) + 1
    return log[:cut], log[cut:]


NOT_CURVES = ("perf/", "ps/", "parts/", "best/", "final/", "to_target/", "worker_", "system/")


def curve_metrics(record: RunRecord) -> list[str]:
    """The metrics that the model logs, which have a chart each, the main one first; without measurements of the run."""
    metrics = [
        name
        for name in record.metrics
        if not name.startswith(NOT_CURVES) and name not in (*names.AXES, *names.COMPARED, "epoch")
    ]
    if names.own_training_loss(metrics) and names.TRAIN_LOSS in metrics:
        metrics.remove(names.TRAIN_LOSS)
    main, validated = names.main_metric(record.metrics), names.validation_metrics(record.metrics)
    return sorted(metrics, key=lambda name: (name != main, name not in validated, name))


def all_metrics(record: RunRecord) -> list[str]:
    """Every metric that has a history: those of the model (`curve_metrics`), then the measurements of the run."""
    own = curve_metrics(record)
    measured = [name for name in record.metrics if name.startswith((*names.MEASURED, "worker_"))]
    return [*own, *sorted(measured)]


def in_place(previous: Sequence[str], metrics: Sequence[str], most: int) -> list[str]:
    """The metrics whose charts are shown, at most `most`: those of `previous` in their order, then new ones."""
    remaining = [name for name in previous if name in metrics]
    return [*remaining, *(name for name in metrics if name not in remaining)][:most]


def shares(record: RunRecord, worker: int | None = None) -> dict[str, float]:
    """Where the time of the run or of one worker went: part -> share; empty if it was not measured."""
    by_part: dict[str, float] = {}
    for part, name in names.PARTS.items():
        key = name if worker is None else names.per_worker(name, worker)
        if key in record.metrics:
            by_part[part] = record.metrics[key]
    return by_part


def rates(record: RunRecord) -> list[str]:
    """The throughput metrics of the workers, in their order; empty if they were not measured."""
    workers = range(int(record.tags.get(names.TAG_WORKERS, "1")))
    rates_ = [names.per_worker(names.SAMPLES_PER_SECOND, worker) for worker in workers]
    return [name for name in rates_ if name in record.metrics]


def siblings(reader: RunReader, record: RunRecord) -> list[RunRecord]:
    """The runs of the same cell with the same config, by seed: the newest of each, SIBLINGS at most."""
    if not (record.notebook and record.cell):
        return []
    same = record.tags.get(names.TAG_CONFIG_HASH, "")
    newest: dict[str, RunRecord] = {}
    for run in reader.runs(notebook=record.notebook, cell=record.cell, config_hash=same, limit=SIBLINGS):
        newest.setdefault(run.tags.get(names.TAG_SEED, ""), run)
    return [newest[seed] for seed in sorted(newest, key=lambda seed: (len(seed), seed))]


SIMULATED_WORKERS = 16
LIVE = ("running", "waiting", "stopping")


@dataclass(frozen=True)
class SeedView:
    """The newest run with this seed, if any. `changed` and `lost` as in SeedResult."""

    seed: int
    run: RunView | None
    changed: str = ""
    lost: bool = False

    @property
    def stale(self) -> bool:
        return bool(self.changed)

    @property
    def state(self) -> str:
        return self.run.state if self.run else "new"


def seeds(
    workspace: Workspace,
    reader: RunReader,
    stored: Stored,
    cell: ExperimentCell,
    description: Description,
    reasons: Reasons,
) -> list[SeedView]:
    """The runs of a cell of the notebook `stored`, by seed."""
    reasons = cache(reasons)
    return [
        SeedView(result.seed, view(workspace, result.run, reasons) if result.run else None, result.changed, result.lost)
        for result in results(reader, stored.path.name, cell, description, stored.notebook)
    ]


def experiment_state(seeds: Iterable[SeedView]) -> str:
    """The state of the cell: of its seeds' states, the one that needs attention most."""
    states = {seed.state for seed in seeds}
    order = ("running", "stopping", "waiting", "failed", "stopped", "finished", "new")
    return next((word for word in order if word in states), "new")


def stale_seeds(seeds: Iterable[SeedView]) -> list[int]:
    """The seeds that have not finished with the present config and its number of workers, and have no active run."""
    return [
        seed.seed for seed in seeds if seed.state not in LIVE and (seed.stale or seed.lost or seed.state != "finished")
    ]


def stop_seeds(seeds: Iterable[SeedView]) -> int:
    """Ask all runs that have not ended to stop; returns how many."""
    jobs = [seed.run.job for seed in seeds if seed.run and seed.run.job and not seed.run.ended]
    for job in jobs:
        job_requests.stop(job, "in the app")
    return len(jobs)


def stop_all(workspace: Workspace) -> int:
    """Ask all runs that wait or train to stop, without those of searches; returns how many."""
    jobs = [job for job in job_requests.open_jobs(workspace) if job.request().trial is None]
    for job in reversed(jobs):  # the last ones first: none begins in place of one that has just been stopped
        job_requests.stop(job, "in the app")
    return len(jobs)


def copy_of(workspace: Workspace, view: RunView) -> SavedDraft:
    """A draft of a new experiment with the config of the run's cell, or of the run itself if the cell is gone."""
    record = view.record
    stem = Path(record.notebook or "").stem
    path = workspace.root / f"{stem}.md"
    cell = notebooks.read(path).notebook.experiment(record.cell or "") if path.is_file() else None
    if cell is not None:
        return plain_copy(stem, cell)
    assert view.job is not None, "only runs of this workspace can be duplicated"
    return SavedDraft(stem, "", "", 1, view.job.content())


def plain_copy(notebook: str, cell: ExperimentCell) -> SavedDraft:
    """A draft of a new experiment with the config of `cell`, without a name, so that the form suggests one."""
    return SavedDraft(notebook, "", "", cell.repeats, cell.config)


def simulated_copy(notebook: str, cell: ExperimentCell, workers: int) -> SavedDraft:
    """A draft of a new experiment with the config of `cell` and more, simulated workers than its `workers`."""
    draft = form.ConfigDraft(copy.deepcopy(cell.config))
    strategy = draft.get("trainer.strategy")
    if not isinstance(strategy, dict):  # written as its bare name
        draft.put("trainer.strategy", {"class_path": strategy})
    draft.make_simulated(max(SIMULATED_WORKERS, 4 * workers))
    return SavedDraft(notebook, "", "", cell.repeats, draft.config)


MOST_TRIALS = 50_000


def delete_runs(workspace: Workspace, reader: RunReader, run_ids: Iterable[str]) -> tuple[int, list[str]]:
    """Delete the runs' folders and their entries in MLflow, which keeps them among its deleted runs; returns how many,
    and why the others were not: an active run is never deleted."""
    done, refused = 0, []
    for run_id in run_ids:
        job = job_requests.folder_of(workspace, run_id)
        try:
            if job is not None:
                job_requests.delete(workspace, job)
            else:
                _delete_entry(reader, run_id)
            done += 1
        except ConfigError as error:
            refused.append(str(error))
    return done, refused


def _delete_entry(reader: RunReader, run_id: str) -> None:
    """Delete the entry of a run without a folder here. ConfigError while it is active, maybe elsewhere."""
    try:
        record = reader.run(run_id)
    except KeyError:
        return  # by somebody else, meanwhile
    if record.outcome in ("waiting", "running"):
        raise ConfigError(record.name or run_id[:12], f"is {record.outcome}", "Stop this run on its node.")
    reader.client.delete_run(run_id)


def delete_search(workspace: Workspace, reader: RunReader, search: SearchFolder, *, trials: bool) -> list[str]:
    """Delete the search with its study and, with `trials`, their runs; returns why some of these were not deleted.

    ConfigError while the search is active.
    """
    search_requests.delete(search)
    refused: list[str] = []
    if trials:
        trial_runs = reader.runs(where=tag_is(names.TAG_PARENT, search.id), limit=MOST_TRIALS)
        _, refused = delete_runs(workspace, reader, [run.id for run in trial_runs])
    try:
        reader.run(search.id)
    except KeyError:
        return refused
    reader.client.delete_run(search.id)
    return refused


@dataclass(frozen=True)
class DeviceHolder:
    """A run, and the numbers of the devices that it holds."""

    run_id: str
    name: str
    cores: list[int]
    gpus: list[int]
    share: float = 1.0
    """Share of the GPUs' memory that it may use."""


@dataclass(frozen=True)
class GpuState:
    """A GPU; a figure that it does not report is None."""

    index: int
    name: str
    memory_mb: float
    used_mb: float | None
    busy: float | None
    temperature_c: float | None


@dataclass(frozen=True)
class NodeState:
    """Another node of the workspace's cluster. `words`: why none of its devices can be used now."""

    name: str
    held: list[DeviceHolder]
    free_cores: list[int]
    free_gpus: list[int]
    words: str = ""


@dataclass(frozen=True)
class DeviceState:
    """The devices of this machine, and of the other nodes. Free devices are held by no run of this workspace."""

    cores: int
    free_cores: list[int]
    free_gpus: list[int]
    held: list[DeviceHolder]
    gpus: list[GpuState]
    memory_mb: float
    memory_used_mb: float
    elsewhere: list[NodeState] = field(default_factory=list)
    about_gpus: str = ""
    """Why no GPU is used although there may be one, or remarks on those in use."""


def device_state(workspace: Workspace) -> DeviceState:
    """Which run holds which devices now. Reads every job that has not ended."""
    machine, memory = this_machine(), psutil.virtual_memory()
    index = {gpu.uuid: i for i, gpu in enumerate(machine.gpus)}
    held, away = [], dict[str, list[tuple[str, str, Allocation]]]()
    for job in reversed(job_requests.open_jobs(workspace)):
        if job.state() not in ("running", "stopping"):
            continue
        for lent in [] if (started := job.started()) is None else lent_to(job, started):
            if lent.machine:
                away.setdefault(lent.machine, []).append((job.id, job.request().title, lent))
                continue
            gpus = [index[uuid] for uuid in lent.gpus if uuid in index]
            request = job.request()
            held.append(DeviceHolder(job.id, request.title, sorted(lent.cores), gpus, request.gpu_share))
    readings = {reading.uuid: reading for reading in gpu_readings([gpu.uuid for gpu in machine.gpus])}
    gpu_states = []
    for i, gpu in enumerate(machine.gpus):
        now = readings.get(gpu.uuid)
        figures = (now.memory_mb, now.busy, now.temperature_c) if now else (None, None, None)
        gpu_states.append(GpuState(i, gpu.name, gpu.memory_mb, *figures))
    lent_cores = {core for holder in held for core in holder.cores}
    lent_gpus = {gpu for holder in held for gpu in holder.gpus}
    return DeviceState(
        cores=len(machine.cores),
        free_cores=[core for core in machine.cores if core not in lent_cores],
        free_gpus=[i for i in range(len(machine.gpus)) if i not in lent_gpus],
        held=held,
        gpus=gpu_states,
        memory_mb=memory.total / 1e6,
        memory_used_mb=(memory.total - memory.available) / 1e6,
        elsewhere=_cluster_state(workspace, away) if _is_clustered(workspace) else [],
        about_gpus=" ".join(gpus_here().notes) if machine.gpus else about_gpus([machine]),
    )


def _is_clustered(workspace: Workspace) -> bool:
    try:
        return bool(workspace.settings.cluster)
    except ConfigError:  # told where the settings are used
        return False


def _cluster_state(workspace: Workspace, held: Mapping[str, list[tuple[str, str, Allocation]]]) -> list[NodeState]:
    """The nodes of the cluster, as last reported."""
    cluster = RayExecutor(workspace).known()
    states = []
    for node in cluster.ready:
        uuids = [gpu.uuid for gpu in node.gpus]
        holders = [
            DeviceHolder(run, name, sorted(lent.cores), [uuids.index(uuid) for uuid in lent.gpus if uuid in uuids])
            for run, name, lent in held.get(node.name, [])
        ]
        lent, lent_gpus = ({n for holder in holders for n in getattr(holder, kind)} for kind in ("cores", "gpus"))
        free = [core for core in node.cores if core not in lent]
        states.append(NodeState(node.name, holders, free, [i for i in range(len(uuids)) if i not in lent_gpus]))
    return [*states, *(NodeState(name, [], [], [], words) for name, words in sorted(cluster.others.items()))]
