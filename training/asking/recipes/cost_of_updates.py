"""What do ways to communicate less, or without waiting, cost?"""

from collections.abc import Sequence

from scalebook.training.asking.answer_rows import AnswerRow, Findings, decided_by, times
from scalebook.training.asking.recipe import Machine, Recipe, Side, ddp, server
from scalebook.training.experiments import Experiment

WORKERS = 4
"""Virtual workers of an experiment in one process, on a machine without room for two."""
EVERY = 8
"""Steps of a worker between two exchanges."""


class CostOfUpdates(Recipe):
    """Synchronous updates against asynchronous ones, compressed gradients and local steps, by the samples that it takes
    to reach the target. Virtual workers take part where the machine has no room for as many: samples are the same."""

    name = "cost-of-updates"
    question = "What do asynchronous updates, compressed gradients or less frequent syncing cost?"
    place = 2
    figure = "samples"
    bound = 1.1

    def sides(self, base: Experiment, against: Experiment | None, machine: Machine) -> Sequence[Side]:
        slots, own = machine.slots(base), base.strategy.workers
        workers = own if own > 1 else (min(slots, WORKERS) if slots > 1 else WORKERS)
        simulated = workers > slots
        return [
            server(base, workers, "sync", simulated, rule="sync") if simulated else ddp(base, workers),
            server(base, workers, "async", simulated),
            server(base, workers, "topk", simulated, push_codec="topk"),
            server(base, workers, "local", simulated, rule="sync", local=_local()),
        ]

    def headline(self, answer: Findings, compared: Sequence[AnswerRow], baseline: AnswerRow) -> str:
        parts = []
        for row in compared:
            ratio = row.ratios[decided_by(answer, row)]
            unclear = "" if row.verdict in ("supported", "refuted") else ", not resolved"
            parts.append(f"{row.words} {times(ratio)}{unclear}")
        return (
            f"Samples needed to reach {answer.metric} {answer.target:g}, relative to {baseline.words}: "
            f"{'; '.join(parts)}."
        )


def _local() -> dict[str, object]:
    return {"class_path": "LocalSGD", "init_args": {"every": EVERY}}
