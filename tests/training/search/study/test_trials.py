"""Trials compared, and read back from Optuna's."""

import math
from dataclasses import replace

from scalebook.training.search.study.trials import (
    GIVEN,
    OUTCOME,
    RUNS,
    Records,
    TrialRecord,
    at_rest,
    at_work,
    best,
    pareto,
    record_of,
)
from tests.training.search.studies import ACCURACY, BATCH, RATE, SECONDS, STRATEGY, search


def finished(number: int, *values: float) -> TrialRecord:
    return TrialRecord(number, "finished", {}, values)


def test_trials_on_their_way_wait_where_the_search_has_ended() -> None:
    records = [finished(0, 0.4), TrialRecord(1, "running", {}, curve=[(10, 0.0)])]
    assert [one.state for one in at_rest(records)] == ["finished", "waiting"]
    assert records[1].state == "running"


def test_the_best_is_by_direction_and_only_of_finished_trials() -> None:
    records = [
        finished(0, 0.4),
        finished(1, 0.9),
        replace(finished(2, 0.1), state="infeasible"),
        TrialRecord(3, "running", {}, curve=[(10, 0.0)]),
        finished(4, 0.9),
        finished(5, 0.4),
    ]
    lowest, highest = best(records, search()), best(records, search(objectives=(ACCURACY,)))
    assert lowest is records[0]
    assert highest is records[1]
    assert best(records[2:4], search()) is None


def test_a_missed_target_is_not_the_best() -> None:
    spec = search(objectives=(SECONDS,), target=0.1)
    assert best([finished(0, math.inf)], spec) is None
    only = best([finished(0, math.inf), finished(1, 3.0)], spec)
    assert only is not None
    assert only.number == 1


def test_the_front_is_what_nothing_betters() -> None:
    spec = search(objectives=(ACCURACY, SECONDS))
    records = [
        finished(0, 0.9, 10.0),
        finished(1, 0.8, 4.0),
        finished(2, 0.8, 5.0),
        finished(3, 0.7, 6.0),
        finished(4, 0.95, math.inf),
        finished(5, 0.5, 1.0),
        finished(6, 0.9, 10.0),
        TrialRecord(7, "pruned", {}),
    ]
    assert [one.number for one in pareto(records, spec)] == [4, 0, 6, 1, 5]
    assert pareto([], spec) == []


def test_with_one_objective_the_front_is_the_best() -> None:
    records = [finished(0, 0.4), finished(1, 0.2), finished(2, 0.3)]
    assert pareto(records, search()) == [records[1]]


def test_a_trial_of_optunas_in_our_words() -> None:
    import optuna
    from optuna.trial import TrialState

    from scalebook.training.search.study.sampling import distribution

    space = (BATCH, RATE, STRATEGY)
    trial = optuna.trial.create_trial(
        state=TrialState.PRUNED,
        params={"batch_size": 5, "learning_rate": 0.5, "strategy": STRATEGY.encode(STRATEGY.choices[2])},
        distributions={one.name: distribution(one) for one in space},
        intermediate_values={200: 0.5, 100: 1.0},
        user_attrs={RUNS: {"7": "abc"}, OUTCOME: {"state": "infeasible", "failure": "diverged", "cause": "nan"}},
    )
    record = record_of(trial, space)
    assert (record.state, record.failure, record.cause) == ("infeasible", "diverged", "nan")
    assert record.point == {"batch_size": 32, "learning_rate": 0.5, "strategy": STRATEGY.choices[2]}
    assert record.curve == [(100, 1.0), (200, 0.5)]
    assert record.runs == {7: "abc"}
    assert record.values == ()
    assert not record.given


def test_a_given_point_that_waits_can_be_read() -> None:
    import optuna
    from optuna.trial import TrialState

    trial = optuna.trial.create_trial(state=TrialState.WAITING, user_attrs={GIVEN: {"batch_size": 6}})
    record = record_of(trial, (BATCH, RATE))
    assert (record.state, record.point, record.given, record.started) == ("waiting", {"batch_size": 64}, True, None)


def test_only_what_changed_is_made_again() -> None:
    import optuna

    study = optuna.create_study()
    for value in (1.0, 2.0):
        study.tell(study.ask(), value)
    trials = study.get_trials(deepcopy=False)
    records = Records((BATCH,))
    first = records.of(trials)
    second = records.of([trials[0], study.get_trials(deepcopy=True)[1]])
    assert [one.values for one in first] == [(1.0,), (2.0,)]
    assert second == first
    assert second[0] is first[0]
    assert second[1] is not first[1]


def test_a_trial_without_a_process_waits() -> None:
    told = [TrialRecord(0, "finished", {}), TrialRecord(1, "running", {}), TrialRecord(2, "running", {})]
    assert [one.state for one in at_work(told, [1])] == ["finished", "running", "waiting"]
