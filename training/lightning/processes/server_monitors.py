"""What AsyncPS adds to the monitors of several nodes. The first node has the shards: its end ends all nodes, an
exception anywhere ends the run, and when workers of another node die or leave, the others go on."""

import logging
from collections.abc import Collection
from pathlib import Path
from typing import Any, Final

from typing_extensions import override

from scalebook.training.base import NodeLost, NodeRank, WorkerLost, one_line
from scalebook.training.engine import Launch, served_run
from scalebook.training.engine.rules import run_limits
from scalebook.training.lightning.processes.deaths import Deaths
from scalebook.training.lightning.processes.node_monitors import FirstMonitor, OtherMonitor
from scalebook.training.lightning.processes.peer_monitor import ExitReason, NodeEnd, NodeHello
from scalebook.training.lightning.processes.process_watch import LostProcess, Reaction

EXCEPTIONS: Final = frozenset({ExitReason.RAISED})
log = logging.getLogger(__name__)


class ServerMonitor(FirstMonitor):
    """The monitor of the node with the shards."""

    DEADLINE = f"{run_limits.LIMITS}.deadline_s"

    def __init__(
        self,
        place: NodeRank,
        port: served_run.ServerEndpoint,
        me: NodeHello,
        deadline_s: float,
        launch: Launch,
        ends_all: Collection[ExitReason] = EXCEPTIONS,
    ) -> None:
        super().__init__(place, port, me, deadline_s, ends_all)
        self.port, self._launch = port, launch
        self._saved: tuple[Path, int] | None = None  # the newest checkpoint that was told, and when it was written

    @override
    def check(self, stopping: bool) -> None:
        super().check(stopping)
        self._tell_saved()

    def _tell_saved(self) -> None:
        """Of a new checkpoint, so that who loses this machine can say what is lost. It has so many updates at most."""
        path = self._launch.checkpoint()
        try:
            saved = None if path is None else (path, path.stat().st_mtime_ns)
        except FileNotFoundError:  # another takes its place at this moment
            return
        if saved is not None and saved != self._saved:
            self._saved = saved
            self._say("saved", [str(path), self._launch.figures.counts().updates])

    @override
    def _hear(self, machine: int, kind: str, value: Any) -> None:
        if kind == "knocks":
            self.hear_knock(int(value))
        super()._hear(machine, kind, value)

    def hear_knock(self, worker: int) -> None:
        """Handle a worker without a proxy here that wants to join."""

    def hear_loss(self, lost: LostProcess) -> None:
        """The rest goes on without this worker."""

    @override
    def on_node_end(self, machine: int, end: NodeEnd) -> None:
        """Note a node's end. Its workers show themselves whether they live; a silent monitor may only be delayed."""
        if end.reason is ExitReason.SILENT:
            del self._ends[machine]
            log.warning("%s %s. Training continues.", self.name(machine), end.cause)
            return
        cause = f": {end.cause}" if end.cause else ""
        log.warning("%s has left%s. Training continues.", self.name(machine), cause)

    def has_left(self, machine: int) -> bool:
        """Whether no worker of this node will come again."""
        return machine in self._ends


