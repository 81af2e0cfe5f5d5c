"""What each hook around a step sees, `trainer.global_step` and the learning rate, against one process."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning.pytorch.strategies import Strategy
from torch import Tensor
from torch.optim import SGD
from torch.optim.lr_scheduler import LambdaLR
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.local_steps import LocalSGD
from scalebook.training.lightning import AsyncPS, Peers
from tests.training.lightning.async_ps.small import trainer

pytestmark = pytest.mark.long

BATCHES = 6
PLAIN = (
    "on_fit_start", "on_train_start", "on_train_epoch_start", "on_train_batch_start", "on_before_zero_grad",
    "on_before_backward", "on_after_backward", "on_before_optimizer_step", "on_train_batch_end", "on_validation_start",
    "on_validation_end", "on_train_epoch_end", "on_train_end", "on_fit_end",
)  # fmt: skip
"""Hooks that only look."""


class Traces(LightningModule):
    """Notes in every hook what it sees. Before its first step the rate is 0.01, and then it grows."""

    def __init__(self, folder: Path, every: int = 1) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer, self.folder, self.every = torch.nn.Linear(2, 1), folder, every
        self.seen: list[Any] = []
        for name in PLAIN:
            setattr(self, name, partial(self._look, name))

    def _look(self, name: str, *_: Any) -> None:
        rate = self.trainer.optimizers[0].param_groups[0]["lr"] if self.trainer.optimizers else None
        self.seen.append([name, self.trainer.current_epoch, int(self.trainer.global_step), rate])
        if name == "on_fit_end":
            (self.folder / f"{self.global_rank}.json").write_text(json.dumps(self.seen))

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        self._look("training_step")
        loss: Tensor = self.layer(batch[0]).square().mean()
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self._look("validation_step")

    def optimizer_step(  # type: ignore[override]
        self, epoch: int, batch_idx: int, optimizer: Any, closure: Callable[[], Any]
    ) -> None:
        self._look("optimizer_step before")
        optimizer.step(closure=closure)
        self._look("optimizer_step after")

    def optimizer_zero_grad(self, *arguments: Any) -> None:
        self._look("optimizer_zero_grad")
        super().optimizer_zero_grad(*arguments)

    def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
        self._look("lr_scheduler_step before")
        super().lr_scheduler_step(scheduler, metric)
        self._look("lr_scheduler_step after")

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self._look("on_save_checkpoint")

    def configure_optimizers(self) -> Any:
        optimizer = SGD(self.parameters(), 0.01)
        schedule = LambdaLR(optimizer, lambda step: 1.0 + step)
        return [optimizer], [{"scheduler": schedule, "interval": "step", "frequency": self.every}]


def trace(folder: Path, strategy: Strategy | str, devices: int, batch: int, every: int = 1, **settings: Any) -> Any:
    """Worker 0's trace, of 2 epochs of 6 updates with 24 samples each."""
    folder.mkdir(exist_ok=True)
    made = trainer(folder, strategy, devices, **{"enable_checkpointing": True, **settings})
    x = torch.randn(BATCHES * 24, 2, generator=torch.Generator().manual_seed(3))
    made.fit(Traces(folder, every), DataLoader(TensorDataset(x), batch), DataLoader(TensorDataset(x), 72))
    return json.loads((folder / "0.json").read_text())


ONE: dict[str, Callable[[], Strategy]] = {
    "async, one worker": lambda: AsyncPS(workers=1),
    "sync, one worker": lambda: AsyncPS("sync", workers=1),
}
SEVERAL: dict[str, Callable[[], Strategy]] = {
    "sync": lambda: AsyncPS("sync", workers=2),
    "sync, server process": lambda: AsyncPS("sync", workers=2, host="process", shards=2),
    "local steps": lambda: AsyncPS("sync", workers=2, local=LocalSGD(every=1)),
    "peers": lambda: Peers(workers=2, topology="complete"),
}


