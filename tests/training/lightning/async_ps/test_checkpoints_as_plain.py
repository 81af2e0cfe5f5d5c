"""What a checkpoint of ours says, and what hooks see of it, is what a plain Trainer's would be."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint, OnExceptionCheckpoint
from typing_extensions import override

from scalebook.training.lightning import AsyncPS
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.contract.test_exact import adam
from tests.training.lightning.async_ps.small import loader, trainer

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*callbacks used to create the checkpoint need to be provided.*"),
    pytest.mark.filterwarnings("ignore:.*resuming from a checkpoint that ended before the epoch ended.*"),
    pytest.mark.filterwarnings("ignore:.*fit.ckpt_path=.*"),  # Lightning, of an OnExceptionCheckpoint
]


class Stops(Plain):
    """Fails in a training step of the second epoch."""

    def __init__(self, at: int) -> None:
        super().__init__(adam)
        self.at = at

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        if self.current_epoch == 1 and batch_idx == self.at:
            raise ZeroDivisionError
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize(("at", "accumulate"), [(0, 1), (1, 1), (2, 1), (1, 2), (2, 3)])
def test_counts_after_an_exception_are_a_plain_trainers(at: int, accumulate: int, tmp_path: Path) -> None:
    said = []
    for strategy, name in (("auto", "plain"), (AsyncPS(), "one")):
        made = trainer(
            tmp_path,
            strategy,
            limit_train_batches=3,
            accumulate_grad_batches=accumulate,
            callbacks=[OnExceptionCheckpoint(tmp_path, filename=name)],
            enable_checkpointing=True,
        )
        with pytest.raises(ZeroDivisionError):
            made.fit(Stops(at), loader(), loader())
        said.append(torch.load(tmp_path / f"{name}.ckpt", weights_only=True))
    assert said[1]["loops"] == said[0]["loops"]
    assert said[1].keys() - said[0].keys() == {"async_ps"}


class Counts(Callback):
    """Its state is how often it was asked for one, and whether the fit was over."""

    def __init__(self) -> None:
        self.asked, self.over = 0, False

    @override
    def state_dict(self) -> dict[str, Any]:
        self.asked += 1
        return {"asked": self.asked, "over": self.over}

    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert self.asked == 0
        self.over = True

    @override
    def on_save_checkpoint(self, trainer: Trainer, pl_module: LightningModule, checkpoint: dict[str, Any]) -> None:
        checkpoint["callbacks"]["added"] = {"by": "a hook"}


@pytest.mark.parametrize("workers", [1, 2])
def test_callbacks_are_asked_for_their_state_after_the_fit(workers: int, tmp_path: Path) -> None:
    made = trainer(tmp_path, AsyncPS(workers=workers), callbacks=[Counts()])
    made.fit(Plain(adam), loader(), loader())
    made.save_checkpoint(tmp_path / "after.ckpt", weights_only=False)
    callbacks = torch.load(tmp_path / "after.ckpt", weights_only=True)["callbacks"]
    assert callbacks["Counts"] == {"asked": 1, "over": True}
    assert callbacks["added"] == {"by": "a hook"}


class FailsAtItsEnd(Callback):
    @override
    def on_fit_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        raise ZeroDivisionError


@pytest.mark.parametrize("workers", [1, 2])
def test_an_exception_after_training_is_saved_too(workers: int, tmp_path: Path) -> None:
    keep = ModelCheckpoint(tmp_path, every_n_train_steps=1000, save_on_exception=True)
    made = trainer(tmp_path, AsyncPS(workers=workers), callbacks=[FailsAtItsEnd(), keep], enable_checkpointing=True)
    with pytest.raises(ZeroDivisionError):
        made.fit(Plain(adam), loader(), loader())
    (path,) = tmp_path.glob("*.ckpt")
    saved = torch.load(path, weights_only=True)
    assert saved["global_step"] == 2 * len(loader())
    steps = {int(state["step"]) for state in saved["optimizer_states"][0]["state"].values()}
    assert steps == {saved["global_step"]}


class Looks(Plain):
    """Holds what it is given against the checkpoint."""

    def __init__(self, path: Path) -> None:
        super().__init__(adam)
        self.path = path

    @override
    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        assert "async_ps" not in checkpoint

    @override
    def on_train_start(self) -> None:
        saved = torch.load(self.path, weights_only=True)["optimizer_states"][0]["state"]
        state = self.trainer.optimizers[0].state_dict()["state"]
        assert state.keys() == saved.keys()
        assert all(torch.equal(state[place][name], value) for place in saved for name, value in saved[place].items())


@pytest.mark.parametrize("workers", [1, 2])
def test_a_resumed_model_sees_the_optimizers_state_before_it_trains(workers: int, tmp_path: Path) -> None:
    path = tmp_path / "first.ckpt"
    made = trainer(tmp_path, AsyncPS(workers=workers), max_epochs=1)
    made.fit(Plain(adam), loader(), loader())
    made.save_checkpoint(path, weights_only=False)
    on = trainer(tmp_path, AsyncPS(workers=workers), max_epochs=2)
    on.fit(Looks(path), loader(), loader(), ckpt_path=path)
    assert on.global_step == 2 * len(loader())


@pytest.mark.parametrize("strategy", ["auto", "async_ps"])
def test_a_checkpoint_may_have_no_optimizers_state(strategy: str, tmp_path: Path) -> None:
    model, path = Plain(adam), tmp_path / "weights.ckpt"
    bare = {"state_dict": model.state_dict(), "optimizer_states": {}, "lr_schedulers": {}}
    torch.save({**bare, "pytorch-lightning_version": "2.0.0"}, path)
    made = trainer(tmp_path, AsyncPS() if strategy == "async_ps" else strategy, max_epochs=1)
    made.fit(Plain(adam), loader(), loader(), ckpt_path=path)
    assert made.global_step == len(loader())


def test_a_checkpoint_of_other_optimizers_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "first.ckpt"
    made = trainer(tmp_path, "auto", max_epochs=1)
    made.fit(Plain(adam), loader(), loader())
    made.save_checkpoint(path, weights_only=False)
    saved = torch.load(path, weights_only=True)
    torch.save({**saved, "optimizer_states": saved["optimizer_states"] * 2}, path)
    with pytest.raises(ValueError, match="has the state of 2 optimizers, but the model has 1"):
        trainer(tmp_path, AsyncPS(), max_epochs=2).fit(Plain(adam), loader(), loader(), ckpt_path=path)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_fit_with_nothing_to_train_can_be_saved(workers: int, tmp_path: Path) -> None:
    made = trainer(tmp_path, AsyncPS(workers=workers), limit_train_batches=0)
    model = Plain(adam)
    made.fit(model, loader(), loader())
    made.save_checkpoint(tmp_path / "after.ckpt", weights_only=False)
    saved = torch.load(tmp_path / "after.ckpt", weights_only=True)
    assert saved["global_step"] == 0
    assert all(torch.equal(saved["state_dict"][name], value) for name, value in model.state_dict().items())
