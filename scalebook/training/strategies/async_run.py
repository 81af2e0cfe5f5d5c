"""The processes of AsyncPS: what they share, who becomes what, what follows when one dies."""

import os
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from typing_extensions import override

from scalebook.training.failures import ProcessLost
from scalebook.training.nodes import NodeRank, node_rank
from scalebook.training.ps.launch import Launch
from scalebook.training.ps.policy.settings import Settings
from scalebook.training.strategies.async_arguments import AsyncArguments
from scalebook.training.strategies.deaths import Deaths, resume_hint
from scalebook.training.strategies.launcher import AroundFork, Processes, take_rank
from scalebook.training.strategies.lightning import Callback, LightningDataModule, Trainer, TrainerFn
from scalebook.training.strategies.machine import MachinePart, TrainingMachine, VirtualMachine
from scalebook.training.strategies.playing import ArrivingPlayers
from scalebook.training.strategies.processes import Lost, Reaction
from scalebook.training.strategies.refused import refuse_elastic, refuse_finders, refuse_model, refuse_settings
from scalebook.training.strategies.session import (
    FittedSession,
    MonitorSession,
    ServerSession,
    Session,
    without_finders,
)
from scalebook.training.strategies.set_aside import SetAside
from scalebook.training.strategies.several_machines import machine_of_several
from scalebook.training.strategies.state_file import StateFile
from scalebook.training.strategies.tuners import tune
from scalebook.training.strategies.worker_process import worker_parts
from scalebook.training.strategies.worker_session import ArrivingWorker

_NOTHING_TRAINS: Final = MachinePart(1, Processes(1), 0.0)


class AsyncRun(AroundFork):
    """A monitor, which does not train, workers, and servers under host `process`.

    Lightning's hooks are the affair of `session`, which says what this process is at present.
    """

    def __init__(self, arguments: AsyncArguments) -> None:
        self._arguments = arguments
        self.session = Session()
        self.started_with: dict[str, str] = {}
        """Digests of what must be the same on all machines, by key."""
        self._nodes, self._on_each = 1, 1
        self._place: NodeRank | None = None  # of this process among those that somebody started; None: it is alone
        self._machine = _NOTHING_TRAINS
        self._between = self.session  # what this process is while nothing is under way
        # Of a fit, from before the fork on:
        self._kept: StateFile
        self._aside: SetAside
        self._python: tuple[Any, ...]  # its random numbers

    @override
    def __getstate__(self) -> dict[str, Any]:
        """Of a copy or a pickle: without what the processes of a run share."""
        shared = ("_kept", "_aside", "_python")
        return {name: value for name, value in vars(self).items() if name not in shared} | {"_machine": _NOTHING_TRAINS}

    # --- in the monitor --------------------------------------------------------------------------------------------

    def configure(self, nodes: int, on_each: int) -> None:
        """How many machines the Trainer has, and workers each of them."""
        self._nodes, self._on_each = nodes, on_each
        self._place = node_rank(os.environ, nodes, on_each)

    @override
    def tune(self, trainer: Trainer, run: Callable[[], Any], given: Iterable[Any]) -> bool:
        refuse_finders(trainer, self._place is not None)
        modules = [module for module in given if isinstance(module, LightningDataModule)]
        return tune(trainer, run, modules)

    @override
    def before_fork(self, trainer: Trainer) -> Processes:
        """Make what the processes share. Whatever is not training needs one worker only."""
        if trainer.state.fn != TrainerFn.FITTING:
            self._machine = _NOTHING_TRAINS
            return self._machine.forks
        settings = self._arguments.settings(trainer)
        refuse_settings(trainer, self._nodes * self._on_each)
        if self._arguments.elastic is not None:
            refuse_elastic(self._arguments.elastic, self._on_each, self._nodes, settings)
        refuse_model(trainer.lightning_module, settings)
        self._machine, self._kept = self._machine_of(settings), StateFile()
        self._aside = SetAside.of(trainer.lightning_module.parameters())
        self._python = random.getstate()
        self.session = MonitorSession(self._machine)
        self._between = FittedSession(self._kept, self.session.figures)
        return self._machine.forks

    def _machine_of(self, settings: Settings) -> MachinePart:
        arguments, workers = self._arguments, self._nodes * self._on_each
        seed = int(os.environ.get("PL_GLOBAL_SEED", "0"))
        if self._place is not None:
            return machine_of_several(
                self._place, settings, os.environ, arguments, workers=workers, on_each=self._on_each, seed=seed,
                started_with=self.started_with,
            )  # fmt: skip
        launch = Launch(workers, settings, seed=seed)
        forks = Processes(launch.processes, launch.servers)
        kind = VirtualMachine if arguments.is_simulated else TrainingMachine
        return kind(launch, forks, arguments.limits.deadline_s, Deaths(launch, arguments.limits.restarts))

    @override
    def lost(self, lost: Lost) -> Reaction:
        return self._machine.react(lost)

    @override
    def arrivals(self) -> Sequence[int] | None:
        return self._machine.arrivals()

    @override
    def waits(self) -> Mapping[int, str]:
        return self._machine.waits()

    @override
    def explained(self, error: ProcessLost, callbacks: list[Callback]) -> ProcessLost:
        return resume_hint(error, self._machine.checkpoint(), callbacks)

    @override
    def after_workers(self) -> None:
        """Let go of the shared memory, and of the number of workers, which the next call may choose anew."""
        if self._machine.is_training:
            self._kept.close()
            self._aside.bring_back()
        self._machine.close()
        self._machine, self.session = _NOTHING_TRAINS, self._between

    # --- in the processes that were forked ---------------------------------------------------------------------------

    @override
    def after_fork(self, worker: int, trainer: Trainer) -> None:
        """Become worker `worker`."""
        machine = self._machine
        if not machine.is_training:
            take_rank(worker, machine.processes)
            without_finders(trainer)
            self.session = Session(worker, machine.processes)
            return
        self._aside.forget()
        given = (worker, self._on_each, self._arguments, machine)
        if isinstance(machine, VirtualMachine):
            players = machine.players()
            parts = worker_parts(*given, players, trainer, self._kept, players.turn)
            self.session = ArrivingPlayers(parts, players, self._python)
        else:
            self.session = ArrivingWorker(worker_parts(*given, machine.worker(worker), trainer, self._kept))

    @override
    def become_server(self, server: int, trainer: Trainer) -> None:
        """Become server `server`, whose rank comes after the workers'."""
        machine = self._machine
        rank, end = machine.processes + server, machine.server(server)
        self.session = ServerSession(rank, machine, self._arguments, end, trainer)

    @override
    def stand_in(self, worker: int, trainer: Trainer) -> None:
        """Become who stands in for worker `worker` of another machine, with its rank."""
        end = self._machine.stand_in(worker)
        self.session = ServerSession(worker, self._machine, self._arguments, end, trainer)

    @override
    def returns(self, worker: int, first: int) -> bool:
        return self._machine.returns(worker)

    @override
    def keep(self) -> None:
        self.session.keep()
