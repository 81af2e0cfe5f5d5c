"""A person's word on what is better of a metric of runs: a tag of theirs, and the best value anew, from the curve."""

from collections.abc import Iterable

from scalebook.training.notebook.rows import best
from scalebook.training.tracking import directions, names
from scalebook.training.tracking.directions import Goal
from scalebook.training.tracking.reading import RunReader, RunRecord


def turn(reader: RunReader, records: Iterable[RunRecord], metric: str, goal: Goal) -> None:
    """Of runs that have ended: what goes on records its own best value."""
    for record in records:
        said = directions.told_by([record.tags], names.TAG_GOALS) | {metric: goal}
        value = best(reader.curve(record.id, metric), goal == "min")
        if value is not None:
            reader.client.log_metric(record.id, names.best(metric), value, step=0)
        reader.client.set_tag(record.id, names.TAG_GOALS, directions.told(said))
