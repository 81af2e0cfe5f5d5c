"""When a worker communicates: after which of its local steps, and what becomes of the distance these have moved it.
Pure.

A worker with local steps has parameters and an optimizer of its own. From time to time it pushes its initial parameters
minus its present ones, as if that were a gradient (a pseudo-gradient). The shards make an update of it as the rule
says, with an outer optimizer (SGD with `rate`, `momentum`, `nesterov`), and the worker goes on from the newest
parameters. `Downpour` is the exception: its workers push sums of gradients.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Annotated, ClassVar, Final, Literal

from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.argument_limits import (
    Above,
    AtLeast,
    Below,
    BySettings,
    NonNegativeInt,
    PositiveFloat,
)
from scalebook.training.engine.rules.facts import LocalFacts
from scalebook.training.engine.rules.update_rules import Rule

LocalName = Literal["none", "downpour", "local_sgd", "diloco", "elastic", "significance"]
Every = Annotated[int, AtLeast(1, "1 to communicate after every step")]


class Communication(BySettings, ABC):
    """When a worker communicates, and with whom: with shards (`Local`), or with other workers (`Peering`)."""

    ARGUMENT = "local"
    name: ClassVar[str]
    """Its name in messages; by default the name of the class."""
    words: ClassVar[str | None] = None
    """The label that tells runs apart, with arguments worth showing at any value (`local SGD, every {every}`); None:
    its name."""
    steps: ClassVar[bool] = True
    """Whether workers step with an optimizer of their own and push how far they moved; else they push gradients."""
    sums: ClassVar[bool] = False
    """Whether a push is the sum of several gradients, between which the worker makes plain SGD steps."""
    n_push: int = 1
    """Gradients in such a sum."""
    n_fetch: int = 1
    """Gradients between two pulls of a worker that pushes sums."""
    keeps: ClassVar[bool] = False
    """Whether a worker keeps its own parameters when it communicates, and only moves by `pull` towards the newest. An
    update is then the sum of its pushes, not their mean."""
    every: int = 1
    """Gradients between two pushes; the most, if the number varies."""
    peers: ClassVar[bool] = False
    """Whether workers exchange with each other instead of with shards."""
    in_rounds: bool = False
    """Whether each update has one step of each worker, without a server that gathers them."""
    buffers: int = 0
    """Copies of the parameters in shared memory for each worker, where they exchange with each other."""
    outer_momentum: float = 0.0
    """Momentum of the outer optimizer."""
    nesterov: ClassVar[bool] = False
    """Whether that momentum is Nesterov's."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        cls.name = vars(cls).get("name", cls.__name__)

    @classmethod
    def facts(cls) -> LocalFacts:
        """Its facts, for code that cannot import it."""
        return LocalFacts.of(cls)

    @abstractmethod
    def is_due(self, since: int, version: int, moved: Callable[[], float]) -> bool:
        """Whether to communicate now, after `since` steps, 1 or more, from parameters of `version`.

        `moved()`: the norm of the distance moved, as a share of the norm of these parameters.
        """

    def rate(self, averaged: int, workers: int, synchronous: bool) -> float:
        """The outer learning rate of an update with `averaged` pushes."""
        return 1.0

    def pull(self, workers: int) -> float:
        """How far a worker that keeps its parameters moves towards the newest: a share between 0 and 1, both
        excluded."""
        return 0.0

    def is_even(self, rule: Rule) -> bool:
        """Whether under this rule all workers push after the same number of steps. Workers that wait for each other
        must: one that waits for the others' pushes does not reach the step at which they may wait for it
        (`sync_dist`)."""
        return True

    def check(self, rule: Rule, workers: int) -> None:
        """ArgumentError if it makes no sense for this rule and so many workers."""
        if rule.waits and not self.is_even(rule):
            raise ArgumentError(
                "contradiction",
                self.ARGUMENT,
                f"{self!r} lets workers push after different numbers of steps, but with rule {rule.name} they wait for "
                "each other's pushes",
                "Set rule: async, or set local: local_sgd.",
            )


class Local(Communication):
    """When a worker communicates, and what the shards make of its pushes.

    To define custom local steps, derive from this class in a module that `scalebook.toml` names.
    """


class NoLocalSteps(Local):
    """Pushes every gradient; workers make no local steps."""

    name = "none"
    words = ""
    steps = False

    def is_due(self, since: int, version: int, moved: Callable[[], float]) -> bool:
        """Always."""
        return True


