"""Checkpoints of every strategy in every Trainer: they load, and the run goes on at the right place."""

from collections.abc import Callable
from pathlib import Path
from threading import Lock
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.strategies import DDPStrategy, Strategy

from scalebook.training.lightning import DDP, AsyncPS
from tests.training.lightning.async_ps.contract.cases import BATCHES, batches, in_order
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.contract.test_exact import adam
from tests.training.lightning.async_ps.small import Diary, diaries, fit, loader, trainer

EPOCHS = 3
STRATEGIES: dict[str, Callable[[], Strategy | str]] = {
    "plain": lambda: "auto",
    "lightning's ddp": lambda: DDPStrategy(start_method="fork"),
    "ddp": DDP,
    "one": AsyncPS,
    "async": lambda: AsyncPS(workers=2),
    "bounded, process": lambda: AsyncPS("bounded", workers=3, host="process", shards=2),
    "sync": lambda: AsyncPS("sync", workers=2),
    "softsync, process": lambda: AsyncPS("softsync", workers=2, host="process"),
}
MOMENTS: dict[str, dict[str, Any]] = {
    "max_steps": {"max_epochs": -1, "max_steps": 10},
    "in mid-epoch": {"keep": {"every_n_train_steps": 4}},
    "at a validation": {"val_check_interval": 0.5},
    "at the end of an epoch": {"limit_val_batches": 0},
    "after the fit": {"keep": {"save_top_k": 0}},
}
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint need to be provided.*"),
    pytest.mark.filterwarnings("ignore:.*resuming from a checkpoint that ended before the epoch ended.*"),
]


def made_with(name: str, folder: Path, **settings: Any) -> Trainer:
    strategy = STRATEGIES[name]()
    return trainer(folder, strategy, 2 if isinstance(strategy, DDPStrategy) else 1, **settings)


def saved_by(name: str, moment: str, folder: Path) -> Path:
    """The first checkpoint of two epochs."""
    settings: dict[str, Any] = {"max_epochs": 2, **MOMENTS[moment]}
    keep = ModelCheckpoint(folder, **{"save_top_k": -1, **settings.pop("keep", {})})
    made = made_with(name, folder, callbacks=[keep], enable_checkpointing=True, **settings)
    made.fit(Plain(adam), batches(), in_order())
    if moment == "after the fit":
        made.save_checkpoint(folder / "after.ckpt", weights_only=False)
    return min(folder.glob("*.ckpt"), key=lambda path: path.stat().st_mtime_ns)


def gone_on(name: str, path: Path, folder: Path) -> tuple[Trainer, int]:
    """The Trainer after three epochs in all, and the batches that its workers have trained on since."""
    folder.mkdir()
    made = made_with(name, folder, max_epochs=EPOCHS, callbacks=[Diary(folder)])
    made.fit(Plain(adam), batches(), in_order(), ckpt_path=path)
    return made, sum(len(notes["train"]) // 8 for notes in diaries(folder))


@pytest.mark.parametrize(
    ("maker", "moment", "reader"),
    [
        ("one", "in mid-epoch", "plain"),
        ("async", "in mid-epoch", "plain"),
        ("async", "at a validation", "plain"),
        ("sync", "at a validation", "ddp"),
        ("sync", "at the end of an epoch", "plain"),
        ("sync", "max_steps", "plain"),
        ("async", "max_steps", "sync"),
        ("softsync, process", "after the fit", "plain"),
        ("bounded, process", "after the fit", "lightning's ddp"),
        ("bounded, process", "in mid-epoch", "async"),
        ("async", "after the fit", "one"),
    ],
)
def test_ours_load_everywhere(maker: str, moment: str, reader: str, tmp_path: Path) -> None:
    path = saved_by(maker, moment, tmp_path)
    saved = torch.load(path, weights_only=True)
    step = saved["global_step"]
    assert saved["async_ps"]["versions"] == [step]
    steps = {int(state["step"]) for state in saved["optimizer_states"][0]["state"].values()}
    assert min(steps) == step
    under_way = 2 if maker == "bounded, process" else 0  # a push of each other worker, in one of two shards already
    assert max(steps) <= step + under_way
    made, seen = gone_on(reader, path, tmp_path / "on")
    if reader == "lightning's ddp":  # its Trainer here knows nothing of the fit
        assert seen == BATCHES
        return
    assert made.current_epoch == EPOCHS
    if reader == "plain":
        assert made.global_step == step + seen
    if reader == "plain" and moment != "max_steps":  # from an epoch cut short Lightning goes on with the next
        done = saved["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]["ready"]
        assert done <= step * (2 if "sync" in maker.replace("async", "") else 1)
        assert seen == EPOCHS * BATCHES - done
    if reader == "ddp" and moment == "at the end of an epoch":
        assert made.global_step == step + seen // 2


@pytest.mark.parametrize(
    ("maker", "moment", "reader"),
    [
        ("plain", "in mid-epoch", "one"),
        ("plain", "in mid-epoch", "async"),
        ("plain", "at a validation", "async"),
        ("plain", "at a validation", "sync"),
        ("plain", "at the end of an epoch", "async"),
        ("plain", "after the fit", "softsync, process"),
        ("ddp", "at the end of an epoch", "bounded, process"),
    ],
)
def test_others_load_in_ours(maker: str, moment: str, reader: str, tmp_path: Path) -> None:
    path = saved_by(maker, moment, tmp_path)
    saved = torch.load(path, weights_only=True)
    done = saved["loops"]["fit_loop"]["epoch_loop.batch_progress"]["total"]["ready"] * (1 + (maker == "ddp"))
    made, seen = gone_on(reader, path, tmp_path / "on")
    assert made.current_epoch == EPOCHS
    assert seen == EPOCHS * BATCHES - done
    assert made.global_step == saved["global_step"] + (seen // 2 if "sync" in reader.replace("async", "") else seen)


def test_a_checkpoint_after_the_fit_needs_the_end_of_one(tmp_path: Path) -> None:
    made = trainer(tmp_path, AsyncPS(workers=2), max_epochs=1)
    with pytest.raises(ZeroDivisionError):
        made.fit(Fails(), loader(), loader())
    with pytest.raises(RuntimeError, match="the state at the end of this fit was not saved"):
        made.save_checkpoint(tmp_path / "none.ckpt", weights_only=False)


@pytest.mark.parametrize("name", ["one", "async", "bounded, process"])
def test_a_fit_of_no_epoch_can_be_saved_and_gone_on_from(name: str, tmp_path: Path) -> None:
    made = made_with(name, tmp_path, max_epochs=0)
    made.fit(Plain(adam), batches(), in_order())
    made.save_checkpoint(tmp_path / "none.ckpt", weights_only=False)
    on, seen = gone_on("plain", tmp_path / "none.ckpt", tmp_path / "on")
    assert on.global_step == seen == EPOCHS * BATCHES


class Fails(Plain):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        raise ZeroDivisionError


class Locked(Callback):
    """With a state that no file can hold."""

    def state_dict(self) -> dict[str, Any]:
        return {"lock": Lock()}


@pytest.mark.filterwarnings("ignore:The state at the end of this fit was not saved")
def test_a_fit_whose_end_no_file_can_hold_ends_all_the_same(tmp_path: Path) -> None:
    made = trainer(tmp_path, AsyncPS(workers=2), max_epochs=1, callbacks=[Locked()])
    fit(made)
    with pytest.raises(RuntimeError, match="the state at the end of this fit was not saved"):
        made.save_checkpoint(tmp_path / "none.ckpt", weights_only=False)
