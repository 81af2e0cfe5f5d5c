"""A node's part in a run of AsyncPS, in the monitor and, inherited by the fork, in its processes: of the only node, and
of one of several, each created by its own monitor before the fork.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

from typing_extensions import override

from scalebook.training.base import NodeRank
from scalebook.training.engine import Launch, ServerEnd, served_run
from scalebook.training.engine.rules import ArgumentError, Settings
from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.arguments import AsyncArguments
from scalebook.training.lightning.processes.addresses import listening_at, resolved
from scalebook.training.lightning.processes.deaths import Deaths, HearsOfDeaths
from scalebook.training.lightning.processes.elastic_monitor import ElasticMonitor
from scalebook.training.lightning.processes.forked import GRACE_S
from scalebook.training.lightning.processes.key_file import key_file, read_key
from scalebook.training.lightning.processes.node_monitors import next_run
from scalebook.training.lightning.processes.peer_monitor import hello
from scalebook.training.lightning.processes.process_watch import LostProcess, Reaction
from scalebook.training.lightning.processes.server_monitors import (
    ServerDeaths,
    ServerMonitor,
    WorkersDeaths,
    WorkersMonitor,
)
from scalebook.training.lightning.processes.strategy_launcher import Processes
from scalebook.training.lightning.processes.threads import shared_out


class NodePart:
    """The part of a node in a run that does not train: a single process validates, tests or predicts.

    `node`: its number. `processes`: worker processes of the run, on all nodes. `forks`: the processes to fork here.
    """

    node = 0
    several = False
    """Whether the run has other nodes."""
    has_shards = True
    """Whether the shards are on this node; if not, every worker here ends with the run's last version, as worker 0
    does."""
    is_training = False
    figures: worker_end.Figures | None = None
    """The run's measurements, if the monitor can read them: on the node with the shards."""

    def __init__(self, processes: int, forks: Processes, deadline_s: float) -> None:
        self.processes, self.forks, self.deadline_s = processes, forks, deadline_s

    @property
    def first(self) -> int:
        """The number of the first worker on this node."""
        return self.forks.first

    def worker(self, number: int) -> worker_end.WorkerEnd:
        """Become this worker, in a process that was forked for it."""
        raise NotImplementedError

    def server(self, number: int) -> ServerEnd:
        """Become this server."""
        raise NotImplementedError

    def stand_in(self, worker: int) -> served_run.WorkerProxyEnd:
        """Become the proxy of this worker of another node."""
        raise NotImplementedError

    def react(self, lost: LostProcess) -> Reaction:
        """Decide, in the monitor, what follows a death."""
        return Reaction.END

    def tell_deaths(self, hearers: Sequence[HearsOfDeaths]) -> None:
        """Set who is told of deaths, on the node that decides on them."""

    @property
    def hands_on_data(self) -> bool:
        """See `Launch.hands_on_data`; asked in the monitor."""
        return False

    def arrivals(self) -> Sequence[int] | None:
        """See `AroundFork.arrivals`."""
        return None

    def waits(self) -> Mapping[int, str]:
        """See `AroundFork.waits`."""
        return {}

    def checkpoint(self) -> Path | None:
        """The newest checkpoint that the run has written, if it exists here."""
        return None

    def note_updates(self, worker: int, updates: int) -> None:
        """Note the updates in this worker's replica: without shards, a node's monitor can then say how much a loss
        costs."""

    def returns(self, worker: int) -> bool:
        """Whether the Trainer on this node gets this worker's results."""
        return worker == self.first

    def close(self) -> None:
        """Release resources, in the monitor, when all processes here have ended."""


class TrainingNode(NodePart):
    """The only node of a run: all workers and servers are forked here."""

    is_training = True

    def __init__(self, launch: Launch, forks: Processes, deadline_s: float, deaths: Deaths) -> None:
        super().__init__(launch.processes, forks, deadline_s)
        self.launch, self._deaths = launch, deaths
        self.figures = launch.figures

    @override
    def worker(self, number: int) -> worker_end.WorkerEnd:
        return self.launch.worker(number, self.deadline_s)

    @override
    def server(self, number: int) -> ServerEnd:
        return self.launch.server(number, self.deadline_s)

    @override
    def react(self, lost: LostProcess) -> Reaction:
        return self._deaths.react(lost)

    @override
    def tell_deaths(self, hearers: Sequence[HearsOfDeaths]) -> None:
        self._deaths.hearers = hearers

    @property
    @override
    def hands_on_data(self) -> bool:
        return self.launch.hands_on_data

    @override
    def arrivals(self) -> Sequence[int] | None:
        return self.launch.arrivals()

    @override
    def waits(self) -> Mapping[int, str]:
        return self.launch.notes()

    @override
    def checkpoint(self) -> Path | None:
        return self.launch.checkpoint()

    @override
    def close(self) -> None:
        self.launch.close()


