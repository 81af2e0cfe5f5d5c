"""Comparisons and claims that are being set up: their first values, their choices, their problems; and drafts of
comparisons."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from scalebook.app.shared import drafts, notebooks
from scalebook.app.shared.drafts import Draft, LeftDraft
from scalebook.training.base import ConfigError, Problem, Workspace
from scalebook.training.base.files import yaml, yaml_flow
from scalebook.training.experiments import Description, classes, config_hash
from scalebook.training.notebook import (
    ClaimCell,
    ComparisonCell,
    ExperimentCell,
    Notebook,
    Ratio,
    Side,
    Stored,
    claim_body,
    claim_problems,
    edit,
)
from scalebook.training.notebook import offered as offered_for
from scalebook.training.notebook.claims import MISSING, Judgement, claim_sentence
from scalebook.training.tracking import Direction, Goal, RunReader, RunRecord, directions, estimate, names

SUGGESTED = "comparison"
Tags = Mapping[str, Sequence[Mapping[str, str]]]
"""Tags of runs, by the name of their cell."""


def better(stored: Stored, tags: Tags, sides: Sequence[str], metric: str) -> Direction:
    """Whether lower or higher values of a metric are better, from the runs and configs of these experiments and
    searches. A search also takes in the runs and the config of its experiment."""
    nb = stored.notebook
    trainers: list[object] = []
    runs: list[Mapping[str, str]] = []
    for name in sides:
        experiment, search = nb.experiment(name), nb.search(name)
        runs += tags.get(name, ())
        if search is not None:
            own = search.body.get("config")
            trainers.append(classes.mapping(own).get("trainer"))
            experiment = nb.experiment(search.experiment or "")
            runs += tags.get(search.experiment or "", ())
        if experiment is not None:
            trainers.append(experiment.config.get("trainer"))
    return directions.of_runs(metric, None, runs, [classes.mapping(trainer).get("callbacks") for trainer in trainers])


def tags_of(runs: Sequence[RunRecord]) -> dict[str, list[Mapping[str, str]]]:
    """The tags of the runs, by the name of their cell."""
    by_cell: dict[str, list[Mapping[str, str]]] = {}
    for run in runs:
        by_cell.setdefault(run.cell or "", []).append(run.tags)
    return by_cell


@dataclass(frozen=True)
class ComparisonPlan:
    """A comparison before it is saved. `stored` is the notebook as the person saw it."""

    stored: Stored
    cell: ComparisonCell
    """The first values of the form."""
    metrics: list[str]
    """Choices; a person may type another one."""
    at: int | None = None
    """Index of the cell before which a new comparison is inserted; None: at the end."""
    editing: str = ""
    """Its name in the notebook, "" for a new comparison."""
    left_out: list[str] = field(default_factory=list)
    """Names of the chosen runs that belong to no experiment of this notebook."""
    of_runs: str = ""
    """The experiments of the chosen runs, where a new comparison was begun from runs. Each choice has its own draft."""
    left_at: float | None = None
    """When the draft was last changed, in seconds since the epoch; None without a draft."""
    tags: Tags = field(default_factory=dict)

    def better(self, now: Sequence[str], metric: str) -> Direction:
        """The direction of a metric over the experiments `now`, where the cell names none."""
        return better(self.stored, self.tags, now, metric)

    @property
    def offered(self) -> list[str]:
        """The experiments that can be chosen, then those that the comparison names but the notebook has no more."""
        return list(dict.fromkeys([*(cell.name for cell in self.stored.notebook.experiments()), *self.cell.runs]))

    def problems(self, now: ComparisonCell) -> list[Problem]:
        """The problems that keep `now` from being saved."""
        problems = notebooks.name_problems(self.stored.notebook, now.name, self.editing)
        if not now.runs:
            problems.append(Problem("missing", "Experiments", "is empty", "Choose at least one."))
        if not now.metric and not self.editing:
            problems.append(Problem("missing", "Metric", "is empty", "Choose one."))
        if not now.x:
            problems.append(Problem("missing", "X axis", "is empty", "Choose at least one."))
        return problems

    def put(self, notebook: Notebook, now: ComparisonCell) -> Notebook:
        """The notebook with `now` in place of the edited cell, or as a new cell."""
        if self.editing and now.name != self.editing:
            notebook = edit.rename_comparison(notebook, self.editing, now.name)
        return edit.put_comparison(notebook, now, self.at)


def new_comparison(
    stored: Stored,
    description: Description,
    chosen: Sequence[str] = (),
    index: int | None = None,
    recorded: Sequence[RunRecord] = (),
) -> ComparisonPlan:
    """A comparison of the experiments `chosen`, to be put before cell `index`. Without a choice it starts with those
    nearest to that place: of one model and data set, with runs if any have some, and without pilot and dry runs.
    `recorded`: the notebook's runs.
    """
    alike = _alike(stored.notebook, description, recorded, index)
    runs = list(chosen) or _in_order(stored.notebook, _with_runs(alike, recorded) or alike)
    metrics = offered_metrics(stored.notebook, description, recorded)
    metric = _common_metric(stored.notebook, description, recorded, runs)
    name = edit.unique_name(stored.notebook, SUGGESTED)
    cell = ComparisonCell("", name, runs, metric)
    return ComparisonPlan(stored, cell, metrics, index, tags=tags_of(recorded))


def _alike(nb: Notebook, description: Description, recorded: Sequence[RunRecord], index: int | None) -> list[str]:
    """The experiments with the model and the data set of the one that is nearest above cell `index` (or the end), that
    one first; one with runs, if there is any."""
    candidates = _candidates(nb, recorded)
    above = [cell.name for cell in nb.cells[:index] if isinstance(cell, ExperimentCell) and cell.name in candidates]
    below = [name for name in candidates if name not in above]
    nearest = [*reversed(above), *below]
    subject = {
        cell.name: (experiment.model.last_name, experiment.data.last_name)
        for cell in nb.experiments()
        for experiment in [cell.experiment(description)]
    }
    first = next(iter(_with_runs(nearest, recorded) or nearest), None)
    return [first, *(name for name in nearest if name != first and subject[name] == subject[first])] if first else []


def _candidates(nb: Notebook, recorded: Sequence[RunRecord]) -> list[str]:
    """The experiments that a person would compare: those that no question has written; if only the sides of a question
    have runs, these. Pilot and dry runs are short, and so never among them."""
    pilots = {answer.pilot for answer in nb.answers()}
    written = {
        name for answer in nb.answers() for name in answer.own if name not in (answer.experiment, answer.against)
    }
    every = [cell for cell in nb.experiments() if cell.name not in pilots]
    full = [cell.name for cell in every if not classes.mapping(cell.config.get("trainer")).get("fast_dev_run")]
    own = [name for name in full if name not in written]
    sides = [name for name in full if name in written]
    is_answered = not _with_runs(own, recorded) and bool(_with_runs(sides, recorded))
    return (sides if is_answered else own) or full or [cell.name for cell in nb.experiments()]


def _with_runs(experiments: Sequence[str], recorded: Sequence[RunRecord]) -> list[str]:
    """Those of which a run has finished, or else those that have logged something."""
    finished = {run.cell for run in recorded if run.outcome == "finished"}
    logged = {run.cell for run in recorded if names.main_metric(run.metrics)}
    named = [[name for name in experiments if name in cells] for cells in (finished, logged)]
    return named[0] or named[1]


def _in_order(nb: Notebook, experiments: Sequence[str]) -> list[str]:
    return [cell.name for cell in nb.experiments() if cell.name in experiments]


def _common_metric(
    nb: Notebook, description: Description, recorded: Sequence[RunRecord], experiments: Sequence[str]
) -> str:
    """The first metric offered for these experiments that is offered for each of them, or the first of all."""
    offered = offered_metrics(nb, description, recorded, experiments)
    each = [offered_metrics(nb, description, recorded, [name]) for name in experiments]
    return next((metric for metric in offered if all(metric in one for one in each)), offered[0])


def comparison_of(
    stored: Stored, cell: ComparisonCell, description: Description, recorded: Sequence[RunRecord] = ()
) -> ComparisonPlan:
    """The plan for editing a comparison that the notebook has."""
    metrics = offered_metrics(stored.notebook, description, recorded)
    return ComparisonPlan(stored, cell, metrics, editing=cell.name, tags=tags_of(recorded))


def of_runs(
    workspace: Workspace,
    runs: Sequence[RunRecord],
    template: ComparisonCell,
    offered: list[str],
    description: Description,
) -> list[ComparisonPlan]:
    """New comparisons of the runs' experiments, one for each notebook that has any; the one with most runs first.

    `template` is the comparison that the page shows, without names; `offered` are its metrics.
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
        experiment_of = {run.id: _experiment(run, name, stored.notebook, description) for run in runs}
        chosen = list(dict.fromkeys(name for name in experiment_of.values() if name))
        if chosen:
            cell = replace(template, name=edit.unique_name(stored.notebook, SUGGESTED), runs=chosen)
            left = [run.name or run.id[:8] for run in runs if not experiment_of[run.id]]
            tags: dict[str, list[Mapping[str, str]]] = {}
            for run in runs:
                tags.setdefault(experiment_of[run.id], []).append(run.tags)
            plans.append(ComparisonPlan(stored, cell, offered, left_out=left, of_runs=" ".join(chosen), tags=tags))
    return sorted(plans, key=lambda plan: len(plan.left_out))