@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("every", [1, 2])
@pytest.mark.parametrize("name", [*ONE, *SEVERAL])
def test_every_hook_sees_what_it_sees_in_one_process(name: str, every: int, accumulate: int, tmp_path: Path) -> None:
    settings: Any = {"accumulate_grad_batches": accumulate, "every": every}
    expected = trace(tmp_path / "one", "auto", 1, 24, **settings)
    assert sum(hook == "lr_scheduler_step after" for hook, *_ in expected) == 2 * BATCHES // max(accumulate, every)
    workers = 1 if name in ONE else 2
    found = trace(tmp_path / "found", {**ONE, **SEVERAL}[name](), workers, 24 // workers, **settings)
    assert found == expected


def scheduled(seen: list[Any]) -> list[Any]:
    return [one for one in seen if one[0].startswith("lr_scheduler_step")]


def batches(seen: list[Any]) -> list[list[Any]]:
    """The hooks of each batch, but those around the schedules."""
    parts: list[list[Any]] = []
    for one in seen:
        if one[0] == "on_train_batch_start":
            parts.append([])
        if parts and not one[0].startswith(("lr_scheduler_step", "optimizer_step after", "on_save", "on_train_end")):
            parts[-1].append(one)
    return parts


def test_virtual_workers_see_it_at_the_gradient_that_completes_the_update(tmp_path: Path) -> None:
    """There a schedule makes its step within the push, since the others begin their next gradients then."""
    clock = ClockSettings(gradient_s=0.05)
    expected = trace(tmp_path / "one", "auto", 1, 24)
    found = trace(tmp_path / "found", AsyncPS("sync", workers=2, host="virtual", clock=clock), 1, 12)
    assert scheduled(found) == scheduled(expected)
    assert batches(found)[1::2] == batches(expected)


@pytest.mark.parametrize("rule", ["async", "bounded", "softsync"])
def test_a_schedule_sees_the_step_that_it_makes_however_many_come_at_once(rule: Any, tmp_path: Path) -> None:
    seen = trace(tmp_path, AsyncPS(rule, workers=2), 2, 6)
    before = [one for one in seen if one[0] == "lr_scheduler_step before"]
    assert [step for _, _, step, _ in before] == list(range(1, len(before) + 1))
    assert [rate for *_, rate in before] == pytest.approx([0.01 * step for _, _, step, _ in before])


class WarmsUp(LightningModule):
    """Sets the rate from `global_step` itself: after the step, as in Lightning's documentation, or after the batch."""

    def __init__(self, after: str) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer, self.after = torch.nn.Linear(2, 1), after

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss: Tensor = (self.layer(batch[0]) - 1).square().mean()
        return loss

    def optimizer_step(  # type: ignore[override]
        self, epoch: int, batch_idx: int, optimizer: Any, closure: Callable[[], Any]
    ) -> None:
        optimizer.step(closure=closure)
        self._set("step")

    def on_train_batch_end(self, *_: Any) -> None:
        self._set("batch")

    def _set(self, now: str) -> None:
        if now == self.after:
            self.trainer.optimizers[0].param_groups[0]["lr"] = 0.01 * (self.trainer.global_step + 1)

    def configure_optimizers(self) -> Any:
        return SGD(self.parameters(), 0.001)


@pytest.mark.parametrize("after", ["step", "batch"])
@pytest.mark.parametrize("name", [*ONE, *SEVERAL, "virtual", "virtual peers"])
def test_a_rate_that_a_hook_sets_from_the_step_is_that_of_one_process(name: str, after: str, tmp_path: Path) -> None:
    clock, data = ClockSettings(gradient_s=0.05), torch.randn(144, 2, generator=torch.Generator().manual_seed(3))
    strategies: dict[str, Callable[[], Strategy]] = {
        **ONE,
        **SEVERAL,
        "virtual": lambda: AsyncPS("sync", workers=2, host="virtual", clock=clock),
        "virtual peers": lambda: Peers(workers=2, topology="complete", host="virtual", clock=clock),
    }
    workers, models = 1 if name in ONE else 2, [WarmsUp(after), WarmsUp(after)]
    trainer(tmp_path, "auto").fit(models[0], DataLoader(TensorDataset(data), 24))
    devices = 1 if "virtual" in name else workers
    trainer(tmp_path, strategies[name](), devices).fit(models[1], DataLoader(TensorDataset(data), 24 // workers))
    torch.testing.assert_close(models[1].layer.weight, models[0].layer.weight, rtol=0, atol=1e-6)
