"""The processes of AsyncPS: what they share, who becomes what, where they meet, what follows when one dies."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

import torch
from typing_extensions import override

from scalebook.training.failures import ProcessLost
from scalebook.training.nodes import Place, place
from scalebook.training.ps.far import StandInEnd
from scalebook.training.ps.launch import Launch, ServerEnd
from scalebook.training.ps.policy.settings import Settings
from scalebook.training.ps.worker.end import DataCursor, Figures, Meetings, Phase, PlayingEnd, WorkerEnd
from scalebook.training.strategies.async_arguments import AsyncArguments
from scalebook.training.strategies.collectives import LISTENER, Collectives
from scalebook.training.strategies.deaths import Deaths, resume_hint
from scalebook.training.strategies.forked import GRACE_S
from scalebook.training.strategies.launcher import AroundFork, ForkLauncher, Processes, ServerEnded, take_rank
from scalebook.training.strategies.lightning import (
    Callback,
    ClusterEnvironment,
    LightningDataModule,
    Trainer,
    TrainerFn,
)
from scalebook.training.strategies.machine_deaths import FarDeaths
from scalebook.training.strategies.places import Places, Stage
from scalebook.training.strategies.processes import Lost, Reaction
from scalebook.training.strategies.refused import (
    refuse_elastic,
    refuse_finders,
    refuse_model,
    refuse_optimizers,
    refuse_settings,
)
from scalebook.training.strategies.set_aside import SetAside
from scalebook.training.strategies.sharing import SharedData
from scalebook.training.strategies.snapshots import Snapshots
from scalebook.training.strategies.spread import MachinePart, spread
from scalebook.training.strategies.started import ours
from scalebook.training.strategies.state_file import StateFile
from scalebook.training.strategies.threads import shared_out
from scalebook.training.strategies.tuners import is_finder, tune
from scalebook.training.strategies.worker_role import end_now, ends_here, serve_only

LAST_MEETING: Final = "run-stage"
MEETINGS: Final = {"pre_setup", "post_setup", "_CheckpointConnector.resume_end", LAST_MEETING}
"""Lightning's barriers before training, at which workers do wait for each other. At all later ones they do not."""


