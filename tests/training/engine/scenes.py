"""What kill drills there are: who is killed in which phase under which host; which rules and shards go with it."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final, NamedTuple

from scalebook.training.engine import Clip, HostName
from scalebook.training.engine.rules.codecs import Codec, Fp32, RandomK
from scalebook.training.engine.rules.damping import Damping, DropAbove, NoDamping
from scalebook.training.engine.rules.local_steps import DiLoCo, Elastic, Local, LocalSGD, NoLocalSteps, Significance
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from tests.training.engine.killing import Phase, WatchedBounded, WatchedSync

BUDGET: Final = 60
HOSTS: Final[Sequence[HostName]] = ("inline", "process")
EVERY: Final[Sequence[Rule]] = (Async(), Bounded(2), Sync(1), Softsync(2))
WAITING: Final[Sequence[Rule]] = (WatchedBounded(1), WatchedSync(), WatchedSync(1), WatchedBounded(2))

LOCALS: Final[Sequence[Local]] = (LocalSGD(3), DiLoCo(3, 0.75, 0.5), Elastic(3, 0.25), Significance(0.3, most=4))


class Victim(StrEnum):
    WORKER = "a worker"
    RETURNING = "a worker that comes back"
    FIRST = "worker 0"
    SERVER = "a server process"


class Kind(StrEnum):
    DENSE = "dense parameters"
    TABLES = "sparse tables"
    STEPS = "local steps"


class Row(NamedTuple):
    """One line of the drills' table."""

    victim: Victim
    phase: Phase
    host: HostName


@dataclass(frozen=True)
class Scene:
    """Who is killed in which phase of what; `seed` chooses the moment. `budget`: `max_updates`, None without one."""

    victim: Victim
    phase: Phase
    host: HostName
    rule: Rule
    shards: int
    seed: int
    budget: int | None = None
    damping: Damping = field(default_factory=NoDamping)
    clip: Clip | None = None
    warmup: int = 0
    codec: Codec = field(default_factory=Fp32)
    kind: Kind = Kind.DENSE
    local: Local = field(default_factory=NoLocalSteps)


def rows() -> list[Row]:
    """All of them. Without worker 0 nobody has parameters, so its joining is no drill; servers only apply and wait; who
    dies at the end has nothing to come back for."""
    workers = [
        Row(victim, phase, host)
        for host in HOSTS
        for victim in (Victim.WORKER, Victim.RETURNING, Victim.FIRST)
        for phase in Phase
        if (victim, phase) not in ((Victim.FIRST, Phase.JOINING), (Victim.RETURNING, Phase.ENDING))
    ]
    return [*workers, *(Row(Victim.SERVER, phase, "process") for phase in (Phase.APPLYING, Phase.WAITING))]


def scene(row: Row, seed: int, kind: Kind = Kind.DENSE) -> Scene:
    """The drill number `seed` of a row: rules in turn, then one shard or three, then the options."""
    may_not_wait = row.phase is not Phase.WAITING or row.victim is Victim.SERVER
    rule = (EVERY if may_not_wait else WAITING)[seed % 4]
    immediate = not rule.gathers
    plain = Scene(
        row.victim,
        row.phase,
        row.host,
        rule,
        shards=(1, 3)[seed // 4 % 2],
        seed=seed,
        budget=BUDGET if seed % 3 == 2 and kind is not Kind.STEPS else None,
        kind=kind,
    )
    if kind is Kind.STEPS:
        local = LOCALS[(seed + seed // 4) % 4]
        return replace(plain, local=LOCALS[0] if rule.waits and not local.is_even(rule) else local)
    plain = replace(
        plain,
        damping=DropAbove(2) if immediate and seed % 5 == 1 else NoDamping(),
        clip=Clip("norm", 1e9) if rule.gathers and seed % 5 in (0, 3) else None,  # without effect, on its own path
    )
    if kind is Kind.TABLES:
        return plain
    return replace(
        plain,
        host="overlap" if row.host == "process" and immediate and seed % 5 in (0, 3) else row.host,
        codec=RandomK(0.4) if seed % 7 == 3 else Fp32(),
    )
