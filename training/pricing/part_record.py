"""Which part of a model lies on which worker, what it holds and what it sends: as measured; without torch."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from scalebook.training.experiments import pipeline_order
from scalebook.training.pricing.pipelines import StageTimes, bubble, play_pipeline

MEMORY: Final = ("parameters", "gradients", "state", "activations")
"""What a worker's memory is made of, as `WorkerPart` calls it."""
REASONS: Final = ("bubble", "uneven", "link")
"""Why a worker waits, as `WorkerPart` calls it."""
MOST_PARTS: Final = 2**31
"""More workers than anybody has."""


@dataclass(frozen=True)
class PlacedLayer:
    """A layer. `nbytes`: of all its parameters, which are divided into `parts`. `stage`: None: each worker has some."""

    name: str
    nbytes: float
    parts: int = 1
    stage: int | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.parts <= MOST_PARTS:
            raise ValueError(f"parts: is not from 1 to {MOST_PARTS}")


@dataclass(frozen=True)
class WorkerPart:
    """What one worker has. Bytes that it holds, and that it sends in an update. `bubble`, `uneven`, `link`: shares of
    its time in which it waits for a pipeline to fill and drain, for slower or larger parts, and for what is sent; None:
    not measured."""

    parameters: float
    gradients: float
    state: float
    activations: float
    sent: float
    stage: int | None = None
    bubble: float | None = None
    uneven: float | None = None
    link: float | None = None

    @property
    def memory(self) -> float:
        return self.parameters + self.gradients + self.state + self.activations


@dataclass(frozen=True)
class Passed:
    """What a worker passes to others in an update, for one layer (or part that is gathered at a time). `nbytes`: of the
    tensors that a collective works on; `sent`: what one of its workers sends of them, on a ring."""

    collective: str
    layer: str
    calls: float
    nbytes: float
    sent: float


@dataclass(frozen=True)
class PartRecord:
    """Of one step of a run. `words`: the split, as a person reads it."""

    words: str
    layers: list[PlacedLayer] = field(default_factory=list)
    workers: list[WorkerPart] = field(default_factory=list)
    passed: list[Passed] = field(default_factory=list)

    def content(self) -> dict[str, Any]:
        """As values for JSON."""
        return asdict(self)

    @property
    def sent(self) -> float:
        """Bytes that all workers send in an update."""
        return sum(worker.sent for worker in self.workers)

    def idle(self, reason: str) -> float | None:
        """The mean share over all workers; None where it was not measured."""
        shares = [share for worker in self.workers if (share := getattr(worker, reason)) is not None]
        return sum(shares) / len(shares) if shares else None


def pipeline_reasons(
    busy_s: Sequence[float], whole_s: float, microbatches: int, schedule: pipeline_order.Schedule
) -> list[tuple[float, float, float]]:
    """Of each stage, shares of `whole_s` in which it waits: since the pipeline fills and drains, for larger stages, and
    for the rest of what it waits, the link. `busy_s`: in which it computes.

    The first two are what a pipeline of these stages whose outputs take no time to send would wait.
    """
    stages, mean_s = len(busy_s), sum(busy_s) / len(busy_s)
    share = bubble(stages, microbatches)
    bubble_s = mean_s * share / (1 - share)
    each = [StageTimes(busy / microbatches / 3, 2 * busy / microbatches / 3) for busy in busy_s]
    unlinked_s = play_pipeline(each, microbatches, schedule).seconds
    reasons = []
    for busy in busy_s:
        waits_s = max(0.0, whole_s - busy)
        filling_s = min(bubble_s, waits_s, max(0.0, unlinked_s - busy))
        uneven_s = min(waits_s - filling_s, max(0.0, unlinked_s - busy - filling_s))
        reasons.append((filling_s / whole_s, uneven_s / whole_s, (waits_s - filling_s - uneven_s) / whole_s))
    return reasons
