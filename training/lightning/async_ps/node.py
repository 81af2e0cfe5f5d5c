"""A node's part in a run of AsyncPS, in the monitor and, inherited by the fork, in its processes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from scalebook.training.engine.launch import Launch, ServerEnd
from scalebook.training.engine.served_run import WorkerProxyEnd
from scalebook.training.engine.worker.worker_end import Figures, SimulationEnd, WorkerEnd
from scalebook.training.lightning.processes.deaths import Deaths
from scalebook.training.lightning.processes.process_watch import LostProcess, Reaction
from scalebook.training.lightning.processes.strategy_launcher import Processes


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
    figures: Figures | None = None
    """The run's measurements, if the monitor can read them: on the node with the shards."""

    def __init__(self, processes: int, forks: Processes, deadline_s: float) -> None:
        self.processes, self.forks, self.deadline_s = processes, forks, deadline_s

    @property
    def first(self) -> int:
        """The number of the first worker on this node."""
        return self.forks.first

    def worker(self, number: int) -> WorkerEnd:
        """Become this worker, in a process that was forked for it."""
        raise NotImplementedError

    def server(self, number: int) -> ServerEnd:
        """Become this server."""
        raise NotImplementedError

    def stand_in(self, worker: int) -> WorkerProxyEnd:
        """Become the proxy of this worker of another node."""
        raise NotImplementedError

    def react(self, lost: LostProcess) -> Reaction:
        """Decide, in the monitor, what follows a death."""
        return Reaction.END

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
    def worker(self, number: int) -> WorkerEnd:
        return self.launch.worker(number, self.deadline_s)

    @override
    def server(self, number: int) -> ServerEnd:
        return self.launch.server(number, self.deadline_s)

    @override
    def react(self, lost: LostProcess) -> Reaction:
        return self._deaths.react(lost)

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

    def players(self) -> SimulationEnd:
        """Become the process that simulates the workers."""
        return self.launch.players(self.deadline_s)
