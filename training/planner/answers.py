"""The answer of a plan: plain values that a file of JSON can hold, and that words and charts are made of."""

from dataclasses import dataclass, field
from typing import Any, Literal

Basis = Literal["measured", "extrapolated", ""]
Resource = Literal["server", "server cores", "software", "server link", "worker link", "stragglers", "cores"]
"""What workers may wait for: the servers' time, the cores of a server's machine, the software that sends and receives,
the common link of all servers, their own link, slower workers, a core."""


@dataclass(frozen=True)
class Range:
    """Between which values of predicted / measured nine of ten plans lie."""

    lowest: float
    highest: float

    def likely(self, predicted: float) -> tuple[float, float]:
        """The range in which a measurement would lie."""
        return predicted / self.highest, predicted / self.lowest

    def likely_ratio(self, predicted: float) -> tuple[float, float]:
        """The range of one prediction over another, each of which may be off in either direction."""
        return predicted * self.lowest / self.highest, predicted * self.highest / self.lowest

    def wider(self, factor: float) -> "Range":
        """With both ends moved outwards by a factor."""
        return Range(self.lowest / factor, self.highest * factor)


@dataclass(frozen=True)
class Reliability:
    """How far plans of one kind were off from runs, measured or published.

    `kind` is in words; nine of ten plans lie within `updates_per_s` and `staleness` (None: no cell has any). `cells` of
    this kind were compared, by the commands of `sources`. `borrowed`: if these are too few, the number of cells of
    `lenders` (in words) from which the range is taken. `missing`: keys of the profile without which the range is wider.
    `doubt`: the factor by which both ends were moved since the machine was busy.
    """

    kind: str
    updates_per_s: Range
    staleness: Range | None
    cells: int
    sources: list[str]
    borrowed: int = 0
    lenders: str = ""
    missing: list[str] = field(default_factory=list)
    doubt: float = 1.0


@dataclass(frozen=True)
class Point:
    """The simulated run of `workers`. Shares are of the workers' time, from 0 to 1.

    `samples_per_s` counts applied gradients. `idle`: waiting for the rule, or for a core; `communicate`: a push, from
    the worker to the update and the parameters back, queues included. `staleness` in versions. `dropped`: share of the
    gradients. `server_queue` and the links': mean number of pushes or pulls that wait or are served; `server_busy` and
    the links': share of the time that they work.
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

    `workers`: where the straight line, one worker's rate times the number of workers, meets the rate of `beyond`
    workers: the first simulated number at which an added worker brings less than half as much as the first. Both are
    predicted: a measurement would find it between `low` and `high` (`Range.likely_ratio`).
    """

    workers: float
    samples_per_s: float
    beyond: int
    low: float
    high: float


@dataclass(frozen=True)
class Cause:
    """The speed-up without the limit of these resources, in samples a second.

    Between `low` and `high`, since both simulations may be off (`Range.likely_ratio`).
    """

    resources: list[Resource]
    factor: float
    low: float
    high: float


@dataclass(frozen=True)
class Change:
    """The speed-up by a change, in samples a second, at `workers`. `words` say what is changed.

    Between `low` and `high`, as for a cause.
    """

    words: str
    workers: int
    factor: float
    low: float
    high: float


@dataclass(frozen=True)
class Curve:
    """One combination of rule, shards and network, for all numbers of workers that it allows; `reliability` is that of
    its kind of plan.

    `one_per_s`: samples a second of one worker, of which the ideal line is a multiple. `causes`, the strongest first,
    and `changes` are for `at` workers.
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
    """The number of workers for which `causes` and `changes` hold."""
    own: bool = False
    """Whether it is the config's own strategy."""
    beside: str = ""
    """The settings of the config's strategy beside its rule, in words."""
    measured: int = 0
    """The most workers at once whose times were measured; with more, points are extrapolated. 0: all follow from a
    profile that a person wrote."""
    gpus: int = 0
    """The most workers of it that this machine can have, if each needs a GPU of its own; 0: no such limit, or none of
    the numbers of workers is beyond it."""

    def basis(self, workers: int) -> Basis:
        """What the rate of so many workers rests on; "": a profile that a person wrote."""
        if not self.measured:
            return ""
        return "measured" if workers <= self.measured else "extrapolated"


@dataclass(frozen=True)
class SplitPoint:
    """The model split over several workers. `tensor`, `shard`, `stages`, `data`: how many workers divide layers, share
    the state, make a pipeline, compute batches of their own. `faster`: samples a second over those of one worker.

    `compute`, `sums`, `idle`, `exchange`: shares of a worker's time. It computes; sums outputs of layers that are
    divided; waits for other stages; waits for parameters and gradients that travel. `memory`: bytes of the worker that
    holds most, activations included; `sent`: bytes that a worker sends in an update, of the one that sends most.
    """

    words: str
    tensor: int
    shard: int
    stages: int
    data: int
    microbatches: int
    schedule: str
    samples: int
    seconds: float
    samples_per_s: float
    faster: float
    compute: float
    sums: float
    idle: float
    exchange: float
    bubble: float
    memory: float
    sent: float


@dataclass(frozen=True)
class StruckSplit:
    """A split that cannot be trained, and why. `memory`: where that is the cause, bytes of the worker that holds most;
    `recomputed`: the same if activations are computed again in the backward pass."""

    words: str
    cause: str
    memory: float = 0.0
    recomputed: float = 0.0


@dataclass(frozen=True)
class SplitAnswer:
    """All splits of the model over so many workers, on one network. `one_per_s`, `one_memory`: of one worker. `limit`:
    bytes of memory of a worker; 0: not known. `rules`: from where on a split pays, by bandwidth alone. `points`: the
    fastest first."""

    workers: int
    network: str
    one_per_s: float
    one_memory: float
    limit: float
    rules: list[str]
    points: list[SplitPoint]
    struck: list[StruckSplit]


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
    """Workers of the planned config, with all of its strategy; 0 without one."""
    at: int = 0
    """The number of workers for which strategies are compared."""
    alone_per_s: float = 0.0
    """Samples a second of one process, without pushes and pulls."""
    splits: list[SplitAnswer] = field(default_factory=list)
    """The model split over several workers, if that was asked for: by network."""
