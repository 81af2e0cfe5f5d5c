"""What is done with a gradient that arrives, and which worker may compute the next one. Pure: no clock, memory or
processes.

An immediate rule (`Async`, `Bounded`) makes one update of each gradient as it arrives. A gathering rule (`Sync`,
`Softsync`) averages the gradients of a round into one update. Real and virtual workers ask the same objects, always
under a lock, so that a `View` shows one moment.
"""

from abc import ABC
from collections.abc import Mapping
from typing import Annotated, ClassVar, Final, Literal, NamedTuple

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.argument_limits import AtLeast, BySettings
from scalebook.training.engine.rules.contradictions import nobody_left
from scalebook.training.engine.rules.facts import RuleFacts, derive_facts, refuse_unknown

RuleName = Literal["async", "bounded", "sync", "softsync"]


class Arrival(NamedTuple):
    """A gradient that asks to be admitted: its worker, the version it was computed from, and the present version."""

    worker: int
    base_version: int
    version: int

    @property
    def staleness(self) -> int:
        """Updates made since the gradient's parameters were read."""
        return self.version - self.base_version


class View(NamedTuple):
    """One moment of the run, as a rule sees it.

    version: updates of this optimizer so far.
    gathered: gradients in the present round; always 0 for an immediate rule.
    contributed: workers that have a gradient in the present round.
    clocks: worker -> pushes completed (dropped ones too), for the workers in the run: alive, not finished, admitted by
        the warm-up. A worker admitted later starts with the clock of the slowest one in the run.
    """

    version: int
    gathered: int
    contributed: frozenset[int]
    clocks: Mapping[int, int]


class Rule(BySettings, ABC):
    """What is done with a gradient that arrives, and which worker may compute the next one.

    To define a custom rule, derive from this class in a module that `scalebook.toml` names. Forms, validation and the
    engine learn what they need (`RuleFacts`) from the declarations of the subclass and the methods that it overrides.
    """

    ARGUMENT = "rule"
    name: ClassVar[str]
    """Its name in messages; by default the name of the class. In a config it stands for one in `RULES`."""
    words: ClassVar[str | None] = None
    """The first part of the label that tells runs apart, with arguments worth showing at any value (`bounded, bound
    {bound}`); None: its name. Arguments that are not at their default follow."""
    gradients_per_update: ClassVar[str] = "1"
    """Pushes averaged in one update, and the most in a round: a sum of numbers, `workers` and arguments, such as
    `workers - backup_workers`. 1: each push is applied on arrival."""
    computed_per_update: ClassVar[str] = ""
    """Pushes computed for each update, in the same notation, if some of them are dropped on purpose. A term may be a
    product (`backup_workers*cancel`), where true is 1."""
    synchronous: ClassVar[bool] = False
    """Whether a worker gives one gradient of the present version to a round, and then waits for the update."""
    gathers: ClassVar[bool]
    """Whether several gradients are averaged into one update; derived from `gradients_per_update`."""
    waits: ClassVar[bool]
    """Whether `may_begin` can be False: set when a class overrides it."""
    refuses: ClassVar[bool]
    """Whether `accepts` can be False: set when a class overrides it. If the rule applies on arrival, an accepted
    gradient is applied before the rule is asked again, one push at a time."""
    _wanted: int | None = None  # gradients_per_update, told by check

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = vars(cls).get("name", cls.__name__)
        refuse_unknown(cls, "gradients_per_update", cls.gradients_per_update)
        refuse_unknown(cls, "computed_per_update", cls.computed_per_update)
        waits = cls.synchronous or cls.may_begin is not Rule.may_begin
        refuses = cls.synchronous or cls.accepts is not Rule.accepts
        derive_facts(cls, {"gathers": cls.gradients_per_update != "1", "waits": waits, "refuses": refuses})

    def may_begin(self, worker: int, view: View) -> bool:
        """Whether the worker may compute its next gradient now; asked again after each event until it may."""
        return not self.synchronous or worker not in view.contributed

    def accepts(self, arrival: Arrival, view: View) -> bool:
        """Whether the gradient counts; False drops it and counts the drop."""
        return not self.synchronous or arrival.staleness == 0

    @property
    def stops(self) -> bool:
        """Whether virtual workers whose gradient can no longer count start again from the newest parameters."""
        return False

    def needed(self, view: View) -> int:
        """Pushes that make one update now, at least 1. Asked again when a worker leaves.

        By default `gradients_per_update`; if no worker is left to give more, as many as there are.
        """
        if not self.gathers:
            return 1
        return self._told() if view.clocks else max(1, view.gathered)

    def check(self, workers: int) -> None:
        """ValueError for settings that make no sense for so many workers; called once before the run."""
        if contradiction := nobody_left(self.facts(), self.settings(), workers):
            raise contradiction
        self._wanted = self.averaged(workers)

    @classmethod
    def facts(cls) -> RuleFacts:
        """Its facts, for code that cannot import it."""
        return RuleFacts.of(cls)

    def averaged(self, workers: int) -> int:
        """Pushes averaged in one update."""
        return self.facts().averaged(workers, self.settings())

    def computed(self, workers: int) -> int:
        """Pushes computed for each update, including those dropped on purpose."""
        return self.facts().computed(workers, self.settings())

    def _told(self) -> int:
        assert self._wanted is not None, f"{self.name}.check(workers) must be called before the run"
        return self._wanted


