"""Is one experiment better than another?"""

from collections.abc import Sequence

from scalebook.training.asking.answer_rows import AnswerRow, Findings, times
from scalebook.training.asking.recipe import Machine, Recipe, Side
from scalebook.training.base import ConfigError
from scalebook.training.experiments import Experiment
from scalebook.training.notebook import AnswerCell


class AOrB(Recipe):
    """Two experiments, each at its best learning rate, by the best value of the metric over fresh seeds."""

    name = "a-or-b"
    question = "Is A better than B, or is it seed noise?"
    place = 4
    figure = "best"
    needs_against = True

    def sides(self, base: Experiment, against: Experiment | None, machine: Machine) -> Sequence[Side]:
        if against is None:
            raise ConfigError(
                "against", "is missing, but this question compares two experiments", "Choose the second experiment."
            )
        return [Side("b", "B", against), Side("a", "A", base)]

    def headline(self, answer: Findings, compared: Sequence[AnswerRow], baseline: AnswerRow) -> str:
        side = compared[0]
        tuned = side.own_rate is not None and baseline.own_rate is not None
        words = f"the best {answer.metric} of {side.words} is {times(side.ratios['best'])} that of {baseline.words}"
        words += ", each at its best learning rate" if tuned else ""
        if side.verdict == "supported":
            return f"{side.words} is better than {baseline.words}: {words}."
        if side.verdict == "refuted":
            return f"{baseline.words} is better than {side.words}: {words}."
        return f"Not resolved, so it may be seed noise: {words}, over {side.seeds} seeds."

    def side_words(self, cell: AnswerCell, name: str, experiment: Experiment) -> str:
        is_first = name == next(iter(cell.searches), None)
        return (cell.against or name) if is_first else cell.experiment
