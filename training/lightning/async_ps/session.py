"""What a process does at Lightning's hooks under AsyncPS. The strategy has one `Session` at a time: before and after a
run `Session`, in a server `ServerSession`; in a worker `ArrivingWorker`, then `WorkerSession` from `setup` to
`teardown`, then `FinishedWorker`."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch.nn import Module
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine import ServerEnd, served_run
from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.arguments import AsyncArguments
from scalebook.training.lightning.async_ps.collective_order import CollectiveOrder, Stage
from scalebook.training.lightning.async_ps.collectives import LISTENER, Collectives
from scalebook.training.lightning.async_ps.nodes import NodePart
from scalebook.training.lightning.async_ps.state_file import StateFile
from scalebook.training.lightning.data.data_sharing import SharedData
from scalebook.training.lightning.package import Trainer
from scalebook.training.lightning.processes.strategy_launcher import ServerEnded, take_rank
from scalebook.training.lightning.run_figures import MonitorFigures, RunFigures
from scalebook.training.lightning.tuners import is_finder
from scalebook.training.lightning.worker_role import serve_only

LAST_MEETING: Final = "run-stage"
MEETINGS: Final = {"pre_setup", "post_setup", "_CheckpointConnector.resume_end", LAST_MEETING}
"""Lightning's barriers before training, at which workers wait for each other. At later barriers they do not."""
State = Mapping[str, Any]


class Session:
    """The session of a process that takes no part in training: nothing is shared, and everything is as in Lightning.

    `rank`: its worker's number. `processes`: worker processes of the run; 0 without a run.
    """

    trains = False
    """Whether this is a worker between its `setup` and its `teardown`."""
    on_cpu = False
    """Whether the model stays in CPU memory, whatever the worker's device."""
    trains_on: torch.device | None = None
    """The device of a worker; None before that is decided."""

    def __init__(self, rank: int = 0, processes: int = 0, node: int = 0) -> None:
        self.rank, self.processes, self.node = rank, processes, node
        self.figures: RunFigures = RunFigures()
        self.collectives: Collectives | None = None
        """Collectives with the other workers, if there are any."""

    def __reduce__(self) -> tuple[Any, ...]:
        """A copy, or a pickle, is a plain `Session`."""
        return Session, (self.rank, self.processes, self.node)

    def prepare(self, trainer: Trainer) -> None:
        """Prepare, before the model's own set-up."""

    def synchronize(self, name: str) -> None:
        """Wait for the others at one of `MEETINGS`."""

    def set_up(self, trainer: Trainer, optimizers: Sequence[Optimizer], device: torch.device) -> "Session":
        """The next session: the model is now on its device, and has its optimizers."""
        return self

    def process_dataloader(self, trainer: Trainer, dataloader: object) -> object:
        """The loader that replaces one of the user's."""
        return dataloader

    def train_start(self) -> None:
        """Called at the end of the hook."""

    def batch_start(self) -> None:
        """Called at the hook."""

    def train_end(self) -> None:
        """At the end of the hook."""

    @contextmanager
    def accumulating(self) -> Iterator[None]:
        """Meanwhile, backward passes only add to the gradients, and no step follows."""
        yield

    def computed(self) -> None:
        """Called when a gradient is computed, before its push."""

    def before_gradient_hooks(self) -> None:
        """Called before all hooks `on_before_optimizer_step`."""

    def stepped(self, optimizer: Optimizer) -> worker_end.PushResult | None:
        """Called after the optimizer's step: the result of the push, if one was made."""
        return None

    def sign_of_life(self) -> None:
        """Restart the deadline of waiting workers, in a long validation."""

    def after_training(self) -> "Session":
        """The session after training; releases what training used."""
        return self

    def take_rank(self) -> None:
        """Set the rank in Lightning and the environment again, which forget it at the teardown."""

    # --- checkpoints ---------------------------------------------------------------------------------------------

    def weights(self, default: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The model's weights for a checkpoint; `default`: Lightning's way."""
        return default()

    def optimizer_state(self, optimizer: Optimizer, default: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """The optimizer's state for a checkpoint, like `weights`."""
        return default()

    def checkpoint(self, gathered: dict[str, Any]) -> dict[str, Any]:
        """The checkpoint to write, from what Lightning has gathered."""
        return gathered

    def note_checkpoint(self, path: Any) -> None:
        """Called when a checkpoint has been written."""

    def save_final_state(self) -> None:
        """Save everything but the weights for a checkpoint that may be written after the fit; called after all
        hooks."""

    def resume(self, checkpoint: State, own_state: State, default: Callable[[], None]) -> None:
        """Load the optimizers' states; `default`: Lightning's way. `own_state`: AsyncPS's part of the checkpoint."""
        default()

    def version(self, optimizer: Optimizer) -> int:
        """See `CountsUpdates`."""
        return 0


class FittedSession(Session):
    """The session after a fit, in the process that called it: a checkpoint has the state that worker 0 left."""

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
    """The monitor's session while the workers that it has forked train."""

    def __init__(self, machine: NodePart) -> None:
        super().__init__(machine.first, machine.processes, machine.node)
        if machine.figures is not None:
            self.figures = MonitorFigures(machine.figures)


class ServerSession(Session):
    """The session of a server, or of the proxy of another node's worker: it sets the model up and serves."""

    on_cpu = True

    def __init__(
        self,
        rank: int,
        machine: NodePart,
        arguments: AsyncArguments,
        server: ServerEnd | served_run.WorkerProxyEnd,
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
        """Serve until the run's end, then raise ServerEnded."""
        self._server.serve(optimizers, model)
        raise ServerEnded


def shared_data(
    arguments: AsyncArguments,
    workers: int,
    cursor: worker_end.DataCursor,
    meetings: worker_end.MessageExchange,
    turn: Callable[[], int | None] | None = None,
) -> SharedData:
    """The data of a run with so many workers; `turn`: see `SharedData`."""
    server = arguments.server
    is_elastic, meets = arguments.elastic is not None, server.meets_after_epochs(workers)
    return SharedData(cursor, server.deal(workers), meetings, turn, is_elastic, meets)


def enter_stage(collectives: Collectives | None, meeting: str) -> None:
    """Enable collectives in hooks from the first meeting on."""
    if collectives is not None and meeting == "pre_setup":
        collectives.places.stage = Stage.BEFORE


def without_finders(trainer: Trainer) -> None:
    """Remove the finders, which have searched before the fork, from the Trainer's callbacks."""
    trainer.callbacks = [callback for callback in trainer.callbacks if not is_finder(callback)]  # type: ignore[attr-defined]
