"""A strategy that only shares data, a model that notes what it sees, and runs of both."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.worker.cursor import Cursor
from scalebook.training.lightning.async_ps.engine_strategy import IndependentWorkers
from scalebook.training.lightning.async_ps.session import Session
from scalebook.training.lightning.data.data_sharing import SharedData
from scalebook.training.lightning.processes.process_watch import LostProcess, Reaction
from scalebook.training.lightning.processes.run_workers import run_workers


class Sharing(IndependentWorkers):
    """The smallest strategy that shares data: each worker trains a model of its own."""

    def __init__(self, data: SharedData, worker: int) -> None:
        super().__init__()
        self.data, self._session = data, Session(worker)
        self.rests: list[bool] = []
        self._position: dict[str, Any] | None = None
        data.join(worker, 20.0)
        data.idle = self.rests.append

    @property
    def session(self) -> Session:
        return self._session

    @property
    def num_processes(self) -> int:
        return self.data.workers

    @property
    def is_distributed(self) -> bool:
        return False

    def process_dataloader(self, dataloader: object) -> object:
        return self.data.process(self._trainer, dataloader) if self._trainer.training else dataloader

    def on_train_start(self) -> None:
        self.data.start(self._trainer, self._position)

    def save_checkpoint(self, checkpoint: dict[str, Any], filepath: Any, storage_options: Any = None) -> None:
        super().save_checkpoint({**checkpoint, "position": self.data.position()}, filepath, storage_options)

    def load_checkpoint(self, checkpoint_path: Any, weights_only: bool | None = None) -> dict[str, Any]:
        checkpoint = super().load_checkpoint(checkpoint_path, weights_only)
        self._position = checkpoint.pop("position")
        return checkpoint

    def optimizer_step(self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any) -> Any:
        output = super().optimizer_step(optimizer, closure, model, **kwargs)
        self.data.pushed(self._trainer)
        return output

    def on_train_end(self) -> None:
        self.data.stop_taking()


class Net(LightningModule):
    """Writes down what it sees: samples' numbers by epoch of the worker, validations, steps."""

    def __init__(self, notes: Callable[[str, Any], None], pause_s: float = 0.0) -> None:
        super().__init__()
        self.note, self.pause_s = notes, pause_s
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        time.sleep(self.pause_s)
        self.note("train", [self.current_epoch, *batch[0].flatten().tolist()])
        loss: torch.Tensor = self.layer(batch[0].float().view(-1, 1) / 100).square().mean()
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            self.note("val", [self.current_epoch, self.trainer.fit_loop.epoch_loop.batch_progress.current.ready])

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        self.note("step", [self.current_epoch, self.trainer.num_training_batches])

    def configure_optimizers(self) -> Any:
        optimizer = SGD(self.parameters(), lr=0.01)
        return {"optimizer": optimizer, "lr_scheduler": StepLR(optimizer, 1, 0.5)}


class Notes:
    """Lines appended to a file by each worker at once, so that a kill loses none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def writer(self, worker: int) -> Callable[[str, Any], None]:
        out = os.open(self.folder / f"{worker}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def write(kind: str, what: Any) -> None:
            os.write(out, json.dumps([kind, what]).encode() + b"\n")

        return write

    def read(self, kind: str, worker: int) -> list[Any]:
        path = self.folder / f"{worker}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [what for name, what in lines if name == kind]

    def samples(self, workers: int) -> list[Counter[int]]:
        """How often each sample was seen, by the epoch of the worker that saw it."""
        seen: list[Counter[int]] = []
        for worker in range(workers):
            for epoch, *numbers in self.read("train", worker):
                seen += [Counter() for _ in range(epoch + 1 - len(seen))]
                seen[epoch].update(numbers)
        return seen


def numbers(samples: int, **settings: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(samples)), **{"batch_size": 4, **settings})


def trainer(folder: Path, strategy: Sharing, **settings: Any) -> Trainer:
    settings = {"max_epochs": 2, "enable_checkpointing": False, "num_sanity_val_steps": 0, **settings}
    if strategy.session.rank > 0:
        settings["limit_val_batches"] = 0
    made = Trainer(
        accelerator="cpu",
        strategy=strategy,
        devices=1,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
    strategy.parallel_devices = [torch.device("cpu")]
    made.strategy._launcher = None
    return made


def run(
    folder: Path,
    loader: Callable[[], Any],
    workers: int,
    pauses: tuple[float, ...] = (),
    deal: Deal = Deal.ONE_EACH,
    lost: Callable[[Cursor, LostProcess], Reaction] | None = None,
    callbacks: Callable[[int], list[Callback]] = lambda worker: [],
    net: Callable[..., Net] = Net,
    ckpt_path: Path | None = None,
    **settings: Any,
) -> Notes:
    seed_everything(5, verbose=False)
    notes, cursor = Notes(folder), Cursor(workers)

    def body(worker: int) -> None:
        strategy = Sharing(SharedData(cursor, deal), worker)
        made = trainer(folder, strategy, callbacks=callbacks(worker), **settings)
        note = notes.writer(worker)
        model = net(note, (*pauses, *[0.0] * workers)[worker])
        made.fit(model, loader(), numbers(1), ckpt_path=ckpt_path)
        (optimizer,) = made.optimizers
        note("end", [made.current_epoch, optimizer.param_groups[0]["lr"], len(strategy.rests)])

    run_workers(workers, body, lost=lambda one: Reaction.END if lost is None else lost(cursor, one))
    return notes


def every(samples: int, epochs: int = 2) -> list[Counter[int]]:
    return [Counter(range(samples))] * epochs


def in_order(notes: Notes, workers: int, epochs: int = 2) -> list[list[int]]:
    """Batches in the order of the data, when they were taken in turns."""
    batches = []
    for epoch in range(epochs):
        rows = [[line[1:] for line in notes.read("train", worker) if line[0] == epoch] for worker in range(workers)]
        batches += [rows[i % workers][i // workers] for i in range(sum(map(len, rows)))]
    return batches
