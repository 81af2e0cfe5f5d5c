"""Everything that is wrong with a notebook, found without running anything."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from training.notebook.cells import BrokenCell, ComparisonCell, ExperimentCell, Note, Notebook, SearchCell
from training.notebook.fences import fences
from training.notebook.front import block
from training.notebook.positions import line_of
from training.spec import yaml
from training.spec.classes import named, suggestion
from training.spec.description import Description
from training.spec.errors import ConfigError, Problem
from training.spec.search import search_problems
from training.spec.validate import validate
from training.tracking import names


@dataclass(frozen=True)
class CellProblem:
    """One mistake. `cell_name` is "front matter" for those above the first cell; `line` is the file's, from 1."""

    cell_name: str
    problem: Problem
    line: int = 1


def check(nb: Notebook, description: Description) -> list[CellProblem]:
    """All problems, in the order of the file; warnings (settings without effect) are among them."""
    found = list(_front(nb))
    seen: set[str] = set()
    for index, cell in enumerate(nb.cells):
        if isinstance(cell, Note):
            continue
        if cell.name in seen:
            taken = Problem("name", "is the name of an earlier cell too", "Give each cell a name of its own.")
            found.append(CellProblem(cell.name, taken, nb.line(index)))
        seen.add(cell.name)
        match cell:
            case BrokenCell():
                what, _, remedy = cell.message.partition(". ")
                problem = Problem(cell.key, what, remedy)
                name = cell.name or f"{cell.kind} without a name"
                found.append(CellProblem(name, problem, nb.line(index) + cell.line))
            case ExperimentCell():
                found += _located(nb, index, cell.name, validate(cell.config, description), "config.")
            case ComparisonCell():
                found += _located(nb, index, cell.name, _comparison(nb, cell, description), "")
            case SearchCell():
                found += _located(nb, index, cell.name, _search(nb, cell, description), "")
    return found


def _front(nb: Notebook) -> Iterator[CellProblem]:
    try:
        yaml.load(block(nb.front))
    except ConfigError as error:
        line = int(error.problem.key.removeprefix("line ")) if error.problem.key.startswith("line ") else 1
        problem = Problem("title", error.problem.message, error.problem.remedy)
        yield CellProblem("front matter", problem, line)


def _located(nb: Notebook, index: int, name: str, problems: Iterable[Problem], above: str) -> Iterator[CellProblem]:
    """Each problem with the line of its key, or of the nearest key above that is there."""
    body = fences(nb.cells[index].source)[0].body
    for problem in problems:
        line = nb.line(index) + 1 + line_of(body, above + problem.key)
        yield CellProblem(name, problem, line)


def _search(nb: Notebook, cell: SearchCell, description: Description) -> Iterator[Problem]:
    """A mistake in the experiment that it names is told there, once."""
    base = nb.base(cell)
    told = cell.experiment if "config" not in cell.body else None
    if told is not None and base is None and told not in _broken(nb):
        remedy = suggestion(told, [one.name for one in nb.experiments()])
        yield Problem("experiment", f"names {told}, which is no experiment here", remedy)
    for problem in search_problems(cell.body, base, description):
        if problem.key != "experiment" or told is None:
            yield problem


def _broken(nb: Notebook) -> list[str]:
    """The names of experiments that cannot be read."""
    return [one.name for one in nb.cells if isinstance(one, BrokenCell) and one.kind == "experiment"]


def _comparison(nb: Notebook, cell: ComparisonCell, description: Description) -> Iterator[Problem]:
    known = [one.name for one in nb.experiments()]
    for place, name in enumerate(cell.runs):
        if name in cell.runs[:place]:
            yield Problem(f"runs.{place}", f"names {name} twice", "Name each experiment once.")
        elif name not in known and name not in _broken(nb):
            remedy = suggestion(name, dict.fromkeys(known))
            yield Problem(f"runs.{place}", f"names {name}, which is no experiment here", remedy)
    compared = [one.config.get("model") for one in nb.experiments() if one.name in cell.runs]
    models = [named(model).info("models", description) for model in compared]
    logged = [metric for info in models if info for metric in info.metrics]
    if models and all(info and info.metrics for info in models) and cell.metric not in [*logged, names.TRAIN_LOSS]:
        remedy = f"They record {', '.join(dict.fromkeys(logged))}."
        yield Problem("metric", f"is {cell.metric}, which none of these models is known to record", remedy, "warning")