def _experiment(run: RunRecord, notebook: str, nb: Notebook, description: Description) -> str:
    """The experiment of `nb` that a run belongs to: the one it names, or a renamed one with the same config; "" if
    none."""
    if run.notebook != notebook:
        return ""
    if run.cell and nb.experiment(run.cell):
        return run.cell
    hashed = run.tags.get(names.TAG_CONFIG_HASH)
    return next((cell.name for cell in nb.experiments() if config_hash(cell.experiment(description)) == hashed), "")


def offered_metrics(
    nb: Notebook, description: Description, runs: Sequence[RunRecord] = (), experiments: Sequence[str] = ()
) -> list[str]:
    """The metrics that these experiments (all, without names) have logged or are known to log, and the training
    loss."""
    cells = [cell for cell in nb.experiments() if not experiments or cell.name in experiments]
    chosen = {cell.name for cell in cells}
    return offered_for([cell.experiment(description) for cell in cells], [run for run in runs if run.cell in chosen])


SUGGESTED_CLAIM: Final = "claim"
FIELDS: Final[Mapping[str, str]] = {
    "name": "Name", "runs": "Claim about", "against": "Compared with", "search": "Search",
    "figure": "Figure", "metric": "Metric", "target": "Target", "at_least": "At least", "at_most": "At most",
}  # fmt: skip
"""The form's labels, by key."""
FIGURES: Final[Mapping[str, str]] = {
    "samples": "samples to the target", "updates": "updates to the target", "seconds": "seconds to the target",
    "bytes": "bytes to the target", "best": "best value", "updates_per_second": "updates per second",
    "samples_per_second": "samples per second",
}  # fmt: skip


