"""Setting up a search without its widgets: the body of the cell, what it would do, and its unfinished drafts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Final

from scalebook.app.runs import data as runs
from scalebook.app.shared.drafts import Draft
from scalebook.app.shared.words import plural
from scalebook.training.config.description import Description
from scalebook.training.config.search.cost import Cost
from scalebook.training.config.search.definition import SearchSpec
from scalebook.training.config.search.keys import KEYS, without_defaults
from scalebook.training.config.search.point import resolve, summary
from scalebook.training.config.search.presets import preset_body
from scalebook.training.config.search.space import Dimension
from scalebook.training.config.search.types import AMOUNTS
from scalebook.training.config.workload import Workload, workload
from scalebook.training.durations import duration
from scalebook.training.errors import ConfigError
from scalebook.training.files import yaml
from scalebook.training.jobs.devices import Machine
from scalebook.training.jobs.gpu_problems import computes_on_gpus
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import Note, Notebook, SearchCell
from scalebook.training.notebook.offered import offered
from scalebook.training.tracking import directions
from scalebook.training.tracking.directions import Direction, Goal
from scalebook.training.tracking.reading import RunReader, RunRecord
from scalebook.training.workspace import Workspace

Body = dict[str, Any]
"""What a search cell says."""

RECENT_RUNS: Final = 5
EXAMPLES: Final = (0.0, 0.5, 1.0)


def begun(experiment: str, config: Mapping[str, Any], description: Description, runs: Sequence[RunRecord] = ()) -> Body:
    """A search over nothing yet. `runs` are those of the experiment."""
    name = metrics(config, description, runs)[0]
    return {
        "experiment": experiment,
        "objective": with_objectives([name], {name: better(name, config, runs)}, config),
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
    config: Mapping[str, Any],
    description: Description,
    machine: Machine,
    runs: Sequence[RunRecord] = (),
) -> Body:
    """What the preset says, for the same experiment, by the metric that `begun` takes."""
    gpus = machine.together if computes_on_gpus(workload(config, description), [machine]) else 0
    preset = preset_body(name, config, description, len(machine.cores), gpus)
    new = begun("", config, description, runs)
    if runs:
        amounts = [item for item in objectives(preset) if item in AMOUNTS]
        preset["objective"] = [new["objective"], *amounts] if amounts else new["objective"]
    kept: Body = {key: body[key] for key in ("experiment", "storage") if key in body}
    return tidy({**new, **preset, **kept, "preset": name})


def tidy(body: Mapping[str, Any]) -> Body:
    """The body with its keys in reading order and without those that say nothing; unknown keys stay, at the end."""
    return without_defaults({key: body[key] for key in KEYS if key in body} | dict(body))


def metrics(config: Mapping[str, Any], description: Description, runs: Sequence[RunRecord] = ()) -> list[str]:
    """What a trial can be judged by, the main metric of the experiment's `runs`, or of its model, first."""
    return offered([config], runs, description)


def better(name: str, config: Mapping[str, Any], runs: Sequence[RunRecord]) -> Direction:
    """What is better of an objective that says nothing of it."""
    return directions.of_runs(name, None, [run.tags for run in runs], [config])


def objectives(body: Mapping[str, Any]) -> list[str]:
    """One name or two; a body by hand may say anything, and may name the goal: `{val/iou: max}`."""
    named = body.get("objective")
    items = named if isinstance(named, list | tuple) else [named]
    return [str(next(iter(item), "") if isinstance(item, Mapping) else item) for item in items if item]


def goal_of(body: Mapping[str, Any], name: str) -> Goal | None:
    """What the body says is better of one of its objectives."""
    written = body.get("objective")
    items = written if isinstance(written, list | tuple) else [written]
    return next((told[1] for item in items if (told := directions.named(item)) and told[0] == name), None)


def without_goal(body: Mapping[str, Any]) -> list[str]:
    """The metrics among its objectives of which the body does not say what is better."""
    return [name for name in objectives(body) if name not in AMOUNTS and goal_of(body, name) is None]


def turned(body: Mapping[str, Any], name: str, goal: Goal) -> Body:
    """The body with a person's word on what is better of one of its objectives."""
    written = body.get("objective")
    items = written if isinstance(written, list | tuple) else [written]
    names = objectives(body)
    items = [directions.written(name, goal) if said == name else item for said, item in zip(names, items, strict=True)]
    return {**body, "objective": items[0] if len(items) == 1 else items}


