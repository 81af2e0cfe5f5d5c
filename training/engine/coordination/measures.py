"""What the parameter server measures, as plain values, and their means. Imports no torch, since the browser uses it
too."""

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from scalebook.training.engine.rules.duration_summary import DurationSummary

if TYPE_CHECKING:
    from torch import Tensor


class Counts(NamedTuple):
    """Of the whole run: gradients applied, and samples that all workers have computed on."""

    updates: int
    samples: int


class Consensus(NamedTuple):
    """How far peers were from their mean when it was taken last: the root of the mean of ||x_i - mean||^2, and that in
    parts of ||mean||. `weight`: the smallest push-sum weight of a peer."""

    distance: float
    relative: float
    weight: float


class MovedBytes(NamedTuple):
    """Bytes of all workers: gradients pushed, and parameters (or averages) pulled. NaN: not measured."""

    pushed: float
    pulled: float


class WorkerTimes(NamedTuple):
    """One worker's seconds so far, by activity, and what it achieved.

    `wait` is for locks, for the rule and for servers. `communicate` is the rest of a push: applying it, or writing it
    into a slot for a server. `compute` and `data` come from the training loop (`add_time`). `updates` counts the
    worker's gradients that were applied. `pushed_bytes` counts gradients handed to the shards, dropped ones too: the
    frames, if a codec makes them, else the raw gradients. `pulled_bytes` counts parameters taken: lent on a CPU, else
    copied. `gradients` counts all that it computed, including those that are summed before a push and those of local
    steps. `memory_bytes`: the most that its process has held, or has allocated on its GPU; 0: not measured.
    """

    compute: float
    wait: float
    communicate: float
    data: float
    updates: int
    samples: int
    pushed_bytes: int = 0
    pulled_bytes: int = 0
    gradients: int = 0
    memory_bytes: int = 0


PARTS: Final = WorkerTimes._fields[:4]
"""The activities that a worker's seconds are divided into."""


@dataclass(frozen=True)
class Timings:
    """The measured durations that a virtual clock can be made from. `workers`: each worker's seconds between two
    pushes, without waiting and applying; None if too few pushes came without an interruption. `server`: seconds of one
    shard for one push; None before the first."""

    workers: list[DurationSummary | None] = field(default_factory=list)
    server: DurationSummary | None = None


class Seconds(NamedTuple):
    """What workers have spent on gradients, on waiting, and on pushes and pulls."""

    compute: float
    wait: float
    communicate: float


class PushMeasures(NamedTuple):
    """What became of one worker's gradients at one shard of one optimizer (`section`), over the whole run so far.

    `age_s`: mean seconds between pull and application. `drift`: mean ||w - w_base||, how far the shard moved meanwhile;
    NaN if not measured. Both NaN before the first application. Drops are decided once for all shards, and counted at
    shard 0. `pushed_bytes`, `pulled_bytes`: bytes to and from this shard, encoded where a codec is used.
    """

    worker: int
    section: int
    shard: int
    applied: int
    dropped: int
    duplicates: int
    age_s: float
    drift: float
    pushed_bytes: int = 0
    pulled_bytes: int = 0


@dataclass(frozen=True)
class Pushes:
    """As `PushMeasures`, of one worker at one shard or at all. `age_s` and `drift` are None if not measured."""

    worker: int
    section: int
    shard: int
    applied: int
    dropped: int
    duplicates: int
    age_s: float | None
    drift: float | None
    pushed_bytes: int = 0
    pulled_bytes: int = 0


class StalenessHistogram:
    """How often each staleness occurred, by worker: int64 counts [workers, bins]; the last bin is "or more"."""

    def __init__(self, counts: "Tensor") -> None:
        self.counts = counts

    @property
    def total(self) -> int:
        """Updates counted."""
        return int(self.counts.sum())

    def mean(self) -> float:
        """Mean staleness over all workers; NaN before the first update."""
        return mean_staleness(self.counts.tolist())

    def quantile(self, q: float) -> int:
        """The smallest staleness that at least the share `q` of all updates do not exceed; 0 before the first."""
        cumulative = self.counts.sum(0).cumsum(0)
        reached = (cumulative >= math.ceil(q * self.total)).nonzero()
        return int(reached[0, 0])

    def max(self) -> int:
        """The largest staleness seen (the last bin counts as its own number); 0 before the first update."""
        seen = self.counts.sum(0).nonzero()
        return int(seen[-1, 0]) if seen.numel() else 0


@dataclass(frozen=True)
class MembershipChange:
    """A worker that joined at this moment (unix time), or left if `joined` is false."""

    worker: int
    at: float
    joined: bool