class Async(Rule):
    """Applies every gradient on arrival; nobody waits (Downpour SGD: Dean et al. 2012, section 4.1)."""

    name = "async"


class Bounded(Rule):
    """As `async`, but no worker runs more than `bound` pushes ahead of the slowest (SSP: Ho et al. 2013, section 2).

    At every moment the largest clock minus the smallest is at most `bound`: a worker waits while its next push would
    exceed it. The paper's staleness s is `bound` - 1.

    Args:
        bound: How many pushes the fastest worker may be ahead of the slowest, 1 or more. With 1, workers run in
            lock-step; with a larger bound, they wait less.
    """

    name = "bounded"
    words = "bounded, bound {bound}"

    def __init__(self, bound: Annotated[int, AtLeast(1, "1 for lock-step, or more for less waiting")] = 4) -> None:
        self.bound = bound

    def may_begin(self, worker: int, view: View) -> bool:
        """Whether the push of this gradient stays within the bound. The slowest worker never waits."""
        return view.clocks[worker] + 1 - min(view.clocks.values()) <= self.bound


class Sync(Rule):
    """Averages the first gradients of a version into one update and drops late ones (Chen et al. 2016, algorithm 3).

    The first N of N + b workers make the update. A late worker finishes its gradient, which is dropped when it arrives;
    until then the worker contributes to no update. Without backup workers nothing is dropped, and the update equals
    that of one process with N times the batch size, if the batches of all workers have the same size.

    Args:
        backup_workers: Number of workers (b) that an update does not wait for. With more of them, stragglers cost less,
            but more gradients are wasted.
        cancel: Late workers stop as soon as the update is made, and start again with the same batch from the new
            parameters. A gradient already on its way is dropped. This needs `host: virtual`, because a process cannot
            be stopped during a backward pass.
    """

    name = "sync"
    gradients_per_update = "workers - backup_workers"
    computed_per_update = "workers - backup_workers*cancel"
    synchronous = True

    def __init__(
        self, backup_workers: Annotated[int, AtLeast(0, "0 to use every gradient")] = 0, cancel: bool = False
    ) -> None:
        self.backup_workers, self.cancel = backup_workers, cancel

    @property
    def stops(self) -> bool:
        return self.cancel and self.backup_workers > 0

    def needed(self, view: View) -> int:
        """N; fewer when fewer workers are left, counting those that gave their gradient before they left."""
        return max(1, min(self._told(), len(view.contributed.union(view.clocks))))


class Softsync(Rule):
    """Averages every `average` gradients, of any version and worker, into one update; nobody waits.

    The n-softsync of Zhang et al. 2016, section 2.2: with `average` = workers/n the mean staleness is about n.

    Args:
        average: Number of gradients per update, 1 or more. 1 is the same as `async`; the number of workers gives a mean
            staleness of about 1.
    """

    name = "softsync"
    words = "softsync, average {average}"
    gradients_per_update = "average"

    def __init__(
        self, average: Annotated[int, AtLeast(1, "the number of workers for a mean staleness of about 1")] = 2
    ) -> None:
        self.average = average


RULES: Final[dict[str, type[Rule]]] = {rule.name: rule for rule in (Async, Bounded, Sync, Softsync)}


def make_rule(rule: RuleName | Rule) -> Rule:
    """The rule itself, or the one of this name with its defaults."""
    if isinstance(rule, Rule):
        return rule
    if rule not in RULES:
        raise ArgumentError("unknown-value", Rule.ARGUMENT, f"{rule!r} is unknown", f"Use one of {', '.join(RULES)}.")
    return RULES[rule]()
