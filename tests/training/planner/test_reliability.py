"""How far plans of a kind may be off: by the cells that are shipped, and by the rule that makes a range of them."""

import json
import math
import random
from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.training.base.files import records
from scalebook.training.engine.rules.clock_settings import Link
from scalebook.training.planner.answers import Range
from scalebook.training.planner.question import rules
from scalebook.training.planner.reliability import (
    FEWEST,
    INCOMPLETE,
    PLACES,
    SHARE,
    Compared,
    ComparedPlan,
    Place,
    PlansCompared,
    Strategy,
    holding,
    likely_range,
    missing_keys,
    read_comparisons,
    reliability_of,
    strategy_of,
    write,
)
from scalebook.training.pricing.links import Network
from scalebook.training.pricing.profile import Profile, SharedNode, Software

ROOT = Path(__file__).parents[3]
PUBLISHED = ROOT / "docs/figures/published-servers.json"
KINDS = sorted({(cell.strategy, cell.place, cell.complete) for cell in read_comparisons().cells})


def test_nine_of_ten_cells_lie_within_the_range_of_their_kind() -> None:
    """Measured and published ones alike; those of which the source does not say the rule lie between both rules'."""
    within = [
        known.lowest <= cell.rates <= known.highest
        for cell in read_comparisons().cells
        for known in [read_comparisons().of(cell.strategy, cell.place, cell.complete).updates_per_s]
    ]
    within += [row["met"] for row in json.loads(PUBLISHED.read_text())["systems"]]
    assert len(within) >= 200
    assert sum(within) >= SHARE * len(within)


@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_with_few_systems_has_the_range_of_others(kind: tuple[Strategy, Place, bool]) -> None:
    known = read_comparisons().of(*kind)
    own = [cell for cell in read_comparisons().cells if (cell.strategy, cell.place, cell.complete) == kind]
    systems = {cell.system for cell in own}
    assert known.kind == f"{kind[0]} {PLACES[kind[1]]}" + ("" if kind[2] else INCOMPLETE)
    assert (known.cells, known.borrowed == 0) == (len(own), len(systems) >= FEWEST)
    assert (known.lenders == "") == (known.borrowed == 0)


def test_a_plan_on_a_gpu_borrows_no_trust_from_cores() -> None:
    on_gpu = Profile(0.005, 32, 1e6, 1e6, cores=4, gpus=1)
    known = reliability_of(on_gpu, rules("async")[0], own_network=True)
    compared = [cell for cell in read_comparisons().cells if cell.place == "gpus"]
    assert (known.kind, known.cells) == ("async on the GPUs of one machine", len(compared))
    assert known.lenders == "all kinds"
    incomplete = reliability_of(on_gpu, rules("async")[0], own_network=False)
    assert (incomplete.kind, incomplete.missing) == (f"async over a network{INCOMPLETE}", ["software"])


def test_a_range_of_few_systems_is_wider_than_what_they_span() -> None:
    one_each = [[0.9], [1.0], [1.1], [1.0], [1.0]]
    few, many = likely_range(one_each), likely_range(one_each * 20)
    assert few.lowest < 0.87 < many.lowest
    assert many.highest < 1.12 < few.highest
    # five systems, whose logarithms have mean m and standard deviation s: m +- 2.132 s sqrt(6 / 5)
    spread = math.log(1.1) * math.sqrt(0.5)
    exact = likely_range([[1.1], [1 / 1.1], [1.0], [1.0], [1.0]])
    assert exact.highest == pytest.approx(math.exp(2.1318 * spread * math.sqrt(1.2)), rel=1e-4)
    assert exact.lowest == pytest.approx(1 / exact.highest)


def test_many_cells_of_a_system_count_as_one_system() -> None:
    systems = [[1.1], [1 / 1.1], [1.0], [1.0], [1.0]]
    assert likely_range([[1.1] * 50, *systems[1:]]).highest == pytest.approx(likely_range(systems).highest)
    # four logarithms of +-log(1.1) in two systems: variance 2 log(1.1)^2, of which half is in that of the means, here 0
    apart = likely_range([[1.1, 1 / 1.1], [1.1, 1 / 1.1]])
    assert apart.highest == pytest.approx(math.exp(6.3138 * math.log(1.1)), rel=1e-4)


def test_nine_of_ten_of_a_new_system_lie_in_a_range() -> None:
    """Systems apart by 20 %, and within a system by 10 %, as drawn."""
    chance, inside = random.Random(0), list[bool]()
    for _ in range(400):
        centers = [chance.gauss(0, 0.2) for _ in range(7)]
        *known, new = [[math.exp(chance.gauss(center, 0.1)) for _ in range(4)] for center in centers]
        within = likely_range(known)
        inside += [within.lowest <= ratio <= within.highest for ratio in new]
    assert 0.86 <= sum(inside) / len(inside) <= 0.95


