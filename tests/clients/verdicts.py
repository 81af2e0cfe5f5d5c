"""What a run's numbers say beside those of one process and of DDP, and the table of all."""

import json
import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from tests.clients.case import BASELINES, OURS, SPLITS, Case, Way
from tests.clients.table import CASES

Outcome = Literal["ended", "refused", "failed", "hang", "not here"]
Verdict = Literal["held", "refused", "as DDP", "failed", "hang", "left something", "differs", "not here"]


@dataclass(frozen=True)
class Result:
    """What became of one run. `left`: processes and files in shared memory that were there after its end."""

    case: str
    way: Way
    outcome: Outcome
    values: dict[str, float] = field(default_factory=dict)
    error: str = ""
    seconds: float = 0.0
    left: list[str] = field(default_factory=list)
    stacks: str = ""

    def brief(self) -> str:
        """One line for whoever looks on."""
        numbers = ", ".join(f"{key} {value:.4g}" for key, value in self.values.items())
        return f"{self.outcome} | {numbers}{self.error[:300]} | {self.seconds:.0f} s{' | left ' if self.left else ''}"


TITLES: Final[Mapping[Way, str]] = {"ddp": "DDP", "tensor": "tensor x 2", "shard": "shard x 2", "both": "2 x 2"}
Results = dict[tuple[str, Way], Result]


def verdict(case: Case, result: Result, baselines: Mapping[Way, Result]) -> tuple[Verdict, str]:
    """What is said of a run with our strategy, and the reason."""
    if result.outcome == "ended":
        if worse := differences(case, result, baselines):
            return "differs", "; ".join(worse)
        return ("left something", ", ".join(result.left)) if result.left else ("held", "")
    if result.outcome == "failed":
        ddp = baselines.get("ddp")
        same = ddp is not None and ddp.outcome == "failed" and _kind(ddp.error) == _kind(result.error)
        if "TimeoutError" in result.error:
            return "hang", result.error
        return ("as DDP" if same else "failed"), result.error
    return result.outcome, result.error


def differences(case: Case, result: Result, baselines: Mapping[Way, Result]) -> list[str]:
    """Measures that are worse than in both baselines, by more than the case allows."""
    found = []
    for name, measure in case.measures.items():
        sign = 1 if measure.better == "lower" else -1
        values = [baselines[way].values[name] for way in measure.baselines
                  if way in baselines and name in baselines[way].values]  # fmt: skip
        value = result.values.get(name, math.nan)
        if measure.better == "same":
            if not all(_near(value, one, measure.tolerance) for one in values):
                found.append(f"{name} {value:.9g}, not {values[0]:.9g}")
            continue
        worst = max((sign * one for one in values), default=math.inf)
        if not sign * value <= worst + measure.tolerance:  # so said that nan is not held
            found.append(f"{name} {value:.4g}, not {', '.join(f'{one:.4g}' for one in values)}")
    if result.way == "sync" and "single" in baselines:
        for name, tolerance in case.exact.items():
            expected, value = baselines["single"].values.get(name, math.nan), result.values.get(name, math.nan)
            if not _near(value, expected, tolerance):
                found.append(f"{name} {value:.9g}, not {expected:.9g}")
    return found


def _near(value: float, expected: float, tolerance: float) -> bool:
    """Not so for nan."""
    return abs(value - expected) <= tolerance * max(abs(expected), 1e-6)


def _kind(error: str) -> str:
    return error.partition(":")[0].rpartition(".")[2]


def read(path: Path) -> Results:
    """Nothing when there is no such file."""
    if not path.exists():
        return {}
    results = [Result(**one) for one in json.loads(path.read_text(encoding="utf-8"))]
    return {(one.case, one.way): one for one in results}


def report(results: Results) -> str:
    """A table of the ways with a parameter server and one of split models, each with the reasons below it and how many
    of each verdict."""
    tables = []
    for ways, strategy in (((*BASELINES, *OURS), "AsyncPS"), (("single", *SPLITS), "ModelParallel")):
        cases = [case for case in CASES if set(case.ways) <= set(ways)]
        if of_these := [case for case in cases if any((case.name, way) in results for way in ways)]:
            tables.append(_table(results, of_these, ways, strategy))
    return "\n\n".join(tables)


def _table(results: Results, cases: list[Case], ways: tuple[Way, ...], strategy: str) -> str:
    lines = [f"| case | measure | {' | '.join(TITLES.get(way, way) for way in ways)} |", "|" + "---|" * (2 + len(ways))]
    reasons, counts = list[str](), Counter[str]()
    for case in cases:
        of_case = {way: results[case.name, way] for way in ways if (case.name, way) in results}
        name, cells = next(iter(case.measures)), list[str]()
        for way in ways:
            if way not in of_case or way in BASELINES:
                cells.append(_cell(of_case.get(way), name))
                continue
            said, reason = verdict(case, of_case[way], of_case)
            counts[said] += 1
            value = of_case[way].values.get(name)
            cells.append(f"{'' if value is None else f'{value:.3g} '}{'' if said == 'held' else f'**{said}**'}".strip())
            if reason:
                reasons.append(f"{case.name}, {way}: {said}: {reason}")
        reasons += [
            f"{case.name}, {way}: {one.error}" for way, one in of_case.items() if way in BASELINES and one.error
        ]
        lines.append(f"| {case.name} | {name} | {' | '.join(cells)} |")
    summary = ", ".join(f"{count} {said}" for said, count in counts.most_common())
    return "\n".join([*lines, "", f"{counts.total()} runs with {strategy}: {summary}", "", *reasons])


def _cell(result: Result | None, name: str) -> str:
    if result is None:
        return ""
    return f"{result.values[name]:.3g}" if name in result.values else result.outcome
