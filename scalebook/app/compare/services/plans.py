"""Comparisons that are being set up: what one begins with, what it may name, what is wrong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from scalebook.app.shared import notebooks
from scalebook.training.config.description import Description
from scalebook.training.config.identity import config_hash
from scalebook.training.errors import ConfigError, Problem
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import ComparisonCell, Notebook
from scalebook.training.notebook.offered import offered as offered_for
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking import directions, names
from scalebook.training.tracking.directions import Direction
from scalebook.training.tracking.reading import RunRecord
from scalebook.training.workspace import Workspace

SUGGESTED = "comparison"


Tags = Mapping[str, Sequence[Mapping[str, str]]]
"""Of the runs that say what they log, by the cell that they are of."""


def better(stored: Stored, tags: Tags, sides: Sequence[str], metric: str) -> Direction:
    """What is better of a metric, by what runs and configs of these experiments and searches say. A search is of its
    experiment too."""
    nb = stored.notebook
    configs: list[Mapping[str, object]] = []
    runs: list[Mapping[str, str]] = []
    for name in sides:
        experiment, search = nb.experiment(name), nb.search(name)
        runs += tags.get(name, ())
        if search is not None:
            own = search.body.get("config")
            configs += [own] if isinstance(own, Mapping) else []
            experiment = nb.experiment(search.experiment or "")
            runs += tags.get(search.experiment or "", ())
        configs += [experiment.config] if experiment is not None else []
    return directions.of_runs(metric, None, runs, configs)


def tags_of(runs: Sequence[RunRecord]) -> dict[str, list[Mapping[str, str]]]:
    """By cell."""
    found: dict[str, list[Mapping[str, str]]] = {}
    for run in runs:
        found.setdefault(run.cell or "", []).append(run.tags)
    return found


@dataclass(frozen=True)
class ComparisonPlan:
    """A comparison before it is saved into the notebook `stored`, as that was seen."""

    stored: Stored
    cell: ComparisonCell
    """What the form begins with."""
    metrics: list[str]
    """To choose from; a person may write another one."""
    at: int | None = None
    """Before which cell a new one is put; None: at the end."""
    editing: str = ""
    """The name that it has so far, "" for a new one."""
    left_out: list[str] = field(default_factory=list)
    """Names of the chosen runs that are of no experiment of this notebook."""
    of_runs: str = ""
    """Of a new one that was begun from chosen runs: their experiments. Another choice is another draft."""
    left_at: float | None = None
    """When it was left, in seconds since the epoch, where it begins with a draft."""
    tags: Tags = field(default_factory=dict)

    def better(self, now: Sequence[str], metric: str) -> Direction:
        """What is better of a metric of the experiments `now`, where the cell says nothing of it."""
        return better(self.stored, self.tags, now, metric)

    @property
    def offered(self) -> list[str]:
        """The experiments that can be chosen; those that it names and are gone stand behind."""
        return list(dict.fromkeys([*(cell.name for cell in self.stored.notebook.experiments()), *self.cell.runs]))

    def problems(self, now: ComparisonCell) -> list[Problem]:
        """Mistakes in `now` because of which it cannot be saved."""
        problems = notebooks.name_problems(self.stored.notebook, now.name, self.editing)
        if not now.runs:
            problems.append(Problem("Experiments", "is empty", "Choose at least one."))
        if not now.metric and not self.editing:
            problems.append(Problem("Metric", "is empty", "Choose one."))
        if not now.x:
            problems.append(Problem("X axis", "is empty", "Choose at least one."))
        return problems

    def put(self, notebook: Notebook, now: ComparisonCell) -> Notebook:
        """The notebook with `now` in place of what was edited, or as a new cell."""
        if self.editing and now.name != self.editing:
            notebook = edit.rename_comparison(notebook, self.editing, now.name)
        return edit.put_comparison(notebook, now, self.at)


def new(
    stored: Stored,
    description: Description,
    chosen: Sequence[str] = (),
    at: int | None = None,
    recorded: Sequence[RunRecord] = (),
) -> ComparisonPlan:
    """A new one of the experiments `chosen`; of all, where none is. `recorded` are runs of the notebook."""
    runs = list(chosen) or [cell.name for cell in stored.notebook.experiments()]
    known = metrics(stored.notebook, description, recorded)
    metric = metrics(stored.notebook, description, recorded, runs)[0]
    name = edit.unique_name(stored.notebook, SUGGESTED)
    cell = ComparisonCell("", name, runs, metric)
    return ComparisonPlan(stored, cell, known, at, tags=tags_of(recorded))


def of_cell(
    stored: Stored, cell: ComparisonCell, description: Description, recorded: Sequence[RunRecord] = ()
) -> ComparisonPlan:
    """The plan for editing a comparison that the notebook has."""
    known = metrics(stored.notebook, description, recorded)
    return ComparisonPlan(stored, cell, known, editing=cell.name, tags=tags_of(recorded))


def of_runs(
    workspace: Workspace, runs: Sequence[RunRecord], shown: ComparisonCell, offered: list[str], description: Description
) -> list[ComparisonPlan]:
    """New ones of the experiments that the runs are of, one for each notebook that has any; the fullest first.

    `shown` is what the page shows, without names; `offered` are its metrics.
    """
    plans = []
    for name in dict.fromkeys(run.notebook for run in runs if run.notebook):
        choice = notebooks.pick(workspace, Path(name).stem)
        try:
            stored = notebooks.read(choice.path) if choice else None
        except ConfigError:
            continue  # its own page says what is wrong with it
        if stored is None:
            continue
        of = {run.id: _experiment(run, name, stored.notebook, description) for run in runs}
        chosen = list(dict.fromkeys(name for name in of.values() if name))
        if chosen:
            cell = replace(shown, name=edit.unique_name(stored.notebook, SUGGESTED), runs=chosen)
            left = [run.name or run.id[:8] for run in runs if not of[run.id]]
            told: dict[str, list[Mapping[str, str]]] = {}
            for run in runs:
                told.setdefault(of[run.id], []).append(run.tags)
            plans.append(ComparisonPlan(stored, cell, offered, left_out=left, of_runs=" ".join(chosen), tags=told))
    return sorted(plans, key=lambda plan: len(plan.left_out))


def _experiment(run: RunRecord, notebook: str, nb: Notebook, description: Description) -> str:
    """The experiment of `nb` that a run is of: its own, or one of the same config that has been renamed; "" if none."""
    if run.notebook != notebook:
        return ""
    if run.cell and nb.experiment(run.cell):
        return run.cell
    hashed = run.tags.get(names.TAG_CONFIG_HASH)
    return next((cell.name for cell in nb.experiments() if config_hash(cell.config, description) == hashed), "")


def metrics(
    nb: Notebook, description: Description, runs: Sequence[RunRecord] = (), experiments: Sequence[str] = ()
) -> list[str]:
    """What these experiments (all, where none is named) have logged or are known to log, and the training loss."""
    cells = [cell for cell in nb.experiments() if not experiments or cell.name in experiments]
    told = {cell.name for cell in cells}
    return offered_for([cell.config for cell in cells], [run for run in runs if run.cell in told], description)
