"""The checks of runs whose processes are killed, or run out of memory."""

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import Strategy
from torch import Tensor

from scalebook.training.base.failures import FailureClass, WorkerLost, classify
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning import DDP, AsyncPS
from scalebook.training.lightning.processes.run_workers import run_workers
from tests.gpu.models import Dyadic, exact_weights, flat, make_trainer, numbers
from tests.gpu.running import Check, Machine, children, left_behind

TOLD_S: Final = 10.0
"""From the kill to the exception, the grace periods of processes that are asked to end included."""
BACK_S: Final = 10.0
FREE: Final = 0.02  # of a GPU's memory may be used by others meanwhile
NEVER: Final = 10**6


class KillOnce(Callback):
    """Before its `batch`-th batch worker `worker` notes the time and calls `what`; once, also where it is restarted.

    The others wait for that where they have had as many batches: else they might have taken all that there are.
    """

    def __init__(self, worker: int, batch: int, note: Path, what: Callable[[Trainer], None]) -> None:
        self.worker, self.batch, self.note, self.what, self.count = worker, batch, note, what, 0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.global_rank != self.worker and self.count >= self.batch:
            await_true(self.note.exists, f"worker {self.worker} has not come to batch {self.batch}")
        elif trainer.global_rank == self.worker and self.count == self.batch and not self.note.exists():
            self.note.write_text(str(time.time()))
            self.what(trainer)
        self.count += 1


def await_true(what: Callable[[], bool], otherwise: str, seconds: float = 60.0) -> None:
    """Within so many seconds, or AssertionError."""
    until = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < until, otherwise
        time.sleep(0.01)


def kill_this(_trainer: Trainer) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def kill_server(_trainer: Trainer) -> None:
    """The first process that the monitor forked: servers come before workers."""
    os.kill(min(children(os.getppid())), signal.SIGKILL)


def losses_are_made_good(machine: Machine, folder: Path) -> str:
    """A worker or a server dies, and the run ends with the weights of one in which nobody did."""
    cases: dict[str, tuple[AsyncPS, Callable[[Trainer], None]]] = {
        "worker 1 of 3, left out": (AsyncPS(workers=3), kill_this),
        "worker 1 of 2, started again": (AsyncPS(workers=2, limits=Limits(restarts=1)), kill_this),
        "worker 1 of 2 beside a server": (AsyncPS(workers=2, host="process"), kill_this),
        "a server": (AsyncPS(workers=2, host="process"), kill_server),
    }
    for number, (case, (strategy, kill)) in enumerate(cases.items()):
        model, note = Dyadic(machine.device), folder / f"{number}"
        make_trainer(machine, folder, strategy, callbacks=[KillOnce(1, 3, note, kill)]).fit(model, numbers())
        assert note.exists(), f"{case}: nobody was killed"
        assert torch.equal(flat(model), exact_weights()), case
    return f"{len(cases)} ways, to the last bit"


def death_is_told(machine: Machine, folder: Path) -> str:
    """Worker 0 is killed: `WorkerLost` within seconds, no process left, the device's memory free again."""
    free = free_share(machine)
    took: dict[str, float] = {}
    strategies: dict[str, tuple[Strategy, int]] = {
        "AsyncPS x 2": (AsyncPS(workers=2), 1),
        "DDP": (DDP(), 1 if machine.device == "cuda" else 2),
    }
    for name, (strategy, devices) in strategies.items():
        note = folder / name
        trainer = make_trainer(
            machine, folder, strategy, devices, epochs=NEVER, callbacks=[KillOnce(0, 3, note, kill_this)]
        )
        told: WorkerLost | None = None
        try:
            trainer.fit(Dyadic(machine.device), numbers())
        except WorkerLost as lost:
            told, took[name] = lost, time.time() - float(note.read_text())
        assert told is not None, f"{name}: nobody was told"
        assert told.number == 0
        assert "SIGKILL" in str(told), told
        assert took[name] < TOLD_S, f"{name}: told after {took[name]:.1f} s"
        assert left_behind() == [], name
    await_free(machine, free)
    return ", ".join(f"{name}: {seconds:.1f} s" for name, seconds in took.items())


class Greedy(Dyadic):
    """Worker 1 (of one, worker 0) asks for more memory than there is, in its third batch."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        if batch_idx == 2 and self.trainer.global_rank == min(1, self.trainer.world_size - 1):
            if self.wanted == "cuda":
                part = torch.cuda.mem_get_info()[1] // 4
                self.taken = [torch.empty(part, dtype=torch.uint8, device="cuda") for _ in range(8)]
            else:
                self.taken = [torch.empty(2**50, dtype=torch.uint8)]
        return super().training_step(batch, batch_idx)


def out_of_memory_is_typed(machine: Machine, folder: Path) -> str:
    """It ends the run as what it is, with what to do, whatever the strategy; and the memory is free again."""
    free = free_share(machine)
    causes = []
    devices = 1 if machine.device == "cuda" else 2
    for name, strategy, count in (("AsyncPS", AsyncPS(workers=2), 1), ("DDP", DDP(), devices)):
        assert isinstance(strategy, Strategy)
        trainer = make_trainer(machine, folder, strategy, count, epochs=NEVER)
        try:
            trainer.fit(Greedy(machine.device), numbers())
            raise AssertionError(f"{name}: it did not run out of memory")
        except RuntimeError as error:
            failure = classify(error)
            assert failure.failure_class is FailureClass.OUT_OF_MEMORY, f"{name}: {failure}"
            assert "batch_size" in failure.advice
            causes.append(failure.cause)
        assert left_behind() == [], name
    await_free(machine, free)
    return causes[0][:100]


def free_share(machine: Machine) -> float:
    """Share of the first GPU's memory that is free, asked in a process of its own; 1 where there is none."""
    if machine.device == "cpu":
        return 1.0

    def ask(_: int) -> float:
        free, whole = torch.cuda.mem_get_info(0)
        return free / whole

    return float(run_workers(1, ask)[0])


def await_free(machine: Machine, before: float) -> None:
    await_true(
        lambda: free_share(machine) >= before - FREE,
        f"of the GPU's memory {before:.0%} was free before, and {free_share(machine):.0%} is",
        BACK_S,
    )


CHECKS: Final = [
    Check("killed: losses are made good", losses_are_made_good),
    Check("killed: worker 0's death is told", death_is_told),
    Check("out of memory is typed", out_of_memory_is_typed),
]
