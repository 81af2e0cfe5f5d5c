"""The knee, what causes it and what would move it, where that is known beforehand."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.files import records
from scalebook.training.engine.rules.clock_settings import Distribution, Link
from scalebook.training.engine.rules.local_steps import LocalSGD
from scalebook.training.engine.rules.update_rules import Async, Rule, Sync
from scalebook.training.planner import play
from scalebook.training.planner.answer_words import sentences
from scalebook.training.planner.answering import Setting, answer, find_causes, find_changes, find_knee
from scalebook.training.planner.answers import Answer, Cause, Change, Point, Range
from scalebook.training.planner.question import Question, rules
from scalebook.training.planner.reliability import reliability_of
from scalebook.training.pricing.links import OWN, Network
from scalebook.training.pricing.profile import Profile, profile_mapping, read_profile
from tests.training.planner.sharing import closed_form

pytestmark = pytest.mark.long
PLAIN = Profile(0.1, 32, 1e6, 1e6)
WITHIN = Range(0.8, 1.0)


def points(*reached: tuple[int, float]) -> list[Point]:
    return [Point(workers, 0, samples, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0) for workers, samples in reached]


def test_the_knee_is_where_the_line_meets_what_more_workers_achieve() -> None:
    knee = find_knee(10.0, points((1, 10), (2, 20), (4, 40), (8, 50), (16, 50)), WITHIN)
    assert knee is not None
    assert (knee.workers, knee.samples_per_s, knee.beyond) == (5.0, 50, 8)
    assert (knee.low, knee.high) == pytest.approx((4.0, 6.25))  # where both samples/s are off, one by a fifth


def test_there_is_none_while_each_brings_half_as_much_as_the_first() -> None:
    assert find_knee(10.0, points((1, 10), (2, 15.1), (4, 26), (8, 50)), WITHIN) is None


def test_more_workers_may_be_slower() -> None:
    knee = find_knee(10.0, points((1, 10), (4, 40), (16, 30)), WITHIN)
    assert knee is not None
    assert (knee.workers, knee.beyond) == (4.0, 16)


def test_the_first_that_was_asked_for_may_be_beyond() -> None:
    knee = find_knee(10.0, points((16, 50), (32, 50)), WITHIN)
    assert knee is not None
    assert (knee.workers, knee.beyond) == (5.0, 16)


def setting(profile: Profile, rule: Rule | None = None) -> Setting:
    return Setting(profile, rule or Async(), 1, OWN, 0)


SATURATED = [
    ({"server_s": 0.02}, ["server"], 2.0),
    # 2 if transfers queued, 2.39 where ten memoryless workers share (mean value analysis, test_play.py)
    ({"network": Network(server_link=Link(bandwidth=5e7))}, ["server link"], 2.15),
    ({"network": Network(Link(bandwidth=2e7))}, ["worker link"], 2.0),  # 50 ms each way beside 100 ms
    ({"cores": 5}, ["cores"], 2.0),
    ({"slowdown": {10: 2.0}}, ["cores"], 2.0),
    ({"stragglers": {0: 4.0, 1: 4.0}}, ["stragglers"], 10 / 8.5),
]


@pytest.mark.parametrize(("changes", "resources", "factor"), SATURATED)
def test_what_is_without_limit_says_what_the_limit_was(
    changes: dict[str, Any], resources: list[str], factor: float
) -> None:
    system = setting(replace(PLAIN, **changes))
    reached = system.play(10).samples_per_s
    (cause,) = find_causes(system, 10, reached, 10 * 320.0)
    assert cause.resources == resources
    assert cause.factor == pytest.approx(factor, rel=0.02)


def test_two_that_saturate_together_are_named_together() -> None:
    profile = replace(PLAIN, server_s=0.02, network=Network(server_link=Link(bandwidth=5e7)))
    (cause,) = find_causes(setting(profile), 10, setting(profile).play(10).samples_per_s, 10 * 320.0)
    assert cause.resources == ["server", "server link"]
    assert cause.factor == pytest.approx(2.0, rel=0.01)


def test_stragglers_are_what_sync_waits_for() -> None:
    profile = replace(PLAIN, gradient_s=Distribution("exponential", 0.1))
    system = setting(profile, Sync())
    (cause,) = find_causes(system, 8, system.play(8).samples_per_s, 8 * 320.0)
    assert cause.resources == ["stragglers"]
    assert cause.factor == pytest.approx(sum(1 / n for n in range(1, 9)), rel=0.1)


def test_what_would_move_a_saturated_link() -> None:
    system = setting(replace(PLAIN, network=Network(server_link=Link(bandwidth=5e7))))
    changes = find_changes(system, 40, system.play(40).samples_per_s)
    found = {change.words: change.factor for change in changes}
    shared = 4 * closed_form(40, 0.4, 0.02) / closed_form(40, 0.1, 0.02)  # 3.92: at times nobody pushes, or pulls
    assert found == {
        "4 shards, each on a node with its own link": pytest.approx(4, rel=0.01),
        "local SGD, averaging every 16 steps (local: local_sgd)": pytest.approx(8, rel=0.1),
        "int8: 1/4 of the bytes": pytest.approx(4, rel=0.01),
        "pushing sums of 4 gradients (local: downpour)": pytest.approx(shared, rel=0.03),
        "bf16: 1/2 of the bytes": pytest.approx(2, rel=0.01),
        "64 samples per gradient": pytest.approx(2, rel=0.01),
    }
    assert [change.factor for change in changes] == sorted(found.values(), reverse=True)


@pytest.mark.thorough
def test_shards_that_do_not_make_the_largest_smaller_are_not_recommended() -> None:
    """A largest tensor of 60 % stays whole: 2 shards are as good as 4, each with a link or not."""
    uneven = replace(
        PLAIN, server_s=0.05, network=Network(server_link=Link(bandwidth=5e7)), shard_shares={2: 0.6, 4: 0.6}
    )
    system = setting(uneven)
    found = {change.words: change.factor for change in find_changes(system, 40, system.play(40).samples_per_s)}
    assert found["2 shards"] == pytest.approx(1 / 0.6, rel=0.02)
    assert found["2 shards, each on a node with its own link"] == pytest.approx(1 / 0.6, rel=0.02)
    assert not [words for words in found if words.startswith("4 shards")]


@pytest.mark.thorough
def test_a_way_as_long_as_a_gradient_is_hidden_by_overlap() -> None:
    words = "computing gradients while pushes are being sent (host: overlap)"
    system = setting(replace(PLAIN, network=Network(Link(bandwidth=2e7))))  # 50 ms each way beside 100 ms
    found = {change.words: change.factor for change in find_changes(system, 4, system.play(4).samples_per_s)}
    assert found[words] == pytest.approx(2, rel=0.01)
    shared = setting(replace(system.profile, cores=2))
    assert words not in {change.words for change in find_changes(shared, 4, shared.play(4).samples_per_s)}


def test_a_model_with_sparse_tables_is_offered_what_goes_with_them() -> None:
    slow = replace(PLAIN, server_s=0.05, sparse=True, shard_shares={2: 0.6})
    changes = find_changes(setting(slow), 40, setting(slow).play(40).samples_per_s)
    assert {change.words: change.factor for change in changes} == {
        "64 samples per gradient": pytest.approx(2, rel=0.01),
        "2 shards": pytest.approx(1 / 0.6, rel=0.01),
    }


def test_a_worker_of_a_server_has_state_where_it_makes_steps_of_its_own() -> None:
    profile = replace(PLAIN, weights=4e6, state=8e6)
    assert setting(profile).memory(8) == 8e6
    assert replace(setting(profile), local=LocalSGD(16)).memory(8) == 16e6
    assert setting(PLAIN).memory(8) == 2e6, "of the bytes of a pull"
    assert read_profile(profile_mapping(profile)) == profile
    found = answer(profile, Question((1,), (Async(),)))
    assert [point.memory for point in found.curves[0].points] == [8e6]


def test_an_answer_is_a_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(play, "LEAST", 200)  # how exact a play is, test_play says
    told: list[tuple[int, int, str]] = []
    profile = replace(PLAIN, server_s=0.02)
    question = Question((1, 4, 16), (Async(), Sync(3)))
    found = answer(profile, question, lambda *now: told.append(now))
    records.save(tmp_path / "a.json", found)
    assert records.load(tmp_path / "a.json", Answer) == found
    assert read_profile(found.profile) == profile
    assert [(curve.rule, curve.shards) for curve in found.curves] == [("async", 1), ("sync:3", 1)]
    assert [[point.workers for point in curve.points] for curve in found.curves] == [[1, 4, 16], [4, 16]]
    knee = found.curves[0].knee
    assert knee is not None
    assert knee.workers == pytest.approx(6.0, rel=0.02)  # (gradient + server) / server
    assert "4 shards" in [change.words for change in found.curves[0].changes]
    within = found.curves[0].reliability.updates_per_s
    ratio = within.highest / within.lowest
    ranged: list[Cause | Change] = [*found.curves[0].causes, *found.curves[0].changes]
    for each in ranged:
        assert (each.low, each.high) == pytest.approx((each.factor / ratio, each.factor * ratio))
    assert (knee.low, knee.high) == pytest.approx((knee.workers / ratio, knee.workers * ratio))
    kinds = [curve.reliability for curve in found.curves]
    assert kinds == [reliability_of(profile, rule, own_network=True) for rule in question.rules]
    assert all(0 <= done <= whole for done, whole, _ in told)


def test_ddp_is_planned_for_as_many_workers_as_there_are_gpus() -> None:
    """Each needs one to itself; a parameter server's workers share them, and other machines have their own."""
    shared = replace(PLAIN, cores=4, gpus=2, slowdown={4: 1.5})
    asked = Question(workers=(1, 2, 4), rules=rules("ddp,async"), shards=(1,), networks=(OWN, "10gbe"))
    found = answer(shared, asked)
    by_curve = {(c.rule, c.network): ([p.workers for p in c.points], c.gpus) for c in found.curves}
    assert by_curve == {
        ("ddp", OWN): ([1, 2], 2), ("async", OWN): ([1, 2, 4], 0),
        ("ddp", "10gbe"): ([1, 2, 4], 0), ("async", "10gbe"): ([1, 2, 4], 0),
    }  # fmt: skip
    limit = "Each worker needs its own GPU, and this machine has 2 GPUs, so larger numbers of workers are not planned."
    said = {(c.rule, c.network): sentences(c) for c in found.curves}
    assert [key for key, lines in said.items() if limit in lines] == [("ddp", OWN)]
    (one,) = answer(replace(shared, gpus=1), replace(asked, rules=rules("ddp"), networks=(OWN,))).curves
    assert sentences(one)[0].startswith("Each worker needs its own GPU, and this machine has 1 GPU,")
    (none,) = answer(shared, replace(asked, workers=(4,), rules=rules("ddp"), networks=(OWN,))).curves
    assert sentences(none) == [limit]
