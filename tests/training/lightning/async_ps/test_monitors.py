"""Lightning's monitors under two workers: worker 0 logs its own throughput, and the learning rates of the updates."""

from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback, Trainer, seed_everything
from lightning.pytorch.callbacks import LearningRateMonitor, ThroughputMonitor
from lightning.pytorch.loggers import CSVLogger
from torch.optim import SGD
from torch.optim.lr_scheduler import StepLR

from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning.async_ps.async_ps import AsyncPS
from tests.training.lightning.async_ps.small import SAMPLES, Small, held_out, loader

BATCHES = 2 * SAMPLES // 8 // 2  # of each worker, in two epochs


class Halved(Small):
    """The learning rate is halved at every third update, whoever makes it."""

    flops_per_batch = 1000

    def configure_optimizers(self) -> Any:
        optimizer = SGD(self.parameters(), lr=0.08)
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": StepLR(optimizer, 3, 0.5), "interval": "step"}}


def logged(folder: Path, monitor: Callback, rule: Any = "async") -> list[dict[str, float]]:
    """Rows of the log."""
    seed_everything(11, verbose=False)
    logger = CSVLogger(folder, name="", version="")
    made = Trainer(
        accelerator="cpu",
        strategy=AsyncPS(rule=rule, workers=2, limits=Limits(deadline_s=20)),
        devices=1,
        default_root_dir=folder,
        logger=logger,
        callbacks=[monitor],
        max_epochs=2,
        log_every_n_steps=1,
        limit_val_batches=1,
        enable_checkpointing=False,
        enable_model_summary=False,
        enable_progress_bar=False,
    )
    made.fit(Halved(), loader(), held_out())
    lines = (folder / "metrics.csv").read_text().splitlines()
    names = lines[0].split(",")
    rows = [dict(zip(names, line.split(","), strict=True)) for line in lines[1:]]
    return [{name: float(value) for name, value in row.items() if value} for row in rows]


@pytest.mark.thorough
@pytest.mark.parametrize("rule", ["async", "sync"])
def test_the_learning_rate_of_each_step(rule: Any, tmp_path: Path) -> None:
    rows = [row for row in logged(tmp_path, LearningRateMonitor("step"), rule) if "lr-SGD" in row]
    assert [row["lr-SGD"] for row in rows] == [0.08 * 0.5 ** (row["step"] // 3) for row in rows]
    steps = [row["step"] for row in rows]
    assert steps == sorted(set(steps))
    assert steps == list(range(BATCHES)) if rule == "sync" else max(steps) <= 2 * BATCHES - 1


@pytest.mark.thorough
@pytest.mark.parametrize("rule", ["async", "sync"])
def test_the_throughput_of_worker_0_and_that_times_two(rule: Any, tmp_path: Path) -> None:
    monitor = ThroughputMonitor(batch_size_fn=lambda batch: len(batch[0]), window_size=3)
    rows = [row for row in logged(tmp_path, monitor, rule) if "train/time" in row]
    assert [row["train/batches"] for row in rows] == [*range(1, len(rows) + 1)]
    assert [row["train/samples"] for row in rows] == [8 * number for number in range(1, len(rows) + 1)]
    if rule == "sync":
        assert [row["step"] for row in rows] == [*range(BATCHES)]
    for before, row in zip(rows, rows[2:], strict=False):
        rate = 2 / (row["train/time"] - before["train/time"])
        assert row["train/device/batches_per_sec"] == pytest.approx(rate)
        assert row["train/batches_per_sec"] == pytest.approx(2 * rate)
        assert row["train/flops_per_sec"] == pytest.approx(2000 * rate)
