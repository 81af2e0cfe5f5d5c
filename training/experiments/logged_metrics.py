"""The metrics that a config's model logs, found by a process that trains and validates two batches, and cached.

Cached like the model's parameters, by the arguments of model and data and the content of the user's modules. Once
found, every form, check and start knows them: a name that nothing logs is then refused before anything runs.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scalebook.training.base import Problem
from scalebook.training.base.files import records
from scalebook.training.experiments.classes import suggestion
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.model_parameters import ask_describe, kept_at
from scalebook.training.tracking import directions, names

DEADLINE_S: Final = 240.0
"""For the imports, the data, and two batches each of training and validation."""
BATCHES: Final = 2
STOCK: Final = ("lightning.", "pytorch_lightning.", "scalebook.")
"""Packages whose callbacks log nothing by which a run could be judged."""


@dataclass(frozen=True)
class LoggedMetrics:
    """`problem`: why it could not be found out, or ""."""

    validation: list[str] = field(default_factory=list)
    """In the order of their first value."""
    training: list[str] = field(default_factory=list)
    problem: str = ""

    @property
    def every(self) -> list[str]:
        return [*self.validation, *self.training]


def cached_metrics(experiment: Experiment) -> LoggedMetrics | None:
    """The cached metrics of the experiment's model; None before `find_out`."""
    path = kept_at("logged", experiment)
    return None if path is None else records.peek(path, LoggedMetrics)


def complete_for(experiment: Experiment) -> LoggedMetrics | None:
    """`cached_metrics`, if a run of the experiment logs nothing else: without a problem, and without callbacks of other
    packages, which may log too."""
    metrics = cached_metrics(experiment)
    return None if metrics is None or metrics.problem or _has_foreign_callbacks(experiment) else metrics


def find_out(experiment: Experiment) -> None:
    """Train and validate BATCHES batches in a process of its own, on a CPU, and cache what was logged, or why that is
    unknown. Nothing of it is recorded as a run."""
    path = kept_at("logged", experiment)
    if path is not None:
        batches = f"{BATCHES} batches"
        answer = ask_describe(path, "--logged", _needed(experiment), LoggedMetrics, DEADLINE_S, batches)
        records.save(path, LoggedMetrics(problem=answer) if isinstance(answer, str) else answer)


def _needed(experiment: Experiment) -> dict[str, Any]:
    """What decides which metrics there are: neither strategy and devices nor callbacks and loggers."""
    done = experiment.completed
    needed: dict[str, Any] = {
        key: done[key] for key in ("model", "data", "optimizer", "seed_everything") if key in done
    }
    inference = experiment.trainer.get("inference_mode")
    return {**needed, "trainer": {} if inference is None else {"inference_mode": inference}}


def monitor_problems(experiment: Experiment) -> Iterator[Problem]:
    """Problems of names that nothing logs, and of names that MLflow does not take, if the logged metrics are known."""
    monitored = directions.monitored(experiment.callbacks)
    scheduler = experiment.lr_scheduler.args.get("monitor")
    metrics = complete_for(experiment)
    if metrics is None:
        return
    for name in metrics.every:
        if not names.recordable(name):
            what = f"logs {name}, which cannot be recorded: {names.RECORDABLE_WORDS}"
            yield Problem("not-recordable", "model", what, "Log the metric under another name.")
    checked: list[tuple[str, Any]] = [("trainer.callbacks", metric) for metric in monitored]
    for key, name in [*checked, ("lr_scheduler.init_args.monitor", scheduler)]:
        if isinstance(name, str) and name not in metrics.every:
            what = f"monitors {name}" if key == "trainer.callbacks" else f"is {name}"
            yield Problem("unknown-metric", key, f"{what}, which nothing logs", unlogged_remedy(name, metrics.every))


def names_seen(experiments: Iterable[Experiment]) -> list[str]:
    """All metrics that two batches of these experiments have logged, as far as cached_metrics."""
    answers = (cached_metrics(experiment) for experiment in experiments)
    return list(dict.fromkeys(name for answer in answers if answer for name in answer.every))


def unlogged(experiments: Sequence[Experiment], metric: str) -> list[str] | None:
    """What the experiments log, if that is known of all and `metric` is neither among it nor in the source of one of
    the models; else None."""
    answers = [complete_for(experiment) for experiment in experiments]
    logged = names_seen(experiments)
    if not answers or not all(answers) or metric in (*logged, *_written(experiments), names.TRAIN_LOSS):
        return None
    return logged


def unlogged_remedy(metric: str, logged: Iterable[str]) -> str:
    listed = list(logged)
    return f"{suggestion(metric, listed)} Two batches logged {', '.join(listed) or 'nothing'}.".strip()


def _written(experiments: Iterable[Experiment]) -> list[str]:
    """What the source of the models names: it may be logged later than in two batches. One whose source says nothing
    is described with `val/loss` alone."""
    infos = [experiment.model.info for experiment in experiments]
    return [name for info in infos if info and info.metrics != [names.VAL_LOSS] for name in info.metrics]


def _has_foreign_callbacks(experiment: Experiment) -> bool:
    paths = [
        callback.get("class_path", "") if isinstance(callback, Mapping) else callback
        for callback in experiment.callbacks
    ]
    return not all(isinstance(path, str) and ("." not in path or path.startswith(STOCK)) for path in paths)
