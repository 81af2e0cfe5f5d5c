"""Points 8 to 10: what workers keep, and what is left of them."""

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import BatchSizeFinder, LearningRateFinder
from torch import Tensor
from torch.utils.data import DataLoader

from scalebook.training.base.failures import WorkerLost
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning import AsyncPS
from tests.gpu.kills import NEVER, KillOnce, await_free, await_true, free_share, kill_this
from tests.gpu.models import (
    BATCH,
    Dyadic,
    Pictures,
    exact_weights,
    flat,
    make_trainer,
    numbers,
    pictures,
)
from tests.gpu.running import Check, Machine, SkipError, left_behind

FULL: Final = 0.9
LARGEST: Final = 32
"""The batch size that the finder is to answer."""
FITS: Final = 4


class Compiled(Pictures):
    """Compiled, and in channels-last order."""

    def __init__(self, backend: str) -> None:
        super().__init__()
        self.net.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # torch's stubs lack it
        self.net.compile(backend=backend)

    def on_before_batch_transfer(self, batch: list[Tensor], dataloader_idx: int) -> list[Tensor]:
        assert self.device.type == "cpu" or all(part.is_pinned() for part in batch), "it is not page-locked"
        return batch

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return super().training_step([batch[0].to(memory_format=torch.channels_last), batch[1]], batch_idx)


def compiled_and_killed(machine: Machine, folder: Path) -> str:
    """Two workers compile and load by processes of their own, with page-locked batches; worker 0 is killed, and no
    process of theirs is left, and no memory of the GPU."""
    if machine.device == "cuda" and shutil.which("cc") is None and shutil.which("gcc") is None:
        raise SkipError("torch.compile needs a C compiler, here is none")
    free, note = free_share(machine), folder / "note"
    data = DataLoader(
        pictures().dataset, batch_size=32, num_workers=2, pin_memory=machine.device == "cuda", persistent_workers=True
    )
    model = Compiled("inductor" if machine.device == "cuda" else "eager")
    trainer = make_trainer(
        machine, folder, AsyncPS(workers=2), epochs=NEVER, callbacks=[KillOnce(0, 3, note, kill_this)]
    )
    told: WorkerLost | None = None
    try:
        trainer.fit(model, data)
    except WorkerLost as lost:
        told = lost
    assert told is not None, "nobody was told"
    assert (told.number, note.exists()) == (0, True)
    assert left_behind() == []
    await_free(machine, free)
    return f"told: {told}; nothing is left"


# --- point 9 ---------------------------------------------------------------------------------------------------------


class Holds(Callback):
    """Worker 1 fills its device, all but a tenth, before its first batch; started again, it does so again, for which
    the others wait: else they might have taken all batches before it is back."""

    def __init__(self, note: Path, killed: Path) -> None:
        self.note, self.killed, self.held = note, killed, list[Tensor]()

    def sizes(self) -> list[int]:
        return [int(line) for line in self.note.read_text(encoding="utf-8").split()]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if trainer.global_rank != 1 and self.killed.exists():
            await_true(lambda: len(self.sizes()) == 2, "worker 1 has not come back")
        if trainer.global_rank == 1 and not self.held:
            size = 2**26
            if pl_module.device.type == "cuda":
                free, whole = torch.cuda.mem_get_info()
                size = free - round((1 - FULL) * whole)
            self.held.append(torch.empty(size, dtype=torch.uint8, device=pl_module.device))
            with self.note.open("a", encoding="utf-8") as file:
                file.write(f"{size}\n")


def full_gpu_takes_a_restart(machine: Machine, folder: Path) -> str:
    """A worker that fills the GPU to 0.9 is killed: started again, it finds as much, and no gradient is lost."""
    model, killed = Dyadic(machine.device), folder / "killed"
    holds = Holds(folder / "held", killed)
    callbacks: Sequence[Callback] = [KillOnce(1, 2, killed, kill_this), holds]
    make_trainer(machine, folder, AsyncPS(workers=2, limits=Limits(restarts=1)), callbacks=callbacks).fit(
        model, numbers()
    )
    assert killed.exists(), "nobody was killed"
    assert torch.equal(flat(model), exact_weights())
    sizes = holds.sizes()
    assert len(sizes) == 2, f"it was filled {len(sizes)} times"
    assert sizes[1] > 0.95 * sizes[0], f"{sizes[0]} bytes before, {sizes[1]} after"
    return f"{sizes[0] / 1e9:.1f} GB, and {sizes[1] / 1e9:.1f} again; to the last bit"


def many_fits_in_one_process(machine: Machine, folder: Path) -> str:
    """Four fits one after the other: each is exact, and leaves no process and no memory."""
    free = free_share(machine)
    for number in range(FITS):
        model = Dyadic(machine.device)
        make_trainer(machine, folder, AsyncPS(workers=2)).fit(model, numbers())
        assert torch.equal(flat(model), exact_weights()), f"fit {number}"
        assert left_behind() == [], f"fit {number}"
        await_free(machine, free)
    return f"{FITS} fits, to the last bit"


# --- point 10 --------------------------------------------------------------------------------------------------------


class Sized(Pictures):
    """Runs out of the device's memory with batches of more than `LARGEST`."""

    def __init__(self) -> None:
        super().__init__()
        self.batch_size = BATCH

    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(pictures().dataset, batch_size=self.batch_size, drop_last=True)

    def val_dataloader(self) -> DataLoader[Any]:
        return self.train_dataloader()  # the finder looks for one

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        if len(batch[0]) > LARGEST:
            whole = torch.cuda.mem_get_info()[1] if self.device.type == "cuda" else 2**50
            torch.empty(2 * whole, dtype=torch.uint8, device=self.device)
        return super().training_step(batch, batch_idx)


def finders_find(machine: Machine, folder: Path) -> str:
    """Lightning's finders before two workers: the largest batch is the last one that fitted, a rate is found, and
    workers train with both."""
    model = Sized()
    sizes = BatchSizeFinder(mode="power", steps_per_trial=2, init_val=BATCH, max_trials=8, margin=0)
    rates = LearningRateFinder(num_training_steps=20)
    strategy = AsyncPS(workers=2)
    make_trainer(machine, folder, strategy, callbacks=[sizes, rates]).fit(model)
    assert sizes.optimal_batch_size == model.batch_size == LARGEST, f"the answer is {sizes.optimal_batch_size}"
    assert rates.optimal_lr is not None
    suggested = rates.optimal_lr.suggestion()
    assert suggested == model.lr, f"{suggested} was found, {model.lr} is used"
    batches = len(pictures().dataset) // LARGEST  # type: ignore[arg-type]  # a TensorDataset has a length
    assert strategy.figures.counts().updates == batches, f"{strategy.figures.counts().updates} updates, not {batches}"
    return f"batches of {model.batch_size}, rate {model.lr:.2g}"


CHECKS: Final = [
    Check("compiled, channels last, pinned loader, killed", compiled_and_killed, 120.0, point=8),
    Check("a full GPU takes a restart", full_gpu_takes_a_restart, point=9),
    Check("many fits in one process", many_fits_in_one_process, point=9),
    Check("finders: rate and largest batch", finders_find, point=10),
]
