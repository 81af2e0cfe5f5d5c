"""Who looks on while virtual workers are played."""

from typing import Protocol


class Watch(Protocol):
    """Who looks on. The default does nothing."""

    def settling(self) -> bool:
        """At each moment, when all has happened that follows: whether to look again, since this has changed something
        (by `Scheduler.die`)."""

    def looked(self) -> None:
        """Workers have been asked whether they can go on, or one has gone on: updates may have been made."""

    def begins(self, worker: int) -> None:
        """Its next gradient takes from now on."""

    def ends(self, worker: int) -> None:
        """Its life is over: it has finished."""

    def returns(self, worker: int) -> None:
        """It is there again, and about to join."""


class Nobody:
    """A `Watch` that does nothing."""

    def settling(self) -> bool:
        return False

    def looked(self) -> None:
        """Nothing."""

    def begins(self, worker: int) -> None:
        """Nothing."""

    def ends(self, worker: int) -> None:
        """Nothing."""

    def returns(self, worker: int) -> None:
        """Nothing."""
