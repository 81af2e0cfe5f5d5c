"""How a parameter server treats gradients: one value, made before the fork, the same in every process."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, get_args

from scalebook.training.ps.policy.bounds import NonNegativeInt, PositiveInt, check
from scalebook.training.ps.policy.contradictions import ARGUMENTS, CheckedSettings, contradictions
from scalebook.training.ps.policy.damping import Damping, NoDamping
from scalebook.training.ps.policy.rules import Async, Rule

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
    warmup_updates: NonNegativeInt = 0
    max_updates: int | None = None
    clip: Clip | None = None
    shards: PositiveInt = 1
    host: HostName = "inline"
    overlap: bool = False
    trace: Path | None = None
    norms: bool = False

    def check(self, workers: int) -> None:
        """ValueError, naming key and remedy, for settings that are out of bounds or contradict each other."""
        self.rule.check(workers)
        if self.host not in get_args(HostName):
            raise ValueError(f"{ARGUMENTS}.host: {self.host!r} is neither inline nor process. Write inline.")
        check(type(self), vars(self), ARGUMENTS)
        for contradiction in contradictions(
            CheckedSettings(self.rule.facts(), self.damping.facts(), self.host, self.overlap, self.norms)
        ):
            raise contradiction.error()

    @property
    def serial(self) -> bool:
        """Whether a push is judged and applied in one go, so that no other comes in between: it may be dropped."""
        return (self.damping.drops or self.rule.refuses) and not self.rule.gathers

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
        return self.damping.compensates and self.damping.keeps_squares

    def buffers(self, workers: int) -> int:
        """Versions of a shard in memory: one held by each worker, the newest, and the one being written.

        One less where a worker gives its base, and under a synchronous rule: who gave a gradient holds the newest.
        """
        return workers + (1 if self.gives_base or self.rule.synchronous else 2)

    @property
    def gives_base(self) -> bool:
        """Whether a worker's push may be written over the version that it was computed from, if nobody else has that:
        the worker itself applies it, and then takes the newest."""
        return self.host == "inline" and not self.rule.gathers and self.rule.pull_every == 1

    def most(self, workers: int) -> int:
        """Gradients in one update at most."""
        return self.rule.averaged(workers)

    def slots(self, workers: int) -> int:
        """Gradients that lie in shared memory at a time: those gathered, and one that each worker is writing."""
        if self.rule.gathers:
            return workers if self.rule.synchronous else workers + self.most(workers)
        return workers if self.host == "process" else 0
