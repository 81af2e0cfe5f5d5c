"""`downpour` under the Trainer: what is left at the end is in the weights, the counts and the checkpoint."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.optim import SGD

from scalebook.training.engine.rules.local_steps import Downpour, Local
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning import AsyncPS
from tests.training.callbacks.rates import Falling
from tests.training.lightning.async_ps.small import SAMPLES, Diary, diaries, loader, trainer

BATCHES = 2 * SAMPLES // 8  # in two epochs


class AtTheEnd(Callback):
    """What is seen in `on_train_end`."""

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Falling)
        pl_module.notes["end"] = [trainer.global_step, pl_module.weights[0].item()]


def by_one(model: LightningModule) -> SGD:
    return SGD(model.parameters(), lr=1.0)


def fitted(folder: Path, local: Local, workers: int, **settings: Any) -> tuple[AsyncPS, Falling, dict[str, Any]]:
    """Each gradient takes 1 off the weights."""
    strategy, model = AsyncPS(local=local, workers=workers, limits=Limits(deadline_s=60)), Falling(by_one)
    settings = {"callbacks": [Diary(folder), AtTheEnd()], "limit_val_batches": 0, **settings}
    trainer(folder, strategy, workers, **settings).fit(model, loader())
    return strategy, model, diaries(folder)[0]


@pytest.mark.parametrize(("n_push", "n_fetch"), [(5, 1), (5, 5), (7, 2), (100, 1)])
def test_one_worker_has_all_of_its_gradients(n_push: int, n_fetch: int, tmp_path: Path) -> None:
    strategy, model, seen = fitted(tmp_path, Downpour(n_push, n_fetch), 1)
    updates = -(-BATCHES // n_push)
    assert model.weights[0].item() == -BATCHES
    assert seen["end"] == [updates, -BATCHES]
    assert strategy.figures.counts().updates == updates


@pytest.mark.parametrize("local", [Downpour(5, 1), Downpour(5, 3)], ids=repr)
def test_two_workers_have_all_of_theirs(local: Local, tmp_path: Path) -> None:
    strategy, model, seen = fitted(tmp_path, local, 2)
    assert model.weights[0].item() == seen["end"][1] == -BATCHES
    assert seen["end"][0] == strategy.figures.counts().updates
    assert strategy.figures.counts().updates in (BATCHES // 5 + 1, BATCHES // 5 + 2)


def test_a_checkpoint_of_the_end_has_them_and_its_name_too(tmp_path: Path) -> None:
    fitted(tmp_path, Downpour(5, 1), 1, enable_checkpointing=True)
    (path,) = tmp_path.rglob("*.ckpt")
    saved = torch.load(path, weights_only=True)
    assert path.stem == "epoch=1-step=5"
    assert saved["global_step"] == 5
    assert saved["state_dict"]["weights.0"].item() == -BATCHES


@pytest.mark.thorough
@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_resumed_from_there_repeats_no_batch(workers: int, tmp_path: Path) -> None:
    fitted(tmp_path, Downpour(5, 1), workers, max_epochs=1, enable_checkpointing=True)
    (path,) = tmp_path.rglob("*.ckpt")
    model = Falling(by_one)
    settings: dict[str, Any] = {"limit_val_batches": 0, "enable_checkpointing": True}
    again = trainer(tmp_path, AsyncPS(local=Downpour(5, 1), workers=workers), workers, **settings)
    again.fit(model, loader(), ckpt_path=str(path))
    assert model.weights[0].item() == -BATCHES


def test_max_steps_stays_exact(tmp_path: Path) -> None:
    strategy, model, _ = fitted(tmp_path, Downpour(5, 1), 1, max_steps=3)
    assert (model.weights[0].item(), strategy.figures.counts().updates) == (-15.0, 3)
