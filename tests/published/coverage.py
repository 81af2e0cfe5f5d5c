"""Whether ranges hold for what they were not made of: each system is left out, with all of its cells, and its cells are
looked up in the range that the remaining systems give (`scalebook.training.planner.reliability`).

About nine of ten should lie within. Cells of one system are alike, so that a kind with few systems may have all of them
or none; the mean over systems counts each as one. `width` is the largest over the smallest value of a range.
"""

import math
import statistics
from collections import defaultdict
from datetime import date
from typing import Any, Final, NamedTuple

from scalebook.training.planner.reliability import INCOMPLETE, PLACES, ComparedPlan, read_comparisons
from tests.published.rows import WITHIN, Report


class LeftOut(NamedTuple):
    """One cell with the range of the other systems."""

    cell: ComparedPlan
    inside: bool
    width: float

    @property
    def kind(self) -> str:
        """The strategy, where, and whether the profile was complete."""
        return f"{self.cell.strategy} {PLACES[self.cell.place]}{'' if self.cell.complete else INCOMPLETE}"


def left_out() -> list[LeftOut]:
    known = read_comparisons()
    found = []
    for system in sorted({cell.system for cell in known.cells}):
        others = known.without(system)
        for cell in known.cells:
            if cell.system == system:
                within = others.of(cell.strategy, cell.place, cell.complete).updates_per_s
                inside = within.lowest <= cell.rates <= within.highest
                found.append(LeftOut(cell, inside, within.highest / within.lowest))
    return found


ALL: Final = "all"
PUBLISHED_SYSTEMS: Final = "published systems, of all kinds"


def report() -> Report:
    found, kinds = left_out(), defaultdict[str, list[LeftOut]](list)
    for one in sorted(found, key=lambda one: one.kind):
        kinds[one.kind].append(one)
    published = {
        cell for source in read_comparisons().sources for cell in source.cells if "tests.published" in source.command
    }
    rows = [_row(kind, cells) for kind, cells in kinds.items()]
    rows += [_row(PUBLISHED_SYSTEMS, [one for one in found if one.cell in published]), _row(ALL, found)]
    head = (
        f"{'left out':<66} {'cells':>5} {'systems':>7} {'inside':>6} {'by system':>9} {'within 25 %':>11} {'width':>6}"
    )
    lines = [
        f"{row['kind']:<66} {row['cells']:>5} {row['systems']:>7} {row['inside']:>6} {row['by_system']:>9.0%} "
        f"{row['near']:>11} {row['width']:>6.2f}{row['missed'] and '   outside: ' + row['missed']}"
        for row in rows
    ]
    return Report([head, *lines], {"date": f"{date.today():%Y-%m-%d}", "rows": rows})


def _row(kind: str, found: list[LeftOut]) -> dict[str, Any]:
    by_system = defaultdict[str, list[bool]](list)
    for one in found:
        by_system[one.cell.system].append(one.inside)
    missed = [f"{len(inside) - sum(inside)} of {system}" for system, inside in by_system.items() if not all(inside)]
    return {
        "kind": kind,
        "cells": len(found),
        "systems": len(by_system),
        "inside": sum(one.inside for one in found),
        "by_system": statistics.fmean(statistics.fmean(inside) for inside in by_system.values()),
        "near": sum(WITHIN[0] <= one.cell.rates <= WITHIN[1] for one in found),
        "width": math.exp(statistics.fmean(math.log(one.width) for one in found)),
        "missed": "" if kind in (PUBLISHED_SYSTEMS, ALL) else ", ".join(missed),
    }
