"""What was found: plain values that a file of JSON can hold, and that words and charts are made of."""

from dataclasses import dataclass, field
from typing import Any, Literal

Resource = Literal["server", "server cores", "software", "server link", "worker link", "stragglers", "cores"]
"""What workers may wait for: the servers' time, the cores of a machine that serves, the software that sends and
receives, the link of all servers, their own, others that are slower, a core."""


@dataclass(frozen=True)
class Range:
    """Predicted / measured, over all cells of the benchmark that compared them: the smallest and the largest."""

    lowest: float
    highest: float

    def likely(self, predicted: float) -> tuple[float, float]:
        """Between which values a measurement would lie."""
        return predicted / self.highest, predicted / self.lowest

    def likely_ratio(self, predicted: float) -> tuple[float, float]:
        """The same of one prediction over another, each of which may be off by as much, and the other way round."""
        return predicted * self.lowest / self.highest, predicted * self.highest / self.lowest


@dataclass(frozen=True)
class Reliability:
    """How far plans of one kind have been from runs, measured or published.

    `kind` in words; nine of ten lie within `updates_per_s` and `staleness` (None: no cell has any). `cells` of this
    kind were compared, by the commands of `sources`. `borrowed`: where these are too few, so many cells of all kinds,
    of which the ranges are instead.
    """

    kind: str
    updates_per_s: Range
    staleness: Range | None
    cells: int
    sources: list[str]
    borrowed: int = 0


@dataclass(frozen=True)
class Point:
    """So many workers, played. Shares are of the workers' time, from 0 to 1.

    `samples_per_s`: of gradients that were applied. `idle`: waiting for the rule, or for a core; `communicate`: a push,
    from the worker to the update and the parameters back, queues included. `staleness` in versions. `dropped`: share of
    the gradients. `server_queue` and the links' are pushes or pulls that are there on average, waiting or served;
    `server_busy` and the links' are the shares of time that they work.
    """

    workers: int
    updates_per_s: float
    samples_per_s: float
    compute: float
    communicate: float
    idle: float
    staleness: float
    staleness_p95: int
    dropped: float
    server_busy: float
    server_queue: float
    in_busy: float
    in_queue: float
    out_busy: float
    out_queue: float
    memory: float = 0.0
    """Bytes of a worker's weights, gradients and optimizer state; activations are not among them."""


@dataclass(frozen=True)
class Knee:
    """Where adding workers stops helping.

    `workers`: where the straight line of a worker's worth for each worker meets what `beyond` workers, the first played
    count of which an added one brings less than half as much as the first, achieve. Both are predicted: a measurement
    would find it between `low` and `high` (`Range.likely_ratio`).
    """

    workers: float
    samples_per_s: float
    beyond: int
    low: float
    high: float


@dataclass(frozen=True)
class Cause:
    """What the play gives when these resources are without limit: so many times the samples a second.

    Between `low` and `high`, since both plays may be off (`Range.likely_ratio`).
    """

    resources: list[Resource]
    factor: float
    low: float
    high: float


@dataclass(frozen=True)
class Change:
    """What a change would give at `workers`: so many times the samples a second. `words` say what is changed.

    Between `low` and `high`, as of a cause.
    """

    words: str
    workers: int
    factor: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """One combination of rule, shards and network, for all numbers of workers that it allows; `reliability`: of plans
    of its kind.

    `one_per_s`: samples a second of one worker, of which the ideal line is a multiple. `causes`, most telling first,
    and `changes` are of `at` workers.
    """

    rule: str
    shards: int
    network: str
    one_per_s: float
    points: list[Point]
    reliability: Reliability
    knee: Knee | None = None
    causes: list[Cause] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    at: int = 0
    """Workers of whom `causes` and `changes` are."""
    own: bool = False
    """Whether it is the config's own strategy."""
    beside: str = ""
    """What else than the rule a config says of its strategy, in words."""


@dataclass(frozen=True)
class Answer:
    """A profile (as `profile.as_mapping`), what was asked of it (`seed`), and a curve for each combination."""

    profile: dict[str, Any]
    curves: list[Curve]
    seed: int = 0
    seconds: float = 0.0
    elastic: list[int] = field(default_factory=list)
    """As in `Question`."""
    config_workers: int = 0
    """Of the config that was planned, with all of its strategy; 0 without one."""
    at: int = 0
    """Workers for which strategies are compared."""
    alone_per_s: float = 0.0
    """Samples a second of one process, which pushes and pulls nothing."""
