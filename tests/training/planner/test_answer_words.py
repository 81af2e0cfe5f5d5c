"""What an answer says and shows, of figures that are given."""

from dataclasses import replace

import pytest

from scalebook.training.engine.rules.update_rules import Async
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.planner.answer_words import (
    HEADER,
    accuracy,
    busy_words,
    compare_strategies,
    curves,
    expectation,
    heading,
    million_price,
    printed,
    sentences,
    system_words,
    table,
    tables,
)
from scalebook.training.planner.answers import Answer, Cause, Change, Curve, Knee, Point, Range, Reliability
from scalebook.training.planner.question import Question, usual_workers
from scalebook.training.pricing.links import OWN
from scalebook.training.pricing.profile import Profile, profile_mapping, read_profile
from scalebook.training.pricing.quantities import workers_words
from tests.training.experiments.searches import CONFIG

WITHIN = Reliability("async over a network", Range(0.8, 1.25), Range(0.9, 1.1), 12, ["a command"])
EXPECT = (
    "Expect the real updates/s to be 0.80 to 1.25 times this prediction. This holds for 9 of 10 plans of async over a "
    "network (12 were compared with runs)."
)


def point(workers: int, samples_per_s: float, staleness: float = 0.0) -> Point:
    return Point(
        workers, samples_per_s / 10, samples_per_s, 0.5, 0.4, 0.1, staleness, 3, 0.0, 1.0, 4.0, 0.2, 0.3, 0.1, 0.1
    )


CURVE = Curve(
    "async", 2, "10gbe", 100.0, [point(1, 100), point(2, 200, 1.0), point(4, 400, 3.0), point(8, 500, 7.0)], WITHIN,
    Knee(5.0, 500.0, 8, 3.2, 7.8), [Cause(["server"], 1.6, 1.02, 2.5), Cause(["server link"], 1.1, 0.7, 1.72)],
    [Change("4 shards", 8, 1.6, 1.02, 2.5), Change("rule async", 8, 1.2, 0.77, 1.9)],
)  # fmt: skip


def test_a_busy_machine_is_said() -> None:
    busy = Profile(0.1, 32, 1e6, 1e6, cores=2, busy=1.3, apart=1.8)
    assert "used 1.3 cores" in busy_words(busy)
    assert "wider by a factor of 1.80 at both ends" in busy_words(busy)
    assert busy_words(replace(busy, busy=0.0)) == ""
    assert read_profile(profile_mapping(busy)) == busy
    answer = Answer(profile_mapping(busy), [])
    assert printed(answer, busy, [])[0] == busy_words(busy)
    doubted = replace(WITHIN, updates_per_s=WITHIN.updates_per_s.wider(1.8), doubt=1.8)
    assert sentences(replace(CURVE, reliability=doubted))[-2:] == expectation(doubted)
    assert expectation(doubted)[0].startswith("Expect the real updates/s to be 0.44 to 2.25 times this prediction.")
    assert expectation(doubted)[1].startswith("Both ends of this range are moved by a factor of 1.80, because the")
    assert accuracy(replace(answer, curves=[replace(CURVE, reliability=doubted)]))[0].count("0.80 to 1.25") == 1


def test_what_was_measured_and_what_is_extrapolated_is_said() -> None:
    here = replace(CURVE, measured=2, at=8)
    said = "Measured: the times of up to 2 workers. Extrapolated: all rates for more workers."
    assert said in sentences(here)
    assert not [line for line in sentences(replace(here, points=CURVE.points[:2])) if "xtrapolated" in line]
    assert not [line for line in sentences(CURVE) if "xtrapolated" in line], "a profile that a person wrote"
    assert [row.split()[-1] for row in table(here)] == ["are", "measured", "measured", "extrapolated", "extrapolated"]
    one, two = replace(here, rule="sync"), replace(here, measured=8)
    lines = compare_strategies(Answer({}, [one, two], at=8, alone_per_s=100.0))
    assert "500 samples/s (extrapolated), 4 to 6.25 times one process" in lines[0]
    assert "500 samples/s (measured), 4 to 6.25 times one process" in lines[1]


