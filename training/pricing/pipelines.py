"""Pipelines: an update of several stages, each on a worker of its own, played microbatch by microbatch.

Both schedules are idle for (K - 1) / (m + K - 1) of the time with K equal stages and m microbatches.
"""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from scalebook.training.experiments import pipeline_order
from scalebook.training.pricing.layers import Layer, blocks


@dataclass(frozen=True)
class StageTimes:
    """Seconds of one microbatch on one stage. `sends_s`: in which its output passes the link to the next stage, and the
    gradient of that output passes it back; `latency_s`: on the way, beside."""

    forward_s: float
    backward_s: float
    sends_s: float = 0.0
    latency_s: float = 0.0


@dataclass(frozen=True)
class PlayedPipeline:
    """An update. `seconds`: until the last stage is done; of each stage `busy_s`, and when its last backward pass began
    and ended."""

    seconds: float
    busy_s: tuple[float, ...]
    last_s: tuple[tuple[float, float], ...]

    @property
    def idle(self) -> tuple[float, ...]:
        """Share of the time in which each stage waits."""
        return tuple(1 - busy_s / self.seconds if self.seconds else 0.0 for busy_s in self.busy_s)


def bubble(stages: int, microbatches: int) -> float:
    """The idle share of equal stages, whose outputs take no time to send."""
    return (stages - 1) / (microbatches + stages - 1)


def play_pipeline(
    stages: Sequence[StageTimes], microbatches: int, schedule: pipeline_order.Schedule, recomputed: int = 0
) -> PlayedPipeline:
    """Each stage does what `order` says, as soon as it is free and what it needs has arrived. What a stage sends passes
    its link in turn, one line each way, while it computes on. A forward pass that is computed again needs nothing of
    other stages."""
    count = len(stages)
    waiting = [deque(pipeline_order.order(schedule, stage, count, microbatches, recomputed)) for stage in range(count)]
    arrives: dict[tuple[pipeline_order.Operation, int, int], float] = {}
    """When what is needed for an operation on a stage is there, by operation, stage and microbatch."""
    for number in range(microbatches):
        arrives["forward", 0, number] = 0.0
        for stage in range(count):
            arrives["recompute", stage, number] = 0.0
    free_s, busy_s = [0.0] * count, [0.0] * count
    last_s = [(0.0, 0.0)] * count
    line_s = {"forward": [0.0] * count, "backward": [0.0] * count}
    while any(waiting):
        went_on = False
        for stage, doing in enumerate(waiting):
            while doing and (doing[0][0], stage, doing[0][1]) in arrives:
                what, number = doing.popleft()
                went_on = True
                own = stages[stage]
                took_s = own.backward_s if what == "backward" else own.forward_s
                begun_s = max(free_s[stage], arrives[what, stage, number])
                free_s[stage] = end_s = begun_s + took_s
                busy_s[stage] += took_s
                if what == "recompute":
                    continue
                if what == "backward":
                    last_s[stage] = begun_s, end_s
                    if stage:
                        before = stages[stage - 1]
                        line_s[what][stage] = max(line_s[what][stage], end_s) + before.sends_s
                        arrives[what, stage - 1, number] = line_s[what][stage] + before.latency_s
                elif stage == count - 1:
                    arrives["backward", stage, number] = end_s
                else:
                    line_s[what][stage] = max(line_s[what][stage], end_s) + own.sends_s
                    arrives[what, stage + 1, number] = line_s[what][stage] + own.latency_s
        assert went_on, "each schedule can be carried out"
    return PlayedPipeline(max(free_s), tuple(busy_s), tuple(last_s))


def into_stages(layers: Sequence[Layer], seconds: Sequence[float], count: int) -> list[Sequence[Layer]]:
    """The layers as `count` stages of consecutive ones, so that the largest takes as few `seconds` (by layer) as
    possible, and the others are as even as that allows; empty if there are fewer places to cut."""
    whole = blocks(layers)
    if len(whole) < count:
        return []
    starts = [sum(map(len, whole[:place])) for place in range(len(whole) + 1)]
    costs = [sum(seconds[starts[place] : starts[place + 1]]) for place in range(len(whole))]
    begins = pipeline_order.cut(costs, count)
    ends = [*begins[1:], len(costs)]
    return [layers[starts[begin] : starts[end]] for begin, end in zip(begins, ends, strict=True)]
