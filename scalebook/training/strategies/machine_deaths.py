"""What follows on the machines of a parameter server's run when a worker of one of them dies."""

import logging

from typing_extensions import override

from scalebook.training.errors import one_line
from scalebook.training.ps.launch import Launch
from scalebook.training.strategies.deaths import Deaths
from scalebook.training.strategies.far_side import FarSide
from scalebook.training.strategies.machines import ServerSide
from scalebook.training.strategies.processes import Lost, Reaction

log = logging.getLogger(__name__)


class ServerDeaths(Deaths):
    """On the machine with the shards: of workers elsewhere it is their stand-ins that die here, and say why.

    One that is to come again and does not is given up, whatever is left of `restarts`.
    """

    def __init__(self, launch: Launch, restarts: int, side: ServerSide, here: int) -> None:
        super().__init__(launch, restarts)
        self._side, self._here = side, here

    @override
    def react(self, lost: Lost) -> Reaction:
        if lost.role == "server" or lost.number < self._here:
            return super().react(lost)
        self._side.hear()
        machine, why = lost.number // self._here, self._side.port.why(lost.number)
        if not why.startswith("on node"):
            why = f"on {self._side.name(machine)}, {why.removeprefix('channel: ') or lost.cause}"
        lost = lost._replace(cause=why)
        if self._side.has_left(machine) or self._side.port.is_awaited(lost.number):
            return self.give_up(lost)
        reaction = super().react(lost)
        if reaction is Reaction.RESTART:
            self._side.port.await_again(lost.number)
        return reaction

    @override
    def give_up(self, lost: Lost) -> Reaction:
        reaction = super().give_up(lost)
        self._side.port.release(lost.number)
        self._side.hear_loss(lost)
        return reaction


class FarDeaths:
    """On another machine: `restarts` times a worker that has died is started again, which the first may refuse."""

    def __init__(self, side: FarSide, restarts: int) -> None:
        self._side, self._restarts = side, restarts

    def react(self, lost: Lost) -> Reaction:
        """A loss of the server is one too: the worker's next life may find it again."""
        why = self._side.way.why(lost.number)
        cause = why or lost.cause
        self._side.lost = why
        if not why:
            self._side.tell_death(lost.number, lost.cause)
        if self._restarts == 0:
            log.warning("worker %d died: %s. It is not started again.", lost.number, one_line(cause))
            return Reaction.GO_ON
        self._restarts -= 1
        log.warning("worker %d died: %s. It is started again.", lost.number, one_line(cause))
        return Reaction.RESTART