def test_where_workers_stop_helping_why_and_what_would_move_it() -> None:
    assert heading(CURVE) == "async, 2 shards, 10 Gbit/s Ethernet"
    assert sentences(CURVE) == [
        (
            "Workers help up to about 5 (3 to 8): 8 workers train 4 to 6.25 times as fast as one, and each worker "
            "beyond 5 adds less than half of what the second worker added."
        ),
        (
            "The limit is the servers' time. Without this limit, 8 workers would train 1.6 times as fast (1 to 2.5). "
            "The next limits are: the servers' link (1.1 x, 0.7 to 1.7)."
        ),
        "What would help at 8 workers: 4 shards (1.6 x, 1 to 2.5); rule async (1.2 x, 0.77 to 1.9).",
        EXPECT,
    ]


def test_of_machines_that_may_join_all_are_planned_for_and_what_is_with_the_fewest_is_said() -> None:
    assert sentences(CURVE, [2, 8])[0] == (
        "The config has workers: {min: 2, max: 8}. At the maximum, 8 workers make 50 updates/s and 500 samples/s. At "
        "the minimum, 2 workers make 20 updates/s and 200 samples/s."
    )
    assert sentences(CURVE, [2, 8])[1:] == sentences(CURVE)
    assert sentences(CURVE, [3, 8]) == sentences(CURVE)  # a rule that does not allow three


def test_the_numbers_of_workers_of_a_config_are_asked_for(description: Description) -> None:
    strategy = {"class_path": "AsyncPS", "init_args": {"workers": {"min": 3, "max": 6}}}
    config = {**CONFIG, "trainer": {"strategy": strategy, "devices": 1, "num_nodes": 6}}
    asked = Question(workers=(1, 2, 4), networks=("10gbe",)).of(Experiment.read(config, description))
    assert (asked.workers, asked.elastic) == ([1, 2, 3, 4, 6], (3, 6))
    written = {**CONFIG, "trainer": {"strategy": {"class_path": "AsyncPS"}, "devices": 4}}
    assert Question(workers=(1, 2)).of(Experiment.read(written, description)) == Question(
        workers=[1, 2, 4], config_workers=4, config_rule=Async()
    )


def test_strategies_are_compared_for_the_number_that_was_asked_for() -> None:
    """The best three and the config's own, each with its limit; one process where it is faster."""
    sync, ddp, fsdp = (
        replace(CURVE, rule=rule, points=[point(8, samples)], causes=[], at=8)
        for rule, samples in (("sync", 300), ("ddp", 700), ("fsdp", 600))
    )
    own = replace(CURVE, own=True, at=8)
    answer = Answer({}, [sync, ddp, fsdp, own], at=8, alone_per_s=100.0)
    assert compare_strategies(answer) == [
        "Best of 4 with 8 workers: ddp, 10 Gbit/s Ethernet, 700 samples/s, 5.6 to 8.75 times one process.",
        "2nd of 4 with 8 workers: fsdp, 10 Gbit/s Ethernet, 600 samples/s, 4.8 to 7.5 times one process.",
        (
            "3rd of 4 with 8 workers: async, 2 shards, 10 Gbit/s Ethernet (the config's), 500 samples/s, 4 to 6.25 "
            "times one process. Bottleneck: the servers' time."
        ),
    ]
    slow = compare_strategies(replace(answer, alone_per_s=800.0))
    assert slow[0] == "One process is faster: 800 samples/s."
    last = compare_strategies(replace(answer, curves=[replace(sync, own=True), ddp, fsdp, replace(own, own=False)]))
    assert last[-1].startswith("4th of 4 with 8 workers: sync, 2 shards, 10 Gbit/s Ethernet (the config's), 300")
    assert compare_strategies(replace(answer, curves=[own])) == []


@pytest.mark.parametrize(
    ("samples_per_s", "said"),
    [
        (95.0, "hardly helps: 2 workers train 0.76 to 1.19"),
        (50.0, "makes training slower: 2 workers train 0.4 to 0.625"),
    ],
)
def test_workers_that_do_not_help(samples_per_s: float, said: str) -> None:
    """Not that they help up to 1, and that 1 is so many times as fast as 1."""
    curve = replace(CURVE, knee=Knee(1.0, samples_per_s, 2, 1.0, 1.2))
    assert sentences(curve)[0] == f"Adding workers {said} times as fast as one."


