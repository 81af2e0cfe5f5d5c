"""What a question will do and how long it takes, as far as that is known before it starts. No torch in here."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from scalebook.training.asking import sizes
from scalebook.training.asking.recipe import Machine, Side, require_rate
from scalebook.training.asking.recipes import recipe_named
from scalebook.training.asking.sizes import STARTING_S, RunTime
from scalebook.training.base import ConfigError, Workspace, roughly
from scalebook.training.experiments import Description, Experiment, classes, logged_metrics, require
from scalebook.training.jobs import job_requests, this_machine
from scalebook.training.notebook import AnswerCell, Notebook, results
from scalebook.training.tracking import RunReader, RunRecord, names


@dataclass(frozen=True)
class Trained:
    """What the finished runs of an experiment show: the time of the one in the middle, and the metrics that they
    logged."""

    run: RunTime
    logged: frozenset[str]


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
        called = {id(base): cell.experiment, id(against): cell.against or ""}
        made = [replace(side, words=called.get(id(side.experiment), side.words)) for side in made]
    return [replace(side, experiment=sizes.same_samples(side.experiment, base)) for side in made]


def _experiment(nb: Notebook, key: str, name: str, description: Description) -> Experiment:
    cell = nb.experiment(name)
    if cell is None:
        there = [one.name for one in nb.experiments()]
        raise ConfigError(key, f"{name} is not an experiment of this notebook", classes.suggestion(name, there))
    return cell.experiment(description)


def preview(
    nb: Notebook, cell: AnswerCell, description: Description, trained: Mapping[str, Trained] = MappingProxyType({})
) -> Preview:
    """What a question will do. `trained`: what is known of its experiments, by name. ConfigError where it cannot begin,
    or does not fit into its budget."""
    here = machine()
    sides, refused = possible(sides_of(nb, cell, description, here))
    _require_metric(nb, cell, description, trained)
    before = trained.get(cell.experiment)
    one_by_one = recipe_named(cell.question).figure == "seconds"
    fits = sizes.required(sides, here, before.run if before else None, cell.budget_s, one_by_one)
    if before is not None:
        return Preview(f"{sizes.words(fits, sides)}.", [*refused, *sizes.left_out(fits, sides)])
    first = (
        f"A pilot run of at most {roughly(sizes.pilot_s(cell.budget_s))} shows how long training takes, and so how "
        f"much fits into {roughly(cell.budget_s)}"
    )
    plan = (
        f"{sizes.side_words(sides)}. {_sought(sides)}Then each side is run with fresh seeds. "
        f"{first}{sizes.retuned(sides)}."
    )
    return Preview(plan, refused)


def _require_metric(nb: Notebook, cell: AnswerCell, description: Description, trained: Mapping[str, Trained]) -> None:
    """ConfigError for a metric that an experiment of the question does not log, by its runs or by a dry run."""
    if not cell.metric:
        return
    for name in filter(None, (cell.experiment, cell.against)):
        before, experiment = trained.get(name), nb.experiment(name)
        assert experiment is not None, "its sides were made"
        logged = logged_metrics.unlogged([experiment.experiment(description)], cell.metric)
        if before is not None and cell.metric not in before.logged:
            raise unlogged(name, cell.metric, before.logged)
        if before is None and logged is not None:
            raise unlogged(name, cell.metric, logged)


def unlogged(name: str, metric: str, logged: Collection[str]) -> ConfigError:
    """The mistake of a metric that an experiment does not log."""
    listed = [*names.validation_metrics(logged), names.own_training_loss(logged) or names.TRAIN_LOSS]
    fix = f"Choose a metric that is logged ({', '.join(listed)}), or log {metric} in the model."
    return ConfigError("metric", f"{metric} is not logged by {name}", fix)


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
    return f"First, Scalebook searches for the best {what}{' for each side' if len(tuned) > 1 else ''}. "


def trained_before(
    workspace: Workspace, reader: RunReader, notebook: str, nb: Notebook, description: Description
) -> dict[str, Trained]:
    """Of the experiments with finished runs, what these show. `notebook` is the file's name."""
    before = {}
    for cell in nb.experiments():
        by_seed = [one.run for one in results(reader, notebook, cell, description, nb) if one.run and not one.stale]
        runs = [run for run in by_seed if run.outcome == "finished" and run.ended]
        if runs:
            times = sorted((taken(workspace, run) for run in runs), key=lambda time: time.whole_s)
            logged = {metric for run in runs for metric in run.metrics}
            before[cell.name] = Trained(times[len(times) // 2], frozenset(logged))
    return before


def taken(workspace: Workspace, run: RunRecord) -> RunTime:
    """The seconds of a run that has ended, as its job recorded them: from the start of its process to its end. MLflow's
    times are shorter."""
    job = job_requests.folder_of(workspace, run.id)
    begun, result, progress = (job.started(), job.outcome(), job.progress()) if job is not None else (None,) * 3
    whole_s = (run.ended or run.started) - run.started
    if begun is not None and result is not None:
        whole_s = max(whole_s, result.ended - begun.started)
    if begun is None or progress is None or not progress.seconds or names.is_simulated(run.tags):
        return RunTime(STARTING_S, max(0.0, whole_s - STARTING_S))
    training_s = min(whole_s, progress.seconds)
    return RunTime(whole_s - training_s, training_s)
