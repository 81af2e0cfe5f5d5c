"""Setting up a search, without widgets: the fields that can vary, the body of the cell, its cost, and drafts."""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from scalebook.app.runs import data as runs
from scalebook.app.search import data as searches
from scalebook.app.search.data import Body
from scalebook.app.shared.drafts import Draft
from scalebook.app.shared.words import plain, plural
from scalebook.training.base import ConfigError, Workspace, duration
from scalebook.training.base.files import yaml
from scalebook.training.experiments import Experiment, Field, classes, fields_by_path
from scalebook.training.experiments.search import (
    AMOUNTS,
    STRATEGIES,
    Cost,
    Dimension,
    Kind,
    SearchSpec,
    keys,
    preset_body,
    resolve,
    summary,
)
from scalebook.training.jobs import NodeDevices, computes_on_gpus
from scalebook.training.notebook import Note, Notebook, SearchCell, edit, offered
from scalebook.training.tracking import Direction, Goal, RunReader, RunRecord, directions

Row = dict[str, Any]
"""One dimension as in the cell: `{"log_uniform": [0.001, 1.0], "rule": "linear", "per": 256}`."""
KINDS: Final[dict[Kind, str]] = {
    "log_uniform": "logarithmic",
    "uniform": "linear",
    "int": "whole numbers",
    "powers_of_two": "powers of two",
    "grid": "numbers",
    "values": "choices",
}
BY_HANDLE: Final = (
    "data.batch_size",
    "optimizer.lr",
    "trainer.strategy.workers",
    "trainer.devices",
    "trainer.max_time",
)
"""Paths that have a short name (a handle), or that a search sets itself."""


@dataclass(frozen=True)
class SearchField:
    """A field that can be varied. `name` is its name in the cell: a handle (`batch_size`) or a dotted path."""

    name: str
    title: str
    present: Any
    field: Field
    """Type, bounds and choices of its values."""

    @property
    def label(self) -> str:
        """The field's entry in the list, with its present value: `model.hidden  (now 64)`."""
        text = self.title if self.title == self.name else f"{self.title}, {self.name}"
        return f"{text}  (now {plain(self.present)})"

    @property
    def kinds(self) -> list[Kind]:
        """The kinds of range that suit the field, the most useful one first."""
        if self.name in ("batch_size",):
            return ["powers_of_two", "int", "grid", "values"]
        if self.name == "workers":
            return ["values", "int", "powers_of_two"]
        if self.field.type == "int":
            return ["int", "powers_of_two", "grid", "values"]
        if self.field.type == "float":
            wide: list[Kind] = ["log_uniform", "uniform", "grid", "values"]
            bounded = self.field.minimum is not None and self.field.maximum is not None
            return ["uniform", "log_uniform", "grid", "values"] if bounded else wide
        return ["values"]


def search_fields(experiment: Experiment) -> list[SearchField]:
    """The fields of this experiment that can be varied: the handles first, then every argument of its classes."""
    return [*_handles(experiment), *_paths(experiment)]


def _handles(experiment: Experiment) -> list[SearchField]:
    strategy, batch_, rate_ = experiment.strategy, experiment.batch, experiment.rate.requested
    fields: list[SearchField] = []
    if batch_.per_worker is not None:
        batch = Field("batch_size", "int", "Samples per batch.", minimum=1)
        fields.append(SearchField("batch_size", "Batch size", batch_.together, batch))
    if rate_ is not None:
        rate = Field("learning_rate", "float", "Learning rate of the optimizer.", minimum=0, exclusive_minimum=True)
        fields.append(SearchField("learning_rate", "Learning rate", rate_, rate))
    words = [*STRATEGIES, *(info.class_path for info in experiment.description.strategies if info.source == "user")]
    words_ = strategy.words
    now = strategy.name if words_ is None or strategy.name == "ddp" else words_.partition(",")[0]
    fields.append(SearchField("strategy", "Strategy", now, Field("strategy", "enum", choices=words)))
    workers = Field("workers", "int", "Processes that compute gradients.", minimum=1, maximum=1024)
    return [*fields, SearchField("workers", "Workers", strategy.workers, workers)]


def _paths(experiment: Experiment) -> Iterator[SearchField]:
    for path, field in fields_by_path(experiment):
        if path not in BY_HANDLE and not (field.type == "json" and path.startswith("trainer.")):
            yield SearchField(path, path, _now(experiment, path, field), field)


def _now(experiment: Experiment, path: str, field: Field) -> Any:
    """The config's value at a path without `init_args`, or the field's default."""
    value: Any = experiment.written
    for key in path.split("."):
        if isinstance(value, Mapping) and "class_path" in value:
            value = classes.mapping(value.get("init_args"))
        if not isinstance(value, Mapping) or key not in value:
            return field.default
        value = value[key]
    return value


