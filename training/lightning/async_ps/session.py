"""What a process is for a Trainer with AsyncPS. The strategy has one `Session` at a time and asks it at Lightning's
hooks: before and after a run `Session`, in a server `ServerSession`; in a worker `ArrivingWorker`, then `WorkerSession`
from `setup` to `teardown`, then `FinishedWorker`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.nn import Module
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine.launch import ServerEnd
from scalebook.training.engine.served_run import WorkerProxyEnd
from scalebook.training.engine.worker.worker_end import DataCursor, MessageExchange, PushResult
from scalebook.training.lightning.arguments import AsyncArguments
from scalebook.training.lightning.async_ps.collective_order import CollectiveOrder, Stage
from scalebook.training.lightning.async_ps.collectives import LISTENER, Collectives
from scalebook.training.lightning.async_ps.node import NodePart
from scalebook.training.lightning.async_ps.state_file import StateFile
from scalebook.training.lightning.data.data_sharing import SharedData
from scalebook.training.lightning.package import Trainer
from scalebook.training.lightning.processes.strategy_launcher import ServerEnded, take_rank
from scalebook.training.lightning.run_figures import MonitorFigures, RunFigures
from scalebook.training.lightning.tuners import is_finder
from scalebook.training.lightning.worker_role import serve_only

LAST_MEETING: Final = "run-stage"
MEETINGS: Final = {"pre_setup", "post_setup", "_CheckpointConnector.resume_end", LAST_MEETING}
"""Lightning's barriers before training, at which workers do wait for each other. At all later ones they do not."""
State = Mapping[str, Any]


