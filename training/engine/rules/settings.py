"""How a parameter server treats gradients: one value, made before the fork, the same in every process."""

from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Final, Literal, get_args

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.argument_limits import NonNegativeInt, PositiveInt, check_limits
from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.codecs import Codec, Fp32
from scalebook.training.engine.rules.contradictions import CheckedSettings, find_contradictions
from scalebook.training.engine.rules.damping import Damping, NoDamping
from scalebook.training.engine.rules.local_steps import Communication, NoLocalSteps
from scalebook.training.engine.rules.update_rules import Async, Rule

HostName = Literal["inline", "process", "overlap", "virtual"]
REAL_HOSTS: Final[tuple[HostName, ...]] = ("inline", "process")
"""Hosts whose workers are processes, and that work with every rule."""
SERVERS: Final[tuple[HostName, ...]] = ("process", "overlap")
"""Hosts with a server process for each shard."""
ClipKind = Literal["norm", "value"]


class Deal(IntEnum):
    """Which batches of an epoch belong to a worker before anybody has asked for one. The others are first come, first
    served."""

    NOBODY = 0
    """None."""
    WORKER_0 = 1
    """Batch 0 to worker 0, which validates and saves; the epoch of any other may be empty."""
    ONE_EACH = 2
    """Batch w to worker w, so that no worker, however slow, has an empty epoch."""
    IN_TURNS = 3
    """Batch i to worker i % workers, since each update needs one gradient of each of them."""


@dataclass(frozen=True)
class Clip:
    """Gradient clipping, before a gradient is applied.

    A rule that applies on arrival has each worker clip its own gradient; a gathering rule clips the average. `norm`
    bounds the Euclidean norm over all shards of an optimizer (Pascanu et al. 2013, section 3.2), `value` each entry.
    `limit` is the largest norm or absolute value.
    """

    kind: ClipKind
    limit: float