def with_objectives(said: Sequence[str], better: Mapping[str, Direction], config: Mapping[str, Any]) -> Any:
    """What to write for the objectives `said`: with what is better of each in `better` where a person says it, or where
    name and config alone tell something else."""
    items = []
    for name in said:
        told = better.get(name)
        alone = directions.of_runs(name, None, (), [config])
        plain = told is None or (told.source != "said" and told.lower == alone.lower)
        goal: Goal | None = None if plain or told is None else "min" if told.lower else "max"
        items.append(directions.written(name, goal))
    return items[0] if len(items) == 1 else items


def recent(reader: RunReader, notebook: str, cell: str) -> list[RunRecord]:
    """The newest runs of the experiment, which say what it logs."""
    return reader.runs(notebook=notebook, cell=cell, limit=RECENT_RUNS) if cell else []


def seconds_a_run(workspace: Workspace, reader: RunReader, notebook: str, cell: str) -> float | None:
    """Median wall time of the newest finished runs of the experiment; None where none has finished yet."""
    records = reader.runs(notebook=notebook, cell=cell, where="attributes.status = 'FINISHED'", limit=RECENT_RUNS)
    seconds = [view.seconds for view in runs.views(workspace, records) if view.seconds]
    return median(seconds) if seconds else None


def about(cost: Cost) -> str:
    """`Starts 40 runs, about 7 minutes on this machine, 2 side by side.`"""
    count = plural(cost.runs, "run")
    if cost.minutes is None:
        return f"Starts {count}; the time is unknown until the first run ends."
    minutes = max(1, round(cost.minutes))
    took = "less than a minute" if cost.minutes < 1 else f"about {plural(minutes, 'minute')}"
    if minutes >= 120:
        took = f"about {plural(round(minutes / 60), 'hour')}"
    beside = f", {cost.side_by_side} side by side" if cost.side_by_side > 1 else ", one at a time"
    return f"Starts {count}, {took} on this machine{beside}."


def source_of(cost: Cost, seconds: float | None, spec: SearchSpec) -> str:
    """Where the estimate of minutes comes from, in words; "" where there is no estimate."""
    if cost.minutes is None:
        return ""
    if spec.seconds_per_trial is not None:
        return f"Each run takes {spec.seconds_per_trial:g} s."
    return "" if seconds is None else f"Based on {duration(seconds)} per run of the experiment."


@dataclass(frozen=True)
class Example:
    """A point as it would run; `load` is None where it cannot, and `problem` says why."""

    words: str
    load: Workload | None
    problem: str = ""


def examples(spec: SearchSpec, description: Description) -> list[Example]:
    """The lower end of every range, the middle, the upper end: what the space means, resolved."""
    examples_: list[Example] = []
    for share in EXAMPLES:
        point = {dimension.name: value_at(dimension, share) for dimension in spec.space}
        words = summary(spec, point)
        if any(example.words == words for example in examples_):
            continue
        try:
            examples_.append(Example(words, workload(resolve(spec, point, description), description)))
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
    """Experiment and preset, with a number where the name is taken."""
    return edit.unique_name(notebook, f"{body.get('experiment', 'search')}-{body.get('preset') or 'search'}")


def put(notebook: Notebook, name: str, body: Body) -> Notebook:
    """The search cell as `body` says: changed in place, or new below its experiment and the searches that follow it."""
    at = None
    for index, cell in enumerate(notebook.cells):
        named = not isinstance(cell, Note) and cell.name == body.get("experiment")
        if named or (at == index and isinstance(cell, SearchCell)):
            at = index + 1
    return edit.put_search(notebook, name, body, at=at)


def cell_text(notebook: Notebook, name: str, body: Body) -> str:
    """The cell's text as it would stand in the notebook; plain YAML where the name or a value cannot stand there."""
    try:
        cell = put(notebook, name, body).search(name)
    except ConfigError:
        cell = None
    return cell.source.strip() if cell else yaml.dump(body)


@dataclass(frozen=True)
class SavedSetup(Draft):
    """What the form said last, for one address."""

    KIND = "search-draft"
    cell: str
    experiment: str
    name: str
    step: int
    body: Body

    @property
    def which(self) -> str:
        return address(self.cell, self.experiment)


def address(cell: str, experiment: str) -> str:
    """Of the search set-up, within its notebook."""
    return f"{cell}\n{experiment}"
