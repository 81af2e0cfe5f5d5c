"""The processes of AsyncPS: what they share, who becomes what, where they meet, what follows when one dies."""

import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.trainer.states import TrainerFn
from typing_extensions import override

from scalebook.training.failures import ProcessLost
from scalebook.training.ps.launch import Launch, ServerEnd
from scalebook.training.ps.worker.end import DataCursor, Figures, Meetings, Phase, PlayingEnd, WorkerEnd
from scalebook.training.strategies.async_arguments import AsyncArguments
from scalebook.training.strategies.collectives import LISTENER, Collectives
from scalebook.training.strategies.deaths import Deaths, resume_hint
from scalebook.training.strategies.launcher import AroundFork, ForkLauncher, Processes, ServerEnded, take_rank
from scalebook.training.strategies.places import Places, Stage
from scalebook.training.strategies.processes import Lost, Reaction
from scalebook.training.strategies.refused import refuse_model, refuse_optimizers, refuse_settings
from scalebook.training.strategies.set_aside import SetAside
from scalebook.training.strategies.sharing import SharedData
from scalebook.training.strategies.snapshots import Snapshots
from scalebook.training.strategies.state_file import StateFile
from scalebook.training.strategies.tuners import is_finder, tune
from scalebook.training.strategies.worker_role import end_now, ends_here, serve_only

LAST_MEETING: Final = "run-stage"
MEETINGS: Final = {"pre_setup", "post_setup", "_CheckpointConnector.resume_end", LAST_MEETING}
"""Lightning's barriers before training, at which workers do wait for each other. At all later ones they do not."""


class Forking(Snapshots, AroundFork):
    """The processes of a run: a monitor, which does not train, workers, and servers under host `process`."""

    _launch: Launch | None = None  # in the monitor, until the workers have ended
    _server: ServerEnd | None = None  # in a server process
    _figures: Figures | None = None  # also after the fit
    _playing: PlayingEnd | None = None  # `_end`, in the process that plays all virtual workers
    _aside: SetAside | None = None  # in the monitor, its parameters

    def __init__(self, arguments: AsyncArguments) -> None:
        super().__init__()
        self.arguments = arguments
        self._forked = 0  # workers of this run; 0 before it starts
        self._rendezvous = 0  # that a server has come to
        self._has_finished = False  # has said, in a meeting, that it will not push any more
        self._deaths: Deaths | None = None

    @property
    @override
    def num_processes(self) -> int:
        """Worker processes of the run; before it starts, of a fit."""
        return self._forked or (1 if self.arguments.is_virtual else self.workers)

    @property
    def workers(self) -> int:
        """Workers of a fit; the processes, but that one plays all virtual ones."""
        return self.arguments.workers or super().num_processes

    def gradients_averaged(self) -> int:
        """Single workers' gradients whose mean the learning rate multiplies. (What `push_every` sums counts once.)"""
        server = self.arguments.server
        return 1 if server.local.steps else server.rule.averaged(self.workers)

    def gradients_computed(self) -> int:
        """Single workers' gradients that are computed for each update, or while each makes a step of its own."""
        server = self.arguments.server
        return self.workers if server.local.steps else server.rule.computed(self.workers)

    @property
    @override
    def root_device(self) -> torch.device:
        return torch.device("cpu") if self._server is not None else super().root_device

    # --- around the fork -----------------------------------------------------------------------------------------

    @override
    def _configure_launcher(self) -> None:
        self._launcher = ForkLauncher(self)

    @override
    def tune(self, trainer: Trainer, run: Callable[[], Any], given: Iterable[Any]) -> bool:
        modules = [module for module in given if isinstance(module, LightningDataModule)]
        return tune(trainer, run, modules, self.arguments.threads)

    @override
    def before_fork(self, trainer: Trainer) -> Processes:
        """Make what the processes share. Whatever is not training needs one worker only."""
        self._figures = None
        if trainer.state.fn != TrainerFn.FITTING:
            self._forked = 1
            return Processes(1, threads=self.arguments.threads)
        workers = self.workers
        settings = self.arguments.settings(trainer)
        refuse_settings(trainer, workers, settings)
        refuse_model(trainer.lightning_module, workers)
        self._kept = StateFile()
        self._launch = Launch(workers, settings, seed=int(os.environ.get("PL_GLOBAL_SEED", "0")))
        self._figures = self._launch.figures
        self._aside = SetAside.of(trainer.lightning_module.parameters())
        self._deaths = Deaths(self._launch, self.arguments.restarts)
        self._forked = self._launch.processes
        return Processes(self._forked, self._launch.servers, self.arguments.threads)

    @override
    def after_fork(self, worker: int, trainer: Trainer) -> None:
        """Become worker `worker`."""
        self._worker = worker
        if self._aside is not None:
            self._aside.forget()
        take_rank(worker, self.num_processes)
        _without_finders(trainer)
        if self._launch is not None:
            end = self._worker_end(self._launch, worker)
            self._end = self._figures = end
            self._begin_collectives(trainer, worker, end.meetings)
            if end.settings.clip is not None:
                trainer.gradient_clip_val = None  # the engine does it
            self._data = self._shared_data(end.cursor, end.meetings, self._playing)
            self._data.join(worker, self.arguments.deadline_s, self._idle, end.is_over)

    @override
    def become_server(self, server: int, trainer: Trainer) -> None:
        """Become server `server`, whose rank comes after the workers'."""
        assert self._launch is not None
        self._server, self._worker = self._launch.server(server, self.arguments.deadline_s), self.num_processes + server
        self._data = self._shared_data(self._server.cursor, self._server.meetings)
        take_rank(self._worker, self.num_processes)
        _without_finders(trainer)
        serve_only(trainer)
        self._begin_collectives(trainer, LISTENER, self._server.meetings)

    def _worker_end(self, launch: Launch, worker: int) -> WorkerEnd:
        if not self.arguments.is_virtual:
            return launch.worker(worker, self.arguments.deadline_s)
        self._playing = launch.players(self.arguments.deadline_s)
        return self._playing

    def _shared_data(self, cursor: DataCursor, meetings: Meetings, playing: PlayingEnd | None = None) -> SharedData:
        turn = None if playing is None else playing.turn
        return SharedData(cursor, self.arguments.server.rule.synchronous, meetings, turn)

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
        if self._aside is not None:
            self._aside.bring_back()
        if self._launch is not None:
            self._launch.close()
        self._launch = self._aside = self._end = self._playing = self._data = self._collectives = None
        self._forked, self._has_finished = 0, False

    def _serve(self, trainer: Trainer) -> None:
        """A server process: the optimizers are set up as in a worker, on the CPU, and then it serves to the end."""
        assert self._server is not None
        assert self._figures is not None
        assert self.model is not None
        self.model = self.precision_plugin.convert_module(self.model)
        self.setup_optimizers(trainer)
        refuse_optimizers(self.optimizers, self._figures.settings.writable(self.num_processes))
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
        return None if self._launch is None else self._launch.arrivals()

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
        assert self._collectives is not None
        assert self._joined is not None
        assert self._end is not None
        if self._has_finished or not self._collectives.places.at_boundary:
            return
        if over := self._end.is_over():
            end_now(self._trainer)
        if over or ends_here(self._trainer):
            self._has_finished = True
            self._finish()


def _without_finders(trainer: Trainer) -> None:
    """Take the finders, which have searched before the fork, off the Trainer's callbacks."""
    trainer.callbacks = [callback for callback in trainer.callbacks if not is_finder(callback)]  # type: ignore[attr-defined]