@dataclass(frozen=True)
class Settings:
    """What is done with a gradient, and where.

    Args:
        rule: What becomes of a gradient that arrives, and which worker may compute the next one.
        damping: What the staleness of a gradient does to its update.
        warmup_updates: Updates that the first worker makes alone before the others begin.
        max_updates: The run ends after exactly so many updates, over all optimizers; None: no limit.
        clip: Clipping of gradients before they are applied; None: none.
        shards: Parts that the parameters of each optimizer are divided into, each with a lock of its own (and a server,
            with host `process`).
        host: Who applies: the worker that pushes (`inline`), or a server process for each shard (`process`), while
            workers compute on (`overlap`); or one process simulates all workers (`virtual`).
        trace: Folder for the log of updates (`trace.py`); None: no log.
        drift: Measure ||w - w_base|| at each update, which costs one more pass over the parameters.
        clock: How long everything takes for virtual workers; None for real ones.
        push_codec: The codec of gradients on their way to the shards.
        pull_codec: The codec of parameters on their way to the workers, whose replicas are the decoded values.
        closures: Whether a step gets a closure that computes the gradient, as in Lightning's automatic optimization:
            hooks before the step do not see that gradient.
        local: When a worker communicates: with the shards, and what these make of its local steps; or with its peers.
    """

    rule: Rule = field(default_factory=Async)
    damping: Damping = field(default_factory=NoDamping)
    warmup_updates: NonNegativeInt = 0
    max_updates: int | None = None
    clip: Clip | None = None
    shards: PositiveInt = 1
    host: HostName = "inline"
    trace: Path | None = None
    drift: bool = False
    clock: ClockSettings | None = None
    closures: bool = False
    push_codec: Codec = field(default_factory=Fp32)
    pull_codec: Codec = field(default_factory=Fp32)
    local: Communication = field(default_factory=NoLocalSteps)

    def check(self, workers: int) -> None:
        """ArgumentError for settings that are out of bounds or contradict each other."""
        self.rule.check(workers)
        if self.host not in get_args(HostName):
            hosts = ", ".join(get_args(HostName))
            raise ArgumentError("unknown-value", "host", f"{self.host!r} is unknown", f"Use one of {hosts}.")
        check_limits(type(self), vars(self))
        if self.clock is not None:
            self.clock.check(workers)
            if self.local.peers:
                self.clock.check_without_servers()
        for contradiction in find_contradictions(
            CheckedSettings(
                self.rule.facts(),
                self.damping.facts(),
                self.host,
                self.drift,
                self.clock is not None,
                self.local.facts(),
                self.rule.stops,
            )
        ):
            raise contradiction
        self.local.check(self.rule, workers)

    @property
    def has_servers(self) -> bool:
        """Whether a process for each shard applies what workers push."""
        return self.host in SERVERS

    @property
    def overlap(self) -> bool:
        """Whether a worker computes while its last push is being applied."""
        return self.host == "overlap"

    @property
    def applies_one_at_a_time(self) -> bool:
        """Whether nothing may be pushed between the check of a gradient's staleness and its application: the check may
        drop it."""
        return (self.damping.drops or self.rule.refuses) and not self.rule.gathers

    @property
    def own_replica(self) -> bool:
        """Whether a worker's parameters differ from those of a version: it makes steps, or decodes them."""
        return self.pushes_rarely or self.local.n_fetch > 1 or self.pull_codec.codes

    @property
    def keeps_squares(self) -> bool:
        """Whether a mean of squared gradients is kept beside the optimizer's state."""
        return self.damping.compensates and self.damping.keeps_squares

    def buffers(self, workers: int) -> int:
        """Versions of a shard that memory has room for: one held by each worker, the newest, and the one being written.

        One fewer if a pusher's own base may be overwritten (`can_reuse_base`), and under a synchronous rule, where a
        worker that has pushed holds the newest version. Peers have some of their own, and one is for their mean.
        """
        if self.local.peers:
            return 1 + workers * self.local.buffers
        return workers + (1 if self.can_reuse_base or self.rule.synchronous else 2)

    @property
    def can_reuse_base(self) -> bool:
        """Whether an update may overwrite the version that the pushed gradient was computed from, if only the pusher
        holds it.

        True if the pusher applies the update itself and then pulls the newest version anyway.
        """
        return not self.has_servers and not self.rule.gathers and self.local.n_fetch == 1

    def most(self, workers: int) -> int:
        """The largest number of gradients that one update averages."""
        return self.rule.averaged(workers)

    def computed(self, workers: int) -> int:
        """Gradients computed for each update, including those dropped on purpose."""
        return (workers if self.local.in_rounds else self.rule.computed(workers)) * self.local.every

    def averaged_in_step(self, workers: int) -> int:
        """Gradients of single workers whose mean the learning rate multiplies, in an update or in a local step. A sum
        of gradients counts once."""
        return 1 if self.local.steps else self.rule.averaged(workers)

    def computed_in_step(self, workers: int) -> int:
        """Gradients, over all workers, that are computed for each update, or while each worker makes one local step."""
        return workers if self.local.steps else self.computed(workers)

    @property
    def pushes_rarely(self) -> bool:
        """Whether a worker computes more than one gradient between two pushes."""
        return self.local.n_push > 1 or self.local.steps

    def deal(self, workers: int) -> Deal:
        """How the batches of an epoch are dealt out. With backup workers nobody has a share: whoever is late would
        train the rest of it with nobody left to average with."""
        if not (self.rule.synchronous or self.local.in_rounds):
            return Deal.ONE_EACH
        if self.local.in_rounds or self.rule.averaged(workers) == workers:
            return Deal.IN_TURNS
        return Deal.NOBODY if self.host == "virtual" else Deal.WORKER_0  # whose loop has the epochs of all workers

    def meets_after_epochs(self, workers: int) -> bool:
        """Whether no worker begins an epoch before all updates of the previous one: each update must have a gradient of
        each worker that has one in this epoch, and no computed gradient is ever put aside."""
        return self.rule.synchronous and not self.pushes_rarely and self.rule.averaged(workers) == workers

    @property
    def engine_clip(self) -> Clip | None:
        """The clipping of a round's mean. Pseudo-gradients are not clipped: the worker's own gradients are."""
        return None if self.local.steps else self.clip

    def slots(self, workers: int) -> int:
        """Gradients in shared memory at a time: those gathered, and one that each worker is writing."""
        if self.rule.gathers:
            return workers if self.rule.synchronous else workers + self.most(workers)
        return workers if self.has_servers else 0
