"""Claims that are being set up: what the form begins with, what it makes of what was chosen, what is wrong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scalebook.app.compare.services import plans
from scalebook.app.shared import notebooks
from scalebook.training.config.description import Description
from scalebook.training.errors import ConfigError, Problem
from scalebook.training.files import yaml
from scalebook.training.files.flow import flow
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import ClaimCell, Notebook, Side
from scalebook.training.notebook.claim_body import KEYS, OF, SHARED, read_claim
from scalebook.training.notebook.claim_check import claim_problems
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking import directions, names
from scalebook.training.tracking.directions import Direction, Goal
from scalebook.training.tracking.reading import RunRecord

SUGGESTED: Final = "claim"
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
    """A claim before it is saved into the notebook `stored`, as that was seen."""

    stored: Stored
    name: str
    written: Mapping[str, Any]
    """The YAML that the form begins with."""
    metrics: Sequence[str]
    editing: str = ""
    """The name that it has so far, "" for a new one."""
    searches: Sequence[str] = field(default_factory=tuple)
    tags: plans.Tags = field(default_factory=dict)

    def better(self, sides: Sequence[Any], search: str, metric: str) -> Direction:
        """What is better of a metric of these sides, where the claim says nothing of it. Parts are of `search`."""
        named = [side for side in sides if isinstance(side, str)]
        parts = [search] if any(isinstance(side, Mapping) for side in sides) else []
        return plans.better(self.stored, self.tags, [*named, *parts], metric)

    @property
    def sides(self) -> list[str]:
        """What can be chosen, as the form writes it: experiments, and the parts of a search that it names."""
        known = [cell.name for cell in self.stored.notebook.experiments()]
        written = [*self.runs, *([] if self.written.get("against") is None else [self.written["against"]])]
        if self.of_ratios:
            written = [side[word] for side in written for word in (OF, "against") if word in side]
        return list(dict.fromkeys([*known, *map(side_text, written)]))

    @property
    def runs(self) -> list[Any]:
        written = self.written.get("runs", [])
        return list(written) if isinstance(written, list) else [written]

    @property
    def against(self) -> str:
        return "" if self.written.get("against") is None else side_text(self.written["against"])

    @property
    def metric(self) -> str:
        """Its name; "" where the claim names none."""
        return metric_of(self.written)

    @property
    def of_ratios(self) -> bool:
        """Whether it compares a ratio with a ratio, which the form has fields for."""
        sides = [*self.runs, self.written.get("against")]
        return len(sides) == 2 and all(_is_ratio(side) and "figure" not in side for side in sides)

    @property
    def _before(self) -> dict[str, Any]:
        """Both ratios as they are written, by key; empty for a plain claim."""
        return {"runs": self.runs[0], "against": self.written["against"]} if self.of_ratios else {}

    @property
    def _shared(self) -> dict[str, Any]:
        """What ratios take from their claim, the figure apart, which is one for both in the form."""
        return {word: self.written[word] for word in SHARED[1:] if word in self.written}

    def ratio(self, key: str) -> dict[str, Any]:
        """What the ratio at `key`, runs or against, begins with in the form; of a plain claim the first as it is."""
        plain = {OF: self.runs[0], "against": self.written.get("against")} if key == "runs" and self.runs else {}
        return {**self._shared, **(self._before or {key: plain})[key]}

    def ratios(self, said: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
        """The YAML of both as the form says them, by key, with what is left to the claim for them."""
        bodies: dict[str, Any] = {}
        for key, side in said.items():
            old = {**self._shared, **self._before.get(key, {})}
            values = {
                word: old[word] if word in old and _is_same(old[word], value) else value for word, value in side.items()
            }
            own = {word: value for word, value in values.items() if value not in (None, "")}
            bodies[key] = self._before[key] if self._before and own == old else own
        left = {
            word: self._shared.get(word) for word in SHARED[1:] if any(word not in body for body in bodies.values())
        }
        return {**left, "runs": [bodies["runs"]], "against": bodies["against"]}

    def body(self, said: Mapping[str, Any]) -> dict[str, Any]:
        """The YAML with what the form says; what did not change is written as it was."""
        values = {**self.written}
        for key in KEYS:
            value = said.get(key)
            if value in (None, "", []):
                values.pop(key, None)
            elif key not in values or not _is_same(values[key], value):
                values[key] = value
        return {key: values[key] for key in sorted(values, key=list(KEYS).index)} if not self.editing else values

    def problems(self, said: Mapping[str, Any], name: str, description: Description) -> list[Problem]:
        """By the key of the field. Warnings do not keep it from being saved."""
        nb = self.stored.notebook
        found = [*notebooks.name_problems(nb, name, self.editing), *_missing(said)]
        if found:
            return found
        try:
            cell = read_claim("", name, self.body(said))
        except ConfigError as error:
            return [error.problem]
        return list(claim_problems(nb, cell, description))

    def put(self, notebook: Notebook, name: str, said: Mapping[str, Any]) -> Notebook:
        """The notebook with it in place of what was edited, or as a new last cell."""
        if self.editing and name != self.editing:
            notebook = edit.rename_claim(notebook, self.editing, name)
        return edit.put_claim(notebook, name, self.body(said))


def new(stored: Stored, description: Description, recorded: Sequence[RunRecord] = ()) -> ClaimPlan:
    """A new one: the last experiment, compared with the first of the same model, where there is another."""
    nb = stored.notebook
    *before, last = nb.experiments()
    alike = [cell.name for cell in before if cell.config.get("model") == last.config.get("model")]
    metrics = plans.metrics(nb, description, recorded)
    metric = plans.metrics(nb, description, recorded, [last.name])[0]
    written: dict[str, Any] = {"runs": [last.name], "figure": "samples", "metric": metric}
    if alike:
        written["against"] = alike[0]
    return ClaimPlan(
        stored, edit.unique_name(nb, SUGGESTED), written, metrics, searches=_searches(nb), tags=plans.tags_of(recorded)
    )


def of_cell(stored: Stored, cell: ClaimCell, description: Description, recorded: Sequence[RunRecord] = ()) -> ClaimPlan:
    """For editing a claim that the notebook has."""
    known = plans.metrics(stored.notebook, description, recorded)
    metrics = list(dict.fromkeys([*([cell.metric] if cell.metric else []), *known]))
    written = edit.values_of(cell)
    return ClaimPlan(
        stored, cell.name, written, metrics, cell.name, _searches(stored.notebook), plans.tags_of(recorded)
    )


def side_text(side: Any) -> str:
    """An experiment by its name; a part of a search as `workers: 4`."""
    return side if isinstance(side, str) else flow(side).strip().removeprefix("{").removesuffix("}")


def side(text: str) -> Side:
    """What was chosen or typed; ConfigError for what is neither a name nor `key: value`."""
    if ":" not in text:
        return text
    read = yaml.load(f"{{{text}}}")
    if not isinstance(read, dict):
        raise ConfigError("runs", f"{text!r} is not a part of a search", "Write it as workers: 4.")
    return read


def goal_of(written: Mapping[str, Any]) -> Goal | None:
    """What the claim or ratio itself says is better of its metric."""
    found = directions.named(written.get("metric"))
    return found[1] if found else None


def metric_of(written: Mapping[str, Any]) -> str:
    """The name of the metric of a claim or a ratio; "" where it names none."""
    found = directions.named(written.get("metric"))
    return found[0] if found else ""


def _is_ratio(side: Any) -> bool:
    return isinstance(side, Mapping) and OF in side


def _searches(nb: Notebook) -> list[str]:
    return [cell.name for cell in nb.searches()]


def _is_same(before: Any, now: Any) -> bool:
    """Whether the form's value is what stands there, in one of the ways to write it: [one] as one, {metric: max}."""
    return bool(before == now or [before] == now or (isinstance(before, Mapping) and [*before] == [now]))


