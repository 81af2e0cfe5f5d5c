"""Values of trials that are not computed from all workers' data together (`tracking.own_metrics`)."""

from collections.abc import Mapping, Sequence
from typing import Final

from scalebook.training.experiments.search import SearchSpec
from scalebook.training.search.study.trials import TrialRecord
from scalebook.training.tracking import RunReader, names, own_metrics, tag_is

MOST: Final = 50_000
"""Runs that MLflow finds at once."""
Tags = Mapping[str, Mapping[str, str]]


def quality(spec: SearchSpec) -> tuple[str, bool]:
    """The metric of curves, pruning and target, and whether lower is better; "" if all objectives are amounts, which
    have no curve."""
    metric = next((objective for objective in spec.objectives if objective.name not in names.AXES), None)
    return ("", True) if metric is None else (metric.name, metric.lower)


def logging_own(reader: RunReader, search: str) -> Tags:
    """The tags of those runs of a search that have logged such a metric, by id; of most searches none has."""
    return tagged(reader, search, names.TAG_OWN)


def tagged(reader: RunReader, search: str, tag: str) -> Tags:
    """The tags of those runs of a search that have this one, by id."""
    where = f"{tag_is(names.TAG_PARENT, search)} and tags.`{tag}` != ''"
    return {run.id: run.tags for run in reader.runs(where=where, limit=MOST)}


def own_values(record: TrialRecord, spec: SearchSpec, tags: Tags) -> list[int]:
    """Indices of the objectives whose value is of such a metric, or is what it took to bring one to the target."""
    judged, _ = quality(spec)
    run_tags = [tags[run] for run in record.runs.values() if run in tags]

    def own(metric: str) -> bool:
        return any(own_metrics.is_own(each, metric) for each in run_tags)

    aimed = spec.target is not None and own(judged)
    return [
        i
        for i, objective in enumerate(spec.objectives)
        if own(objective.name) or (aimed and objective.name in names.AXES)
    ]


def own_words(records: Sequence[TrialRecord], spec: SearchSpec, tags: Tags) -> list[str]:
    """The names of the objectives for which any trial has such a value, in their order."""
    indices = {i for record in records for i in own_values(record, spec, tags)}
    return [objective.name for i, objective in enumerate(spec.objectives) if i in indices]
