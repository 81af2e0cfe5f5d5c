"""Pipelines: the play against closed forms, against longest paths, and stages against all ways to cut."""

import random
from functools import cache
from itertools import combinations

import pytest

from scalebook.training.experiments.pipeline_order import Schedule, order, under_way
from scalebook.training.pricing.layers import Layer, blocks
from scalebook.training.pricing.pipelines import StageTimes, bubble, into_stages, play_pipeline

SCHEDULES: tuple[Schedule, ...] = ("gpipe", "1f1b")


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_equal_stages_are_idle_for_the_bubble_alone(schedule: Schedule) -> None:
    for stages in (1, 2, 3, 8):
        for microbatches in (1, 2, 5, 32):
            played = play_pipeline([StageTimes(1.0, 2.0)] * stages, microbatches, schedule)
            assert played.seconds == pytest.approx(3 * (microbatches + stages - 1))
            assert played.idle == pytest.approx([bubble(stages, microbatches)] * stages)


def longest_path(stages: list[StageTimes], microbatches: int, schedule: Schedule, recomputed: int) -> float:
    """The same by recursion over what comes before: the stage's own operation, and what arrives, each message behind
    the one that the same line carried before."""
    count = len(stages)
    orders = [order(schedule, stage, count, microbatches, recomputed) for stage in range(count)]

    @cache
    def end(stage: int, place: int) -> float:
        what, number = orders[stage][place]
        begun = end(stage, place - 1) if place else 0.0
        if what == "forward" and stage:
            begun = max(begun, through(stage - 1, "forward", number) + stages[stage - 1].latency_s)
        if what == "backward":
            if stage < count - 1:
                begun = max(begun, through(stage + 1, "backward", number) + stages[stage].latency_s)
            else:
                begun = max(begun, end(stage, orders[stage].index(("forward", number))))
        return begun + (stages[stage].backward_s if what == "backward" else stages[stage].forward_s)

    @cache
    def through(stage: int, what: str, number: int) -> float:
        """When a stage's message of a microbatch has left its line."""
        sent = [each for operation, each in orders[stage] if operation == what]
        earlier = sent[: sent.index(number)]
        place = next(at for at, (operation, each) in enumerate(orders[stage]) if (operation, each) == (what, number))
        free = through(stage, what, earlier[-1]) if earlier else 0.0
        return max(free, end(stage, place)) + stages[stage - (what == "backward")].sends_s

    return max(end(stage, len(orders[stage]) - 1) for stage in range(count))


@pytest.mark.parametrize("schedule", SCHEDULES)
def test_unequal_stages_take_the_longest_path(schedule: Schedule) -> None:
    draw = random.Random(1)
    for _ in range(60):
        stages = [
            StageTimes(*(draw.choice((0.0, 0.3, draw.random())) for _ in range(4))) for _ in range(draw.randint(1, 5))
        ]
        microbatches = draw.randint(1, 6)
        recomputed = draw.randint(0, microbatches)
        played = play_pipeline(stages, microbatches, schedule, recomputed)
        assert played.seconds == pytest.approx(longest_path(stages, microbatches, schedule, recomputed))
        both = [stage.forward_s * (microbatches + recomputed) + stage.backward_s * microbatches for stage in stages]
        assert played.busy_s == pytest.approx(both)


def test_one_slow_stage_sets_the_pace() -> None:
    """The slowest stage makes all microbatches, 16 x 6, and waits while the others fill and drain: for 3 x 3 s, or for
    5 if it goes forward while it waits for gradients."""
    stages = [StageTimes(1.0, 2.0), StageTimes(2.0, 4.0), StageTimes(1.0, 2.0), StageTimes(1.0, 2.0)]
    assert play_pipeline(stages, 16, "gpipe").seconds == pytest.approx(16 * 6 + 3 * 3)
    assert play_pipeline(stages, 16, "1f1b").seconds == pytest.approx(16 * 6 + 5)
    assert play_pipeline(stages, 16, "1f1b").idle[1] == pytest.approx(5 / 101)


def test_forward_passes_that_are_repeated_hide_in_the_bubble() -> None:
    """With one microbatch all stages but the last compute again while they wait for gradients: 8 + 2 x 8 + 1."""
    assert play_pipeline([StageTimes(1.0, 2.0)] * 8, 1, "gpipe", 1).seconds == pytest.approx(8 + 16 + 1)
    assert play_pipeline([StageTimes(1.0, 2.0)], 4, "gpipe", 3).seconds == pytest.approx(4 * 3 + 3)


def test_1f1b_keeps_as_many_microbatches_as_stages_follow() -> None:
    for stage in range(4):
        for schedule in SCHEDULES:
            there, most = 0, 0
            for what, _ in order(schedule, stage, 4, 8):
                there += {"forward": 1, "backward": -1}[what]
                most = max(most, there)
            assert most == under_way(schedule, stage, 4, 8) == (8 if schedule == "gpipe" else 4 - stage)
            assert there == 0


def test_the_largest_stage_is_as_small_as_any_cut_makes_it() -> None:
    draw = random.Random(2)
    for _ in range(200):
        costs = [draw.choice((0.0, 1.0, 2.0, draw.random())) for _ in range(draw.randint(1, 8))]
        layers = [Layer(str(n), cost, 0.0, 0.0, 0.0, cut=draw.random() < 0.8) for n, cost in enumerate(costs)]
        parts = [sum(layer.forward_s for layer in part) for part in blocks(layers)]
        for count in range(1, len(parts) + 1):
            stages = into_stages(layers, costs, count)
            assert [layer for stage in stages for layer in stage] == layers
            assert len(stages) == count
            assert all(stage[0].cut for stage in stages[1:])
            best = min(
                max(sum(parts[begin:end]) for begin, end in zip((0, *cut), (*cut, len(parts)), strict=True))
                for cut in combinations(range(1, len(parts)), count - 1)
            )
            assert max(sum(layer.forward_s for layer in stage) for stage in stages) == pytest.approx(best)
        assert into_stages(layers, costs, len(parts) + 1) == []


def test_stages_of_equal_layers_are_even() -> None:
    layers = [Layer(str(number), 1.0, 2.0, 0.0, 0.0) for number in range(10)]
    assert sorted(map(len, into_stages(layers, [3.0] * 10, 4))) == [2, 2, 3, 3]
