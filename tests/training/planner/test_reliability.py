"""How far plans of a kind may be off: by the cells that are shipped, and by the rule that makes a range of them."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.training.base.files import records
from scalebook.training.planner.question import rules
from scalebook.training.planner.reliability import (
    FEWEST,
    PLACES,
    SHARE,
    Compared,
    ComparedPlan,
    PlansCompared,
    likely_range,
    read_comparisons,
    reliability_of,
    strategy_of,
    write,
)
from scalebook.training.pricing.profile import Profile

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "docs/figures/published-servers.json"
KINDS = sorted({(cell.strategy, cell.place) for cell in read_comparisons().cells()})


def test_nine_of_ten_cells_lie_within_the_range_of_their_kind() -> None:
    """Measured and published ones alike; those of which the source does not say the rule lie between both rules'."""
    within = [
        known.lowest <= cell.rates <= known.highest
        for cell in read_comparisons().cells()
        for known in [read_comparisons().of(cell.strategy, cell.place).updates_per_s]
    ]
    within += [row["met"] for row in json.loads(PUBLISHED.read_text())["systems"]]
    assert len(within) >= 50
    assert sum(within) >= SHARE * len(within)


@pytest.mark.parametrize(("strategy", "place"), KINDS)
def test_so_they_do_for_each_kind(strategy: str, place: str) -> None:
    known = read_comparisons().of(strategy, place)  # type: ignore[arg-type]  # of cells
    cells = read_comparisons().cells(strategy, place)
    within = [known.updates_per_s.lowest <= cell.rates <= known.updates_per_s.highest for cell in cells]
    assert sum(within) >= SHARE * len(cells)
    of_place = known.kind == f"{strategy} {PLACES[place]}"  # type: ignore[index]  # of cells
    assert of_place == (len(cells) >= FEWEST or place == "gpus")
    assert bool(known.borrowed) == (
        len(read_comparisons().cells(strategy)) < FEWEST or (place == "gpus" and len(cells) < FEWEST)
    )


def test_a_plan_on_a_gpu_borrows_no_trust_from_cores() -> None:
    on_gpu = Profile(0.005, 32, 1e6, 1e6, cores=4, gpus=1)
    known = reliability_of(on_gpu, rules("async")[0], own_network=True)
    compared = len(read_comparisons().cells("async", "gpus"))
    assert (known.kind, known.cells) == ("async on the GPUs of one machine", compared)
    assert bool(known.borrowed) == (compared < FEWEST)
    assert reliability_of(on_gpu, rules("async")[0], own_network=False).kind == "async over a network"


def test_a_cell_lies_in_the_range_of_the_others_of_its_kind() -> None:
    """Which is what a range is for: the next one."""
    within = []
    for kind in KINDS:
        ratios = [cell.rates for cell in read_comparisons().cells(*kind)]
        if len(ratios) > FEWEST:
            for place, ratio in enumerate(ratios):
                known = likely_range(ratios[:place] + ratios[place + 1 :])
                within.append(known.lowest <= ratio <= known.highest)
    assert sum(within) >= 0.85 * len(within)


def test_a_range_of_few_is_wider_than_what_they_span() -> None:
    few, many = likely_range([0.9, 1.0, 1.1, 1.0, 1.0]), likely_range([0.9, 1.0, 1.1, 1.0, 1.0] * 20)
    assert few.lowest < 0.87 < many.lowest
    assert many.highest < 1.12 < few.highest
    # five logarithms of mean m and standard deviation s: m +- 2.132 s sqrt(6 / 5)
    spread = math.log(1.1) * math.sqrt(0.5)
    exact = likely_range([1.1, 1 / 1.1, 1.0, 1.0, 1.0])
    assert exact.highest == pytest.approx(math.exp(2.1318 * spread * math.sqrt(1.2)), rel=1e-4)
    assert exact.lowest == pytest.approx(1 / exact.highest)


def cells(strategy: str, place: str, count: int, ratio: float) -> list[ComparedPlan]:
    return [ComparedPlan(strategy, place, str(n), ratio * (1 + 0.01 * n), 1.0 + n) for n in range(count)]  # type: ignore[arg-type]


def test_too_few_of_a_place_are_taken_with_other_places_and_too_few_of_a_strategy_say_so() -> None:
    of = Compared(
        [
            PlansCompared("python -m a --x", "", cells("ddp", "machine", 5, 1.3) + cells("ddp", "network", 2, 0.9)),
            PlansCompared("python -m b", "", cells("sync", "network", 3, 1.0)),
        ]
    )
    own = of.of("ddp", "machine")
    assert (own.kind, own.cells, own.borrowed, own.sources) == ("ddp on one machine", 5, 0, ["python -m a --x"])
    assert own.updates_per_s == likely_range([cell.rates for cell in of.cells("ddp", "machine")])
    both = of.of("ddp", "network")
    assert (both.kind, both.cells, both.borrowed) == ("ddp", 7, 0)
    few = of.of("sync", "network")
    assert (few.kind, few.cells, few.borrowed, few.staleness) == ("sync", 3, 10, None)
    assert few.updates_per_s == likely_range([cell.rates for cell in of.cells()])
    assert of.of("fsdp", "machine").cells == 0


def test_a_plan_has_the_range_of_its_strategy_and_place() -> None:
    ddp, fsdp, sync, bounded, softsync = rules("ddp,fsdp,sync,bounded:2,softsync:4")
    assert [strategy_of(rule) for rule in (ddp, fsdp, sync, bounded, softsync)] == [
        "ddp", "fsdp", "sync", "async", "async",
    ]  # fmt: skip
    here = Profile(0.01, 1, 4, 4, cores=2)
    short, elsewhere = replace(here, gradient_s=0.001), replace(here, cores=None)
    for rule in (ddp, sync, bounded):
        assert reliability_of(here, rule, True) == read_comparisons().of(strategy_of(rule), "machine")
        assert reliability_of(short, rule, True) == read_comparisons().of(strategy_of(rule), "short")
        assert reliability_of(here, rule, False) == read_comparisons().of(strategy_of(rule), "network")
        assert reliability_of(elsewhere, rule, True) == read_comparisons().of(strategy_of(rule), "network")


def test_a_command_writes_its_own_cells_in_place_of_its_older_ones(tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    write(path, PlansCompared("python -m b --seconds 1", "one", cells("ddp", "machine", 1, 1.0)))
    write(path, PlansCompared("python -m a", "one", cells("sync", "machine", 1, 1.0)))
    write(path, PlansCompared("python -m b --seconds 2", "two", []))
    write(path, PlansCompared("python -m b gpu --seconds 2", "two", []))
    found = records.load(path, Compared)
    assert found is not None
    assert [(one.command, len(one.cells)) for one in found.sources] == [
        ("python -m a", 1), ("python -m b --seconds 2", 0), ("python -m b gpu --seconds 2", 0),
    ]  # fmt: skip
