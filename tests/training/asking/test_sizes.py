"""How much of a question fits into its budget."""

import itertools
import math
from dataclasses import replace
from typing import Any

import pytest

from scalebook.training.asking import sizes
from scalebook.training.asking.recipe import Machine, Side, one_process
from scalebook.training.base.errors import ConfigError
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.notebook import answer_body
from tests.training.asking.played import CONFIG

TWO = Machine(2)
TEN = sizes.RunTime(2.0, 8.0)


@pytest.fixture
def base(description: Description) -> Experiment:
    return Experiment.read(CONFIG, description)


def trained(base: Experiment, **trainer: Any) -> Experiment:
    return base.with_config({**base.written, "trainer": {"accelerator": "cpu", "devices": 1, **trainer}})


def test_a_larger_budget_never_does_less(base: Experiment) -> None:
    sides = [one_process(base, str(place)) for place in range(4)]
    found = [sizes.fitting(sides, TWO, TEN, left_s, True) for left_s in range(20, 3000, 20)]
    first = next(place for place, one in enumerate(found) if one is not None)
    fits = [one for one in found[first:] if one is not None]
    assert len(fits) == len(found) - first
    assert all((a.sides, a.share) <= (b.sides, b.share) or a.sides < b.sides for a, b in itertools.pairwise(fits))
    assert (fits[-1].sides, fits[-1].rates, fits[-1].seeds, fits[-1].share) == (4, *sizes.FULL, 1.0)
    assert all(one.seconds <= 0.9 * left for one, left in zip(fits, range(20 * (first + 1), 3000, 20), strict=True))


def test_a_short_budget_leaves_out_the_last_sides_and_says_so(base: Experiment) -> None:
    sides = [Side(name, name, base) for name in ("one", "two", "three")]
    found = sizes.fitting(sides, TWO, sizes.RunTime(2.0, 18.0), 70.0, True)
    assert found is not None
    assert found.sides == 2
    assert "Not compared: three." in sizes.left_out(found, sides)
    assert sizes.words(found, sides).startswith(
        "one; two. Scalebook tries 3 learning rates for each side, then runs 3 fresh seeds of each side. This takes "
        "about"
    )


def test_the_time_that_is_shown_includes_the_start_of_each_run(base: Experiment) -> None:
    """Two sides of four learning rates, two at a time, and of three seeds, one by one, each 10 s longer than before; at
    most as long as there is time."""
    sides = [one_process(base), Side("b", "b", base)]
    plan = sizes.Sizes(2, 4, 3, 1.0)
    short, long = (sizes.expected_s(sides, TWO, plan, sizes.RunTime(start, 5.0), True) for start in (1.0, 11.0))
    assert long - short == pytest.approx(10 * (2 * 2 * sizes.PARALLEL_COST + 6))
    found = sizes.fitting(sides, TWO, TEN, 10_000.0, True)
    assert found is not None
    further = sizes.expected_s(sides, TWO, found, TEN, True, sizes.FURTHER)
    assert found.seconds < found.most_s == pytest.approx(sizes.LATER * further)
    assert "5 fresh seeds of each side. This takes about 3 to 6 min" in sizes.words(found, sides)
    tight = sizes.fitting(sides, TWO, TEN, found.seconds / 0.9, True)
    assert tight is not None
    assert tight.most_s == pytest.approx(found.seconds / 0.9)


@pytest.mark.parametrize("run_s", [None, 3.0, 60.0, 3600.0])
def test_the_budget_that_is_named_is_the_least_that_is_accepted(base: Experiment, run_s: float | None) -> None:
    """Before the pilot run and after it."""
    sides = [one_process(base), Side("b", "b", base)]
    run = None if run_s is None else sizes.RunTime(2.0, run_s - 2.0)
    for spent_s in (None, 1.0, 500.0):
        with pytest.raises(
            ConfigError, match=r"is too short, because a run takes .*, and an answer needs at least 12 runs"
        ) as no:
            sizes.required(sides, TWO, run, 1.0, True, spent_s)
        least_s = answer_body.read_budget(no.value.problem.fix.split()[3].strip(","))
        assert sizes.required(sides, TWO, run, least_s, True, spent_s).sides == 2
        with pytest.raises(ConfigError):
            sizes.required(sides, TWO, run, 0.95 * least_s - 60, True, spent_s)


def test_a_question_goes_on_with_a_longer_budget() -> None:
    assert sizes.longer_budget(900, 910) == 1380
    assert sizes.longer_budget(60, 60) == 120
    assert sizes.longer_budget(900, 300, 810) == 1380
    assert sizes.longer_budget(7200, 300, 600) == 7200