class SimulationNode(TrainingNode):
    """A node on which a single process simulates all workers."""

    def players(self) -> worker_end.SimulationEnd:
        """Become the process that simulates the workers."""
        return self.launch.players(self.deadline_s)


class FirstNode(TrainingNode):
    """The node with the shards: a process here is the proxy of each worker of another node."""

    several = True

    def __init__(
        self,
        launch: Launch,
        forks: Processes,
        deadline_s: float,
        deaths: ServerDeaths,
        port: served_run.ServerEndpoint,
        on_node: int,
    ) -> None:
        super().__init__(launch, forks, deadline_s, deaths)
        self._port, self._here = port, on_node

    @override
    def stand_in(self, worker: int) -> served_run.WorkerProxyEnd:
        return self._port.stand_in(worker, self.deadline_s)

    @override
    def arrivals(self) -> Sequence[int] | None:
        """None while another node's workers are behind those here, which then only wait."""
        arrivals = super().arrivals()
        if arrivals is None:
            return None
        others = [arrivals[worker] for worker in self.launch.living() if worker >= self._here]
        return None if min(others, default=0) < min(arrivals[: self._here]) else arrivals


class OtherNode(NodePart):
    """A node whose workers reach the shards on the first node."""

    several = True
    has_shards = False
    is_training = True

    def __init__(
        self,
        place: NodeRank,
        workers: int,
        forks: Processes,
        deadline_s: float,
        deaths: WorkersDeaths,
        way: served_run.ServerConnection,
    ) -> None:
        super().__init__(workers, forks, deadline_s)
        self.node, self._deaths, self._way = place.node, deaths, way
        self._end: worker_end.WorkerEnd  # in a worker

    @override
    def worker(self, number: int) -> worker_end.WorkerEnd:
        self._end = self._way.worker(number, self.deadline_s)
        return self._end

    @override
    def returns(self, worker: int) -> bool:
        """Whether this is the first living worker of this node."""
        return worker == min(other for other in self._end.living() if other >= self.first)

    @override
    def react(self, lost: LostProcess) -> Reaction:
        return self._deaths.react(lost)

    @override
    def note_updates(self, worker: int, updates: int) -> None:
        self._way.note_updates(worker, updates)


def goes_out(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Whether data sent to this address leaves this machine."""
    return not address.is_loopback


def machine_of_several(
    place: NodeRank,
    settings: Settings,
    environment: Mapping[str, str],
    arguments: AsyncArguments,
    *,
    workers: int,
    on_each: int,
    seed: int,
    started_with: Mapping[str, str],
) -> FirstNode | OtherNode:
    """This node's part in the run. `workers`: on all nodes; `on_each`: on one node, possibly of several started
    processes. `started_with`: digests of the config, by key.

    ConfigError for an invalid address, port or key; ValueError for settings that several nodes do not support.
    """
    launch = Launch(workers, settings, seed=seed) if place.index == 0 else None
    on_node, threads = on_each // place.tasks, shared_out(on_each)
    deadline_s = arguments.limits.deadline_s + GRACE_S  # who is missing of another machine the monitors say before
    address = resolved(place)
    port, first = place.port + place.hosted, place.index * on_node
    secret = read_key(key_file(environment), makes=place.index == 0)
    encrypted = arguments.tls and goes_out(address)
    run = served_run.Run(
        next_run(environment), secret, encrypted, str(address), port, place.count - 1, on_node * place.count, settings
    )
    me = hello(on_each, started_with, served_run.settings_digest(settings))
    if launch is None:
        way = served_run.ServerConnection(run, place.index, first, on_node)
        monitor = WorkersMonitor(place, way, me, arguments.limits.deadline_s)
        forks = Processes(on_node, 0, threads, first, monitor)
        return OtherNode(place, workers, forks, deadline_s, WorkersDeaths(monitor, arguments.limits.restarts), way)
    with ExitStack() as undo:
        listener = undo.enter_context(listening_at(place, port))
        try:
            endpoint = served_run.ServerEndpoint(launch, run, listener, on_node, arguments.elastic is not None)
        except ModuleNotFoundError as error:
            why = f"needs the package {error.name}, which is not installed here"
            fix = "Install the package, or set tls: false on a network that you trust."
            raise ArgumentError("missing-package", "tls", why, fix) from error
        undo.pop_all()
    server = (
        ServerMonitor(place, endpoint, me, arguments.limits.deadline_s, launch)
        if arguments.elastic is None
        else ElasticMonitor(place, endpoint, me, arguments.limits.deadline_s, launch, on_node, arguments.elastic)
    )
    deaths = ServerDeaths(launch, arguments.limits.restarts, server, on_node)
    forks = Processes(workers, launch.servers, threads, 0, server, range(on_node, workers))
    return FirstNode(launch, forks, deadline_s, deaths, endpoint, on_node)
