"""What a notebook consists of. Each cell keeps its exact source text; the notebook is the texts joined."""

from dataclasses import dataclass, field
from typing import Any, Literal

Axis = Literal["updates", "samples", "seconds"]


@dataclass(frozen=True)
class Note:
    """Free Markdown between the other cells (also unknown fences, kept byte for byte)."""

    source: str


@dataclass(frozen=True)
class ExperimentCell:
    """A fenced `yaml experiment=NAME` cell: a LightningCLI fit config and how many seeds to run it with."""

    source: str
    name: str
    repeats: int = 1
    config: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparisonCell:
    """A fenced `yaml comparison=NAME` cell. `runs` are names of experiment cells; `metric` is an MLflow metric."""

    source: str
    name: str
    runs: list[str] = field(default_factory=list)
    metric: str = "val/loss"
    x: list[Axis] = field(default_factory=lambda: ["updates"])
    target: float | None = None


@dataclass(frozen=True)
class BrokenCell:
    """A fence that claims to be one of ours but cannot be read; the source stays as it is, `message` says why."""

    source: str
    kind: Literal["experiment", "comparison"]
    name: str
    message: str


Cell = Note | ExperimentCell | ComparisonCell | BrokenCell


@dataclass(frozen=True)
class Notebook:
    """One notebook. `front` is the front matter's exact text with its `---` lines, "" where there is none.

    Invariant: `front + "".join(cell.source for cell in cells)` is the file, byte for byte (UTF-8).
    """

    front: str
    title: str
    cells: tuple[Cell, ...]

    @property
    def text(self) -> str:
        return self.front + "".join(cell.source for cell in self.cells)

    def experiments(self) -> list[ExperimentCell]:
        return [cell for cell in self.cells if isinstance(cell, ExperimentCell)]

    def experiment(self, name: str) -> ExperimentCell | None:
        return next((cell for cell in self.experiments() if cell.name == name), None)