def test_a_factor_of_hundreds_has_no_power_of_ten() -> None:
    far = replace(CURVE, causes=[Cause(["worker link"], 150.4, 99.6, 190.2)])
    assert sentences(far)[1].endswith("8 workers would train 150 times as fast (100 to 190).")


def test_workers_that_help_up_to_the_last() -> None:
    linear = replace(CURVE, knee=None, points=CURVE.points[:3], causes=[], changes=[])
    assert sentences(linear) == [
        "Each added worker helps, up to all 4: 4 workers train 3.2 to 5 times as fast as one.",
        EXPECT,
    ]
    waits = replace(linear, causes=[Cause(["stragglers"], 1.3, 0.83, 2.0)])
    assert sentences(waits)[1] == (
        "The limit is waiting for slower workers. Without this limit, 4 workers would train 1.3 times as fast (0.83 "
        "to 2)."
    )
    assert sentences(replace(CURVE, causes=[]))[1].startswith("The limit is neither one resource")
    assert sentences(replace(CURVE, points=[])) == ["None of these numbers of workers is possible with this rule."]


def test_more_workers_that_are_slower_are_said_to_be() -> None:
    worse = replace(CURVE, points=[*CURVE.points, point(16, 300, 15.0)])
    assert sentences(worse)[0].endswith("of what the second worker added. 16 workers are slower than 8.")
    better = replace(CURVE, points=[*CURVE.points, point(16, 600, 15.0)])
    assert sentences(better)[0].endswith("worker added. 16 workers train 4.8 to 7.5 times as fast as one.")


def test_the_table_stands_below_its_head() -> None:
    head, *rows = table(CURVE)
    assert head == HEADER
    assert [len(row) for row in rows] == [len(HEADER)] * 4
    assert rows[3].split() == ["8", "50", "500", "62%", "50%", "40%", "10%", "7.0", "3", "100%", "20%"]


def test_a_row_has_a_worker_s_memory_and_with_a_price_what_a_million_samples_cost() -> None:
    """8 workers at 2.5 an hour, 500 samples a second: 2,000 s of 20 an hour."""
    known = replace(CURVE, points=[replace(point, memory=4e8) for point in CURVE.points])
    head, *rows = table(known, price=2.5)
    assert head == HEADER + "   per 1M samples"
    assert [len(row) for row in rows] == [len(head)] * 4
    assert rows[3].split()[-3:] == ["400", "MB", "11.1"]
    assert million_price(CURVE.points[3], 2.5) == pytest.approx(8 * 2.5 * 2000 / 3600)
    assert table(known)[1:] == [row.removesuffix(row.split()[-1]).rstrip() for row in rows]


def test_one_prediction_over_another_has_the_range_of_both() -> None:
    """Predicted/measured of each is 0.8 to 1.25, so of their ratio 0.64 to 1.5625."""
    assert WITHIN.updates_per_s.likely(10.0) == pytest.approx((8.0, 12.5))
    assert WITHIN.updates_per_s.likely_ratio(10.0) == pytest.approx((6.4, 15.625))
    assert Range(1.0, 1.25).likely_ratio(5.0) == pytest.approx((4.0, 6.25))
    assert Range(1.25, 1.25).likely_ratio(5.0) == (5.0, 5.0)  # both as much too fast: nothing moves


def test_what_is_planned_for_and_how_far_off_it_may_be() -> None:
    profile = Profile(0.18, 64, 1e8, 5e7, cores=2, title="a model")
    assert system_words(profile) == (
        "a model: a gradient of 64 samples takes 180 ms, a push sends 100 MB, a pull 50 MB; all workers share 2 cores "
        "(written by hand)"
    )
    slowed = replace(profile, slowdown={2: 1.3})
    assert "; gradients take 1.30 times as long if 2 workers compute at once (written" in system_words(slowed)


