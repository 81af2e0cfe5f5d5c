"""A simulated clock for a question about speed: bytes are declared, so no model is needed."""

from typing import Final

from typing_extensions import override

from scalebook.training.engine.rules.clock_settings import ClockSettings, Distribution
from scalebook.training.engine.sim.sim_clock import Line, SimulatedClock
from scalebook.training.engine.worker_clock import Until, Waits

PIECES: Final = Distribution("uniform", 20.0, 0.346)
"""Pieces of one transfer, 8 to 32: the fewer they are, the larger is its share beside others."""


class DeclaredBytes(SimulatedClock):
    """A clock for which every push and every pull has a declared number of bytes, whatever the parameters have.

    Transfers in one direction of the servers' link share it, unevenly: each is cut into pieces, whose number is drawn,
    and asks for the next when the last is through. The transfer that begins first ends a piece earlier, so that workers
    whose transfers meet drift apart; those whose transfers need not meet stay apart.
    """

    def __init__(
        self,
        settings: ClockSettings,
        workers: int,
        shards: int,
        seed: int,
        push_bytes: float,
        pull_bytes: float,
        peer_bytes: int = 1,
    ) -> None:
        """`peer_bytes`: bytes of a peer's parameters as they are; a message has a part of them."""
        super().__init__(settings, workers, shards, seed)
        self._push_bytes, self._pull_bytes, self._peer_bytes = push_bytes, pull_bytes, peer_bytes

    def sends(self, worker: int, nbytes: int) -> Waits[None]:
        yield from self._until(self.time_s + self._latency(worker, "out"))
        yield from self._travels(worker, self._push_bytes, self.inward, "out")
        yield from self._until(max(line.serve(self.time_s, self._server_s(worker)) for line in self.servers))

    def receives(self, worker: int, nbytes: int) -> Waits[None]:
        yield from self._travels(worker, self._pull_bytes, self.outward, "in")
        yield from self._until(self.time_s + self._latency(worker, "in"))

    @override
    def travels(self, sender: int, receiver: int, nbytes: int, messages: int = 1) -> float:
        """So large a part of the declared bytes as the message has of a peer's parameters."""
        return super().travels(sender, receiver, round(nbytes / self._peer_bytes * self._push_bytes), messages)

    def busiest(self) -> list[Line]:
        """The servers' link, towards them and away from them; of peers, the lines of the busiest one."""
        if not self._from:
            return [self.inward, self.outward]
        return [max(lines.values(), key=lambda line: line.busy_s) for lines in (self._to, self._from)]

    def _travels(self, worker: int, nbytes: float, line: Line, way: str) -> Waits[None]:
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
