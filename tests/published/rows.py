"""A published number with the planner's prediction of it, and what a set of them gives."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, NamedTuple

from scalebook.training.planner.reliability import ComparedPlan

WITHIN: Final = (0.8, 1.25)


@dataclass(frozen=True)
class Row:
    """`part`: to which part of a comparison it belongs; `note`: what had to be assumed, or the cause of a miss."""

    name: str
    published: float
    predicted: float
    source: str
    note: str = ""
    part: str = ""

    @property
    def ratio(self) -> float:
        return self.predicted / self.published

    @property
    def met(self) -> bool:
        return WITHIN[0] <= self.ratio <= WITHIN[1]

    def __str__(self) -> str:
        verdict = "" if self.met else f"   MISSED: {self.note}"
        return (
            f"{self.name:<52} {self.part:<12} {self.published:>7.2f} {self.predicted:>9.2f} {self.ratio:>6.2f}{verdict}"
        )


class Report(NamedTuple):
    """What is printed; what is written for the documentation; plans for `training/planner/reliability.json`."""

    lines: Sequence[str]
    figures: Mapping[str, Any] | None = None
    compared: Sequence[ComparedPlan] = ()


def counted(rows: Sequence[Row]) -> str:
    return f"within {WITHIN[0]} to {WITHIN[1]}: {sum(row.met for row in rows)} of {len(rows)}"


def figures_of(rows: Sequence[Row]) -> list[dict[str, Any]]:
    return [asdict(row) | {"ratio": row.ratio, "met": row.met} for row in rows]
