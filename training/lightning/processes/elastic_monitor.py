"""The monitor on the node with the shards, if other nodes may join and leave while the run trains."""

import logging
import time
from collections.abc import Sequence
from typing import NoReturn

from typing_extensions import override

from scalebook.training.base import ConfigError, NodeRank, TimedOut
from scalebook.training.engine import Launch, served_run
from scalebook.training.engine.rules import WorkerRange, run_limits
from scalebook.training.lightning.processes.peer_monitor import ExitReason, NodeEnd, NodeHello
from scalebook.training.lightning.processes.process_watch import LostProcess
from scalebook.training.lightning.processes.server_monitors import ServerMonitor

log = logging.getLogger(__name__)


class ElasticMonitor(ServerMonitor):
    """A free place is treated like that of a dead worker, which may come back at any time.

    A worker that comes knocks at the port and is told to come again; a process is then started as its proxy. Until
    `elastic.min` workers are there, all wait for all places, as without `elastic`; then the free places are given up.
    An exception on another node ends only that node.
    """

    def __init__(
        self,
        place: NodeRank,
        port: served_run.ServerEndpoint,
        me: NodeHello,
        deadline_s: float,
        launch: Launch,
        on_node: int,
        elastic: WorkerRange,
    ) -> None:
        super().__init__(place, port, me, deadline_s, launch, ends_all=())
        self._here, self._elastic = on_node, elastic
        self._knocking: set[int] = set()
        self._taken = set(range(on_node))
        self._has_begun = False
        self._short: tuple[float, LostProcess] | None = None  # since when too few are left, and who was the last

    @override
    def is_there(self, worker: int) -> bool:
        return worker < self._here

    @override
    def may_begin(self) -> bool:
        if len(self._taken) < self._elastic.min:
            return False
        self._has_begun = True
        for worker in set(range(self._elastic.max)) - self._taken:
            self._launch.mark_dead(worker)
        return True

    @override
    def miss(self) -> NoReturn:
        raise TimedOut(
            f"{run_limits.WORKERS}.min: is {self._elastic.min}, but only {len(self._taken)} workers have joined at "
            f"{self._place.where} within {self._deadline_s:g} s. Start the run on more nodes, each with its own "
            f"NODE_RANK, or raise the strategy's {self.DEADLINE}."
        )

    @override
    def check(self, stopping: bool) -> None:
        super().check(stopping)
        if self._short is not None and not stopping:
            since, lost = self._short
            living = len(self._launch.living())
            if living >= self._elastic.min:
                self._short = None
            elif time.monotonic() > since + served_run.COME_AGAIN_S:
                short = f"{run_limits.WORKERS}.min is {self._elastic.min}, but only {living} remained"
                why = f"{lost.cause}; {short} for {served_run.COME_AGAIN_S:g} s"
                raise lost._replace(cause=why).error()

    @override
    def hear_knock(self, worker: int) -> None:
        machine = worker // self._here
        if machine in self._hellos and not self.has_left(machine):
            self._knocking.add(worker)

    @override
    def hear_loss(self, lost: LostProcess) -> None:
        self._taken.discard(lost.number)
        if self._has_begun and self._short is None and len(self._launch.living()) < self._elastic.min:
            self._short = time.monotonic(), lost

    @override
    def refuse(self, machine: int, why: ConfigError) -> None:
        """Tell the node that it takes no part; the others go on."""
        log.warning("%s takes no part: %s", self.name(machine), why)
        self.tell_refusal(why, machine)
        self._ends[machine] = NodeEnd(ExitReason.RAISED, str(why))

    @override
    def joining(self) -> Sequence[int]:
        expected = self._launch.living()
        knocking = sorted(self._knocking - self._taken)
        come = [worker for worker in knocking if worker in expected or self._launch.take_in(worker)]
        self._knocking.clear()
        for worker in come:
            self.port.mark_served(worker)
            self._taken.add(worker)
            machine, most = self.name(worker // self._here), self._elastic.max
            log.warning(
                "worker %d of %s takes part. The run now has %d of at most %d workers.",
                worker,
                machine,
                len(self._taken),
                most,
            )
        return come