class WorkersMonitor(OtherMonitor):
    """The monitor of a node whose workers reach the shards over the network."""

    DEADLINE = f"{run_limits.LIMITS}.deadline_s"

    def __init__(self, place: NodeRank, way: served_run.ServerConnection, me: NodeHello, deadline_s: float) -> None:
        super().__init__(place, way, me, deadline_s, EXCEPTIONS)
        self.way = way
        self._deaths: list[tuple[int, str]] = []
        self._saved: tuple[str, int] | None = None  # the first's newest checkpoint, and its updates at most
        self.lost = ""
        """Why a worker here has lost the server."""

    @override
    def on_accepted(self) -> None:
        self.way.met.set()

    @override
    def check(self, stopping: bool) -> None:
        super().check(stopping)
        if 0 in self._ends and not self.way.has_come_in():
            raise NodeLost(f"{self.name(0)} ended the run before a worker of this node took part")

    def tell_death(self, worker: int, cause: str) -> None:
        """Tell the first node of a worker's death here; it decides what follows."""
        self._deaths.append((worker, f"on {self.name(self._place.index)}, {cause}"))
        self.exchange()

    @override
    def _say_all(self) -> None:
        super()._say_all()
        while self._deaths:
            self.way.tell_death(*self._deaths[0])
            self._deaths.pop(0)

    @override
    def _hear(self, kind: str, value: Any) -> None:
        if kind == "saved":
            self._saved = str(value[0]), int(value[1])
        super()._hear(kind, value)

    @override
    def is_echo(self, error: BaseException) -> bool:
        return (
            self._has_lost(error) or isinstance(error, served_run.Refused | served_run.ChannelLost) or 0 in self._ends
        )

    def _has_lost(self, error: BaseException) -> bool:
        return bool(self.lost) and isinstance(error, WorkerLost)

    @override
    def ended(self, machine: int, end: NodeEnd) -> BaseException:
        error = super().ended(machine, end)
        return NodeLost(f"{error}. {self._what_is_lost()}") if end.reason is ExitReason.SILENT else error

    @override
    def unexplained(self, error: BaseException) -> BaseException:
        if not self._has_lost(error):
            return error
        where = f"{self.name(0)} can no longer be reached from this node, at {self._place.where}"
        return NodeLost(f"{where}: {self.lost}. {self._what_is_lost()}")

    def _what_is_lost(self) -> str:
        """As far as is known here."""
        made = self.way.updates()
        if self._saved is None:
            return f"No checkpoint of the run is known here: at least {made:,} updates are lost"
        path, updates = self._saved
        lost = f"at least {made - updates:,} later updates are lost" if made > updates else "no later updates are known"
        return f"Resume on all nodes from its checkpoint {path}: {lost}"


class ServerDeaths(Deaths):
    """Deaths on the node with the shards: for workers of other nodes their proxies die here, with the reason.

    A worker that should come again and does not is given up, even if `restarts` are left.
    """

    def __init__(self, launch: Launch, restarts: int, monitor: ServerMonitor, on_node: int) -> None:
        super().__init__(launch, restarts)
        self._monitor, self._here = monitor, on_node

    @override
    def react(self, lost: LostProcess) -> Reaction:
        if lost.role == "server" or lost.number < self._here:
            return super().react(lost)
        self._monitor.receive()
        machine, why = lost.number // self._here, self._monitor.port.why(lost.number)
        if not why.startswith("on node"):
            why = f"on {self._monitor.name(machine)}, {why.removeprefix('channel: ') or lost.cause}"
        lost = lost._replace(cause=why)
        if self._monitor.has_left(machine) or self._monitor.port.is_awaited(lost.number):
            return self.give_up(lost)
        reaction = super().react(lost)
        if reaction is Reaction.RESTART:
            self._monitor.port.await_again(lost.number)
        return reaction

    @override
    def give_up(self, lost: LostProcess) -> Reaction:
        reaction = super().give_up(lost)
        self._monitor.port.release(lost.number)
        self._monitor.hear_loss(lost)
        return reaction


class WorkersDeaths:
    """Deaths on another node: a worker that has died is restarted, up to `restarts` times; the first node may refuse
    it."""

    def __init__(self, monitor: WorkersMonitor, restarts: int) -> None:
        self._monitor, self._restarts = monitor, restarts

    def react(self, lost: LostProcess) -> Reaction:
        """Decide on a death. A worker that lost its server counts as dead too: after a restart it may reach the server
        again."""
        why = self._monitor.way.why(lost.number)
        cause = why or lost.cause
        self._monitor.lost = why
        if not why:
            self._monitor.tell_death(lost.number, lost.cause)
        if self._restarts == 0:
            log.warning("worker %d died: %s. It is not started again.", lost.number, one_line(cause))
            return Reaction.GO_ON
        self._restarts -= 1
        log.warning("worker %d died: %s. Restarting it.", lost.number, one_line(cause))
        return Reaction.RESTART