@dataclass(frozen=True)
class ClaimPlan:
    """A claim before it is saved. `stored` is the notebook as the person saw it."""

    stored: Stored
    name: str
    written: Mapping[str, Any]
    """The YAML from which the form starts."""
    metrics: Sequence[str]
    editing: str = ""
    """Its name in the notebook, "" for a new claim."""
    searches: Sequence[str] = field(default_factory=tuple)
    tags: Tags = field(default_factory=dict)

    def better(self, sides: Sequence[Any], search: str, metric: str) -> Direction:
        """The direction of a metric over these sides, where the claim names none. Sides that are mappings are parts of
        `search`."""
        named = [side for side in sides if isinstance(side, str)]
        parts = [search] if any(isinstance(side, Mapping) for side in sides) else []
        return better(self.stored, self.tags, [*named, *parts], metric)

    @property
    def sides(self) -> list[str]:
        """The choices as the form writes them: experiments, and the parts of a search that the claim names."""
        experiments = [cell.name for cell in self.stored.notebook.experiments()]
        written = [*self.runs, *([] if self.written.get("against") is None else [self.written["against"]])]
        if self.of_ratios:
            written = [side[word] for side in written for word in (claim_body.OF, "against") if word in side]
        return list(dict.fromkeys([*experiments, *map(side_text, written)]))

    @property
    def runs(self) -> list[Any]:
        written = self.written.get("runs", [])
        return list(written) if isinstance(written, list) else [written]

    @property
    def against(self) -> str:
        return "" if self.written.get("against") is None else side_text(self.written["against"])

    @property
    def of_ratios(self) -> bool:
        """Whether it compares two ratios that the form can show."""
        sides = [*self.runs, self.written.get("against")]
        return len(sides) == 2 and all(_is_ratio(side) and "figure" not in side for side in sides)

    @property
    def _before(self) -> dict[str, Any]:
        """Both ratios as written, by key; empty for a plain claim."""
        return {"runs": self.runs[0], "against": self.written["against"]} if self.of_ratios else {}

    @property
    def _shared(self) -> dict[str, Any]:
        """The values that both ratios take from the claim, except the figure, which is a field of its own."""
        return {word: self.written[word] for word in claim_body.SHARED[1:] if word in self.written}

    def ratio(self, key: str) -> dict[str, Any]:
        """The form's first values for the ratio at `key`, runs or against; a plain claim becomes the first ratio."""
        plain = (
            {claim_body.OF: self.runs[0], "against": self.written.get("against")} if key == "runs" and self.runs else {}
        )
        return {**self._shared, **(self._before or {key: plain})[key]}

    def ratios(self, form_values: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The YAML of both ratios from the form's values, and the values that they take from the claim."""
        bodies: dict[str, Any] = {}
        for key, side in form_values.items():
            old = {**self._shared, **self._before.get(key, {})}
            values = {
                word: old[word] if word in old and _is_same(old[word], value) else value for word, value in side.items()
            }
            own = {word: value for word, value in values.items() if value not in (None, "")}
            bodies[key] = self._before[key] if self._before and own == old else own
        left = {
            word: self._shared.get(word)
            for word in claim_body.SHARED[1:]
            if any(word not in body for body in bodies.values())
        }
        return {**left, "runs": [bodies["runs"]], "against": bodies["against"]}

    def body(self, form_values: Mapping[str, Any]) -> dict[str, Any]:
        """The claim's YAML with the form's values; an unchanged value keeps its spelling."""
        values = {**self.written}
        for key in claim_body.KEYS:
            value = form_values.get(key)
            if value in (None, "", []):
                values.pop(key, None)
            elif key not in values or not _is_same(values[key], value):
                values[key] = value
        return (
            {key: values[key] for key in sorted(values, key=list(claim_body.KEYS).index)}
            if not self.editing
            else values
        )

    def problems(self, form_values: Mapping[str, Any], name: str, description: Description) -> list[Problem]:
        """The problems, each with the key of its field. Warnings do not block saving."""
        nb = self.stored.notebook
        problems = [*notebooks.name_problems(nb, name, self.editing), *_missing(form_values)]
        if problems:
            return problems
        try:
            cell = claim_body.read_claim("", name, self.body(form_values))
        except ConfigError as error:
            return [error.problem]
        return list(claim_problems(nb, cell, description))

    def sentence(self, form_values: Mapping[str, Any]) -> str:
        """The claim that the form has, in words; what is empty is `…`."""
        plain = _plain_cell(form_values)
        ratios = _ratios(form_values)
        if ratios:
            sides = {key: _ratio_of(side, plain) for key, side in ratios.items()}
            plain = replace(plain, runs=[sides["runs"]], against=sides["against"])
        return claim_sentence(plain, [side_text(side) for side in plain.sides])

    def put(self, notebook: Notebook, name: str, form_values: Mapping[str, Any]) -> Notebook:
        """The notebook with this claim in place of the edited cell, or as a new last cell."""
        if self.editing and name != self.editing:
            notebook = edit.rename_claim(notebook, self.editing, name)
        return edit.put_claim(notebook, name, self.body(form_values))


def new_claim(stored: Stored, description: Description, recorded: Sequence[RunRecord] = ()) -> ClaimPlan:
    """A claim about the last experiment, of those with runs if there are any, against another one with the same model
    and data: if possible the first with a single worker. The target, if runs tell, is one that all of them reached."""
    nb = stored.notebook
    last, *others = _alike(nb, description, recorded, None)
    others = _in_order(nb, _with_runs(others, recorded) or others)
    singles = [name for name in others if _workers(nb, name, description) == 1]
    sides = [last, *(singles or others)[:1]]
    if not singles and len(sides) > 1 and _workers(nb, last, description) == 1:
        sides.reverse()  # one worker is the baseline
    metrics = offered_metrics(nb, description, recorded)
    metric = _common_metric(nb, description, recorded, sides)
    tags = tags_of(recorded)
    written: dict[str, Any] = {"runs": sides[:1], "figure": "samples", "metric": metric}
    target = _reached_by_all(recorded, sides, metric, better(stored, tags, sides, metric).lower)
    written |= {} if target is None else {"target": target}
    written |= {"against": sides[1]} if len(sides) > 1 else {}
    name = edit.unique_name(nb, SUGGESTED_CLAIM)
    return ClaimPlan(stored, name, written, metrics, searches=_searches(nb), tags=tags)


def _workers(nb: Notebook, name: str, description: Description) -> int:
    cell = nb.experiment(name)
    return 0 if cell is None else cell.experiment(description).strategy.workers


def _reached_by_all(runs: Sequence[RunRecord], sides: Sequence[str], metric: str, lower: bool) -> float | None:
    """The worst of the best values of all finished runs of these experiments, rounded so that each run reached it; None
    where an experiment has none."""
    best = {
        name: [
            run.metrics[names.best(metric)]
            for run in runs
            if run.cell == name and run.outcome == "finished" and names.best(metric) in run.metrics
        ]
        for name in sides
    }
    if not all(best.values()):
        return None
    worst = (max if lower else min)(value for values in best.values() for value in values)
    if not math.isfinite(worst) or worst == 0:
        return None
    step = 10.0 ** (math.floor(math.log10(abs(worst))) - 1)
    return float(f"{(math.ceil if lower else math.floor)(worst / step) * step:.6g}")


def claim_of(
    stored: Stored, cell: ClaimCell, description: Description, recorded: Sequence[RunRecord] = ()
) -> ClaimPlan:
    """The plan for editing a claim that the notebook has."""
    offered = offered_metrics(stored.notebook, description, recorded)
    metrics = list(dict.fromkeys([*([cell.metric] if cell.metric else []), *offered]))
    written = edit.values_of(cell)
    return ClaimPlan(stored, cell.name, written, metrics, cell.name, _searches(stored.notebook), tags_of(recorded))


@dataclass(frozen=True)
class MoreSeeds:
    """What would resolve a claim that is not resolved: `repeats` for each of its experiments that has fewer."""

    repeats: int
    added: Mapping[str, int]
    """How many seeds each experiment gets, by name."""
    seconds: float | None
    """About how long their runs take on the cores of this machine; None if that is not known."""

    def put(self, notebook: Notebook) -> Notebook:
        """The notebook with these repeats."""
        for name in self.added:
            cell = notebook.experiment(name)
            assert cell is not None, "the claim names this experiment, so the notebook has it"
            notebook = edit.put_experiment(notebook, name, cell.config, self.repeats)
        return notebook


def more_seeds(
    nb: Notebook, judgement: Judgement, description: Description, reader: RunReader, cores: int
) -> MoreSeeds | None:
    """The seeds that would resolve the claim in most cases; None where no number does, or a side is part of a search,
    whose seeds are not added to its trials."""
    cells = {side: nb.experiment(side) for side in judgement.cell.sides if isinstance(side, str)}
    if not judgement.resolved_by or len(cells) < len(judgement.cell.sides):
        return None
    added: dict[str, int] = {}
    core_seconds: float | None = 0.0
    longest = 0.0
    for row in judgement.rows:
        cell = cells.get(row.evidence.cell)
        if cell is None or cell.name in added or cell.repeats >= judgement.resolved_by:
            continue
        added[cell.name] = judgement.resolved_by - cell.repeats
        records = [reader.run(run) for run in row.evidence.run_ids]
        took = estimate(run.ended - run.started if run.ended else None for run in records)
        experiment = cell.experiment(description)
        used = 1 if experiment.strategy.is_simulated else min(experiment.strategy.workers, cores)
        if took is None or experiment.strategy.nodes > 1 or core_seconds is None:
            core_seconds = None
        else:
            core_seconds += added[cell.name] * took.mean * used
            longest = max(longest, took.mean)
    seconds = None if core_seconds is None else max(longest, core_seconds / cores)
    return MoreSeeds(judgement.resolved_by, added, seconds) if added else None


def side_text(side: Any) -> str:
    """A side as text: an experiment's name, or a part of a search as `workers: 4`."""
    return side if isinstance(side, str) else yaml_flow.flow(side).strip().removeprefix("{").removesuffix("}")


def side(text: str) -> Side:
    """The side that was chosen or typed; ConfigError for text that is neither a name nor `key: value`."""
    if ":" not in text:
        return text
    read = yaml.load(f"{{{text}}}")
    if not isinstance(read, dict):
        raise ConfigError("runs", f"{text!r} is not a part of a search", "Enter a part in the form workers: 4.")
    return read


def goal_of(written: Mapping[str, Any]) -> Goal | None:
    """The goal that the claim or ratio itself names for its metric."""
    read_metric_name = directions.read_metric_name(written.get("metric"))
    return read_metric_name[1] if read_metric_name else None


def metric_of(written: Mapping[str, Any]) -> str:
    """The name of the metric of a claim or a ratio, "" if it names none."""
    read_metric_name = directions.read_metric_name(written.get("metric"))
    return read_metric_name[0] if read_metric_name else ""


def _is_ratio(side: Any) -> bool:
    return isinstance(side, Mapping) and claim_body.OF in side


def _searches(nb: Notebook) -> list[str]:
    return [cell.name for cell in nb.searches()]


def _is_same(before: Any, now: Any) -> bool:
    """Whether both mean the same: a list of one is its item, and `{metric: max}` is its metric."""
    return bool(before == now or [before] == now or (isinstance(before, Mapping) and [*before] == [now]))


def _missing(form_values: Mapping[str, Any]) -> list[Problem]:
    """Problems of empty or wrong fields, in the words of the form instead of those of the YAML."""
    ratios = _ratios(form_values)
    wanted = {f"{key}.{word}": side.get(word) for key, side in ratios.items() for word in (claim_body.OF, "against")}
    boxes = {**form_values, **{f"{key}.target": side.get("target") for key, side in ratios.items()}}
    problems = [
        Problem("wrong-type", key, f"{boxes[key]!r} is not a number", "Enter a number, such as 0.95.")
        for key in ("target", "runs.target", "against.target", "at_least", "at_most")
        if isinstance(boxes.get(key), str)
    ]
    if problems:
        return problems
    problems = [Problem("missing", key, "is empty", "Choose one.") for key, side in wanted.items() if not side]
    if not form_values.get("runs"):
        problems.append(Problem("missing", "runs", "is empty", "Choose at least one experiment."))
    for prefix, side in [(f"{key}.", side) for key, side in ratios.items()] or [("", form_values)]:
        metric = metric_of(side) or metric_of(form_values)
        if not metric:
            problems.append(Problem("missing", f"{prefix}metric", "is empty", "Choose one, or type its name."))
        if form_values.get("figure") in names.AXES and side.get("target") is None and form_values.get("target") is None:
            problems.append(
                Problem("missing", f"{prefix}target", "is missing", f"Enter the value of {metric} to reach.")
            )
    least, most = form_values.get("at_least"), form_values.get("at_most")
    if least is None and most is None:
        problems.append(
            Problem(
                "missing", "at_most", "is empty, and At least is empty too", "Fill in at least one of the two bounds."
            )
        )
    elif least is not None and most is not None and least >= most:
        problems.append(
            Problem("out-of-bounds", "at_least", f"is {least:g}, which is not below At most", "Enter a smaller number.")
        )
    return problems


def _plain_cell(form_values: Mapping[str, Any]) -> ClaimCell:
    """The claim as the form has it, where it is complete or not."""
    target, least, most = (
        value if isinstance(value := form_values.get(key), int | float) else None
        for key in ("target", "at_least", "at_most")
    )
    sides = [side for side in form_values.get("runs") or [] if side is not None] or [MISSING]
    return ClaimCell(
        "", "", sides, form_values.get("against"), form_values["figure"], metric_of(form_values), target, least, most
    )


def _ratio_of(written: Any, claim: ClaimCell) -> Ratio:
    side = written if _is_ratio(written) else {}
    of, base = (side.get(word) or MISSING for word in (claim_body.OF, "against"))
    target = side.get("target")
    target = target if isinstance(target, int | float) else claim.target
    return Ratio(of, base, claim.figure, metric_of(side) or claim.metric, target, None, None)


def _ratios(form_values: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The two ratios among the form's values, by key; empty for a plain claim."""
    ratios = {"runs": (form_values.get("runs") or [None])[0], "against": form_values.get("against")}
    return ratios if any(_is_ratio(side) for side in ratios.values()) else {}


@dataclass(frozen=True)
class ComparisonDraft(Draft):
    """The last values of the form of an unsaved comparison. `editing` is the comparison that it was opened from, "" for
    a new one; `of_runs` tells new comparisons apart that were begun from chosen runs."""

    KIND = "comparison-draft"
    editing: str
    of_runs: str
    cell: ComparisonCell
    at: int | None = None
    before: str = ""
    """As in `SavedDraft`."""

    @property
    def which(self) -> str:
        return f"{self.editing}\n{self.of_runs}"


def _draft_of(plan: ComparisonPlan) -> ComparisonDraft:
    cell, before = replace(plan.cell, source=""), plan.cell.source if plan.editing else ""
    return ComparisonDraft(plan.stored.path.stem, plan.editing, plan.of_runs, cell, plan.at, before)


def save_draft(workspace: Workspace, plan: ComparisonPlan, now: ComparisonCell) -> None:
    """Save `now` as a draft if it differs from the first values or the last draft."""
    draft = _draft_of(plan)
    left = drafts.load(workspace, ComparisonDraft, draft.notebook, draft.which)
    if now != (left.draft.cell if left else plan.cell):
        drafts.save(workspace, replace(draft, cell=replace(now, source="")))


def resumed(workspace: Workspace, plan: ComparisonPlan) -> ComparisonPlan:
    """`plan` with the values of its draft, if there is one."""
    draft = _draft_of(plan)
    left = drafts.load(workspace, ComparisonDraft, draft.notebook, draft.which)
    return plan if left is None else continued(plan, left)


def continued(plan: ComparisonPlan, left: LeftDraft[ComparisonDraft]) -> ComparisonPlan:
    """`plan` with the values of its draft."""
    draft = left.draft
    stored = notebooks.as_begun(plan.stored, draft.editing, draft.before)
    cell = replace(draft.cell, source=draft.before or plan.cell.source)
    return replace(plan, stored=stored, cell=cell, of_runs=draft.of_runs, left_at=left.written_s)


def discard_draft(workspace: Workspace, plan: ComparisonPlan) -> None:
    drafts.discard(workspace, ComparisonDraft, plan.stored.path.stem, _draft_of(plan).which)


def cell_of(draft: ComparisonDraft, notebook: Notebook) -> ComparisonCell | None:
    """The cell that the draft was opened from; None for a new comparison, or if the cell is gone."""
    cells = (cell for cell in notebook.cells if isinstance(cell, ComparisonCell))
    return next((cell for cell in cells if draft.editing and cell.name == draft.editing), None)


@dataclass(frozen=True)
class ClaimDraft(Draft):
    """The last values of the form of an unsaved claim, or its last text. `editing` is the claim that it was opened
    from, "" for a new one."""

    KIND = "claim-draft"
    editing: str
    name: str
    values: dict[str, Any]
    """The YAML that the form has made."""
    text: str = ""
    """The typed text, if the claim was edited as text."""
    before: str = ""
    """As in `SavedDraft`."""

    @property
    def which(self) -> str:
        return f"{self.editing}\n{'text' if self.text else ''}"


def left_claim(workspace: Workspace, stored: Stored, editing: str, *, as_text: bool) -> LeftDraft[ClaimDraft] | None:
    """The draft of the claim `editing`, "" for a new one."""
    same = ClaimDraft(stored.path.stem, editing, "", {}, "text" if as_text else "")
    return drafts.load(workspace, ClaimDraft, same.notebook, same.which)


def continued_claim(plan: ClaimPlan, left: LeftDraft[ClaimDraft] | None) -> ClaimPlan:
    """`plan` with the values of its draft, if there is one."""
    if left is None:
        return plan
    stored = notebooks.as_begun(plan.stored, plan.editing, left.draft.before)
    return replace(plan, stored=stored, name=left.draft.name, written=left.draft.values)


def draft_of_claim(plan: ClaimPlan, name: str, values: Mapping[str, Any]) -> ClaimDraft:
    """The draft with the values of a claim's form."""
    before = _source(plan.stored, plan.editing)
    return ClaimDraft(plan.stored.path.stem, plan.editing, name, dict(values), before=before)


def save_claim_draft(workspace: Workspace, draft: ClaimDraft, plan: ClaimPlan) -> None:
    """Save the draft if it differs from the first values, those of `plan`, or from the last draft."""
    left = drafts.load(workspace, ClaimDraft, draft.notebook, draft.which)
    last = (left.draft.name, left.draft.values) if left else (plan.name, plan.body(plan.written))
    if (draft.name, draft.values) != last:
        drafts.save(workspace, draft)


def save_claim_text(workspace: Workspace, stored: Stored, editing: str, text: str) -> None:
    """Save the text of a claim as a draft."""
    before = _source(stored, editing)
    drafts.save(workspace, ClaimDraft(stored.path.stem, editing, editing, {}, text, before))


def _source(stored: Stored, name: str) -> str:
    cell = notebooks.named_cell(stored.notebook, name)
    return cell.source if cell else ""


def discard_claim(workspace: Workspace, stored: Stored, editing: str) -> None:
    """Discard what was typed into the form and the text of the claim `editing`."""
    for text in ("", "text"):
        which = ClaimDraft(stored.path.stem, editing, "", {}, text).which
        drafts.discard(workspace, ClaimDraft, stored.path.stem, which)
