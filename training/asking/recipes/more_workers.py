"""Will more workers speed up the training?"""

from collections.abc import Sequence

from scalebook.training.asking.answer_rows import AnswerRow, Findings, decided_by, times
from scalebook.training.asking.recipe import Machine, Recipe, Side, ddp, one_process, server
from scalebook.training.experiments import Experiment

MOST = 16
"""Real workers at most."""
SIMULATED_WORKERS = 4
"""Virtual workers where the machine has no room for as many."""


class MoreWorkers(Recipe):
    """One process against DDP and a parameter server, with as many workers as the machine has room for; beyond that
    virtual workers show what stale gradients cost, and the planner what the speed would be."""

    name = "more-workers"
    question = "Will more workers speed up my training, and where do they stop helping?"
    place = 1
    figure = "seconds"
    planned = True

    def sides(self, base: Experiment, against: Experiment | None, machine: Machine) -> Sequence[Side]:
        slots = min(MOST, machine.slots(base))
        counts = sorted({count for count in (slots, slots // 2, slots // 4) if count >= 2}, reverse=True)
        sides = [one_process(base)]
        for count in counts:
            sides += [ddp(base, count), server(base, count, "async")]
        if slots < SIMULATED_WORKERS:
            sides.append(server(base, SIMULATED_WORKERS, "async", simulated=True))
        return sides

    def headline(self, answer: Findings, compared: Sequence[AnswerRow], baseline: AnswerRow) -> str:
        real = [row for row in compared if decided_by(answer, row) == "seconds"]
        if not real:
            return "Not resolved: this machine has no room for a second worker."
        faster = [row for row in real if row.verdict == "supported"]
        fastest = min(faster or real, key=lambda row: row.ratios["seconds"].value)
        goal = f"{answer.metric} {answer.target:g}"
        reaches = f"reaches {goal} in {times(fastest.ratios['seconds'])} the time of one process"
        if fastest.verdict == "supported":
            tuned = ", each at its best learning rate" if fastest.rate is not None else ""
            return f"Yes: {fastest.words} {reaches}{tuned}."
        if all(row.verdict == "refuted" for row in real):
            no = "No: none of the strategies tried here is faster than one process."
            return f"{no} Even the fastest, {fastest.words}, {reaches}."
        return f"Not resolved: the fastest of the strategies tried here, {fastest.words}, {reaches}."
