"""The canary: what our strategies use of Lightning that it does not promise is there, and means what they take it for.

The upper bound in `pyproject.toml` is the newest release that this holds for. A new one is tried by raising it.
"""

from pathlib import Path
from typing import Any, ClassVar

import lightning
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from packaging.requirements import Requirement
from packaging.version import Version
from typing_extensions import override

from scalebook.training.lightning import package as ours
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import SAMPLES, fit, trainer

OF_TRAINER = (
    "_accelerator_connector", "_callback_connector", "_checkpoint_connector", "_evaluation_loop", "_logger_connector",
    "_results", "_signal_connector", "_teardown", "_val_check_time_interval", "fit_loop", "val_check_batch",
)  # fmt: skip
OF_FIT = (
    "_can_stop_early",
    "_combined_loader",
    "_data_fetcher",
    "epoch_loop",
    "epoch_progress",
    "max_batches",
    "restarting",
)
OF_EPOCH = ("_batches_that_stepped", "_build_kwargs", "_results", "batch_progress", "val_loop")


def missing(of: Any, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not hasattr(of, name)]


class Looks(Callback):
    """What a callback finds in the middle of a plain run."""

    seen: bool = False

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        fit_loop: Any = trainer.fit_loop
        epoch: Any = fit_loop.epoch_loop
        assert missing(trainer, OF_TRAINER) == missing(fit_loop, OF_FIT) == missing(epoch, OF_EPOCH) == []
        batch = epoch.batch_progress.current.ready
        assert fit_loop.max_batches == trainer.num_training_batches == SAMPLES // 8
        assert epoch._batches_that_stepped == trainer.global_step - 1, "one less, until after the batch"
        assert fit_loop._data_fetcher.fetched == batch, "of a sized loader none ahead"
        assert fit_loop._data_fetcher.length == SAMPLES // 8
        assert fit_loop._data_fetcher.done is (batch == SAMPLES // 8)
        step = epoch.automatic_optimization.optim_progress.optimizer.step
        assert isinstance(step.total, ours._ReadyCompletedTracker)
        assert step.total.completed == trainer.global_step
        self.seen = True


def test_what_is_private_in_lightning_means_what_we_take_it_for(tmp_path: Path) -> None:
    looks = Looks()
    fit(trainer(tmp_path, "auto", callbacks=[looks]), Plain())
    assert looks.seen


class Asked(int):
    """A number of steps that says who asks for its remainder."""

    remainders: ClassVar[set[int]] = set()

    @override
    def __mod__(self, n: int) -> int:
        Asked.remainders.add(n)
        return int(self) % n


class Counts(Trainer):
    @property
    @override
    def global_step(self) -> int:
        return Asked(super().global_step)


def test_lightnings_checkpoint_asks_for_the_remainder_of_the_step(tmp_path: Path) -> None:
    """On the day it no longer does, `steps.Step` earns nothing."""
    Asked.remainders.clear()
    checkpoint = ModelCheckpoint(tmp_path, every_n_train_steps=7)
    made = Counts(accelerator="cpu", max_epochs=1, callbacks=[checkpoint], logger=False, enable_progress_bar=False)
    fit(made, Plain())
    assert 7 in Asked.remainders


def test_the_release_lies_within_the_bound_of_the_project() -> None:
    written = (Path(__file__).parents[3] / "pyproject.toml").read_text(encoding="utf-8")
    (line,) = [line for line in written.splitlines() if line.strip().startswith('"lightning')]
    bound = Requirement(line.split('"')[1])
    assert bound.specifier.contains(Version(lightning.__version__))
    assert any(one.operator == "<" for one in bound.specifier), "what is private may change with any release"
