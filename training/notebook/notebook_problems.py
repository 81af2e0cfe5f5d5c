"""Everything that is wrong with a notebook, found without running anything."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final

from scalebook.training.base import Problem, one_line
from scalebook.training.base.files import yaml
from scalebook.training.experiments import Description, classes, validate
from scalebook.training.experiments.search import search_problems
from scalebook.training.jobs import NodeDevices, gpu_problems
from scalebook.training.notebook.bodies import composed
from scalebook.training.notebook.cells import (
    AnswerCell,
    BrokenCell,
    ClaimCell,
    ComparisonCell,
    ExperimentCell,
    Note,
    Notebook,
    SearchCell,
)
from scalebook.training.notebook.claim_checks import LONGEST_NAME, claim_problems, unknown_metric
from scalebook.training.notebook.fences import fences, misspelt
from scalebook.training.notebook.front import front_problem

Told = ExperimentCell | ComparisonCell | SearchCell | ClaimCell | AnswerCell
MOST_SAID: Final = 50


@dataclass(frozen=True)
class CellProblem:
    """One mistake. `cell_name` is "front matter" for those above the first cell; `line` is the file's, from 1."""

    cell_name: str
    problem: Problem
    line: int = 1


def check(nb: Notebook, description: Description, machines: Sequence[NodeDevices] = ()) -> list[CellProblem]:
    """All problems, in the order of the file; warnings (settings without effect) are among them.

    With `machines`, also what their GPUs cannot give.

    The first `MOST_SAID` of each cell: more mistakes have one common cause.
    """
    problems = list(_front(nb))
    seen: set[str] = set()
    for cell, line in zip(nb.cells, nb.lines(), strict=True):
        if isinstance(cell, Note):
            problems += _misspelt(cell, line)
            continue
        if cell.name in seen:
            taken = Problem(
                "repeated", "name", "is already the name of an earlier cell", "Give each cell a unique name."
            )
            problems.append(CellProblem(cell.name, taken, line))
        seen.add(cell.name)
        match cell:
            case BrokenCell():
                what, _, remedy = cell.message.partition(". ")
                problem = Problem("broken-cell", cell.key, what, remedy)
                name = cell.name or f"{cell.kind} without a name"
                problems.append(CellProblem(name, problem, line + cell.line))
            case ExperimentCell():
                experiment = cell.experiment(description)
                lacking = gpu_problems(experiment, machines)
                config_problems = [*validate(experiment), *lacking]
                problems += _located(cell, line, config_problems, "config.")
            case ComparisonCell():
                problems += _located(cell, line, _comparison(nb, cell, description), "")
            case SearchCell():
                problems += _located(cell, line, _search(nb, cell, description), "")
            case ClaimCell():
                problems += _located(cell, line, claim_problems(nb, cell, description), "")
            case AnswerCell():
                problems += _located(cell, line, _answer(nb, cell), "")
    return problems


def _front(nb: Notebook) -> Iterator[CellProblem]:
    if problem := front_problem(nb.front):
        yield CellProblem("front matter", *problem)


def _misspelt(note: Note, start: int) -> Iterator[CellProblem]:
    for line, head, right in misspelt(note.source) if "```" in note.source or "~~~" in note.source else ():
        what, remedy = (
            f"`{one_line(head, LONGEST_NAME)}` does not begin a cell",
            f"Use `{one_line(right, LONGEST_NAME)}`.",
        )
        yield CellProblem("text", Problem("misspelt-fence", "fence", what, remedy, "warning"), start + line)


def _located(cell: Told, start: int, problems: Iterable[Problem], above: str) -> Iterator[CellProblem]:
    """Each problem with the line of its key, or of the nearest key above that is there."""
    first = list(islice(problems, MOST_SAID + 1))
    root = composed(fences(cell.source)[0].body) if first else None
    for problem in first[:MOST_SAID]:
        yield CellProblem(cell.name, problem, start + 1 + (yaml.line_of(root, above + problem.key) or 0))
    if len(first) > MOST_SAID:
        more = Problem(
            "too-many",
            "cell",
            f"has more than {MOST_SAID} mistakes",
            "Fix the listed mistakes first; then the others are shown.",
        )
        yield CellProblem(cell.name, more, start)


def _search(nb: Notebook, cell: SearchCell, description: Description) -> Iterator[Problem]:
    """A mistake in the experiment that it names is told there, once."""
    base = nb.base(cell, description)
    named = cell.experiment if "config" not in cell.body else None
    if named is not None and base is None and named not in _broken(nb):
        remedy = classes.suggestion(named, [experiment.name for experiment in nb.experiments()])
        yield Problem(
            "unknown-name",
            "experiment",
            f"there is no experiment {one_line(named, LONGEST_NAME)} in this notebook",
            remedy,
        )
    for problem in search_problems(cell.body, base, description):
        if problem.key != "experiment" or named is None:
            yield problem


def _broken(nb: Notebook) -> list[str]:
    """The names of experiments that cannot be read."""
    return [cell.name for cell in nb.cells if isinstance(cell, BrokenCell) and cell.kind == "experiment"]


def _comparison(nb: Notebook, cell: ComparisonCell, description: Description) -> Iterator[Problem]:
    experiments = dict.fromkeys(experiment.name for experiment in nb.experiments())
    present, seen = {*experiments, *_broken(nb)}, set()
    for place, name in enumerate(cell.runs):
        if name in seen:
            yield Problem(
                "repeated",
                f"runs.{place}",
                f"names {one_line(name, LONGEST_NAME)} twice",
                "List each experiment only once.",
            )
        elif name not in present:
            remedy = classes.suggestion(name, experiments)
            yield Problem(
                "unknown-name",
                f"runs.{place}",
                f"there is no experiment {one_line(name, LONGEST_NAME)} in this notebook",
                remedy,
            )
        seen.add(name)
    compared = [one.experiment(description) for one in nb.experiments() if one.name in seen]
    if cell.metric:
        yield from unknown_metric(compared, cell.metric)


def _answer(nb: Notebook, cell: AnswerCell) -> Iterator[Problem]:
    """Cells that it names and that are not here; the question is judged by the recipes."""
    kinds: dict[str, tuple[Sequence[str | None], Sequence[str]]] = {
        "experiment": ([cell.experiment, cell.against, cell.pilot], [one.name for one in nb.experiments()]),
        "search": ([*filter(None, cell.searches.values())], [one.name for one in nb.searches()]),
        "comparison": ([cell.comparison], [one.name for one in nb.comparisons()]),
        "claim": (cell.claims, [one.name for one in nb.claims()]),
    }
    keys = {cell.against: "against", cell.pilot: "pilot"}
    plural = {"search": "searches", "claim": "claims"}
    for kind, (wanted, there) in kinds.items():
        for name in wanted:
            if name is not None and name not in there:
                key = keys.get(name, plural.get(kind, kind))
                what = f"there is no {kind} {one_line(name, LONGEST_NAME)} in this notebook"
                yield Problem("unknown-name", key, what, classes.suggestion(name, there))
