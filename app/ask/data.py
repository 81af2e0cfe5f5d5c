"""A question that is being asked, and an answer with the process that works on it, as plain values."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from scalebook.app.compare import data as comparisons
from scalebook.app.compare.data import Tags
from scalebook.app.shared.words import plural
from scalebook.training.asking import (
    AskFailure,
    AskFolder,
    AskProgress,
    Findings,
    Preview,
    Trained,
    all_recipes,
    asked_before,
    begun,
    longer_budget,
    preview,
    recipe_named,
    trained_before,
    with_seeds,
)
from scalebook.training.base import ConfigError, Problem, Workspace, roughly
from scalebook.training.experiments import Description
from scalebook.training.notebook import AnswerCell, Notebook, Stored, answer_body, edit, unnamed
from scalebook.training.tracking import Direction, RunReader, RunRecord


@dataclass(frozen=True)
class AskPlan:
    """A question before it is asked. `stored` is the notebook as the person saw it."""

    stored: Stored
    cell: AnswerCell
    """The first values of the form; its name is "" for a new question."""
    metrics: Mapping[str, Sequence[str]]
    """Choices, by experiment; a person may type another one."""
    main: Mapping[str, str]
    """By experiment, the metric that decides where the question names none, as far as that is known."""
    tags: Tags
    trained: Mapping[str, Trained]
    """What finished runs of experiments show."""

    @property
    def experiments(self) -> list[str]:
        """Those that a question can be about: not those that answer one already."""
        nb = self.stored.notebook
        written = {name for cell in nb.answers() for name in cell.own} - {self.cell.experiment}
        return [cell.name for cell in nb.experiments() if cell.name not in written]

    @property
    def begun(self) -> bool:
        """Whether cells have been written that depend on its metric and target."""
        return bool(self.cell.searches)

    def better(self, cell: AnswerCell, metric: str) -> Direction:
        """The direction of a metric, where the question names none."""
        sides = [cell.experiment, *([cell.against] if cell.against else [])]
        return comparisons.better(self.stored, self.tags, sides, metric)

    def preview(self, cell: AnswerCell, description: Description) -> Preview | Problem:
        """What it will do, or why it cannot begin."""
        try:
            if recipe_named(cell.question).needs_against and not cell.against:
                missing = "is missing, but this question compares two experiments"
                return Problem(
                    "missing", "against", missing, "Choose the second experiment, or add it to this notebook first."
                )
            return preview(self.stored.notebook, cell, description, self.trained)
        except ConfigError as error:
            return error.problem

    def goes_on(self, cell: AnswerCell) -> str:
        """The name of the cell that asks the same, "" for a question that is new."""
        same = None if self.cell.name else asked_before(self.stored.notebook, cell)
        return same.name if same is not None else ""

    def put(self, notebook: Notebook, cell: AnswerCell) -> tuple[Notebook, AnswerCell]:
        """The notebook with the question, and its cell."""
        return (edit.put_answer(notebook, cell), cell) if self.cell.name else begun(notebook, cell)


def new_question(
    workspace: Workspace, stored: Stored, description: Description, reader: RunReader, runs: Sequence[RunRecord],
    experiment: str = "",
) -> AskPlan:  # fmt: skip
    """A question about `experiment`, or the notebook's first one, of those with a model of the user's if there are any.
    `runs`: those of the notebook."""
    if not experiment:
        nb = stored.notebook
        written = {name for answer in nb.answers() for name in answer.own}
        cells = [cell for cell in nb.experiments() if cell.name not in written] or nb.experiments()
        infos = {cell.name: cell.experiment(description).model.info for cell in cells}
        own = [name for name, info in infos.items() if info is not None and info.source == "user"]
        experiment = (own or [cell.name for cell in cells])[0]
    return _plan(
        workspace, stored, AnswerCell("", "", next(iter(all_recipes())), experiment), description, reader, runs
    )


def question_of(
    workspace: Workspace, stored: Stored, cell: AnswerCell, description: Description, reader: RunReader,
    runs: Sequence[RunRecord],
) -> AskPlan:  # fmt: skip
    """For changing a question that the notebook has."""
    return _plan(workspace, stored, cell, description, reader, runs)


def _plan(
    workspace: Workspace, stored: Stored, cell: AnswerCell, description: Description, reader: RunReader,
    runs: Sequence[RunRecord],
) -> AskPlan:  # fmt: skip
    nb = stored.notebook
    names = [one.name for one in nb.experiments()]
    metrics = {name: comparisons.offered_metrics(nb, description, runs, [name]) for name in names}
    ran = {name: [run for run in runs if run.cell == name] for name in names}
    main = {one.name: unnamed([one.experiment(description)], ran[one.name]) for one in nb.experiments()}
    trained = trained_before(workspace, reader, stored.path.name, nb, description)
    return AskPlan(stored, cell, metrics, main, comparisons.tags_of(runs), trained)


def read_budget(text: str) -> float | Problem:
    """Seconds of `15m` or `15 min`; the problem of a text that is no time."""
    try:
        return answer_body.read_budget(text)
    except ConfigError as error:
        return error.problem


@dataclass(frozen=True)
class AnswerView:
    """An answer as a page shows it. `problem`: why its cell cannot be read."""

    cell: AnswerCell
    findings: Findings | None
    works: bool
    progress: AskProgress | None
    failure: AskFailure | None
    problem: Problem | None = None
    since_s: float = 0.0
    """How long ago its progress was written, while it works."""

    @property
    def state(self) -> str:
        """In one word or two: working, failed, answered, not resolved, stopped, budget spent, not begun."""
        if self.works:
            return "working"
        if self.problem or self.failure:
            return "failed"
        assert self.findings is not None, "it can be read"
        if self.findings.state == "under way":
            return "budget spent" if self.more_budget_s else "stopped"
        return self.findings.state

    @property
    def spent_s(self) -> float:
        return self.progress.spent_s + self.since_s if self.progress else 0.0

    @property
    def left_s(self) -> float | None:
        """About how long it still takes to the answer; None where that is not known."""
        left_s = self.progress.left_s if self.progress else None
        return None if left_s is None else max(0.0, left_s - self.since_s)

    @property
    def unfinished(self) -> bool:
        """Whether there is something left to do that no button for more seeds does."""
        if self.works or self.problem is not None or self.findings is None:
            return False
        cut_off = self.progress is not None and self.progress.words != ""
        return cut_off or self.failure is not None or self.findings.state in ("not begun", "under way")

    @property
    def more_budget_s(self) -> float | None:
        """The budget with which it goes on, where the present one is spent, or too short by what has failed; else
        None."""
        if self.spent_s < (0.5 if self.failure else 0.95) * self.cell.budget_s:
            return None
        return longer_budget(self.cell.budget_s, self.spent_s)

    def with_more_seeds(self, notebook: Notebook) -> Notebook:
        """The notebook with the seeds that would resolve it, and a budget for them."""
        assert self.findings is not None, "it says how many"
        budget_s = longer_budget(self.cell.budget_s, self.spent_s, self.findings.more_s or 0.0)
        cell = replace(self.cell, budget_s=budget_s)
        return with_seeds(edit.put_answer(notebook, cell), cell, self.findings.more_seeds)

    def with_budget(self, notebook: Notebook, seconds: float) -> Notebook:
        return edit.put_answer(notebook, replace(self.cell, budget_s=seconds))

    @property
    def added(self) -> int:
        """The seeds that are added to each side to resolve it; 0 where that is not known to help."""
        return (
            self.findings.more_seeds - max(row.seeds for row in self.findings.rows)
            if self.findings and self.more
            else 0
        )

    @property
    def more(self) -> bool:
        """Whether more seeds would resolve it."""
        return not self.works and self.findings is not None and self.findings.more_seeds > 0


def folder_of(workspace: Workspace, stored: Stored, cell: AnswerCell) -> AskFolder:
    return AskFolder.of(workspace, stored.path.name, cell.name)


def works(workspace: Workspace, stored: Stored) -> list[AskFolder]:
    """The folders of the notebook's questions that a process works on."""
    folders = [folder_of(workspace, stored, cell) for cell in stored.notebook.answers()]
    return [folder for folder in folders if folder.works()]