class Downpour(Local):
    """A worker pushes sums of several gradients, and pulls only after several gradients (Dean et al. 2012, algorithm
    7.1).

    In between, the worker makes plain SGD steps on its own copy of the parameters, at the scheduled learning rate. The
    shards apply each sum as it arrives, as if it were one gradient.

    Args:
        n_push: Number of gradients that a worker sums into one push. A larger number means less traffic, but staler
            updates. The last push may have fewer.
        n_fetch: Number of gradients between two pulls of a worker. A larger number means less traffic, but workers
            drift further apart.
    """

    name = "downpour"
    words = "Downpour, pushes every {n_push}, fetches every {n_fetch}"
    steps = False
    sums = True

    def __init__(
        self,
        n_push: Annotated[int, AtLeast(1, "1 to push every gradient")] = 4,
        n_fetch: Annotated[int, AtLeast(1, "1 to pull after every gradient")] = 4,
    ) -> None:
        self.n_push, self.n_fetch = n_push, n_fetch

    @property
    def every(self) -> int:  # type: ignore[override]
        """`n_push`."""
        return self.n_push

    def is_due(self, since: int, version: int, moved: Callable[[], float]) -> bool:
        """After `n_push` gradients."""
        return since >= self.n_push


class _Periodic(Local):
    """Pushes after a fixed number of steps, optionally more often at first: see `period`."""

    def __init__(self, every: int, dense_updates: int = 0, doubling_updates: int = 0) -> None:
        self.every, self.dense_updates, self.doubling_updates = every, dense_updates, doubling_updates

    def period(self, version: int) -> int:
        """Steps between two pushes, from parameters of this version."""
        if version < self.dense_updates:
            return 1
        if not self.doubling_updates:
            return self.every
        doublings = 1 + (version - self.dense_updates) // self.doubling_updates
        return self.every if doublings >= self.every.bit_length() else min(self.every, 2**doublings)

    def is_even(self, rule: Rule) -> bool:
        """Under `sync` all workers have the same version; else one with an older version may be in an earlier
        period."""
        return rule.synchronous or not (self.dense_updates or self.doubling_updates)

    def is_due(self, since: int, version: int, moved: Callable[[], float]) -> bool:
        """After `period` steps."""
        return since >= self.period(version)


class LocalSGD(_Periodic):
    """Each worker makes local steps, then parameters are averaged (Stich 2019; post-local: Lin et al. 2020).

    Under `sync` the newest parameters are the mean of all workers'. If an update has the pushes of only n of N workers,
    the parameters move only n/N of the way to the mean of these pushes, so that pushes of all N workers together count
    as much as one round of `sync`.

    Args:
        every: Number of steps that a worker makes between two pushes (H in the papers), 1 or more. A larger number
            means less traffic, but workers drift further apart.
        dense_updates: Number of updates at the start that follow after a single step (until the switch of post-local
            SGD).
        doubling_updates: After these updates, the number of steps per push doubles each time so many updates have been
            made, up to `every`. 0: it is `every` from then on.
        outer_rate: How far an update moves the parameters towards the mean, above 0. 1: all the way.
    """

    name = "local_sgd"
    words = "local SGD, every {every}"

    def __init__(
        self,
        every: Every = 16,
        dense_updates: NonNegativeInt = 0,
        doubling_updates: NonNegativeInt = 0,
        outer_rate: PositiveFloat = 1.0,
    ) -> None:
        super().__init__(every, dense_updates, doubling_updates)
        self.outer_rate = outer_rate

    def rate(self, averaged: int, workers: int, synchronous: bool) -> float:
        """`outer_rate` times the part of the workers that an update hears."""
        return self.outer_rate * _part(averaged, workers, synchronous)


class DiLoCo(_Periodic):
    """Local SGD with Nesterov momentum over the workers' averaged progress (Douillard et al. 2023).

    The paper uses AdamW on the workers and communicates every 500 steps.

    Args:
        every: Number of steps that a worker makes between two pushes (H in the paper), 1 or more.
        outer_rate: Learning rate of the updates, above 0. Under rules other than `sync`, an update with the pushes of n
            of N workers uses n/N of this rate.
        outer_momentum: Nesterov momentum of the updates, from 0 to below 1. With a momentum of 0 and an `outer_rate` of
            1, this is local SGD.
        dense_updates: Number of updates at the start that follow after a single step.
        doubling_updates: After these updates, the number of steps per push doubles each time so many updates have been
            made, up to `every`. 0: it is `every` from then on.
    """

    name = "diloco"
    words = "DiLoCo, every {every}"

    def __init__(
        self,
        every: Every = 64,
        outer_rate: PositiveFloat = 0.7,
        outer_momentum: Annotated[float, AtLeast(0, "0.9"), Below(1, "0.9")] = 0.9,
        dense_updates: NonNegativeInt = 0,
        doubling_updates: NonNegativeInt = 0,
    ) -> None:
        super().__init__(every, dense_updates, doubling_updates)
        self.outer_rate, self.outer_momentum = outer_rate, outer_momentum

    nesterov = True

    def rate(self, averaged: int, workers: int, synchronous: bool) -> float:
        """`outer_rate` times the part of the workers that an update hears."""
        return self.outer_rate * _part(averaged, workers, synchronous)


