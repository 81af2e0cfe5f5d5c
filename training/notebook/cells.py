"""What a notebook consists of. Each cell keeps its exact source text; the notebook is the texts joined."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Final, Literal

from scalebook.training.experiments import Description, Experiment, seeds_from
from scalebook.training.tracking import Goal

Axis = Literal["updates", "samples", "seconds", "bytes"]
Scale = Literal["linear", "log"]
Kind = Literal["experiment", "comparison", "search", "claim", "answer"]
Figure = Literal["updates", "samples", "seconds", "bytes", "best", "updates_per_second", "samples_per_second"]
LINE_END: Final = re.compile(r"\r\n|\r|\n")


@dataclass(frozen=True)
class Note:
    """Free Markdown between the other cells, also unknown fences. Never blank, never beside another note."""

    source: str


@dataclass(frozen=True)
class ExperimentCell:
    """A fenced `yaml experiment=NAME` cell: a LightningCLI fit config and how many seeds to run it with."""

    source: str
    name: str
    repeats: int = 1
    config: dict[str, Any] = field(default_factory=dict)

    @property
    def remark(self) -> str:
        """The comment lines above `config` in its YAML: where it came from, or what it is for."""
        comments: list[str] = []
        for line in LINE_END.split(self.source)[1:]:
            if line.startswith("config"):
                break
            if line.startswith("#"):
                comments.append(line.strip("# \t"))
        return " ".join(comment for comment in comments if comment)

    def experiment(self, description: Description) -> Experiment:
        """What its config means."""
        return Experiment(self.config, description)

    def seeds(self, repeats: int | None = None) -> list[int]:
        """The config's `seed_everything` (1 where it names none) and the numbers after it, one a run."""
        return seeds_from(self.config.get("seed_everything"), self.repeats if repeats is None else repeats)


@dataclass(frozen=True)
class ComparisonCell:
    """A fenced `yaml comparison=NAME` cell. `runs` are names of experiment cells; `metric` is an MLflow metric ("": the
    main one of its runs), `goal` its better direction if the cell says it, and `scale` that of its axis."""

    source: str
    name: str
    runs: list[str] = field(default_factory=list)
    metric: str = ""
    x: list[Axis] = field(default_factory=lambda: ["updates"])
    target: float | None = None
    scale: Scale = "linear"
    goal: Goal | None = None


@dataclass(frozen=True)
class SearchCell:
    """A fenced `yaml search=NAME` cell. `body` is its YAML, in the keys of `experiments/search`, unchecked."""

    source: str
    name: str
    body: dict[str, Any] = field(default_factory=dict)

    @property
    def experiment(self) -> str | None:
        """The experiment that it starts from; None if it has a config of its own, or neither."""
        name = self.body.get("experiment")
        return name if isinstance(name, str) else None


Part = str | dict[str, Any]
"""An experiment, by name; or a part of a search, `{workers: 4}`, at the best of its points."""


@dataclass(frozen=True)
class Ratio:
    """A side that is a ratio by itself: `{of: {workers: 8}, against: {workers: 1}, search: rates, target: 0.25}`.

    It may have a search, figure, metric and target of its own; those of its claim are filled in if it has none.
    """

    of: Part
    against: Part
    figure: Figure
    metric: str
    target: float | None
    search: str | None
    goal: Goal | None


Side = Part | Ratio


@dataclass(frozen=True)
class ClaimCell:
    """A fenced `yaml claim=NAME` cell: bounds of a figure of `runs`, as a multiple of that of `against` or as it is.

    `figure` is what it takes to bring `metric` to `target` (updates, samples, seconds), the best value of `metric`, or
    a rate. `search` is the search that sides of the second kind are parts of, each at the best of its points. Sides are
    either all ratios, or none is.
    """

    source: str
    name: str
    runs: list[Side] = field(default_factory=list)
    against: Side | None = None
    figure: Figure = "samples"
    metric: str = ""
    target: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    search: str | None = None
    goal: Goal | None = None
    """The better direction of `metric`, if the cell says it."""

    @property
    def ratios(self) -> list[Ratio]:
        """Its sides where they are ratios, `against` first; else empty."""
        return [side for side in (self.against, *self.runs) if isinstance(side, Ratio)]

    @property
    def plain(self) -> list["ClaimCell"]:
        """Itself; or for each of its ratios a claim without bounds, `against` first."""
        return [
            ClaimCell(self.source, self.name, [ratio.of], ratio.against, ratio.figure, ratio.metric, ratio.target,
                      search=ratio.search, goal=ratio.goal)
            for ratio in self.ratios
        ] or [self]  # fmt: skip

    @property
    def sides(self) -> list[Part]:
        """All experiments and parts that it names, in the order of its table: `against` first."""
        both = [side for plain in self.plain for side in (plain.against, *plain.runs)]
        return [side for side in both if side is not None and not isinstance(side, Ratio)]

    @property
    def searches(self) -> list[str]:
        """The searches whose parts it names."""
        return list(dict.fromkeys(plain.search for plain in self.plain if plain.search is not None))


