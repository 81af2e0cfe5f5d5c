"""What a person sees on the training bar of two workers: it is right, and ends at its total."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import TQDMProgressBar
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, IterableDataset

from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning.async_ps.async_ps import AsyncPS
from tests.training.benches import wait_for
from tests.training.lightning.async_ps.small import Small, data, loader


class Stream(IterableDataset[tuple[Tensor, ...]]):
    """Nobody can know beforehand when it ends."""

    def __init__(self, batches: int = 10**9) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        samples: Any = data(8)
        for _ in range(self.batches):
            yield from (samples[number] for number in range(8))


class Quiet(Small):
    """Without a `sync_dist`, at which workers wait for each other."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])


class Seen(Callback):
    """Worker 0 writes down, after each batch, the epoch, the bar's position and its total."""

    def __init__(self, path: Path, bar: TQDMProgressBar) -> None:
        self.path, self.bar = path, bar
        self.seen: list[tuple[int, int, int | None]] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        bar = self.bar.train_progress_bar
        self.seen.append((trainer.current_epoch, int(bar.n), bar.total))

    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            self.path.write_text(json.dumps(self.seen))


class Slow(Callback):
    """One worker is slower than the other, which begins when that one has begun: else it may have all batches first."""

    def __init__(self, worker: int | None, begun: Path) -> None:
        self.worker, self.begun = worker, begun

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_rank == self.worker:
            self.begun.touch()
            time.sleep(0.05)
        elif self.worker is not None:
            wait_for(self.begun.exists, "the slow worker to begin")


def bars(folder: Path, train: Any, strategy: AsyncPS, slow: int | None = None, **settings: Any) -> list[list[Any]]:
    seed_everything(11, verbose=False)
    bar = TQDMProgressBar()
    made = Trainer(
        accelerator="cpu",
        strategy=strategy,
        devices=1,
        default_root_dir=folder,
        logger=False,
        enable_checkpointing=False,
        enable_model_summary=False,
        limit_val_batches=0,
        callbacks=[bar, Seen(folder / "seen.json", bar), Slow(slow, folder / "begun")],
        **settings,
    )
    made.fit(Quiet(), train, loader())
    seen: list[list[Any]] = json.loads((folder / "seen.json").read_text())
    return seen


@pytest.mark.parametrize("endless", [True, False])
def test_max_steps_of_all_workers(endless: bool, tmp_path: Path) -> None:
    train = DataLoader(Stream(), batch_size=8) if endless else loader(samples=800)
    seen = bars(tmp_path, train, AsyncPS(workers=2, limits=Limits(deadline_s=20)), max_steps=20)
    assert all(n <= total for _, n, total in seen)
    assert seen[0][2] <= 11  # its share, or one more when the other was late
    assert seen[-1][1] == seen[-1][2]


def test_updates_of_a_gradient_of_each_worker(tmp_path: Path) -> None:
    seen = bars(
        tmp_path, loader(samples=800), AsyncPS(rule="sync", workers=2, limits=Limits(deadline_s=20)), max_steps=7
    )
    assert [(n, total) for _, n, total in seen] == [(n + 1, 7) for n in range(7)]


@pytest.mark.parametrize(("limit", "total"), [(6, 6), (1.0, None)])
def test_of_a_stream_it_is_the_limit_or_unknown(limit: float, total: int | None, tmp_path: Path) -> None:
    train = DataLoader(Stream(batches=12), batch_size=8)
    seen = bars(
        tmp_path, train, AsyncPS(workers=2, limits=Limits(deadline_s=20)), max_epochs=1, limit_train_batches=limit
    )
    assert [(n, told) for _, n, told in seen] == [(n + 1, total) for n in range(6)]


@pytest.mark.parametrize("slow", [0, 1])
def test_epochs_end_at_what_this_worker_had(slow: int, tmp_path: Path) -> None:
    seen = bars(
        tmp_path, loader(samples=160), AsyncPS(workers=2, limits=Limits(deadline_s=20)), slow=slow, max_epochs=2
    )
    assert all(n <= total for _, n, total in seen)
    assert seen[0][2] == 10
    assert len(seen) > 20 if slow else len(seen) < 20
    last = {epoch: (n, total) for epoch, n, total in seen}
    assert all(n == total for n, total in last.values())