def view(workspace: Workspace, stored: Stored, cell: AnswerCell, findings: Findings | Problem) -> AnswerView:
    folder = folder_of(workspace, stored, cell)
    working, progress, failure = folder.works(), folder.progress(), folder.failure()
    since_s = max(0.0, time.time() - progress.time) if working and progress is not None else 0.0
    if isinstance(findings, Problem):
        return AnswerView(cell, None, working, progress, failure, findings, since_s)
    return AnswerView(cell, findings, working, progress, failure, None, since_s)


def facts(view: AnswerView) -> str:
    """Experiment, metric, target and budget in one line."""
    cell, findings = view.cell, view.findings
    about = f"{cell.experiment} and {cell.against}" if cell.against else cell.experiment
    better = {"min": " (lower is better)", "max": " (higher is better)", None: ""}[cell.goal]
    figure = findings.figure if findings is not None else "seconds"
    target = (
        [] if figure == "best" else [f"target {cell.target:g}" if cell.target is not None else "target: not chosen yet"]
    )
    spent = f", {roughly(view.spent_s)} spent" if view.spent_s else ""
    return " · ".join([about, f"metric {cell.metric or '(the main metric)'}{better}", *target,
                       f"budget {roughly(cell.budget_s)}{spent}"])  # fmt: skip


def how(notebook: Notebook, cell: AnswerCell) -> str:
    """The cells that a recipe wrote, by their kinds: `1 pilot run, 4 searches, 1 comparison, 3 claims`."""
    own = set(cell.own)
    counts = (
        ("pilot run", [one for one in notebook.experiments() if one.name == cell.pilot]),
        ("search", [one for one in notebook.searches() if one.name in own]),
        ("experiment", [one for one in notebook.experiments() if one.name in own and one.name != cell.pilot]),
        ("comparison", [one for one in notebook.comparisons() if one.name in own]),
        ("claim", [one for one in notebook.claims() if one.name in own]),
    )
    plurals = {"search": "searches"}
    words = [
        f"{len(cells)} {plurals[noun]}" if noun in plurals and len(cells) > 1 else plural(len(cells), noun)
        for noun, cells in counts
        if cells
    ]
    return ", ".join(words)


def without(notebook: Notebook, cell: AnswerCell, with_cells: bool) -> Notebook:
    """The notebook without the answer, and if wanted without the cells that it names, but for its experiments."""
    gone = {cell.name, *(cell.own if with_cells else ())} - {cell.experiment, cell.against}
    for index in reversed(range(len(notebook.cells))):
        if getattr(notebook.cells[index], "name", None) in gone:
            notebook = edit.remove(notebook, index)
    return notebook
