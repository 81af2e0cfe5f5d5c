"""Claims that are being set up: what the form begins with, what it makes of what was chosen, what is wrong with it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from scalebook.app.compare.services import plans
from scalebook.app.shared.services import notebooks
from scalebook.training.config.description import Description
from scalebook.training.errors import ConfigError, Problem
from scalebook.training.files import yaml
from scalebook.training.files.flow import flow
from scalebook.training.notebook import edit
from scalebook.training.notebook.cells import ClaimCell, Notebook, Side
from scalebook.training.notebook.claim_body import KEYS, read_claim
from scalebook.training.notebook.claim_check import claim_problems
from scalebook.training.notebook.store import Stored
from scalebook.training.tracking import directions, names
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

    @property
    def sides(self) -> list[str]:
        """What can be chosen, as the form writes it: experiments, and the parts of a search that it names."""
        known = [cell.name for cell in self.stored.notebook.experiments()]
        return list(dict.fromkeys([*known, *map(side_text, self.runs), *([self.against] if self.against else [])]))

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
        found = directions.named(self.written.get("metric"))
        return found[0] if found else ""

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
    return ClaimPlan(stored, edit.unique_name(nb, SUGGESTED), written, metrics, searches=_searches(nb))


def of_cell(stored: Stored, cell: ClaimCell, description: Description, recorded: Sequence[RunRecord] = ()) -> ClaimPlan:
    """For editing a claim that the notebook has."""
    known = plans.metrics(stored.notebook, description, recorded)
    metrics = list(dict.fromkeys([*([cell.metric] if cell.metric else []), *known]))
    written = edit.values_of(cell)
    return ClaimPlan(stored, cell.name, written, metrics, cell.name, _searches(stored.notebook))


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


def _searches(nb: Notebook) -> list[str]:
    return [cell.name for cell in nb.searches()]


def _is_same(before: Any, now: Any) -> bool:
    """Whether the form's value is what stands there, in one of the ways to write it: [one] as one, {metric: max}."""
    return bool(before == now or [before] == now or (isinstance(before, Mapping) and [*before] == [now]))


def _missing(said: Mapping[str, Any]) -> list[Problem]:
    """In the form's words: what the YAML would say in its own."""
    problems = [
        Problem(key, f"{said[key]!r} is not a number", "Write one, such as 0.95.")
        for key in ("target", "at_least", "at_most")
        if isinstance(said.get(key), str)
    ]
    if problems:
        return problems
    if not said.get("runs"):
        problems.append(Problem("runs", "is empty", "Choose at least one experiment."))
    if not said.get("metric"):
        problems.append(Problem("metric", "is empty", "Choose one, or type its name."))
    if said.get("figure") in names.AXES and said.get("target") is None:
        problems.append(Problem("target", "is missing", f"Write the value of {said.get('metric')} to be reached."))
    least, most = said.get("at_least"), said.get("at_most")
    if least is None and most is None:
        problems.append(Problem("at_most", "is empty, and so is At least", "Fill in at least one of them."))
    elif least is not None and most is not None and least >= most:
        problems.append(Problem("at_least", f"is {least:g}, not below At most", "Write a smaller number."))
    return problems
