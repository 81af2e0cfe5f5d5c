"""A run as the pages show it: what MLflow has recorded, joined with its job's folder, which knows whether it lives."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from scalebook.training.config.workload import strategy_words
from scalebook.training.jobs import queue
from scalebook.training.jobs.folder import ENDED, JobFolder, Progress, Result
from scalebook.training.jobs.queue import folder_of
from scalebook.training.jobs.schedule import in_order
from scalebook.training.tracking import names
from scalebook.training.tracking.reading import RunReader, RunRecord
from scalebook.training.workspace import Workspace

STATES = ("waiting", "running", "finished", "failed", "stopped", "pruned")
MOST_PAGES = 900  # of the list of runs
SIBLINGS = 12  # more seeds than that are looked up in the notebook
NOT_LIVING = "Its process is gone and left no reason."


@dataclass(frozen=True)
class RunView:
    """One run. `state` is one of STATES or `stopping`; `reason` says why a waiting one waits, or for
    which machines one that runs does."""

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
        """Unix time at which its process started; None where none did. MLflow's own time is that of the submission."""
        if self.state == "waiting" or (self.job is not None and not self.job.claimed()):
            return None
        started = self.job.started() if self.job else None
        return started.started if started else self.record.started

    @property
    def seconds(self) -> float | None:
        """Wall time since the process started, until now or until the end; None where no process started."""
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
    def pruned(self) -> str:
        """Why its search gave it up; "" of any other run."""
        return self.result.cause if self.state == "pruned" and self.result else ""

    @property
    def advice(self) -> str:
        if self.result is not None and self.result.advice:
            return self.result.advice
        return self.record.tags.get(names.TAG_ADVICE, "")

    @property
    def metrics(self) -> dict[str, float]:
        """Last values by metric; of a run that goes on those of its own progress, all read at once, before MLflow's."""
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
        """Whether it has ended before its time and left what it can go on from."""
        early = self.state in ("failed", "stopped")
        return early and self.job is not None and queue.newest_checkpoint(self.job) is not None

    @property
    def frame(self) -> str:
        """Where in a person's own code it failed, as a traceback writes it."""
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
    """Join one record with its job's folder, where this workspace has it (a shared store also holds others' runs)."""
    job = folder_of(workspace, record.id)
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
        result=job.result(),
        reason=reasons().get(record.id, "") if says_why else "",
        job=job,
    )


def views(workspace: Workspace, records: Iterable[RunRecord], reasons: Reasons = no_reasons) -> list[RunView]:
    """`view` of each; `reasons` is called only for runs that wait, because it looks at every job."""
    return [view(workspace, record, reasons) for record in records]


def next_first(views: Sequence[RunView]) -> list[RunView]:
    """Those that have begun as they are, then those that wait, the one that starts next first."""
    waiting = {view.id: view for view in views if view.state == "waiting"}
    queued = in_order([view.job.queued() for view in waiting.values() if view.job])
    known = [waiting.pop(request.id) for request in queued]
    return [*(view for view in views if view.state != "waiting"), *known, *waiting.values()]


def page_number(text: str) -> int:
    """The page that an address asks for, from 1; the first one where it asks for none."""
    number = int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 1
    return min(max(1, number), MOST_PAGES)


NO_SEARCH = f"tags.`{names.TAG_TRIAL}` IS NULL and tags.`{names.TAG_SEARCH}` IS NULL"

TRACEBACK = "Traceback (most recent call last)"


def parted(log: str) -> tuple[str, str]:
    """A log, cut before the first traceback in it: what came before, and the rest; all is the rest where none is."""
    at = log.rfind("\n", 0, max(0, log.find(TRACEBACK))) + 1
    return log[:at], log[at:]


NOT_CURVES = ("perf/", "ps/", "best/", "final/", "to_target/", "worker_", "system/")


def curve_metrics(record: RunRecord) -> list[str]:
    """The metrics worth a chart of their own, the main one first: what the model logs, not what we measure about it."""
    metrics = [
        name for name in record.metrics if not name.startswith(NOT_CURVES) and name not in (*names.AXES, "epoch")
    ]
    if names.own_training_loss(metrics) and names.TRAIN_LOSS in metrics:
        metrics.remove(names.TRAIN_LOSS)
    main, validated = names.main_metric(record.metrics), names.validation_metrics(record.metrics)
    return sorted(metrics, key=lambda name: (name != main, name not in validated, name))


def all_metrics(record: RunRecord) -> list[str]:
    """Every metric that has a history: those of the model (`curve_metrics`), then those that are measured about the
    run."""
    own = curve_metrics(record)
    measured = [name for name in record.metrics if name.startswith((*names.MEASURED, "worker_"))]
    return [*own, *sorted(measured)]


def in_place(known: Sequence[str], metrics: Sequence[str], most: int) -> list[str]:
    """The metrics whose charts are shown, `most` of them: those `known` where they stood, new ones after them."""
    kept = [name for name in known if name in metrics]
    return [*kept, *(name for name in metrics if name not in kept)][:most]


def shares(record: RunRecord, worker: int | None = None) -> dict[str, float]:
    """Where the time went: part -> share, of the run or of one worker; empty where it was not measured."""
    by_part: dict[str, float] = {}
    for part, name in names.PARTS.items():
        key = name if worker is None else names.per_worker(name, worker)
        if key in record.metrics:
            by_part[part] = record.metrics[key]
    return by_part


def rates(record: RunRecord) -> list[str]:
    """The metrics that say how fast each worker is, in their order; empty where that was not measured."""
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
