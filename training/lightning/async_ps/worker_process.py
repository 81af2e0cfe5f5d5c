"""A worker's session before and after training: what it has from the fork on, and what it leaves."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typing_extensions import override

from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.arguments import AsyncArguments
from scalebook.training.lightning.async_ps.collective_order import CollectiveOrder, set_apart
from scalebook.training.lightning.async_ps.collectives import Collectives
from scalebook.training.lightning.async_ps.nodes import NodePart
from scalebook.training.lightning.async_ps.session import (
    LAST_MEETING,
    Session,
    enter_stage,
    shared_data,
    without_finders,
)
from scalebook.training.lightning.async_ps.state_file import StateFile, all_but_weights
from scalebook.training.lightning.data.data_sharing import SharedData
from scalebook.training.lightning.package import Trainer
from scalebook.training.lightning.portable_checkpoint import for_any_trainer
from scalebook.training.lightning.processes.strategy_launcher import take_rank
from scalebook.training.lightning.run_figures import TrainingFigures
from scalebook.training.lightning.worker_role import train_only


@dataclass(frozen=True)
class WorkerParts:
    """What a worker has from the fork on. `on_each`: workers on each node."""

    rank: int
    on_each: int
    arguments: AsyncArguments
    machine: NodePart
    end: worker_end.WorkerEnd
    trainer: Trainer
    data: SharedData
    collectives: Collectives | None
    figures: TrainingFigures
    kept: StateFile
    has_warned: bool
    """Whether the monitor has warned of an average of the weights."""


def worker_parts(
    rank: int,
    on_each: int,
    arguments: AsyncArguments,
    machine: NodePart,
    end: worker_end.WorkerEnd,
    trainer: Trainer,
    state_file: StateFile,
    turn: Callable[[], int | None] | None = None,
    has_warned: bool = False,
) -> WorkerParts:
    """Set up the process that was forked for this worker; `turn`: see `SharedData`."""
    take_rank(rank, machine.processes, on_each if machine.several else None)
    without_finders(trainer)
    if end.settings.clip is not None:
        trainer.gradient_clip_val = None  # the engine does it
    data = shared_data(arguments, end.workers, end.cursor, end.meetings, turn)
    data.join(rank, arguments.limits.deadline_s, end.is_over)
    collectives = Collectives(end.meetings, CollectiveOrder(trainer), rank) if machine.processes > 1 else None
    return WorkerParts(
        rank, on_each, arguments, machine, end, trainer, data, collectives, TrainingFigures(end), state_file, has_warned
    )


class WorkerProcess(Session):
    """The session of a worker at any time."""

    def __init__(self, parts: WorkerParts) -> None:
        super().__init__(parts.rank, parts.machine.processes, parts.machine.node)
        self.parts, self.end, self.data = parts, parts.end, parts.data
        self.figures, self.collectives = parts.figures, parts.collectives

    @override
    def prepare(self, trainer: Trainer) -> None:
        if self.rank > 0:
            train_only(trainer)
        if self.collectives is not None:
            set_apart(trainer, self.collectives.places)

    @override
    def synchronize(self, name: str) -> None:
        self.end.rendezvous(name)
        if name == LAST_MEETING:
            self.end.signals.mark_begun()
        enter_stage(self.collectives, name)

    @override
    def process_dataloader(self, trainer: Trainer, dataloader: object) -> object:
        return self.data.process(trainer, dataloader) if trainer.training else dataloader

    @override
    def sign_of_life(self) -> None:
        self.end.sign_of_life()

    @override
    def note_checkpoint(self, path: Any) -> None:
        if self.rank == 0:
            self.end.signals.note_checkpoint(path)

    @override
    def take_rank(self) -> None:
        take_rank(self.rank, self.processes, self.parts.on_each)

    def living(self) -> list[int]:
        """The workers whose processes live."""
        return self.end.living()


class FinishedWorker(WorkerProcess):
    """The session after training. `own_state` and `position`: AsyncPS's part of a gathered checkpoint, and the data
    position; None in a worker that has not validated."""

    def __init__(self, parts: WorkerParts, own_state: dict[str, Any] | None, position: dict[str, Any] | None) -> None:
        super().__init__(parts)
        self._ours, self._position = own_state, position

    @override
    def checkpoint(self, gathered: dict[str, Any]) -> dict[str, Any]:
        if self._ours is None:
            return gathered
        step = {"global_step": sum(self._ours["versions"])}
        return for_any_trainer({**gathered, **step}, self.processes, self._ours, self._position)

    @override
    def save_final_state(self) -> None:
        if self._ours is not None:
            self.parts.kept.write(self.checkpoint(all_but_weights(self.parts.trainer)))
