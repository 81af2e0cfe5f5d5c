"""Searches as the pages show them: their state and objectives, their cell in words, the best trial as an experiment."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from scalebook.app.search import trial_data
from scalebook.app.shared.words import figure, plain, plural, spoken
from scalebook.training.base import ConfigError, Workspace
from scalebook.training.base.files import BrokenRecord
from scalebook.training.experiments import Description, Experiment, classes
from scalebook.training.experiments.search import AMOUNTS, SearchSpec, resolve
from scalebook.training.notebook import Notebook, SearchCell, Stored, edit
from scalebook.training.notebook.claims import claim_tags
from scalebook.training.search import SearchFolder, SearchProgress, SearchResult, search_folder, search_requests
from scalebook.training.search.study import TrialRecord
from scalebook.training.tracking import Direction, Goal, RunReader, RunRecord, directions

Body = dict[str, Any]
"""The YAML of a search cell."""


def better(name: str, experiment: Experiment, runs: Sequence[RunRecord]) -> Direction:
    """The direction of an objective for which the cell names none."""
    return directions.of_runs(name, None, [run.tags for run in runs], [experiment.callbacks])


def objectives(body: Mapping[str, Any]) -> list[str]:
    """The names of one or two objectives; a body written by hand may hold anything, also a goal: `{val/iou: max}`."""
    named = body.get("objective")
    items = named if isinstance(named, list | tuple) else [named]
    return [str(next(iter(item), "") if isinstance(item, Mapping) else item) for item in items if item]


def goal_of(body: Mapping[str, Any], name: str) -> Goal | None:
    """The goal that the body names for one of its objectives."""
    written = body.get("objective")
    items = written if isinstance(written, list | tuple) else [written]
    return next((pair[1] for item in items if (pair := directions.read_metric_name(item)) and pair[0] == name), None)


def without_goal(body: Mapping[str, Any]) -> list[str]:
    """The metrics among the objectives for which the body names no goal."""
    return [name for name in objectives(body) if name not in AMOUNTS and goal_of(body, name) is None]


def with_direction(body: Mapping[str, Any], name: str, goal: Goal) -> Body:
    """The body with `goal` for one of its objectives."""
    written = body.get("objective")
    items = written if isinstance(written, list | tuple) else [written]
    names = objectives(body)
    items = [
        directions.metric_text(name, goal) if objective == name else item
        for objective, item in zip(names, items, strict=True)
    ]
    return {**body, "objective": items[0] if len(items) == 1 else items}


LIVE: Final = ("running", "stopping", "waiting")
NOT_DRIVEN: Final = "The search's process has ended. Press Resume to continue: no finished trial is lost or repeated."


@dataclass(frozen=True)
class BestTrial:
    """Value and point of the best trial so far, in words."""

    value: str
    point: str
    is_own: bool = False
    """The objective is not computed from all workers' data together."""


@dataclass(frozen=True)
class SearchView:
    """A search in its present state. `state` as from SearchFolder.state."""

    folder: SearchFolder
    request: search_folder.SearchRequest
    state: search_folder.State
    body: Body
    progress: SearchProgress | None
    result: SearchResult | None
    broken: str = ""
    """Why its records cannot be read; then `body` may be empty."""

    @property
    def id(self) -> str:
        return self.request.id

    @property
    def name(self) -> str:
        return self.request.name

    @property
    def live(self) -> bool:
        return self.state in LIVE

    @property
    def standing(self) -> str:
        """The state in words; for a finished search with the number of failed trials."""
        return search_folder.standing(self.state, self.result, self.progress)

    @property
    def colour(self) -> str:
        """The style sheet's word for the state: a finished search with failed trials is not green."""
        return self.state if self.standing == self.state else "partly"

    @property
    def trials(self) -> int:
        """How many trials the search is to do."""
        trials = self.body.get("trials")
        return trials if isinstance(trials, int) else (self.progress.trials if self.progress else 0)

    @property
    def done(self) -> int:
        return self.progress.done if self.progress else 0

    @property
    def complete(self) -> bool:
        """Whether it has finished all of its trials."""
        return self.state == "finished" and self.done >= self.trials

    @property
    def objective(self) -> str:
        """The name of the first objective."""
        return next(iter(objectives(self.body)), "")

    @property
    def best(self) -> str:
        """The best value so far, "" without one."""
        return figure(self.progress.best) if self.progress else ""

    @property
    def fraction(self) -> float:
        return min(1.0, self.done / self.trials) if self.trials else 0.0

    @property
    def trouble(self) -> str:
        """Why it has ended early, and the remedy; "" if nothing is wrong."""
        if self.broken:
            return self.broken
        if self.state == "interrupted":
            return NOT_DRIVEN
        if self.result is None or not self.result.cause or self.state == "finished":
            return ""
        return f"{self.result.cause.rstrip('.')}. {self.result.advice}".strip()


def view(folder: SearchFolder) -> SearchView:
    """The search in `folder`, read from a few small files. Raises Broken if its request cannot be read."""
    body, broken = {}, ""
    try:
        body = folder.body()
    except BrokenRecord as error:
        broken = str(error)
    return SearchView(
        folder=folder,
        request=folder.request(),
        state=folder.state(),
        body=body,
        progress=folder.progress(),
        result=folder.result(),
        broken=broken,
    )


