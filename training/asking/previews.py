"""What a question will do and how long it takes, as far as that is known before it starts. No torch in here."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from scalebook.training.asking import sizes
from scalebook.training.asking.recipe import Machine, Side, require_rate
from scalebook.training.asking.recipes import recipe_named
from scalebook.training.base import ConfigError, roughly
from scalebook.training.experiments import Description, Experiment, classes, require
from scalebook.training.jobs import this_machine
from scalebook.training.notebook import AnswerCell, Notebook, results
from scalebook.training.tracking import RunReader

PILOT_SHARE = 0.2
"""Share of the budget that the pilot run may take."""
PILOT_LEAST_S = 20.0


@dataclass(frozen=True)
class Preview:
    """`plan` says what is done, `left_out` what the budget leaves out, in sentences."""

    plan: str
    left_out: Sequence[str] = ()


def machine() -> Machine:
    """This machine."""
    here = this_machine()
    return Machine(len(here.cores), len(here.gpus))


def sides_of(nb: Notebook, cell: AnswerCell, description: Description, here: Machine) -> list[Side]:
    """The sides of a question, the baseline first, each with the samples of the experiment. ConfigError for an
    experiment that is missing or that the question does not fit."""
    base = _experiment(nb, "experiment", cell.experiment, description)
    against = _experiment(nb, "against", cell.against, description) if cell.against else None
    made = [require_rate(side) for side in recipe_named(cell.question).sides(base, against, here)]
    if against is not None:  # A and B by their names
        names = {id(base): cell.experiment, id(against): cell.against or ""}
        made = [replace(side, words=names.get(id(side.experiment), side.words)) for side in made]
    return [replace(side, experiment=sizes.same_samples(side.experiment, base)) for side in made]


def _experiment(nb: Notebook, key: str, name: str, description: Description) -> Experiment:
    cell = nb.experiment(name)
    if cell is None:
        names = [one.name for one in nb.experiments()]
        raise ConfigError(key, f"{name} is not an experiment of this notebook", classes.suggestion(name, names))
    return cell.experiment(description)


def pilot_s(budget_s: float) -> float:
    """Seconds that the pilot run may take."""
    return max(PILOT_LEAST_S, PILOT_SHARE * budget_s)


def preview(nb: Notebook, cell: AnswerCell, description: Description, run_s: float | None) -> Preview:
    """What a question will do. `run_s`: seconds of a full training, if that is known. ConfigError where it cannot
    begin, or does not fit into its budget."""
    here = machine()
    sides, refused = possible(sides_of(nb, cell, description, here))
    if run_s is None:
        first = (
            f"A first run, of {roughly(pilot_s(cell.budget_s))} at most, shows how long a training takes, and so how "
            f"much fits into {roughly(cell.budget_s)}"
        )
        return Preview(f"{sizes.side_words(sides)}. {_sought(sides)}Then fresh seeds of each. {first}.", refused)
    one_by_one = recipe_named(cell.question).figure == "seconds"
    fits = sizes.required(sides, here, run_s, min(run_s, pilot_s(cell.budget_s)), cell.budget_s, one_by_one)
    return Preview(f"{sizes.words(fits, sides)}.", [*refused, *sizes.left_out(fits, sides)])


def possible(sides: Sequence[Side]) -> tuple[list[Side], list[str]]:
    """The sides that can be trained, and in sentences why others cannot. ConfigError where that leaves none to compare
    with the baseline."""
    require(sides[0].experiment)
    trainable = [sides[0]]
    refused: list[str] = []
    problems: list[ConfigError] = []
    for side in sides[1:]:
        try:
            require(side.experiment)
        except ConfigError as error:
            problems.append(error)
            refused.append(f"Not compared: {side.words}. {error}")
        else:
            trainable.append(side)
    if len(trainable) < 2:
        raise problems[0]
    return trainable, refused


def _sought(sides: Sequence[Side]) -> str:
    tuned = [side for side in sides if side.tuned]
    if not tuned:
        return ""
    what = "batch size and learning rate" if any("batch_size" in side.tuned for side in tuned) else "learning rate"
    return f"First a search for the {what}{' of each' if len(tuned) > 1 else ''}. "


def training_s(reader: RunReader, notebook: str, nb: Notebook, name: str, description: Description) -> float | None:
    """The median time of an experiment's finished runs, None without any. `notebook` is the file's name."""
    cell = nb.experiment(name)
    if cell is None:
        return None
    runs = [one.run for one in results(reader, notebook, cell, description, nb) if not one.stale]
    took = [run.ended - run.started for run in runs if run is not None and run.outcome == "finished" and run.ended]
    return statistics.median(took) if took else None