def cells(strategy: str, place: str, count: int, ratio: float, complete: bool = True) -> list[ComparedPlan]:
    return [
        ComparedPlan(strategy, place, str(n), ratio * (1 + 0.01 * n), 1.0 + n, f"system {n}", complete)  # type: ignore[arg-type]
        for n in range(count)
    ]


def test_too_few_of_a_kind_are_taken_with_other_strategies_there_and_then_with_all() -> None:
    machine = cells("ddp", "machine", 5, 1.3)
    network = cells("ddp", "network", 4, 0.9) + cells("sync", "network", 1, 1.0)
    lacking = cells("sync", "network", 2, 2.0, complete=False)
    of = Compared([PlansCompared("python -m a --x", "", machine), PlansCompared("python -m b", "", network + lacking)])
    own = of.of("ddp", "machine")
    assert (own.kind, own.cells, own.borrowed, own.sources) == ("ddp on one machine", 5, 0, ["python -m a --x"])
    assert own.updates_per_s == likely_range([[cell.rates] for cell in machine])
    there = of.of("sync", "network")
    assert (there.cells, there.borrowed, there.lenders) == (1, 5, "all strategies over a network")
    assert there.updates_per_s == likely_range([[cell.rates] for cell in network])
    anywhere = of.of("fsdp", "gpus")
    assert (anywhere.cells, anywhere.borrowed, anywhere.lenders) == (0, 10, "all kinds")
    incomplete = of.of("sync", "network", complete=False)
    assert (incomplete.cells, incomplete.borrowed, incomplete.lenders) == (2, 12, "all kinds")
    assert incomplete.updates_per_s.highest > anywhere.updates_per_s.highest


def test_a_borrowed_range_holds_the_plans_of_its_own_kind() -> None:
    within = Range(0.8, 1.25)
    assert holding(within, []) == holding(within, [0.9, 1.2]) == within
    assert holding(within, [1.5, 2.0]) == Range(0.8, 2.0)
    assert holding(within, [1.0] * 18 + [1.5, 3.0]) == within, "nine of ten"
    assert holding(within, [1.0] * 7 + [0.5, 1.5, 3.0]) == Range(0.5, 1.5), "the nearest ones"
    wide = [ComparedPlan("sync", "network", "1", 3.0, system="slow")]
    of = Compared([PlansCompared("python -m a", "", cells("ddp", "network", 15, 1.0) + wide)])
    assert of.of("sync", "network").updates_per_s.highest == 3.0
    assert of.of("async", "network").updates_per_s.highest < of.of("sync", "network").updates_per_s.highest


def test_a_profile_for_a_network_must_say_what_software_and_neighbours_take() -> None:
    ddp, sync, peers = rules("ddp,sync,d_psgd")
    link = Network(Link(1e-5, 1e9))
    bare = Profile(0.1, 1, 4, 4, network=link)
    assert missing_keys(bare, ddp, True, 1) == []
    assert missing_keys(bare, peers, True, 1) == missing_keys(bare, sync, True, 1) == ["software"]
    assert missing_keys(bare, sync, True, 4) == ["software", "shard_shares"]
    whole = replace(bare, software=Software(1e-5), shard_shares={4: 0.25})
    assert missing_keys(whole, sync, True, 4) == []
    assert missing_keys(whole, sync, True, 8) == ["shard_shares"]
    shared = replace(whole, node=SharedNode(8))
    assert missing_keys(shared, ddp, True, 1) == missing_keys(shared, sync, True, 4) == ["slowdown"]
    assert missing_keys(replace(shared, slowdown={8: 1.1}), ddp, True, 1) == []
    here = Profile(0.1, 1, 4, 4, cores=2)
    assert missing_keys(here, sync, True, 4) == [], "in memory"
    assert missing_keys(here, sync, False, 1) == ["software"]
    assert missing_keys(Profile(0.1, 1, 4, 4), sync, True, 4) == [], "nothing travels"


def test_on_a_busy_machine_a_range_is_wider() -> None:
    quiet = Profile(0.1, 1, 4, 4, cores=2)
    (rule,) = rules("async")
    known = reliability_of(quiet, rule, True)
    busy = reliability_of(replace(quiet, busy=0.5, apart=1.7), rule, True)
    assert busy.updates_per_s == known.updates_per_s.wider(1.7)
    assert (known.doubt, busy.doubt) == (1.0, 1.7)
    alike = reliability_of(replace(quiet, busy=0.5), rule, True)
    assert alike.doubt == 1.25, "two equal measurements may both have lost half a core of two"


def test_a_plan_has_the_range_of_its_strategy_and_place() -> None:
    ddp, fsdp, sync, bounded, softsync = rules("ddp,fsdp,sync,bounded:2,softsync:4")
    assert [strategy_of(rule) for rule in (ddp, fsdp, sync, bounded, softsync)] == [
        "ddp", "fsdp", "sync", "async", "async",
    ]  # fmt: skip
    here = Profile(0.01, 1, 4, 4, cores=2, software=Software())
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