class Elastic(_Periodic):
    """Workers keep their own parameters; each worker and the shards pull each other closer (EASGD: Zhang et al. 2015).

    After each `every` steps, a worker moves a share `alpha` of the way towards the centre (the shards' parameters), and
    the centre moves the same distance towards the worker. Under `sync`, all workers pull at once; under `async`, they
    pull one after the other (algorithm 1).

    Args:
        every: Number of steps that a worker makes between two pulls (tau in the paper), 1 or more.
        alpha: Share of the distance by which worker and centre move, above 0 and below 1. Null: 0.9 / workers, as in
            the paper.
    """

    name = "elastic"
    words = "elastic averaging, every {every}"
    keeps = True

    def __init__(
        self, every: Every = 10, alpha: Annotated[float, Above(0, "null"), Below(1, "null")] | None = None
    ) -> None:
        self.every, self.alpha = every, alpha

    def period(self, version: int) -> int:
        """Always the same."""
        return self.every

    def is_even(self, rule: Rule) -> bool:
        """Always."""
        return True

    def pull(self, workers: int) -> float:
        """`alpha`."""
        return 0.9 / workers if self.alpha is None else self.alpha

    def check(self, rule: Rule, workers: int) -> None:
        """ValueError if an update would move the centre beyond the mean of the workers that pull it."""
        averaged = rule.averaged(workers)
        if self.pull(workers) * averaged > 1:
            raise ArgumentError(
                "out-of-bounds",
                f"{self.ARGUMENT}.alpha",
                f"is {self.alpha}, so {averaged} workers that pull at once would move the centre beyond their mean",
                f"Use at most {1 / averaged:.3g}, or null.",
            )


class Significance(Local):
    """Pushes only after the worker's parameters have moved by more than a share of their norm (Gaia: Hsieh et al.
    2017).

    As with `downpour`, the sum of a worker's steps is applied in full. The paper looks at each parameter separately and
    lowers the share over time; here, the norm covers all parameters together.

    Args:
        share: A worker pushes after its parameters have moved by more than this share of their norm. A larger share
            means less traffic.
        most: Number of steps after which a worker pushes in any case, 1 or more, because other workers may be waiting
            for its push.
        decays: Whether to divide the share by the square root of the number of updates so far, as in the paper.
    """

    name = "significance"
    words = "pushes after moving by {share} of the norm"

    def __init__(
        self,
        share: Annotated[float, Above(0, "0.01")] = 0.01,
        most: Annotated[int, AtLeast(1, "64")] = 64,
        decays: bool = False,
    ) -> None:
        self.share, self.most, self.decays = share, most, decays

    @property
    def every(self) -> int:  # type: ignore[override]
        """The most steps between two pushes."""
        return self.most

    def is_even(self, rule: Rule) -> bool:
        """False: each worker has moved differently."""
        return False

    def is_due(self, since: int, version: int, moved: Callable[[], float]) -> bool:
        """When the worker has moved far enough, or after `most` steps."""
        share = self.share / math.sqrt(version + 1) if self.decays else self.share
        return since >= self.most or moved() > share


LOCALS: Final[dict[str, type[Local]]] = {
    local.name: local for local in (NoLocalSteps, Downpour, LocalSGD, DiLoCo, Elastic, Significance)
}


def make_local(local: LocalName | Local) -> Local:
    """The value itself, or the one of this name with its defaults."""
    if isinstance(local, Local):
        return local
    if local not in LOCALS:
        raise ArgumentError(
            "unknown-value", Local.ARGUMENT, f"{local!r} is unknown", f"Use one of {', '.join(LOCALS)}."
        )
    return LOCALS[local]()


def _part(averaged: int, workers: int, synchronous: bool) -> float:
    """The share of the workers whose pushes are in an update; under a synchronous rule, of the workers in time."""
    return 1.0 if synchronous else min(1.0, averaged / workers)
