"""What a shard does with a gradient that arrives. Pure: no clock, no memory, no processes."""

from enum import Enum
from typing import Final, Literal, NamedTuple, Protocol

RuleName = Literal["async"]


class Arrival(NamedTuple):
    """A gradient at the door: who computed it, from which version, and the version it meets."""

    worker: int
    base_version: int
    version: int

    @property
    def staleness(self) -> int:
        """Updates that others made since the gradient's parameters were read."""
        return self.version - self.base_version


class Verdict(Enum):
    """What happens with it."""

    APPLY = "apply"
    REFUSE = "refuse"


class Rule(Protocol):
    """Asked under the shard's lock, once per arrival, in the order of arrival."""

    def decide(self, arrival: Arrival) -> Verdict:
        """The verdict over one gradient."""

    def is_last(self, version: int) -> bool:
        """Whether no gradient will be applied any more after this version."""


class Async:
    """Apply on arrival (Downpour SGD: Dean et al. 2012, section 4.1), up to `max_updates` (None: without end)."""

    def __init__(self, max_updates: int | None = None) -> None:
        self.max_updates = max_updates

    def decide(self, arrival: Arrival) -> Verdict:
        """REFUSE once `max_updates` have been applied, so that a budget of updates is met exactly."""
        return Verdict.REFUSE if self.is_last(arrival.version) else Verdict.APPLY

    def is_last(self, version: int) -> bool:
        """Whether the budget is used up."""
        return self.max_updates is not None and version >= self.max_updates


RULES: Final[dict[RuleName, type[Async]]] = {"async": Async}
