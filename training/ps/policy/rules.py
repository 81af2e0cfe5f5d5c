"""What is done with a gradient that arrives, and who may compute the next one. Pure: no clock, no memory, no processes.

An immediate rule (`Async`, `Bounded`) makes one update of each gradient as it arrives. A gathering rule (`Sync`,
`Softsync`) averages the gradients of a round into one update. The engine and the virtual clock of the tests ask the
same objects, always under a lock that makes a `View` one moment.
"""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Final, Literal, NamedTuple

from scalebook.training.ps.policy.by_settings import BySettings

RuleName = Literal["async", "bounded", "sync", "softsync"]
KEY: Final = "trainer.strategy.init_args.rule"


class Arrival(NamedTuple):
    """A gradient at the door: who computed it, from which version, and the version it meets."""

    worker: int
    base_version: int
    version: int

    @property
    def staleness(self) -> int:
        """Updates made since the gradient's parameters were read."""
        return self.version - self.base_version


class View(NamedTuple):
    """One moment of the run, as a rule sees it.

    version: updates of this section so far.
    gathered: gradients in the present round; always 0 for an immediate rule.
    contributed: workers that have a gradient in the present round.
    clocks: worker -> pushes it has completed (dropped ones too), of the workers in the run: alive, not finished, let
        in by the warm-up. Who is let in later starts with the clock of the slowest who is in.
    """

    version: int
    gathered: int
    contributed: frozenset[int]
    clocks: Mapping[int, int]


class Rule(BySettings, ABC):
    """What is done with a gradient that arrives, and who may compute the next one."""

    name: ClassVar[str]
    gathers: ClassVar[bool]
    """Whether several gradients are averaged into one update."""
    waits: ClassVar[bool]
    """Whether `may_begin` can be False."""
    push_every: int = 1
    """Gradients that a worker sums into one push."""
    pull_every: int = 1
    """Gradients after which a worker takes the newest parameters."""

    def may_begin(self, worker: int, view: View) -> bool:
        """Whether the worker may compute its next gradient now; asked again after each event until it may."""
        return True

    def accepts(self, arrival: Arrival, view: View) -> bool:
        """Whether the gradient counts; False: it is dropped, and counted as dropped."""
        return True

    @abstractmethod
    def needed(self, view: View) -> int:
        """Gradients that make one update now, at least 1. Asked again when a worker leaves."""

    def check(self, workers: int) -> None:
        """ValueError for settings that make no sense for so many workers; called once before the run."""


class Async(Rule):
    """Every gradient is applied on arrival; nobody waits (Downpour SGD: Dean et al. 2012, section 4.1, algorithm 7.1).

    With `push_every` or `pull_every` above 1 a worker goes on with plain SGD steps on its own copy in between.

    Args:
        push_every: Gradients that a worker sums into one push (n_push in the paper). More: less traffic and staler
            updates.
        pull_every: Gradients after which a worker takes the newest parameters (n_fetch). More: less traffic, and
            workers that drift further apart.
    """

    name = "async"
    gathers = False
    waits = False

    def __init__(self, push_every: int = 1, pull_every: int = 1) -> None:
        self.push_every = _at_least(1, push_every, "push_every", "1 to push every gradient")
        self.pull_every = _at_least(1, pull_every, "pull_every", "1 to pull after every gradient")

    def needed(self, view: View) -> int:
        """One."""
        return 1


class Bounded(Rule):
    """As `async`, but nobody runs more than `bound` pushes ahead of the slowest (SSP: Ho et al. 2013, section 2).

    At every moment the largest clock minus the smallest is at most `bound`: a worker waits while its next push would
    exceed it. The paper's staleness s is `bound` - 1.

    Args:
        bound: Pushes that the fastest worker may be ahead of the slowest, 1 or more. 1 is lock-step; more waits less.
    """

    name = "bounded"
    gathers = False
    waits = True

    def __init__(self, bound: int = 4) -> None:
        self.bound = _at_least(1, bound, "bound", "1 for lock-step, more to wait less")

    def may_begin(self, worker: int, view: View) -> bool:
        """Whether the push that this gradient becomes stays within the bound. The slowest never waits."""
        return view.clocks[worker] + 1 - min(view.clocks.values()) <= self.bound

    def needed(self, view: View) -> int:
        """One."""
        return 1


class Sync(Rule):
    """The first gradients of a version are averaged into one update, late ones dropped (Chen et al. 2016, algorithm 3).

    Of N + b workers the first N to arrive make the update. Without backup workers nothing is dropped, and the update
    is that of one process with an N-fold batch.

    Args:
        backup_workers: Workers (b) that an update does not wait for. More: stragglers cost less, and more gradients
            are computed in vain.
    """

    name = "sync"
    gathers = True
    waits = True

    def __init__(self, backup_workers: int = 0) -> None:
        self.backup_workers = _at_least(0, backup_workers, "backup_workers", "0 to use every gradient")
        self._wanted: int | None = None  # N, told by check

    def check(self, workers: int) -> None:
        """Somebody must be waited for. Fixes N = workers - backup_workers."""
        if self.backup_workers >= workers:
            raise ValueError(
                f"{KEY}.init_args.backup_workers: {self.backup_workers} of {workers} workers leave nobody to wait for. "
                f"Use at most {workers - 1}, or more workers."
            )
        self._wanted = workers - self.backup_workers

    def may_begin(self, worker: int, view: View) -> bool:
        """A worker gives one gradient to a round, then waits for the update."""
        return worker not in view.contributed

    def accepts(self, arrival: Arrival, view: View) -> bool:
        """Only gradients of the present version."""
        return arrival.staleness == 0

    def needed(self, view: View) -> int:
        """N; fewer when fewer are left, counting those who gave their gradient before they left."""
        assert self._wanted is not None, "Sync.check(workers) comes before the run"
        return max(1, min(self._wanted, len(view.contributed.union(view.clocks))))


class Softsync(Rule):
    """Every `average` gradients, of any version and any worker, are averaged into one update; nobody waits.

    The n-softsync of Zhang et al. 2016, section 2.2: with `average` = workers/n the mean staleness is about n.

    Args:
        average: Gradients in one update, 1 or more. 1 is `async`; as many as there are workers gives a mean staleness
            of about 1.
    """

    name = "softsync"
    gathers = True
    waits = False

    def __init__(self, average: int = 2) -> None:
        self.average = _at_least(1, average, "average", "the number of workers for a mean staleness of about 1")

    def needed(self, view: View) -> int:
        """`average`; when nobody is left to give more, as many as there are."""
        return self.average if view.clocks else max(1, view.gathered)


RULES: Final[dict[str, type[Rule]]] = {rule.name: rule for rule in (Async, Bounded, Sync, Softsync)}


def make_rule(rule: RuleName | Rule) -> Rule:
    """The rule itself, or the one of this name with its defaults."""
    if isinstance(rule, Rule):
        return rule
    if rule not in RULES:
        raise ValueError(f"{KEY}: there is no rule {rule!r}. Use one of {', '.join(RULES)}.")
    return RULES[rule]()


def _at_least(least: int, value: int, argument: str, remedy: str) -> int:
    if value < least:
        raise ValueError(f"{KEY}.init_args.{argument}: {value} is less than {least}. Use {remedy}.")
    return value
