"""A machine's part in a run of AsyncPS, in the monitor and, inherited by the fork, in whoever it forks."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from typing_extensions import override

from scalebook.training.engine.launch import Launch, ServerEnd
from scalebook.training.engine.served_run import WorkerProxyEnd
from scalebook.training.engine.worker.worker_end import Figures, SimulationEnd, WorkerEnd
from scalebook.training.lightning.processes.deaths import Deaths
from scalebook.training.lightning.processes.processes import LostProcess, Reaction
from scalebook.training.lightning.processes.strategy_launcher import Processes


class NodePart:
    """One that trains nothing: a single process validates, tests or predicts.

    `node`: its number. `processes`: workers' of the run, on all machines. `forks`: what is forked here.
    """

    node = 0
    several = False
    """Whether the run has more machines than this one."""
    has_shards = True
    """Whether the parameters lie here; else every worker here ends with the run's last version, as worker 0 does."""
    is_training = False
    figures: Figures | None = None
    """What the run measures, where the monitor can read it: on the machine with the shards."""

    def __init__(self, processes: int, forks: Processes, deadline_s: float) -> None:
        self.processes, self.forks, self.deadline_s = processes, forks, deadline_s

    @property
    def first(self) -> int:
        """The number of the first worker here."""
        return self.forks.first

    def worker(self, number: int) -> WorkerEnd:
        """Become this worker, in a process that was forked for it."""
        raise NotImplementedError

    def server(self, number: int) -> ServerEnd:
        """Become this server."""
        raise NotImplementedError

    def stand_in(self, worker: int) -> WorkerProxyEnd:
        """Become who stands in for this worker of another machine."""
        raise NotImplementedError

    def react(self, lost: LostProcess) -> Reaction:
        """What follows a death, in the monitor."""
        return Reaction.END

    def arrivals(self) -> Sequence[int] | None:
        """See `AroundFork.arrivals`."""
        return None

    def waits(self) -> Mapping[int, str]:
        """See `AroundFork.waits`."""
        return {}

    def checkpoint(self) -> Path | None:
        """The newest that the run has written, if it is there."""
        return None

    def note_updates(self, worker: int, updates: int) -> None:
        """What this worker's replica has: the monitor of a machine without shards says how much is lost with them."""

    def returns(self, worker: int) -> bool:
        """Whether the results of this worker here are those of the Trainer that was asked."""
        return worker == self.first

    def close(self) -> None:
        """In the monitor, when all processes here have ended."""


class TrainingNode(NodePart):
    """The only machine of a run: all workers and servers are forked here."""

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
    """One on which a single process simulates all workers."""

    def players(self) -> SimulationEnd:
        """Become that process."""
        return self.launch.players(self.deadline_s)
