"""The clock of a play: what travels is declared, and connections share the servers' link as TCP's do."""

from typing import Final

from scalebook.training.ps.clock import Steps, Until
from scalebook.training.ps.policy.clock import ClockSettings, Distribution
from scalebook.training.ps.sim import Line, SimulatedClock

PIECES: Final = Distribution("uniform", 20.0, 0.346)
"""Of one transfer, 8 to 32: its share beside others is the larger the fewer they are."""


class DeclaredBytes(SimulatedClock):
    """A clock over which every push and every pull has so many bytes, whatever the parameters have.

    Transfers in one direction of the servers' link share it, unevenly: each is cut into pieces, whose number is drawn,
    and asks for the next when the last is through. Whoever begins first is through first by a piece, so that workers
    drift apart as long as they meet; where they need not meet they stay apart.
    """

    def __init__(
        self, settings: ClockSettings, workers: int, shards: int, seed: int, push_bytes: float, pull_bytes: float
    ) -> None:
        super().__init__(settings, workers, shards, seed)
        self._push_bytes, self._pull_bytes = push_bytes, pull_bytes

    def sends(self, worker: int, nbytes: int) -> Steps[None]:
        yield from self._until(self.time_s + self._latency(worker, "out"))
        yield from self._travels(worker, self._push_bytes, self.inward, "out")
        yield from self._until(max(line.serve(self.time_s, self._server_s(worker)) for line in self.servers))

    def receives(self, worker: int, nbytes: int) -> Steps[None]:
        yield from self._travels(worker, self._pull_bytes, self.outward, "in")
        yield from self._until(self.time_s + self._latency(worker, "in"))

    def _travels(self, worker: int, nbytes: float, line: Line, way: str) -> Steps[None]:
        """Through both links; they work on a piece at the same time, so the slower one decides."""
        shared_s = self._seconds(int(nbytes), self.settings.server_link.bandwidth, f"server bandwidth {way}", worker)
        own_s = self._seconds(int(nbytes), self._link(worker).bandwidth, f"bandwidth {way}", worker)
        pieces = round(self._draws.value(PIECES, f"pieces {way}", worker)) if shared_s else 1
        shared_s, own_s, left = shared_s / pieces, own_s / pieces, pieces

        def later() -> float:
            """When its next piece is through; now, where there is none."""
            nonlocal left
            at_s = self.time_s
            while left and at_s <= self.time_s:
                left -= 1
                at_s = max(line.serve(self.time_s, shared_s), self.time_s + own_s)
            return at_s

        if (at_s := later()) > self.time_s:
            yield Until(at_s, later)