def test_what_to_expect_is_said_of_plans_of_the_same_kind() -> None:
    assert expectation(WITHIN) == [EXPECT]
    (said,) = expectation(replace(WITHIN, updates_per_s=Range(0.9, 1.6)))
    assert said.startswith("Expect the real updates/s to be 0.62 to 1.11 times this prediction.")
    profile = Profile(0.1, 32, 1e6, 1e6)
    ddp = replace(WITHIN, kind="ddp on one machine", updates_per_s=Range(1.0, 1.6), staleness=None)
    answer = Answer(profile_mapping(profile), [CURVE, replace(CURVE, rule="ddp", reliability=ddp)])
    lines = printed(answer, profile, answer.curves)
    assert [line for line in lines if line.startswith("Expect")] == [EXPECT, *expectation(ddp)]
    assert list(tables(answer))[-4:] == ["", *accuracy(answer)]
    assert accuracy(answer)[:2] == [
        (
            "async over a network: 9 of 10 predictions were 0.80 to 1.25 times the measured updates/s, and 0.90 to "
            "1.10 times the measured staleness. This holds for 9 of 10 plans of async over a network (12 "
            "were compared with runs). Commands: a command."
        ),
        (
            "ddp on one machine: 9 of 10 predictions were 1.00 to 1.60 times the measured updates/s. This holds "
            "for 9 of 10 plans of ddp on one machine (12 were compared with runs). Commands: a command."
        ),
    ]


def test_a_kind_of_which_too_few_were_compared_says_whose_range_it_has() -> None:
    few = Reliability(
        "fsdp on one machine", Range(0.8, 1.6), None, 0, ["a command"], 90, "all strategies on one machine"
    )
    known = (
        "This holds for 9 of 10 plans of all strategies on one machine (90 were compared with runs). Plans of fsdp on "
        "one machine were compared on fewer than 5 systems."
    )
    assert expectation(few) == [f"Expect the real updates/s to be 0.62 to 1.25 times this prediction. {known}"]
    assert accuracy(Answer({}, [replace(CURVE, reliability=few)]))[0].endswith(f"{known} Commands: a command.")


@pytest.mark.parametrize(
    ("missing", "said"),
    [
        (["slowdown"], "slowdown, so the range for incomplete profiles is used. Add it for"),
        (
            ["software", "shard_shares"],
            "software and shard_shares, so the range for incomplete profiles is used. Add them",
        ),
        (["a", "b", "c"], "a, b and c, so the range"),
    ],
)
def test_what_a_profile_lacks_is_said(missing: list[str], said: str) -> None:
    assert said in expectation(replace(WITHIN, missing=missing))[-1]


def test_a_short_answer_explains_the_config_s_own_else_the_fastest() -> None:
    slow, own = (replace(CURVE, rule=rule, points=[point(8, 300)]) for rule in ("sync", "bounded:2"))
    answer = Answer({}, [slow, CURVE, own], at=8, alone_per_s=100.0)
    assert curves(answer, every=False) == [CURVE]
    own = replace(own, own=True)
    answer = replace(answer, curves=[slow, CURVE, own])
    assert curves(answer, every=False) == [own]
    assert curves(answer, every=True) == answer.curves
    lines = list(printed(answer, Profile(0.1, 32, 1e6, 1e6), curves(answer, every=False)))
    assert lines[-1 - len(sentences(own)) :] == [heading(own), *sentences(own)]
    assert HEADER not in lines
    assert [line for line in tables(answer) if line == HEADER] == [HEADER] * 3


def test_without_numbers_of_workers_a_small_multiple_of_the_cores_is_planned() -> None:
    assert usual_workers(2, [OWN]) == (1, 2, 4, 8)
    assert usual_workers(6, [OWN]) == (1, 2, 4, 8, 16)
    assert usual_workers(1, [OWN]) == (1, 2, 4)
    for cores, networks in ((None, [OWN]), (2, [OWN, "10gbe"]), (2, ["10gbe"])):
        assert usual_workers(cores, networks) == (1, 2, 4, 8, 16, 32, 64)


def test_one_worker_is_one_worker() -> None:
    assert (workers_words(1), workers_words(8, "virtual ")) == ("1 worker", "8 virtual workers")
    alone = replace(CURVE, points=CURVE.points[:1], knee=None, causes=[Cause(["server"], 1.5, 1.2, 1.9)], changes=[])
    assert sentences(alone) == [
        "The plan has only one worker. Plan more workers to see whether they help.",
        "The limit is the servers' time. Without this limit, 1 worker would train 1.5 times as fast (1.2 to 1.9).",
        EXPECT,
    ]