@dataclass(frozen=True)
class PushRecord:
    """What became of the pushes of a run's workers, as recorded with the run.

    `counts[worker][i]`: pushes of staleness i, the last bin "or more". `workers`: the `WorkerTimes` of each. `comings`:
    who joined and left, sampled about once a second; the first workers all have the same moment.
    """

    counts: list[list[int]]
    workers: list[dict[str, float]] = field(default_factory=list)
    shards: list[Pushes] = field(default_factory=list)
    comings: list[MembershipChange] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        histogram: StalenessHistogram,
        times: Iterable[WorkerTimes],
        rows: Iterable[PushMeasures],
        comings: Iterable[MembershipChange] = (),
    ) -> "PushRecord":
        return cls(
            histogram.counts.tolist(),
            [time._asdict() for time in times],
            [Pushes(**{**row._asdict(), "age_s": _known(row.age_s), "drift": _known(row.drift)}) for row in rows],
            list(comings),
        )

    def content(self) -> dict[str, Any]:
        """As values for JSON."""
        return {
            **vars(self),
            "shards": [vars(shard) for shard in self.shards],
            "comings": [vars(one) for one in self.comings],
        }

    @property
    def there(self) -> set[int]:
        """The workers that took part when this was written; empty if not known."""
        return {worker for worker, joined in {one.worker: one.joined for one in self.comings}.items() if joined}

    @property
    def changes(self) -> list[MembershipChange]:
        """Who joined and left after the first workers."""
        return [one for one in self.comings if one.at > self.comings[0].at]

    def mean_staleness(self, worker: int) -> float | None:
        """Mean staleness of one worker's pushes, in versions; None before the first."""
        return _known(mean_staleness(self.counts[worker : worker + 1]))

    @property
    def parts(self) -> int:
        """Number of shards, over all optimizers."""
        return len({(shard.section, shard.shard) for shard in self.shards})

    def memory_bytes(self, worker: int) -> float | None:
        """The most bytes that a worker has held; None if not measured."""
        return (self.workers[worker].get("memory_bytes") or None) if worker < len(self.workers) else None

    def shares(self, worker: int | None = None) -> dict[str, float]:
        """Shares of the time of one worker, or of all: activity -> share; empty if not known."""
        mine = self.workers if worker is None else self.workers[worker : worker + 1]
        return shares({part: sum(seconds.get(part, 0.0) for seconds in mine) for part in PARTS})

    def by_worker(self) -> list[Pushes]:
        """A row for each worker, over all shards and optimizers.

        A gradient counts once, into however many shards it was cut: `applied` is the count of the first shard.
        """
        workers = sorted({shard.worker for shard in self.shards})
        return [_whole([shard for shard in self.shards if shard.worker == worker]) for worker in workers]


def _whole(rows: Sequence[Pushes]) -> Pushes:
    """One worker's measures over all shards."""
    return Pushes(
        rows[0].worker,
        0,
        0,
        sum(row.applied for row in rows if row.shard == 0),
        sum(row.dropped for row in rows),
        sum(row.duplicates for row in rows),
        _known(weighted_mean([(row.age_s, row.applied) for row in rows])),
        _known(whole_drift(((row.section, row.shard), row.drift, row.applied) for row in rows)),
        sum(row.pushed_bytes for row in rows),
        sum(row.pulled_bytes for row in rows),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def mean_staleness(counts: Sequence[Sequence[int]]) -> float:
    """Mean of a histogram by worker, the last bin as its own number; NaN before the first update."""
    total = sum(map(sum, counts))
    return sum(i * count for row in counts for i, count in enumerate(row)) / total if total else math.nan


def weighted_mean(weighted: Sequence[tuple[float | None, int]]) -> float:
    """Mean of (value, weight) pairs with weight > 0; NaN if there are none, or one of their values is None."""
    total = sum(weight for _, weight in weighted)
    pairs = [(math.nan if value is None else value, weight) for value, weight in weighted if weight]
    return sum(value * weight for value, weight in pairs) / total if total else math.nan


def whole_drift(rows: Iterable[tuple[Hashable, float | None, int]]) -> float:
    """How far all shards together moved, from (shard, mean drift, gradients applied).

    A gradient's drift spans all shards, so this is the root of the sum of the squared means. NaN if a shard has none.
    """
    rows = list(rows)
    means = [
        weighted_mean([(drift, applied) for other, drift, applied in rows if other == shard])
        for shard in {shard for shard, _, _ in rows}
    ]
    return math.sqrt(sum(mean * mean for mean in means))


def shares(seconds: Mapping[str, float]) -> dict[str, float]:
    """Each entry (s) divided by their sum: fractions that add up to 1; empty where the sum is 0."""
    whole = sum(seconds.values())
    return {name: seconds_ / whole for name, seconds_ in seconds.items()} if whole > 0 else {}
