"""How a parameter server treats gradients: one value, made before the fork, the same in every process."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from scalebook.training.ps.policy.damping import Damping, DelayCompensation, DropAbove, NoDamping
from scalebook.training.ps.policy.rules import Async, Rule, Softsync, Sync

HostName = Literal["inline", "process"]
ClipKind = Literal["norm", "value"]


@dataclass(frozen=True)
class Clip:
    """Clipping of what is applied: each gradient by its worker under a rule that applies on arrival, the average under
    one that gathers. A norm is taken over all shards of an optimizer (Pascanu et al. 2013, section 3.2)."""

    kind: ClipKind
    limit: float


@dataclass(frozen=True)
class Settings:
    """What is done with a gradient, and where.

    `max_updates` ends the run exactly there. `overlap`: workers compute while their last push is applied (host
    process). `trace`: folder for the log of updates. `norms`: measure ||w - w_base|| at each update, one more pass
    over the parameters.
    """

    rule: Rule = field(default_factory=Async)
    damping: Damping = field(default_factory=NoDamping)
    warmup_updates: int = 0
    max_updates: int | None = None
    clip: Clip | None = None
    shards: int = 1
    host: HostName = "inline"
    overlap: bool = False
    trace: Path | None = None
    norms: bool = False

    def check(self, workers: int) -> None:
        """ValueError, naming key and remedy, for settings that contradict each other."""
        self.rule.check(workers)
        problem = None
        if self.host not in get_args(HostName):
            problem = f"host: {self.host!r} is neither inline nor process. Write inline"
        elif self.shards < 1:
            problem = f"shards: {self.shards} is less than 1. Write 1"
        elif self.warmup_updates < 0:
            problem = f"warmup_updates: {self.warmup_updates} is negative. Write 0"
        elif self.overlap and self.host == "inline":
            problem = "overlap: under the inline host the worker itself applies its push. Write host: process"
        elif self.overlap and self.rule.gathers:
            problem = f"overlap: under rule {self.rule.name} a worker waits for the others anyway. Write overlap: false"
        elif self.overlap and (self.damping.compensates or self.serial or self.norms):
            problem = "overlap: does not go with delay_compensation, drop_above or norms. Write overlap: false"
        elif self.rule.gathers and self.damping.compensates:
            problem = f"damping: delay_compensation does not go with rule {self.rule.name}. Write none, or rule: async"
        if problem:
            raise ValueError(f"trainer.strategy.init_args.{problem}.")

    @property
    def serial(self) -> bool:
        """Whether a push is decided and applied in one go, so that no other comes in between: damping may drop it."""
        return isinstance(self.damping, DropAbove) and not self.rule.gathers

    def writable(self, workers: int) -> bool:
        """Whether what is written into parameters can become part of the newest version: nothing comes in between."""
        own_steps = self.rule.push_every > 1 or self.rule.pull_every > 1
        return workers == 1 and not own_steps and not self.overlap and self.trace is None

    def growable(self, workers: int) -> bool:
        """Whether param groups may be added while training: no other process has divided the parameters already."""
        return self.writable(workers) and self.host == "inline"

    @property
    def keeps_squares(self) -> bool:
        """Whether a mean of squared gradients is kept beside the optimizer's state."""
        return isinstance(self.damping, DelayCompensation) and self.damping.adaptive

    def slabs(self, workers: int) -> int:
        """Versions of a shard in memory: one held by each worker, the newest, and the one being written.

        One less where a worker gives its base, and under `sync`, where who gave a gradient holds the newest.
        """
        return workers + (1 if self.gives_base or isinstance(self.rule, Sync) else 2)

    @property
    def gives_base(self) -> bool:
        """Whether a worker's push may be written over the version that it was computed from, if nobody else has that:
        the worker itself applies it, and then takes the newest."""
        return self.host == "inline" and not self.rule.gathers and self.rule.pull_every == 1

    def most(self, workers: int) -> int:
        """Gradients in one update at most."""
        if not self.rule.gathers:
            return 1
        return self.rule.average if isinstance(self.rule, Softsync) else workers

    def slots(self, workers: int) -> int:
        """Gradients that lie in shared memory at a time: those gathered, and one that each worker is writing."""
        if self.rule.gathers:
            return workers if self.rule.waits else workers + self.most(workers)
        return workers if self.host == "process" else 0
