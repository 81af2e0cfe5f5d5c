"""docs/benchmarks/calibration.md: in a small version each row holds, and the table has what the command writes."""

import json
from collections.abc import Callable, Iterator

import pytest

from benchmarks import calibration
from benchmarks.calibration import (
    FIGURES,
    PARTS,
    Row,
    Task,
    cells,
    late_ones_finish,
    limit,
    machine_repairman,
    play,
)
from docs.generate import tables
from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.update_rules import Async, Sync

pytestmark = pytest.mark.long

SHARE = 0.05


@pytest.mark.sampled
@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_each_row_agrees_with_theory(part: Callable[[float], Iterator[Task]]) -> None:
    tasks = list(part(SHARE))
    rows = [row for task in (tasks[:3] if part is limit else tasks) for row in task()]
    assert [row for row in rows if not row.holds] == []
    assert all(row.error <= 0.3 * row.theory for row in rows if "chi-square" not in row.law), "it could not fail"


def test_a_row_is_off_beyond_twice_its_interval_and_over_its_bound() -> None:
    assert Row("", "", 1.0, 1.19, 0.1).holds
    assert not Row("", "", 1.0, 1.21, 0.1).holds
    assert not Row("", "", 2.0, 1.99).holds
    assert Row("", "", 2.0, 1.0, at_most=True).holds
    assert not Row("", "", 2.0, 3.0, at_most=True).holds


def test_seconds_and_staleness_of_what_is_played() -> None:
    played = play(Async(), ClockSettings(1.0, {1: 2.0}), 2, 60)
    assert played.at[:6] == [1.0, 2.0, 2.0, 3.0, 4.0, 4.0]
    assert play(Sync(), ClockSettings(0.5), 3, 180).update_s() == (0.5, 0.0)
    values = [0.5]
    play(Async(), ClockSettings(1.0), 2, 4, gradient=lambda w: float(w > 0), start=0.5, values=values)
    assert values == [0.5, -0.5, -1.5, -1.5, -1.5], "the second gradient is of before the first update"


def test_what_theory_says() -> None:
    assert calibration.harmonic(4) == pytest.approx(25 / 12)
    assert machine_repairman(1) == pytest.approx(1 / 1.05)
    assert machine_repairman(1000) == pytest.approx(20, rel=1e-6)
    mean, half = late_ones_finish(2, 2, 20_000)
    assert mean == pytest.approx(1.5, abs=2 * half), "without spare workers it is H(2)"


def test_the_table_has_every_law() -> None:
    content = json.loads(FIGURES.read_text(encoding="utf-8"))
    assert len(content["rows"]) == 39
    assert {one["part"] for one in content["rows"]} == set(PARTS)
    shown = cells("Staleness", Row("a law", "N = 2", 2.0, 2.1, 0.1))
    assert list(shown) == list(content["rows"][0])
    assert [shown[key] for key in ("theory", "engine", "ratio")] == ["2", "2.1", "1.0500 ± 0.050"]
    assert "| Staleness | equal workers: N - 1 | N = 2 | 1 | 1 | 1.0000 |" in tables.calibration()