def _missing(said: Mapping[str, Any]) -> list[Problem]:
    """In the form's words: what the YAML would say in its own."""
    ratios = _ratios(said)
    wanted = {f"{key}.{word}": side.get(word) for key, side in ratios.items() for word in (OF, "against")}
    boxes = {**said, **{f"{key}.target": side.get("target") for key, side in ratios.items()}}
    problems = [
        Problem(key, f"{boxes[key]!r} is not a number", "Write one, such as 0.95.")
        for key in ("target", "runs.target", "against.target", "at_least", "at_most")
        if isinstance(boxes.get(key), str)
    ]
    if problems:
        return problems
    problems = [Problem(key, "is empty", "Choose one.") for key, side in wanted.items() if not side]
    if not said.get("runs"):
        problems.append(Problem("runs", "is empty", "Choose at least one experiment."))
    for at, side in [(f"{key}.", side) for key, side in ratios.items()] or [("", said)]:
        metric = metric_of(side) or metric_of(said)
        if not metric:
            problems.append(Problem(f"{at}metric", "is empty", "Choose one, or type its name."))
        if said.get("figure") in names.AXES and side.get("target") is None and said.get("target") is None:
            problems.append(Problem(f"{at}target", "is missing", f"Write the value of {metric} to reach."))
    least, most = said.get("at_least"), said.get("at_most")
    if least is None and most is None:
        problems.append(Problem("at_most", "is empty, and so is At least", "Fill in at least one of them."))
    elif least is not None and most is not None and least >= most:
        problems.append(Problem("at_least", f"is {least:g}, not below At most", "Write a smaller number."))
    return problems


def _ratios(said: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The two ratios of what the form says, by key; empty for a plain claim."""
    found = {"runs": (said.get("runs") or [None])[0], "against": said.get("against")}
    return found if any(_is_ratio(side) for side in found.values()) else {}