def kind_of(row: Mapping[str, Any]) -> Kind | None:
    """The kind that a row names; None if it names none."""
    return next((kind for kind in KINDS if kind in row), None)


def first_row(field: SearchField, kind: Kind | None = None) -> Row:
    """A first range, around the config's present value."""
    kind = kind or field.kinds[0]
    if kind == "values":
        return {"values": _choices(field)}
    now = field.present if isinstance(field.present, int | float) and not isinstance(field.present, bool) else 1
    if kind == "powers_of_two":
        middle = max(1, 2 ** round(math.log2(max(1, now))))
        return {"powers_of_two": [max(1, middle // 8), middle * 8]}
    if kind == "int":
        return {"int": _inside(field.field, [max(1, int(now) // 4), max(4, int(now) * 4)])}
    if kind == "grid":
        whole = field.field.type == "int"
        return {"grid": [int(now), int(now) * 2, int(now) * 4] if whole else [now / 10, now, now * 10]}
    if kind == "log_uniform":
        low, high = _inside(field.field, [_rounded(now / 30) or 1e-4, _rounded(now * 30) or 1.0])
        return {"log_uniform": [low if low > 0 else high / 1000, high]}
    return {"uniform": _inside(field.field, [0.0, _rounded(now * 2) or 1.0])}


def _choices(field: SearchField) -> list[Any]:
    described = field.field
    if field.name == "strategy":
        return ["single", "ddp", "async"]
    if field.name == "workers":
        return [1, 2]
    if described.type == "bool":
        return [True, False]
    if described.type == "class":
        few = [option for option in described.classes if described.group != "modules" or option.source == "user"]
        return list(described.choices) or [option.class_path for option in few]  # not all of torch.nn
    return list(described.choices) or [field.present]


def _rounded(value: float) -> float:
    """`value` to one digit: 0.0333 -> 0.03."""
    return float(f"{value:.1g}")


def _inside(field: Field, pair: Sequence[Any]) -> list[Any]:
    low, high = pair
    if field.minimum is not None:
        low = max(low, type(low)(field.minimum))
    if field.maximum is not None:
        high = min(high, type(high)(field.maximum))
    return [low, max(low, high)]


RECENT_RUNS: Final = 5
EXAMPLES: Final = (0.0, 0.5, 1.0)


def new_body(name: str, experiment: Experiment, runs: Sequence[RunRecord] = ()) -> Body:
    """A new search over an empty space. `name`: the experiment's; `runs`: those of it."""
    metric = metrics(experiment, runs)[0]
    return {
        "experiment": name,
        "objective": with_objectives([metric], {metric: searches.better(metric, experiment, runs)}, experiment),
        "scaling": "strong",
        "space": {},
        "sampler": "tpe",
        "pruner": "none",
        "trials": 30,
        "seeds": 1,
    }


def with_preset(
    body: Body,
    name: str,
    experiment: Experiment,
    machine: NodeDevices,
    runs: Sequence[RunRecord] = (),
) -> Body:
    """The body of the preset for the same experiment, with the metric that `new_body` chooses."""
    gpus = machine.together if computes_on_gpus(experiment, [machine]) else 0
    preset = preset_body(name, experiment, len(machine.cores), gpus)
    new = new_body("", experiment, runs)
    if runs:
        amounts = [item for item in searches.objectives(preset) if item in AMOUNTS]
        preset["objective"] = [new["objective"], *amounts] if amounts else new["objective"]
    carried: Body = {key: body[key] for key in ("experiment", "storage") if key in body}
    return tidy_body({**new, **preset, **carried, "preset": name})


def tidy_body(body: Mapping[str, Any]) -> Body:
    """The body with its keys in reading order and without defaults; unknown keys stay, at the end."""
    return keys.without_defaults({key: body[key] for key in keys.KEYS if key in body} | dict(body))


def metrics(experiment: Experiment, runs: Sequence[RunRecord] = ()) -> list[str]:
    """The metrics that can be an objective; the main metric of the experiment's `runs`, or of its model, is first."""
    return offered([experiment], runs)


def with_objectives(names: Sequence[str], better: Mapping[str, Direction], experiment: Experiment) -> Any:
    """The YAML of the objectives `names`. An objective gets its goal from `better` where a person chose it, or where
    name and config alone give another one."""
    items = []
    for name in names:
        direction = better.get(name)
        alone = directions.of_runs(name, None, (), [experiment.callbacks])
        plain = direction is None or (direction.source != "said" and direction.lower == alone.lower)
        goal: Goal | None = None if plain or direction is None else "min" if direction.lower else "max"
        items.append(directions.metric_text(name, goal))
    return items[0] if len(items) == 1 else items


def recent(reader: RunReader, notebook: str, cell: str) -> list[RunRecord]:
    """The newest runs of the experiment, whose tags say what it logs."""
    return reader.runs(notebook=notebook, cell=cell, limit=RECENT_RUNS) if cell else []


def seconds_a_run(workspace: Workspace, reader: RunReader, notebook: str, cell: str) -> float | None:
    """Median wall time of the newest finished runs of the experiment, s; None without any."""
    records = reader.runs(notebook=notebook, cell=cell, where="attributes.status = 'FINISHED'", limit=RECENT_RUNS)
    seconds = [view.seconds for view in runs.views(workspace, records) if view.seconds]
    return median(seconds) if seconds else None


def about(cost: Cost) -> str:
    """The cost in words: `Starts 40 runs, about 7 minutes on this machine, 2 at a time.`"""
    count = plural(cost.runs, "run")
    if cost.minutes is None:
        return f"Starts {count}. The time is not known until the first run ends."
    minutes = max(1, round(cost.minutes))
    took = "less than a minute" if cost.minutes < 1 else f"about {plural(minutes, 'minute')}"
    if minutes >= 120:
        took = f"about {plural(round(minutes / 60), 'hour')}"
    beside = f", {cost.side_by_side} at a time" if cost.side_by_side > 1 else ", one at a time"
    return f"Starts {count}, {took} on this machine{beside}."


def source_of(cost: Cost, seconds: float | None, spec: SearchSpec) -> str:
    """The source of the estimated minutes in words; "" without an estimate."""
    if cost.minutes is None:
        return ""
    if spec.seconds_per_trial is not None:
        return f"Each run takes {spec.seconds_per_trial:g} s."
    return "" if seconds is None else f"Based on {duration(seconds)} per run of the experiment."


@dataclass(frozen=True)
class Example:
    """A point as it would run; `trial` is None if it cannot, and `problem` says why."""

    words: str
    trial: Experiment | None
    problem: str = ""


def examples(spec: SearchSpec) -> list[Example]:
    """Three resolved points: every range at its lower end, in the middle, at its upper end."""
    examples_: list[Example] = []
    for share in EXAMPLES:
        point = {dimension.name: value_at(dimension, share) for dimension in spec.space}
        words = summary(spec, point)
        if any(example.words == words for example in examples_):
            continue
        try:
            examples_.append(Example(words, resolve(spec, point)))
        except ConfigError as error:
            examples_.append(Example(words, None, str(error)))
    return examples_


def value_at(dimension: Dimension, share: float) -> Any:
    """The value at `share` (0 to 1) of the way through a dimension, on its own scale."""
    if dimension.kind in ("powers_of_two", "grid", "values"):
        values = dimension.grid()
        return values[min(len(values) - 1, round(share * (len(values) - 1)))]
    if dimension.kind == "log_uniform" or dimension.log:
        value = dimension.low * (dimension.high / dimension.low) ** share
    else:
        value = dimension.low + share * (dimension.high - dimension.low)
    if dimension.kind == "int":
        return int(dimension.low) + round((value - dimension.low) / dimension.step) * dimension.step
    return float(f"{value:.3g}")


def suggested_name(body: Mapping[str, Any], notebook: Notebook) -> str:
    """A name made of experiment and preset, with a number if the name is taken."""
    return edit.unique_name(notebook, f"{body.get('experiment', 'search')}-{body.get('preset') or 'search'}")


def put(notebook: Notebook, name: str, body: Body) -> Notebook:
    """The notebook with `body` in the search cell `name`; a new cell goes below its experiment and its searches."""
    position = None
    for index, cell in enumerate(notebook.cells):
        named = not isinstance(cell, Note) and cell.name == body.get("experiment")
        if named or (position == index and isinstance(cell, SearchCell)):
            position = index + 1
    return edit.put_search(notebook, name, body, position=position)


def cell_text(notebook: Notebook, name: str, body: Body) -> str:
    """The cell's text as in the notebook; plain YAML if the notebook cannot hold the name or a value."""
    try:
        cell = put(notebook, name, body).search(name)
    except ConfigError:
        cell = None
    return cell.source.strip() if cell else yaml.dump(body)


@dataclass(frozen=True)
class SavedSetup(Draft):
    """The last values of the form, for one address."""

    KIND = "search-draft"
    cell: str
    experiment: str
    name: str
    step: int
    body: Body
    before: str = ""
    """As in `SavedDraft`."""

    @property
    def which(self) -> str:
        return address(self.cell, self.experiment)


def address(cell: str, experiment: str) -> str:
    """The key of a draft within its notebook."""
    return f"{cell}\n{experiment}"