def views(workspace: Workspace, most: int) -> list[SearchView]:
    """The newest `most` of the workspace, the newest first."""
    return [view(search) for search in search_folder.all_searches(workspace)[:most]]


def find(workspace: Workspace, search_id: str) -> SearchView | None:
    """The search whose id is or begins with `search_id`; None if there is none, or several."""
    try:
        return view(search_requests.find(workspace, search_id))
    except ConfigError:
        return None


def of_cell(workspace: Workspace, notebook: str, cell: str) -> SearchView | None:
    """The newest search of a cell. `notebook`: name of its file."""
    folder = search_requests.of_cell(workspace, notebook, cell)
    return view(folder) if folder else None


def base_of(notebook: Notebook, body: Mapping[str, Any], description: Description) -> Experiment | None:
    """The experiment that a search cell names; None if it names none, or one that is gone."""
    cell = notebook.experiment(str(body.get("experiment", "")))
    return cell.experiment(description) if cell else None


def what_changed(search: SearchView, body: Mapping[str, Any], base: Experiment | None, description: Description) -> str:
    """What has changed since the search was started, as from `search_requests.what_changed`; "" if nothing has."""
    request = search.folder.request()
    return search_requests.what_changed(request.identity, request.modules, body, base, description)


def run(workspace: Workspace, stored: Stored, cell: SearchCell, description: Description) -> SearchFolder:
    """Start or continue the cell's search. ConfigError if the cell has a mistake."""
    return search_requests.start(
        workspace,
        cell.body,
        base_of(stored.notebook, cell.body, description),
        name=cell.name,
        notebook=stored.path.name,
        cell=cell.name,
        description=description,
        recorded=claim_tags(stored.notebook, cell.name, description),
    )


def best_of(records: Sequence[TrialRecord], spec: SearchSpec, reader: RunReader) -> BestTrial | None:
    """The best trial so far in words; None if none has finished."""
    record = trial_data.best(records, spec)
    if record is None:
        return None
    own = spec.objectives[0].name in trial_data.own_objectives(record, spec, reader)
    return BestTrial(trial_data.reached(record, spec), trial_data.words(record, spec), own)


def space_words(body: Mapping[str, Any]) -> str:
    """The space in words: `batch size 16 … 1,024 × learning rate 0.001 … 1 (linear per 256)`. The body may have
    mistakes."""
    parts = []
    for name, row in classes.mapping(body.get("space")).items():
        range_ = classes.mapping(row)
        kind, values = next(((kind, value) for kind, value in range_.items() if isinstance(value, list)), ("", []))
        listed = kind in ("values", "grid")
        words = (
            ", ".join(_short(value) for value in values) if listed else " … ".join(_short(value) for value in values)
        )
        rule = range_.get("rule")
        parts.append(f"{spoken(name)} {words}" + (f" ({rule} per {range_.get('per', 256)})" if rule else ""))
    return " × ".join(parts) or "nothing yet"


def _short(value: Any) -> str:
    if isinstance(value, Mapping):
        return str(value.get("class_path", value)).rsplit(".", 1)[-1]
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else plain(value)


def scaling_words(body: Mapping[str, Any]) -> str:
    """What the batch size means: that of each worker, or of all together."""
    return (
        "weak scaling: batch size per worker"
        if body.get("scaling") == "weak"
        else ("strong scaling: global batch size")
    )


def budget_words(body: Mapping[str, Any]) -> list[str]:
    """The budget in words: `30 trials × 3 seeds`, `TPE`, `median pruner`, `20 s per run`, `exclusive`."""
    trials, seeds = body.get("trials", 100), body.get("seeds", 1)
    sampler_ = body.get("sampler", "tpe")
    sampler = next(iter(sampler_), "tpe") if isinstance(sampler_, Mapping) else str(sampler_)
    words = [plural(trials, "trial") if isinstance(trials, int) else "", sampler.upper()
             if sampler in ("tpe", "qmc", "gp") else sampler]  # fmt: skip
    if isinstance(seeds, int) and seeds > 1:
        words[0] += f" × {plural(seeds, 'seed')}"
    if body.get("pruner", "none") != "none":
        words.append(f"{body['pruner']} pruner")
    if body.get("seconds_per_trial"):
        words.append(f"{body['seconds_per_trial']:g} s per run")
    if body.get("exclusive"):
        words.append("exclusive")
    return [word for word in words if word]


def with_best(notebook: Notebook, search: SearchView, record: TrialRecord, spec: SearchSpec) -> tuple[Notebook, str]:
    """The notebook with a new experiment of the trial's config below the search cell, and the experiment's name.

    ConfigError if the point cannot be resolved.
    """
    config = resolve(spec, record.point).written
    name = edit.unique_name(notebook, f"{search.name}-best")
    position, repeats = None, max(1, spec.seeds)
    for index, cell in enumerate(notebook.cells):
        if isinstance(cell, SearchCell) and cell.name == search.request.cell:
            position = index + 1
            base = notebook.experiment(str(cell.body.get("experiment", "")))
            repeats = base.repeats if base else repeats
    reached = ", ".join(
        f"{objective.name} {trial_data.reached(record, spec, i)}" for i, objective in enumerate(spec.objectives)
    )
    remark = (
        f"Started from trial {record.number} of {search.name}, which reached {reached} at "
        f"{trial_data.words(record, spec)}"
    )
    return edit.put_experiment(notebook, name, config, repeats, position=position, remark=remark), name
