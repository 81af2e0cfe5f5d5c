"""Time to a target against workers: how many updates it takes, times how long an update takes."""

from dataclasses import dataclass

from scalebook.training.base import roughly
from scalebook.training.planner.answers import Reliability
from scalebook.training.pricing import workers_words


@dataclass(frozen=True)
class TargetPoint:
    """One number of workers. `updates`: to the target, the mean of the seeds; None if one of them missed it."""

    workers: int
    updates: float | None
    updates_per_s: float

    @property
    def seconds(self) -> float | None:
        """Seconds to the target."""
        return None if self.updates is None else self.updates / self.updates_per_s


@dataclass(frozen=True)
class TargetAnswer:
    """The times under one rule, all else as in the config. `runs`: the MLflow runs that were made for it."""

    metric: str
    target: float
    rule: str
    network: str
    seeds: int
    points: list[TargetPoint]
    runs: list[str]


def target_lines(answer: TargetAnswer, reliability: Reliability) -> list[str]:
    """A table of both factors, and what follows from them."""
    lines = [
        f"Time until {answer.metric} reaches {answer.target:g} under {answer.rule}, with the config's learning rate:",
        "workers   updates needed   updates/s   time      x one worker",
    ]
    first = next((point for point in answer.points if point.seconds is not None), None)
    for point in answer.points:
        if point.seconds is None or first is None or first.seconds is None:
            lines.append(f"{point.workers:7d} {'not reached':>16} {point.updates_per_s:>11.4g}")
            continue
        share = f"{point.seconds / first.seconds:.2f}" if first.workers == 1 else ""
        factors = f"{point.updates:>16,.0f} {point.updates_per_s:>11.4g}"
        lines.append(f"{point.workers:7d} {factors}   {roughly(point.seconds):<9} {share}")
    return [*lines, target_words(answer, reliability)]


def target_words(answer: TargetAnswer, reliability: Reliability) -> str:
    """The number of workers that reaches the target first, and what the two factors do."""
    reached = [point for point in answer.points if point.seconds is not None]
    if not reached:
        return (
            "The target was not reached with any number of workers. Train longer, or choose a target that is "
            "easier to reach."
        )
    best = min(reached, key=lambda point: point.seconds or 0.0)
    first, best_s = reached[0], best.seconds
    assert best_s is not None
    rates = reliability.updates_per_s
    fast, slow = (1 / rate for rate in reversed(rates.likely(1.0)))
    many = f"{best.workers} workers reach" if best.workers > 1 else "1 worker reaches"
    sentence = f"{many} the target soonest, in {roughly(best_s * fast)} to {roughly(best_s * slow)}."
    if best is first or first.updates is None or best.updates is None:
        return sentence
    speed = best.updates_per_s / first.updates_per_s
    low, high = rates.likely_ratio(speed)
    return (
        f"{sentence} Compared with {workers_words(first.workers)}, they make {speed:.2g} times as many updates per "
        f"second ({low:.2g} to {high:.2g}), and need {best.updates / first.updates:.2g} times as many updates."
    )