def test_it_is_said_that_sides_are_not_compared_as_written(base: Experiment) -> None:
    slow = base.with_config({**base.written, "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.01}}})
    one, other, kept = Side("a", "a", base), Side("b", "b", slow), Side("c", "c", base, ())
    may = "Each side is compared at the best learning rate found, which can differ from the one in the config"
    assert sizes.retuned([one, one]) == f". {may} (0.1)"
    assert sizes.retuned([one, other]) == f". {may} (a 0.1, b 0.01)"
    assert sizes.retuned([one, kept]) == (
        f". {may} (0.1). c keeps the learning rate of its model, because its config has no key for one"
    )
    assert sizes.retuned([kept, Side("d", "d", base, ("batch_size", "learning_rate"))]) == ""


def test_one_epoch_cannot_be_shortened(base: Experiment) -> None:
    one, ten = trained(base, max_epochs=1), trained(base, max_epochs=10)
    assert [sizes.made(one, share) for share in sizes.SHARES] == [1.0] * 4
    assert [sizes.made(ten, share) for share in sizes.SHARES] == [1.0, 0.5, 0.2, 0.1]
    assert sizes.made(trained(base, max_steps=40, max_epochs=-1), 0.25) == 0.25
    sides = [Side("a", "a", one), Side("b", "b", one)]
    assert sizes.expected_s(sides, TWO, sizes.Sizes(2, 3, 3, 0.1), sizes.RunTime(2.0, 98.0), True) > 6 * 100


@pytest.mark.parametrize("share", sizes.SHARES)
def test_shortened_trains_that_share(base: Experiment, share: float) -> None:
    short = sizes.shortened(trained(base, max_epochs=20), share)
    assert short.trainer["max_epochs"] == int(20 * share)
    assert sizes.shortened(trained(base, max_steps=3, max_epochs=-1), 0.1).trainer["max_steps"] == 1


def test_rates_are_tried_around_the_own_one(base: Experiment) -> None:
    for rates in (3, 5, 7):
        tried = [point["learning_rate"] for point in sizes.points(one_process(base), rates)]
        assert len(tried) == rates
        assert tried[0] == 0.1, "its own first, then outwards"
        away = [abs(math.log(rate / 0.1)) for rate in tried]
        assert away == pytest.approx(sorted(away), abs=0.02)
        assert max(tried) / 0.1 == pytest.approx(0.1 / min(tried), rel=0.02)


def test_larger_batches_begin_at_larger_rates(base: Experiment) -> None:
    side = replace(one_process(base), tuned=("batch_size", "learning_rate"))
    tried = sizes.points(side, 3)
    assert len(tried) == sizes.trials(side, 3) == 12
    assert {point["batch_size"] for point in tried} == {16, 32, 64, 128} <= set(sizes.batches(side))
    assert [point["learning_rate"] for point in tried if point["batch_size"] == 128] == [0.2, 0.05, 0.8]


def test_the_search_goes_on_only_past_an_edge() -> None:
    tried = [{"learning_rate": rate} for rate in (0.1, 0.2, 0.4)]
    assert sizes.beyond(tried, tried[1]) == []
    assert sizes.beyond(tried, tried[0]) == [{"learning_rate": 0.05}, {"learning_rate": 0.025}]
    assert sizes.beyond(tried, tried[2]) == [{"learning_rate": 0.8}, {"learning_rate": 1.6}]
    assert sizes.beyond(tried[:1], tried[0]) == []
    assert sizes.below(tried) == [{"learning_rate": 0.05}, {"learning_rate": 0.025}]
    assert sizes.below([{"model.width": 1}]) == []


def test_an_edge_of_batch_sizes_is_one_too() -> None:
    """The edge of the rates is that of its own batch size: others have other rates."""
    tried = [{"batch_size": size, "learning_rate": rate} for size, rates in (
        (8, (0.1, 0.2, 0.4)), (16, (0.14, 0.28, 0.57)),
    ) for rate in rates]  # fmt: skip
    assert sizes.beyond(tried, tried[2]) == [
        {"batch_size": 8, "learning_rate": 0.8}, {"batch_size": 8, "learning_rate": 1.6},
    ]  # fmt: skip
    assert sizes.beyond(tried, tried[4]) == [
        {"batch_size": 32, "learning_rate": 0.396}, {"batch_size": 64, "learning_rate": 0.56},
    ]  # fmt: skip
    beyond = {"batch_size": 32, "learning_rate": 0.4}
    assert sizes.beyond([*tried, beyond, {**beyond, "batch_size": 64}], beyond) == [
        {"batch_size": 32, "learning_rate": 0.2}, {"batch_size": 32, "learning_rate": 0.8},
    ], "the only rate of its batch size"  # fmt: skip
    assert (
        sizes.beyond(
            [{**one, "batch_size": 1} for one in tried[:3]] + tried[4:5], {"batch_size": 1, "learning_rate": 0.2}
        )
        == []
    )


def test_an_edge_is_said_in_words() -> None:
    tried = [{"batch_size": size, "learning_rate": rate} for size in (8, 16, 32) for rate in (0.1, 0.2, 0.4)]
    assert sizes.edges(tried, tried[4]) == []
    assert sizes.edges(tried, tried[3]) == ["learning rate 0.1 is the smallest value tried"]
    assert sizes.edges(tried, tried[8]) == [
        "batch size 32 is the largest value tried", "learning rate 0.4 is the largest value tried",
    ]  # fmt: skip
    assert sizes.edges([{"learning_rate": 0.1}], {"learning_rate": 0.1}) == []


def test_the_same_samples_where_steps_are_counted(base: Experiment) -> None:
    steps = trained(base, max_steps=100, max_epochs=-1)
    ddp = trained(base, max_steps=100, max_epochs=-1, strategy="ddp", devices=2)
    assert sizes.same_samples(ddp, steps).trainer["max_steps"] == 50
    assert sizes.same_samples(trained(base, max_epochs=3, strategy="ddp", devices=2), base).trainer["max_epochs"] == 3


def test_runs_that_validate_rarely_validate_more_often(base: Experiment) -> None:
    assert [sizes.validated(trained(base, max_epochs=epochs)) for epochs in (1, 2, 5, 9, 10)] == [
        1 / 16, 1 / 8, 1 / 2, 1 / 2, None,
    ]  # fmt: skip
    assert sizes.validated(trained(base, max_epochs=2, check_val_every_n_epoch=2)) is None
    assert sizes.validated(trained(base, max_steps=100, max_epochs=-1)) is None
    stopping = {"class_path": "EarlyStopping", "init_args": {"monitor": "val/loss"}}
    assert sizes.validated(trained(base, max_epochs=2, callbacks=[stopping])) is None
