"""Verdicts at equal samples: against Optuna's where both can tell, and where only equal samples are fair."""

import math
import random
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalebook.training.experiments.search.types import Objective, SearchSpec
from scalebook.training.search.study import pruners
from scalebook.training.search.study.pruners import HALVINGS, PARTS, STARTUP, Judge, Rungs, value_at
from scalebook.training.search.study.study import Study
from scalebook.training.search.study.trials import State, TrialRecord
from tests.training.search.studies import ACCURACY, LOSS, RATE, SECONDS, journal, search

if TYPE_CHECKING:
    from optuna.pruners import BasePruner

TOTAL = 2700
PART = TOTAL // PARTS
Falling = Callable[[int], float]


def test_rungs_are_equal_parts_of_the_budget() -> None:
    rungs = Rungs.of(2690)
    assert rungs.part == 100
    assert list(rungs.within([(150, 1.0), (420, 0.5)])) == [2, 3, 4]
    assert list(rungs.within([(200, 1.0), (5000, 0.5)])) == [*range(2, 27)]
    assert list(rungs.within([])) == list(rungs.within([(150, 1.0)])) == []
    assert HALVINGS == (1, 3, 9)
    assert Rungs.of(3).part == 1


def test_a_value_between_validations_lies_on_their_line_over_log_samples() -> None:
    curve = [(100, 4.0), (200, 3.0), (800, 1.0)]
    assert value_at(curve, 200) == 3.0
    assert value_at(curve, 400) == pytest.approx(2.0)
    assert value_at([(0, 4.0), (200, 3.0)], 100) == pytest.approx(3.5)
    assert value_at(curve, 99) is None
    assert value_at(curve, 801) is None
    assert value_at([], 1) is None


@given(st.lists(st.tuples(st.integers(1, 10**9), st.floats(-1e6, 1e6)), min_size=1, unique_by=lambda one: one[0]),
       st.integers(1, 10**9))  # fmt: skip
def test_an_interpolated_value_lies_between_its_neighbours(points: list[tuple[int, float]], samples: int) -> None:
    curve = sorted(points)
    found = value_at(curve, samples)
    before = [value for at, value in curve if at <= samples]
    after = [value for at, value in curve if at >= samples]
    if not before or not after:
        assert found is None
    else:
        assert found is not None
        tolerance = 1e-9 * max(abs(before[-1]), abs(after[0]))
        assert min(before[-1], after[0]) - tolerance <= found <= max(before[-1], after[0]) + tolerance


def test_the_median_is_of_as_many_trials_as_it_wants_and_no_fewer() -> None:
    others = [[(100, 1.0)] for _ in range(STARTUP)]
    assert pruners.median([(100, 2.0)], 1, others, Rungs(100), lower=True)
    assert not pruners.median([(100, 2.0)], 1, others[1:], Rungs(100), lower=True)
    assert not pruners.median([(100, 1.0)], 1, others, Rungs(100), lower=True)


class Trials:
    """As a study, without a store."""

    def __init__(self, spec: SearchSpec) -> None:
        self.judge, self.records = Judge(spec, "x"), list[TrialRecord]()

    def ask(self) -> int:
        self.records.append(TrialRecord(len(self.records), "running", {}))
        return len(self.records) - 1

    def report(self, number: int, samples: int, value: float) -> None:
        self.records[number].curve.append((samples, value))

    def should_prune(self, number: int) -> bool:
        return self.judge.at_rungs(number, self.records, Rungs(PART))

    def end(self, number: int, state: State, *values: float) -> None:
        self.records[number] = replace(self.records[number], state=state, values=values)