@dataclass(frozen=True)
class AnswerCell:
    """A fenced `yaml answer=NAME` cell: a question about `experiment`, and the cells that answer it.

    `question` names a recipe, which fills in what is empty here while it works: a target, and the names of the cells
    that it writes. These are cells like any others; what is known so far is read from them.
    """

    source: str
    name: str
    question: str = ""
    experiment: str = ""
    against: str | None = None
    """The other side, of a question about two experiments."""
    metric: str = ""
    goal: Goal | None = None
    """The better direction of `metric`, if the cell says it."""
    target: float | None = None
    budget_s: float = 900.0
    pilot: str | None = None
    searches: Mapping[str, str] = field(default_factory=dict)
    """By the experiment that it tunes, the search for its learning rate."""
    comparison: str | None = None
    claims: list[str] = field(default_factory=list)

    @property
    def cells(self) -> list[str]:
        """The cells that it names, those of the question first."""
        named = [self.experiment, self.against, self.pilot, *self.searches.values(), self.comparison, *self.claims]
        return [name for name in named if name]

    @property
    def own(self) -> list[str]:
        """The cells that answer it, which a recipe has written or will write."""
        named = [self.pilot, *self.searches.values(), *self.searches, self.comparison, *self.claims]
        return [name for name in named if name]


@dataclass(frozen=True)
class BrokenCell:
    """A fence that claims to be one of ours but cannot be read; the source stays as it is, `message` says why.

    `key` names what is wrong (`repeats`, `YAML`), `message` what is wrong with it and what to write; `line` is the line
    within the cell, 0 its opening fence.
    """

    source: str
    kind: Kind
    name: str
    message: str
    key: str = ""
    line: int = 0


Cell = Note | ExperimentCell | ComparisonCell | SearchCell | ClaimCell | AnswerCell | BrokenCell


@dataclass(frozen=True)
class Notebook:
    """One notebook. `front` is the front matter's exact text with its `---` lines, "" where there is none.

    Invariant: `front + "".join(cell.source for cell in cells)` is the file, byte for byte (UTF-8). Blank lines after a
    fence or the front matter (and a byte order mark) belong to what stands before them, so no cell is blank.
    """

    front: str
    title: str
    cells: tuple[Cell, ...]

    @property
    def text(self) -> str:
        return self.front + "".join(cell.source for cell in self.cells)

    def experiments(self) -> list[ExperimentCell]:
        return [cell for cell in self.cells if isinstance(cell, ExperimentCell)]

    def comparisons(self) -> list[ComparisonCell]:
        return [cell for cell in self.cells if isinstance(cell, ComparisonCell)]

    def searches(self) -> list[SearchCell]:
        return [cell for cell in self.cells if isinstance(cell, SearchCell)]

    def claims(self) -> list[ClaimCell]:
        return [cell for cell in self.cells if isinstance(cell, ClaimCell)]

    def answers(self) -> list[AnswerCell]:
        return [cell for cell in self.cells if isinstance(cell, AnswerCell)]

    def experiment(self, name: str) -> ExperimentCell | None:
        return next((cell for cell in self.experiments() if cell.name == name), None)

    def search(self, name: str) -> SearchCell | None:
        return next((cell for cell in self.searches() if cell.name == name), None)

    def base(self, cell: SearchCell, description: Description) -> Experiment | None:
        """The experiment that `cell` starts from; None where it names none that is here."""
        base = self.experiment(cell.experiment) if cell.experiment is not None else None
        return base.experiment(description) if base else None

    def lines(self) -> list[int]:
        """The line of the file, from 1, on which each cell begins."""
        ends = [len(LINE_END.findall(text)) for text in (self.front, *(cell.source for cell in self.cells[:-1]))]
        return [1 + before for before in accumulate(ends)][: len(self.cells)]