class Forking(Snapshots, AroundFork):
    """The processes of a run: a monitor, which does not train, workers, and servers under host `process`."""

    _launch: Launch | None = None  # in the monitor, until the workers have ended
    _server: ServerEnd | StandInEnd | None = None  # in a server process, or in one that stands in for a worker
    _figures: Figures | None = None  # also after the fit
    _playing: PlayingEnd | None = None  # `_end`, in the process that plays all virtual workers
    _aside: SetAside | None = None  # in the monitor, its parameters
    _place: Place | None = None  # of this process among those that were started; None: it is alone
    _spread: MachinePart | None = None  # this machine's part in a run over several, until the workers have ended

    def __init__(self, arguments: AsyncArguments) -> None:
        super().__init__()
        self.arguments = arguments
        self._forked = 0  # workers of this run; 0 before it starts
        self._rendezvous = 0  # that a server has come to
        self._has_finished = False  # has said, in a meeting, that it will not push any more
        self._deaths: Deaths | FarDeaths | None = None
        self.started_with: dict[str, str] = {}
        """Digests of what must be the same on all machines, by key."""

    @property
    def cluster_environment(self) -> ClusterEnvironment | None:
        return self._environment

    @cluster_environment.setter
    def cluster_environment(self, environment: ClusterEnvironment | None) -> None:
        self._environment = ours(environment)

    @property
    @override
    def num_processes(self) -> int:
        """Worker processes of the run; before it starts, of a fit."""
        return self._forked or (1 if self.arguments.is_virtual else self.workers)

    @property
    def workers(self) -> int:
        """Workers of a fit, on all machines; the processes, but that one plays all virtual ones."""
        return self.num_nodes * self._on_each

    @property
    def _on_each(self) -> int:
        """Of a fit, on each machine."""
        return self.arguments.on_each(super().num_processes)

    @property
    @override
    def local_rank(self) -> int:
        return self._worker - self.node_rank * self._on_each

    @property
    @override
    def node_rank(self) -> int:
        return 0 if self._place is None or self._spread is None else self._place.node

    @property
    def _deadline_s(self) -> float:
        """Of a worker's waits. Who is missing of another machine the monitors say before."""
        return self.arguments.deadline_s + (0.0 if self._spread is None else GRACE_S)

    @property
    def _is_first_here(self) -> bool:
        """Whether this worker ends with the run's last version: worker 0, and on other machines all."""
        return self._worker == 0 or (self._spread is not None and self._spread.way is not None)

    def gradients_averaged(self) -> int:
        """See `CountsUpdates`."""
        return self.arguments.server.averaged_in_step(self.workers)

    def gradients_computed(self) -> int:
        """See `CountsUpdates`."""
        return self.arguments.server.computed_in_step(self.workers)

    @property
    @override
    def root_device(self) -> torch.device:
        return torch.device("cpu") if self._server is not None else super().root_device

    # --- around the fork -----------------------------------------------------------------------------------------

    @override
    def _configure_launcher(self) -> None:
        self._place = place(os.environ, self.num_nodes, self._on_each)
        self._launcher = ForkLauncher(self)

    @override
    def tune(self, trainer: Trainer, run: Callable[[], Any], given: Iterable[Any]) -> bool:
        refuse_finders(trainer, self._place is not None)
        modules = [module for module in given if isinstance(module, LightningDataModule)]
        return tune(trainer, run, modules, self.arguments.threads)

    @override
    def before_fork(self, trainer: Trainer) -> Processes:
        """Make what the processes share. Whatever is not training needs one worker only."""
        self._figures = self._spread = None
        if trainer.state.fn != TrainerFn.FITTING:
            self._forked = 1
            return Processes(1, threads=self.arguments.threads)
        workers = self.workers
        settings = self.arguments.settings(trainer)
        refuse_settings(trainer, workers)
        if self.arguments.elastic is not None:
            refuse_elastic(self.arguments.elastic, self._on_each, self.num_nodes, settings)
        refuse_model(trainer.lightning_module, settings)
        self._kept = StateFile()
        if self._place is None or self._place.index == 0:
            self._launch = Launch(workers, settings, seed=int(os.environ.get("PL_GLOBAL_SEED", "0")))
            self._figures = self._launch.figures
        self._aside = SetAside.of(trainer.lightning_module.parameters())
        if self._place is not None:
            return self._spread_out(self._place, settings)
        assert self._launch is not None
        self._deaths = Deaths(self._launch, self.arguments.restarts)
        self._forked = self._launch.processes
        return Processes(self._forked, self._launch.servers, self.arguments.threads)

    def _spread_out(self, place: Place, settings: Settings) -> Processes:
        """What this machine forks of a run on several: its workers, and where the shards are who stands in for the
        others."""
        workers, on_each, given = self.workers, self._on_each, self.arguments
        part = self._spread = spread(
            place, self._launch, settings, os.environ, here=on_each // place.tasks, devices=on_each, tls=given.tls,
            restarts=given.restarts, deadline_s=given.deadline_s, started_with=self.started_with,
            elastic=given.elastic,
        )  # fmt: skip
        self._deaths, self._forked, self._worker = part.deaths, workers, part.first
        threads = given.threads or shared_out(on_each)
        if self._launch is None:
            return Processes(part.here, 0, threads, part.first, part.side)
        elsewhere = range(part.here, workers)
        return Processes(workers, self._launch.servers, threads, 0, part.side, elsewhere)

    @override
    def after_fork(self, worker: int, trainer: Trainer) -> None:
        """Become worker `worker`."""
        self._worker = worker
        if self._aside is not None:
            self._aside.forget()
        take_rank(worker, self.num_processes, self._on_each if self._spread is not None else None)
        _without_finders(trainer)
        if self._launch is not None or self._spread is not None:
            end = self._worker_end(worker)
            self._end, self._figures = end, end.figures
            self._begin_collectives(trainer, worker, end.meetings)
            if end.settings.clip is not None:
                trainer.gradient_clip_val = None  # the engine does it
            self._data = self._shared_data(end.cursor, end.meetings, self._playing)
            self._data.join(worker, self.arguments.deadline_s, self._idle, end.is_over)

    @override
    def become_server(self, server: int, trainer: Trainer) -> None:
        """Become server `server`, whose rank comes after the workers'."""
        assert self._launch is not None
        self._be_server(self._launch.server(server, self._deadline_s), self.num_processes + server, trainer)

    @override
    def stand_in(self, worker: int, trainer: Trainer) -> None:
        """Become who stands in for worker `worker` of another machine, with its rank."""
        assert self._spread is not None
        assert self._spread.port is not None
        self._be_server(self._spread.port.stand_in(worker, self._deadline_s), worker, trainer)

    def _be_server(self, server: ServerEnd | StandInEnd, rank: int, trainer: Trainer) -> None:
        self._server, self._worker = server, rank
        self._data = self._shared_data(server.cursor, server.meetings)
        take_rank(rank, self.num_processes)
        _without_finders(trainer)
        serve_only(trainer)
        self._begin_collectives(trainer, LISTENER, server.meetings)

    @override
    def returns(self, worker: int, first: int) -> bool:
        """On another machine than the first: of its workers the first that lives."""
        if self._spread is None or self._spread.way is None or self._end is None:
            return super().returns(worker, first)
        return worker == min(one for one in self._end.living() if one >= first)

    def _worker_end(self, worker: int) -> WorkerEnd:
        deadline_s = self._deadline_s
        if self._spread is not None and self._spread.way is not None:
            return self._spread.way.worker(worker, deadline_s)
        assert self._launch is not None
        if not self.arguments.is_virtual:
            return self._launch.worker(worker, deadline_s)
        self._playing = self._launch.players(deadline_s)
        return self._playing

    def _shared_data(self, cursor: DataCursor, meetings: Meetings, playing: PlayingEnd | None = None) -> SharedData:
        turn = None if playing is None else playing.turn
        server, is_elastic = self.arguments.server, self.arguments.elastic is not None
        meets = server.meets_after_epochs(self.workers)
        return SharedData(cursor, server.in_turns, meetings, turn, is_elastic, meets)

    @override
    def lost(self, lost: Lost) -> Reaction:
        return Reaction.END if self._deaths is None else self._deaths.react(lost)

    @override
    def explained(self, error: ProcessLost, callbacks: list[Callback]) -> ProcessLost:
        noted = None if self._launch is None else self._launch.checkpoint()
        return resume_hint(error, noted, callbacks)

    @override
    def after_workers(self) -> None:
        """Let go of the shared memory, and of the number of workers, which the next call may choose anew."""
        if self._kept is not None:
            self._kept.close()
        if self._aside is not None:
            self._aside.bring_back()
        if self._launch is not None:
            self._launch.close()
        self._launch = self._spread = self._aside = self._end = self._playing = None
        self._data = self._collectives = None
        self._forked, self._has_finished = 0, False

    def _serve(self, trainer: Trainer) -> None:
        """A server process: the optimizers are set up as in a worker, on the CPU, and then it serves to the end."""
        assert self._server is not None
        assert self._figures is not None
        assert self.model is not None
        self.model = self.precision_plugin.convert_module(self.model)
        self.setup_optimizers(trainer)
        refuse_optimizers(self.optimizers)
        self._server.serve(self.optimizers, trainer.lightning_module)
        raise ServerEnded

    def show_data(self) -> None:
        """Where the training loader is as the user made it, hooks shall find that."""
        if self._data is not None:
            self._data.show(self._trainer)

    def _idle(self, idle: bool) -> None:
        """Take this worker out of the rule's clocks while it has nothing to compute, or back in."""
        assert self._joined is not None
        assert self._end is not None
        if idle:
            self._end.meetings.enter(Phase.RESTING)
            self._joined.rest()
        else:
            self._joined.begin()
            self._end.meetings.enter(Phase.TRAINING)
            self._snapshot = None

    # --- meetings ------------------------------------------------------------------------------------------------

    @override
    def arrivals(self) -> Sequence[int] | None:
        """Nobody's while workers of another machine are behind those here, who cannot do anything meanwhile."""
        arrivals = None if self._launch is None else self._launch.arrivals()
        if arrivals is None or self._spread is None:
            return arrivals
        assert self._launch is not None
        here = self._spread.here
        others = [arrivals[worker] for worker in self._launch.living() if worker >= here]
        return None if min(others, default=0) < min(arrivals[:here]) else arrivals

    @override
    def waits(self) -> Mapping[int, str]:
        return {} if self._launch is None else self._launch.notes()

    @override
    def barrier(self, name: str | None = None) -> None:
        if name not in MEETINGS:
            super().barrier(name)
        else:
            if self._end is not None:
                self._end.rendezvous(name)
                if name == LAST_MEETING:
                    self._end.signals.begin()
            elif self._server is not None:
                self._rendezvous += 1
                self._server.await_workers(self._rendezvous)
            if self._collectives is not None and name == "pre_setup":
                self._collectives.places.stage = Stage.BEFORE

    def _begin_collectives(self, trainer: Trainer, worker: int, meetings: Meetings) -> None:
        if self.num_processes > 1:
            self._collectives = Collectives(meetings, Places(trainer), worker, self._while_waiting)

    def _while_waiting(self) -> None:
        """Called while this worker waits between batches for the others.

        If it has made its last push, it says so: worker 0 may be waiting for that before it validates and comes to the
        meeting.
        """
        if self._joined is None or self._has_finished:  # after the fit, or it has said so
            return
        assert self._collectives is not None
        assert self._end is not None
        if not self._collectives.places.at_boundary:
            return
        if over := self._end.is_over():
            end_now(self._trainer)
        if over or ends_here(self._trainer):
            self._has_finished = True
            self._finish()


def _without_finders(trainer: Trainer) -> None:
    """Take the finders, which have searched before the fork, off the Trainer's callbacks."""
    trainer.callbacks = [callback for callback in trainer.callbacks if not is_finder(callback)]  # type: ignore[attr-defined]