class Session:
    """Of a process that takes no part in training: nothing is shared, and all is as Lightning does it.

    `rank`: its worker's number. `processes`: workers' processes of the run; 0 where none is under way.
    """

    trains = False
    """Whether this is a worker, between its `setup` and its `teardown`."""
    on_cpu = False
    """Whether the model stays in the machine's memory, whatever the worker's device."""

    def __init__(self, rank: int = 0, processes: int = 0, node: int = 0) -> None:
        self.rank, self.processes, self.node = rank, processes, node
        self.figures: RunFigures = RunFigures()
        self.collectives: Collectives | None = None
        """With other workers, if there are any."""

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or a pickle, takes no part in anything."""
        return Session, (self.rank, self.processes, self.node)

    def prepare(self, trainer: Trainer) -> None:
        """Before the model's own set-up."""

    def synchronize(self, name: str) -> None:
        """Come to one of `MEETINGS`."""

    def set_up(self, trainer: Trainer, optimizers: Sequence[Optimizer], device: torch.device) -> "Session":
        """What this process is from now on: the model is where it will be trained, and has its optimizers."""
        return self

    def process_dataloader(self, trainer: Trainer, dataloader: object) -> object:
        """The loader in the place of one of the user's."""
        return dataloader

    def train_start(self) -> None:
        """At the end of the hook."""

    def batch_start(self) -> None:
        """At the hook."""

    def train_end(self) -> None:
        """At the end of the hook."""

    def computed(self) -> None:
        """A gradient is there, and not pushed yet."""

    def stepped(self, optimizer: Optimizer) -> PushResult | None:
        """After the optimizer's step: what became of the push that took its place, if one did."""
        return None

    def sign_of_life(self) -> None:
        """In a long validation, for those who wait."""

    def after_training(self) -> "Session":
        """What this process is after the training, with what that has taken given back."""
        return self

    def take_rank(self) -> None:
        """Tell it Lightning and the environment, which forget it at the teardown."""

    # --- checkpoints ---------------------------------------------------------------------------------------------

    def weights(self, default: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The model's, for a checkpoint; `own`: as they are."""
        return default()

    def optimizer_state(self, optimizer: Optimizer, default: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """As `weights`."""
        return default()

    def checkpoint(self, gathered: dict[str, Any]) -> dict[str, Any]:
        """What is to be written, of what Lightning has gathered."""
        return gathered

    def note_checkpoint(self, path: Any) -> None:
        """It is written."""

    def save_final_state(self) -> None:
        """Save all but the weights of a checkpoint that may be written after the fit; once all hooks have run."""

    def resume(self, checkpoint: State, own_state: State, default: Callable[[], None]) -> None:
        """Load the optimizers' states, `own`: as Lightning does. `ours`: what the checkpoint says for us alone."""
        default()

    def version(self, optimizer: Optimizer) -> int:
        """See `CountsUpdates`."""
        return 0


class FittedSession(Session):
    """After a fit, in the process that asked for it: a checkpoint has what worker 0 left."""

    def __init__(self, state_file: StateFile, figures: RunFigures | None = None) -> None:
        super().__init__()
        self._kept, self.figures = state_file, figures or RunFigures()

    @override
    def __reduce__(self) -> tuple[Any, ...]:
        return FittedSession, (self._kept,)

    @override
    def checkpoint(self, gathered: dict[str, Any]) -> dict[str, Any]:
        if "optimizer_states" not in gathered:  # weights alone
            return gathered
        state = self._kept.read()
        callbacks = {**gathered["callbacks"], **state["callbacks"]}  # on_save_checkpoint may have added to them
        return {**gathered, **state, "callbacks": callbacks}


class MonitorSession(Session):
    """While its workers train, in the process that has forked them."""

    def __init__(self, machine: NodePart) -> None:
        super().__init__(machine.first, machine.processes, machine.node)
        if machine.figures is not None:
            self.figures = MonitorFigures(machine.figures)


class ServerSession(Session):
    """In a server, or in a process that stands in for a worker of another machine: it sets the model up and serves."""

    on_cpu = True

    def __init__(
        self,
        rank: int,
        machine: NodePart,
        arguments: AsyncArguments,
        server: ServerEnd | WorkerProxyEnd,
        trainer: Trainer,
    ) -> None:
        super().__init__(rank, machine.processes, machine.node)
        self._server, self._rendezvous = server, 0
        self._data = shared_data(arguments, machine.processes, server.cursor, server.meetings)
        take_rank(rank, machine.processes)
        without_finders(trainer)
        serve_only(trainer)
        if machine.processes > 1:
            self.collectives = Collectives(server.meetings, CollectiveOrder(trainer), LISTENER)

    @override
    def synchronize(self, name: str) -> None:
        self._rendezvous += 1
        self._server.await_workers(self._rendezvous)
        enter_stage(self.collectives, name)

    @override
    def process_dataloader(self, trainer: Trainer, dataloader: object) -> object:
        return self._data.process(trainer, dataloader) if trainer.training else dataloader

    def serve(self, optimizers: Sequence[Optimizer], model: Module) -> None:
        """To the end, which is the exception ServerEnded."""
        self._server.serve(optimizers, model)
        raise ServerEnded


def shared_data(
    arguments: AsyncArguments,
    workers: int,
    cursor: DataCursor,
    meetings: MessageExchange,
    turn: Callable[[], int | None] | None = None,
) -> SharedData:
    """Of a run of so many workers; `turn` as `SharedData` has it."""
    server = arguments.server
    is_elastic, meets = arguments.elastic is not None, server.meets_after_epochs(workers)
    return SharedData(cursor, server.in_turns, meetings, turn, is_elastic, meets)


def enter_stage(collectives: Collectives | None, meeting: str) -> None:
    """From the first meeting on workers exchange what hooks ask for."""
    if collectives is not None and meeting == "pre_setup":
        collectives.places.stage = Stage.BEFORE


def without_finders(trainer: Trainer) -> None:
    """Take the finders, which have searched before the fork, off the Trainer's callbacks."""
    trainer.callbacks = [callback for callback in trainer.callbacks if not is_finder(callback)]  # type: ignore[attr-defined]
