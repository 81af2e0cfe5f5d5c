"""Figures as multiples of those of one process: which row is the baseline, the ratio, and why there is none."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.notebook.claims.intervals import Amount, ratio_interval
from scalebook.training.notebook.relative import (
    TO_TARGET,
    ClaimedRatio,
    ComparedSide,
    Relative,
    RelativeRow,
    head,
    relative_rows,
    remarks,
    shown,
)
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import MetricCurve, RunRecord

ONE = {"model": "ConvClassifier", "data": "Digits"}
DDP = {**ONE, "trainer": {"strategy": "ddp", "devices": 2}}
ASYNC = {**ONE, "trainer": {"strategy": {"class_path": "AsyncPS"}, "devices": 4}}
VIRTUAL = {**ONE, "trainer": {"strategy": {"class_path": "AsyncPS", "init_args": {"host": "virtual"}}, "devices": 4}}


def batch(config: Mapping[str, Any], size: int) -> dict[str, Any]:
    return {**config, "data": {"class_path": "Digits", "init_args": {"batch_size": size}}}


def run(name: str, seed: int, rate: float | None = 100.0, **tags: str) -> RunRecord:
    metrics = {} if rate is None else {names.SAMPLES_PER_SECOND: rate}
    return RunRecord(
        f"{name}-{seed}", name, "0", "FINISHED", 1.0, 2.0, {names.TAG_SEED: str(seed), **tags}, {}, metrics
    )


def side(
    name: str, config: Mapping[str, Any], description: Description, rates: Sequence[float | None] = (100.0,)
) -> ComparedSide:
    runs = [run(name, seed, rate) for seed, rate in enumerate(rates, start=1)]
    return ComparedSide(name, Experiment.read(config, description), runs)


def curve(run_id: str, seconds: float, values: Sequence[float], moved: float = 0.0) -> MetricCurve:
    """A validation each `seconds`, 10 samples a second."""
    x = [seconds * (place + 1) for place in range(len(values))]
    bytes_ = [moved * at for at in x] if moved else []
    return MetricCurve(run_id, "val/loss", x, [10 * at for at in x], x, list(values), bytes_)


def by_rate(*sides: ComparedSide) -> dict[str, RelativeRow]:
    return relative_rows(sides, {}, None, lower=True)


def test_without_a_target_it_is_the_throughput(description: Description) -> None:
    rows = by_rate(side("one", ONE, description, [100.0, 110.0, 90.0]), side("two", DDP, description, [180.0, 200.0]))
    two = rows["two"].figure("samples_per_second")
    assert rows["one"].is_baseline
    assert rows["one"].base_time == rows["two"].base_time == pytest.approx((100 * 110 * 90) ** (1 / 3))
    assert (rows["two"].baseline, list(rows["two"].figures)) == ("one", ["samples_per_second"])
    assert two.value == pytest.approx(math.sqrt(180 * 200) / (100 * 110 * 90) ** (1 / 3))
    assert (two.low, two.high, two.seeds, two.reason) == (None, None, 2, "2 seeds, but an interval needs 3")
    assert [rows[name].text("samples_per_second") for name in ("one", "two")] == ["baseline", "1.90"]
    assert shown(rows.values()) == ["samples_per_second"]


def test_the_interval_is_that_of_claims(description: Description) -> None:
    """Seeds that rise and fall together are pairs."""
    one, two = [100.0, 150.0, 200.0, 130.0], [181.0, 272.0, 358.0, 235.0]
    rows = by_rate(side("one", ONE, description, one), side("two", DDP, description, two))

    def by_seed(rates: Sequence[float]) -> dict[int, Amount]:
        return {seed: Amount(rate) for seed, rate in enumerate(rates)}

    expected = ratio_interval(by_seed(two), by_seed(one))
    assert expected is not None
    assert expected.paired
    figure = rows["two"].figure("samples_per_second")
    assert (figure.value, figure.low, figure.high) == pytest.approx((expected.value, expected.low, expected.high))
    assert (figure.is_resolved, figure.reason) == (True, "")
    assert figure.text == "1.81 (1.79 to 1.82)"
    assert figure.times == "1.81x (1.79 to 1.82)"


def test_with_a_target_it_is_what_it_took(description: Description) -> None:
    """Every validation of two takes 0.6 of the time and moves bytes; one process moves none."""
    sides = [side("one", ONE, description, [1.0] * 3), side("two", DDP, description, [1.0] * 3)]
    curves = {f"one-{seed}": curve(f"one-{seed}", 10.0 + seed, [1.0, 0.5, 0.2]) for seed in (1, 2, 3)}
    curves |= {f"two-{seed}": curve(f"two-{seed}", 6.0 + 0.6 * seed, [1.0, 0.5, 0.2], 8.0) for seed in (1, 2, 3)}
    row = relative_rows(sides, curves, 0.5, lower=True)["two"]
    for figure in TO_TARGET[:2]:
        found = row.figure(figure)
        assert (found.value, found.low, found.high) == pytest.approx((0.6, 0.6, 0.6))
    assert row.figure("bytes").reason == "one transfers no bytes"
    assert shown([row]) == ["seconds", "samples"]
    assert remarks({"one": RelativeRow(is_baseline=True), "two": row}) == [
        "x one process: the figure divided by the figure of one, with the 95 % interval in brackets."
    ]


def test_a_claim_about_a_row_gives_its_interval_and_whether_it_is_resolved(description: Description) -> None:
    """Its level is above 95 %, so the interval is wider; what is claimed decides only about its own figure."""
    sides = [side("one", ONE, description, [1.0] * 3), side("two", DDP, description, [1.0] * 3)]
    curves = {f"one-{seed}": curve(f"one-{seed}", 10.0 + seed, [1.0, 0.5, 0.2]) for seed in (1, 2, 3)}
    curves |= {f"two-{seed}": curve(f"two-{seed}", 6.0 + seed, [1.0, 0.5, 0.2]) for seed in (1, 2, 3)}

    def seconds(level: float, is_resolved: bool) -> Relative:
        claims = {"two": ClaimedRatio("one", level, "seconds", is_resolved)}
        return relative_rows(sides, curves, 0.5, True, claims)["two"].figure("seconds")

    plain = relative_rows(sides, curves, 0.5, True)["two"].figure("seconds")
    wide, unclear = seconds(0.99, True), seconds(0.95, False)
    assert wide.value == plain.value
    assert wide.low < plain.low < plain.high < wide.high  # type: ignore[operator]
    assert (unclear.low, unclear.high) == (plain.low, plain.high)
    assert unclear.is_resolved is False
    assert "not resolved" in unclear.times
    other = {"two": ClaimedRatio("three", 0.99, "seconds", False)}
    assert relative_rows(sides, curves, 0.5, True, other)["two"].figure("seconds") == plain


def test_without_one_process_the_baseline_is_that_of_a_claim(description: Description) -> None:
    sides = [side("sync", DDP, description), side("async", ASYNC, description), side("more", VIRTUAL, description)]
    claims = {"async": ClaimedRatio("sync", 0.96, "samples", True)}
    rows = relative_rows(sides, {}, None, True, claims)
    assert rows["sync"].is_baseline
    assert (rows["async"].baseline, rows["async"].of_one_process) == ("sync", False)
    assert rows["more"].reason == "none of these experiments uses one process"
    assert remarks(rows)[0].startswith(
        "x baseline: the figure divided by the figure of sync, with the 95 % interval in brackets"
    )
    batches = [side("own", ONE, description), side("best", batch(ONE, 8), description)]
    rows = relative_rows(batches, {}, None, True, {"best": ClaimedRatio("own", 0.96, "seconds", True)})
    assert (rows["own"].is_baseline, rows["best"].baseline, head(rows.values())) == (True, "own", "x one process")


def test_runs_that_missed_the_target_bound_the_ratio(description: Description) -> None:
    sides = [side("one", ONE, description), side("two", DDP, description), side("four", ASYNC, description)]
    curves = {name: curve(name, 10.0, [1.0, 0.5]) for name in ("one-1", "four-1")}
    missed = {**curves, "two-1": curve("two-1", 10.0, [1.0, 0.9, 0.8])}
    rows = relative_rows(sides, missed, 0.5, lower=True)
    assert (rows["two"].figure("seconds").text, rows["two"].figure("seconds").times) == ("> 1.50", "more than 1.50x")
    assert rows["four"].figure("seconds").text == "1.00"
    rows = relative_rows(sides, {**missed, "one-1": curve("one-1", 10.0, [1.0, 0.9])}, 0.5, lower=True)
    assert rows["four"].figure("samples").text == "< 1.00"
    assert rows["two"].figure("samples") == Relative(
        reason="runs on both sides missed the target, or had already reached it at their first validation"
    )


def test_a_narrow_interval_about_1_is_a_result() -> None:
    assert Relative(1.0, 0.99, 1.02, seeds=3).times == "1.00x (0.99 to 1.02)"
    assert Relative(1.0, 0.9, 1.1, seeds=3).times == "1.00x (0.90 to 1.10, not resolved)"


def test_one_seed_has_a_ratio_and_no_interval(description: Description) -> None:
    rows = by_rate(side("one", ONE, description), side("two", DDP, description, [65.0]))
    figure = rows["two"].figure("samples_per_second")
    assert figure.value == pytest.approx(0.65)
    assert (figure.low, figure.seeds, figure.reason) == (None, 1, "one seed")
    assert remarks(rows)[1:] == ["No interval: one seed."]


def test_names_do_not_decide_what_one_process_is(description: Description) -> None:
    rows = by_rate(side("ddp", ONE, description), side("single", DDP, description))
    assert rows["ddp"].is_baseline
    assert rows["single"].baseline == "ddp"


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({**ONE, "model": {"class_path": "ConvClassifier", "init_args": {"width": 32}}}, "model.width"),
        ({**ONE, "model": "Other"}, "model"),
        ({**ONE, "data": "Other"}, "data"),
        ({**ONE, "optimizer": {"class_path": "torch.optim.SGD"}}, "optimizer"),
    ],
)
def test_another_model_is_no_baseline(config: dict[str, Any], key: str, description: Description) -> None:
    rows = by_rate(side("one", config, description), side("two", DDP, description))
    assert rows["two"] == RelativeRow(reason=f"the experiments with one process differ from it in {key}")
    assert remarks(rows) == [
        f"Not compared with one process: the experiments with one process differ from it in {key}."
    ]
    assert shown(rows.values()) == []


def test_rate_and_batch_are_each_experiments_own(description: Description) -> None:
    tuned = {**batch(ONE, 64), "optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": 0.5}}}
    assert by_rate(side("one", tuned, description), side("two", DDP, description))["two"].baseline == "one"


def test_of_several_the_one_with_the_same_batch_counts(description: Description) -> None:
    ones = [side("b32", batch(ONE, 32), description), side("b64", batch(ONE, 64), description)]
    rows = by_rate(*ones, side("two", batch(DDP, 32), description), side("four", batch(ASYNC, 32), description))
    assert (rows["two"].baseline, rows["four"].baseline) == ("b64", "b32"), "DDP averages two gradients of 32"
    assert remarks(rows)[0].startswith(
        "x one process: the figure divided by the figure of b64 for two; b32 for four, with the 95 % interval in "
        "brackets"
    )
    odd = by_rate(*ones, side("two", batch(DDP, 8), description))
    assert (
        odd["two"].reason
        == "several experiments use one process (b32, b64), but none of them uses 16 samples per update"
    )
    assert [odd[name].reason for name in ("b32", "b64")] == ["it uses one process itself"] * 2


def test_of_several_rates_the_same_one_counts(description: Description) -> None:
    def with_rate(config: Mapping[str, Any], rate: float) -> dict[str, Any]:
        return {**config, "optimizer": {"class_path": "torch.optim.Adam", "init_args": {"lr": rate}}}

    ones = [side(f"lr{rate}", with_rate(batch(ONE, 64), rate), description) for rate in (0.1, 0.2)]
    assert by_rate(*ones, side("two", with_rate(DDP, 0.2), description))["two"].baseline == "lr0.2"
    other = by_rate(*ones, side("two", with_rate(DDP, 0.4), description))["two"]
    assert other.reason == "several experiments use one process and the same batch size (lr0.1, lr0.2)"


def test_one_worker_of_a_server_counts_where_there_is_no_other(description: Description) -> None:
    alone = {**ASYNC, "trainer": {**ASYNC["trainer"], "devices": 1}}  # type: ignore[dict-item]  # a test's words
    sides = [side("alone", alone, description), side("four", ASYNC, description)]
    rows = by_rate(*sides)
    assert (rows["alone"].is_baseline, rows["four"].baseline) == (True, "alone")
    rows = by_rate(*sides, side("one", ONE, description))
    assert (rows["alone"].baseline, rows["four"].baseline, rows["one"].is_baseline) == ("one", "one", True)


def test_seconds_of_two_clocks_have_no_ratio(description: Description) -> None:
    sides = [side("one", ONE, description), side("many", VIRTUAL, description)]
    curves = {name: curve(name, 10.0, [1.0, 0.5]) for name in ("one-1", "many-1")}
    rows = relative_rows(sides, curves, 0.5, lower=True)
    assert rows["many"].figure("seconds").reason == "the seconds of many are virtual, but those of one are measured"
    assert rows["many"].figure("samples").value == 1.0
    assert (
        "Not compared with one process: the seconds of many are virtual, but those of one are measured."
    ) in remarks(rows)


def test_virtual_figures_say_so(description: Description) -> None:
    single = {**VIRTUAL, "trainer": {**VIRTUAL["trainer"], "devices": 1}}  # type: ignore[dict-item]  # a test's words
    sides = [side("one", single, description), side("many", VIRTUAL, description, [350.0])]
    sides.append(side("measured", ONE, description))
    row = by_rate(*sides)["many"]
    assert (row.baseline, row.text("samples_per_second")) == ("one", "3.50 virtual"), "the one on the same clock"


def test_runs_that_lost_workers_are_left_out(description: Description) -> None:
    lost = run("two", 3, 1.0, **{names.TAG_WORKERS_LOST: "worker 1"})
    two = side("two", DDP, description, [200.0, 200.0])
    rows = by_rate(side("one", ONE, description), ComparedSide("two", two.experiment, [*two.runs, lost]))
    assert rows["two"].figure("samples_per_second").value == pytest.approx(2.0)
    rows = by_rate(side("one", ONE, description), ComparedSide("two", two.experiment, [lost]))
    assert rows["two"].figure("samples_per_second").reason == "all runs of two lost workers"


def test_what_has_not_run_has_no_ratio(description: Description) -> None:
    rows = by_rate(side("one", ONE, description, []), side("two", DDP, description))
    assert rows["two"].figure("samples_per_second").reason == "no run of one has finished"
    silent = by_rate(side("one", ONE, description), side("two", DDP, description, [None]))
    assert silent["two"].figure("samples_per_second").reason == "two has recorded no throughput above 0"
    broken = by_rate(side("one", ONE, description), ComparedSide("two", None))
    assert broken["two"].reason == "the config cannot be read"
    none = by_rate(side("two", DDP, description), side("four", ASYNC, description))
    assert remarks(none) == ["Not compared with one process: none of these experiments uses one process."]


def test_experiments_of_one_process_are_not_relative_to_anything(description: Description) -> None:
    ones = by_rate(side("b32", batch(ONE, 32), description), side("b64", batch(ONE, 64), description))
    assert (shown(ones.values()), remarks(ones)) == ([], [])


def test_seeds_that_share_their_numbers_have_no_interval(description: Description) -> None:
    two = side("two", DDP, description, [180.0, 200.0, 220.0])
    sides = [
        side("one", ONE, description, [100.0] * 3),
        ComparedSide("two", two.experiment, two.runs, "seeds 1, 2 share"),
    ]
    figure = by_rate(*sides)["two"].figure("samples_per_second")
    assert (figure.low, figure.reason) == (None, "the seeds are not independent")


def test_each_run_by_itself_is_compared_with_all_seeds_of_one_process(description: Description) -> None:
    one = Experiment.read(ONE, description)
    rates = [90.0, 100.0, 110.0]
    ones = [
        ComparedSide(f"one · seed {seed}", one, [run("one", seed, rate, **{names.TAG_CELL: "one"})])
        for seed, rate in enumerate(rates)
    ]
    rows = by_rate(*ones, side("two", DDP, description, [200.0]))
    assert [rows[base.name].is_baseline for base in ones] == [True] * 3
    assert rows["two"].baseline == "one"
    assert rows["two"].figure("samples_per_second").value == pytest.approx(200 / statistics.geometric_mean(rates))