def optunas(pruner: str) -> "BasePruner":
    from optuna import pruners as of

    made: dict[str, Callable[[], BasePruner]] = {
        "median": lambda: of.MedianPruner(n_startup_trials=pruners.STARTUP),
        "asha": lambda: of.SuccessiveHalvingPruner(min_resource=PART, reduction_factor=pruners.ETA),
        "hyperband": lambda: of.HyperbandPruner(min_resource=PART, max_resource=TOTAL, reduction_factor=pruners.ETA),
        "wilcoxon": lambda: of.WilcoxonPruner(p_threshold=pruners.CONFIDENCE, n_startup_steps=0),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it calls the last one experimental
        return made[pruner]()


@pytest.mark.parametrize("pruner", ["median", "asha", "hyperband"])
@pytest.mark.parametrize("objective", [LOSS, ACCURACY], ids=["lower", "higher"])
def test_where_all_validate_at_every_rung_the_verdicts_are_optunas(pruner: str, objective: Objective) -> None:
    import optuna

    rng = random.Random(1)
    sign = 1 if objective.lower else -1
    ours = Trials(search(RATE, objectives=(objective,), pruner=pruner))
    theirs = optuna.create_study(
        study_name="x", pruner=optunas(pruner), direction="minimize" if objective.lower else "maximize"
    )
    ended: list[int] = []
    for number in range(40):
        ours.ask()
        trial = theirs.ask()
        quality, speed = rng.gauss(0.5, 0.2), rng.uniform(2, 8)
        for rung in range(1, PARTS):
            value = sign * (quality + 2 * math.exp(-rung / speed) + rng.gauss(0, 0.02))
            ours.report(number, rung * PART, value)
            trial.report(value, rung * PART)
            assert ours.should_prune(number) == trial.should_prune(), (number, rung)
            if ours.should_prune(number):
                ended.append(rung)
                ours.end(number, "pruned")
                theirs.tell(trial, state=optuna.trial.TrialState.PRUNED)
                break
        else:
            ours.end(number, "finished", value)
            theirs.tell(trial, value)
    assert 5 < len(ended) < 39
    assert pruner == "median" or set(ended) == set(HALVINGS)


@pytest.mark.parametrize("lower", [True, False])
def test_over_seeds_the_verdict_is_optunas(lower: bool) -> None:
    import optuna

    rng = random.Random(2)
    verdicts = []
    for _ in range(40):
        best = {seed: rng.gauss(0, 1) for seed in range(8)}
        shift = rng.uniform(0, 2) if lower else -rng.uniform(0, 2)
        own = {seed: best[seed] + shift + rng.gauss(0, 0.7) for seed in rng.sample(range(8), rng.randint(2, 8))}
        study = optuna.create_study(pruner=optunas("wilcoxon"), direction="minimize" if lower else "maximize")
        leader = study.ask()
        for seed, value in best.items():
            leader.report(value, seed)
        study.tell(leader, sum(best.values()) / 8)
        trial = study.ask()
        for seed, value in own.items():
            trial.report(value, seed)
        verdicts.append(pruners.wilcoxon(own, best, lower))
        assert verdicts[-1] == trial.should_prune()
    assert 5 < sum(verdicts) < 35


def told(trials: Trials, falling: Falling, every: int) -> tuple[int, bool]:
    """A trial that validates `every` so many samples: its number, and whether it was ended early."""
    number = trials.ask()
    for samples in range(every, TOTAL + 1, every):
        trials.report(number, samples, falling(samples))
        if trials.should_prune(number):
            trials.end(number, "pruned")
            return number, True
    trials.end(number, "finished", falling(samples))
    return number, False


def falling_to(quality: float) -> Falling:
    return lambda samples: quality + 2 * math.exp(-samples / 600)


@pytest.mark.parametrize("pruner", ["median", "asha", "hyperband"])
@pytest.mark.parametrize("every", [130, 270, 450])
def test_whoever_is_better_at_equal_samples_stays_however_rarely_it_validates(pruner: str, every: int) -> None:
    """At each moment the others' last values are lower, since they are further."""
    trials = Trials(search(RATE, pruner=pruner))
    fates = [told(trials, falling_to(0.5 + 0.01 * place), 50) for place in range(8)]
    assert not fates[0][1]
    for place in range(8):
        assert not told(trials, falling_to(0.49 - 0.01 * place), every)[1]


@pytest.mark.parametrize(("pruner", "every"), [("median", 450), ("asha", 270), ("hyperband", 270)])
def test_whoever_is_worse_at_equal_samples_goes_though_it_validates_late(pruner: str, every: int) -> None:
    """Its first value is lower than all that the others have at the first rungs."""
    trials = Trials(search(RATE, pruner=pruner))
    before = {told(trials, falling_to(0.4 - 0.01 * place), 50)[0] for place in range(8)}
    assert falling_to(0.6)(every) < falling_to(0.3)(PART)
    fates = [told(trials, falling_to(0.6), every) for _ in range(8)]
    if pruner == "hyperband":  # those that are compared with any, and ever
        brackets = {pruners.bracket("x", number) for number in before} - {3}
        fates = [one for one in fates if pruners.bracket("x", one[0]) in brackets]
    judged = [ended for _, ended in fates]
    assert judged
    assert all(judged)


def test_a_rare_validation_does_not_spoil_the_first_rungs_for_others() -> None:
    """Optuna's successive halving takes the value at 450 samples for that at 100, and ends all who come after."""
    trials = Trials(search(RATE, pruner="asha"))
    for _ in range(3):
        assert not told(trials, falling_to(0.6), 450)[1]
    assert not told(trials, falling_to(0.5), 50)[1]


def test_seeds_are_compared_in_pairs_whatever_their_order(tmp_path: Path) -> None:
    """The first seeds told are the hard ones: worse than the best trial's mean, better than it on the same seeds."""
    study = Study.open(journal(tmp_path), "x", search(RATE, pruner="wilcoxon", seeds=6))
    hard = [0.1, 0.2, 0.3, 0.9, 1.0, 1.1]
    study.ask()
    for index, value in enumerate(hard):
        study.seed_value(0, index, value)
    study.finish(0, [0.6])
    better, worse = study.ask().number, study.ask().number
    for place, index in enumerate([5, 4, 3, 2]):
        study.seed_value(better, index, hard[index] - 0.05)
        study.seed_value(worse, index, hard[index] + 0.05)
        assert not study.should_prune(better)
        assert study.should_prune(worse) == (place == 3)


def test_nothing_is_ended_without_a_pruner_or_with_two_objectives(tmp_path: Path) -> None:
    for name, spec in {
        "none": search(RATE),
        "two": search(RATE, objectives=(LOSS, SECONDS), pruner="asha"),
    }.items():
        study = Study.open(journal(tmp_path), name, spec, samples_total=TOTAL)
        for quality in (0.1, 5.0):
            number = study.ask().number
            study.report(number, 1000, quality)
            assert not study.should_prune(number)
            study.finish(number, [quality] * len(spec.objectives))


def test_without_a_budget_the_first_finished_trial_is_the_measure(tmp_path: Path) -> None:
    """And a driver that comes after goes by the same rungs, and by verdicts that were given before it."""
    spec = search(RATE, pruner="asha")
    study = Study.open(journal(tmp_path), "x", spec)
    number = study.ask().number
    for rung in range(1, PARTS + 1):
        study.report(number, rung * PART, falling_to(0.1)(rung * PART))
        assert not study.should_prune(number)
    study.finish(number, [0.1])
    number = study.ask().number
    study.report(number, PART - 1, 9.0)
    assert not study.should_prune(number)
    study = Study.open(journal(tmp_path), "x", spec, samples_total=27)
    assert not study.should_prune(number)
    study.report(number, PART + 1, 9.0)
    assert study.should_prune(number)
    assert Study.open(journal(tmp_path), "x", spec).should_prune(number)


def test_who_stood_at_a_rung_is_not_judged_there_again_by_the_next_driver(tmp_path: Path) -> None:
    """All who came later were better at the first rung, and worse at the second."""
    spec = search(RATE, pruner="asha")
    study = Study.open(journal(tmp_path), "x", spec, samples_total=TOTAL)
    slow = study.ask().number
    for rung, value in ((1, 1.0), (3, 0.1)):
        study.report(slow, rung * PART, value)
        assert not study.should_prune(slow)
    for place in range(5):
        number = study.ask().number
        study.report(number, PART, 0.5)
        study.report(number, 3 * PART, 0.4 + 0.01 * place)
    later = Study.open(journal(tmp_path), "x", spec)
    assert not later.should_prune(slow)
    assert later.should_prune(number)


def test_brackets_have_the_shares_of_the_paper() -> None:
    """n = (s + 1 brackets) eta^s / (s + 1) trials each: 27, 12, 6 and 4 of 49."""
    counts = [0, 0, 0, 0]
    for number in range(4900):
        counts[pruners.bracket("a study", number)] += 1
    assert counts == [pytest.approx(100 * share, abs=150) for share in (27, 12, 6, 4)]
