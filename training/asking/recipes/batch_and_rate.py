"""Which batch size and learning rate?"""

from collections.abc import Sequence

from scalebook.training.asking.answer_rows import AnswerRow, Findings, times
from scalebook.training.asking.recipe import Machine, Recipe, Side, require_rate
from scalebook.training.experiments import Experiment
from scalebook.training.experiments.search import point
from scalebook.training.notebook import AnswerCell


class BatchAndRate(Recipe):
    """The experiment as it is against the same with the best batch size and learning rate of a search, by the time
    that it takes to reach the target."""

    name = "batch-and-rate"
    question = "Which batch size and learning rate should I use?"
    place = 3
    figure = "seconds"

    def sides(self, base: Experiment, against: Experiment | None, machine: Machine) -> Sequence[Side]:
        point.batch_place(base)
        point.rate_place(base)
        best = require_rate(
            Side("best", "the best batch size and learning rate", base, ("batch_size", "learning_rate"))
        )
        return [Side("own", "as it is", base, ()), best]

    def headline(self, answer: Findings, compared: Sequence[AnswerRow], baseline: AnswerRow) -> str:
        best = compared[0]
        if best.same:
            return f"Keep {baseline.words}, which were the best of all the values tried."
        words = (
            f"{times(best.ratios['seconds'])} the time that {baseline.words} needs to reach {answer.metric} "
            f"{answer.target:g}"
        )
        if best.verdict == "supported":
            return f"Use {best.words}, which takes {words}."
        if best.verdict == "refuted":
            return f"Keep {baseline.words}. The best of the search, {best.words}, takes {words}."
        return f"Not resolved: the best of the search, {best.words}, takes {words}."

    def side_words(self, cell: AnswerCell, name: str, experiment: Experiment) -> str:
        return f"batch {experiment.batch.per_worker}, learning rate {experiment.rate.applied:g}"
