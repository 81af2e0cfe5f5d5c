"""A run that resumes with other settings than those of its checkpoint trains with its own, under every strategy.

The gradient of the one weight is 1, so that an update of SGD is the learning rate.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.base.errors import ConfigError
from scalebook.training.callbacks.resumed_settings import ResumedSettings
from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.lightning import DDP, AsyncPS, ModelParallel, Peers

STRATEGIES: dict[str, Callable[[], Any]] = {
    "one": lambda: "auto",
    "ddp": DDP,
    "async": lambda: AsyncPS(workers=2),
    "server": lambda: AsyncPS(workers=2, host="process"),
    "sync": lambda: AsyncPS(workers=2, rule="sync"),
    "local": lambda: AsyncPS(workers=2, local="local_sgd"),
    "virtual": lambda: AsyncPS(workers=2, host="virtual", clock=ClockSettings(1.0)),
    "peers": lambda: Peers(workers=2),
    "shard": lambda: ModelParallel(shard=2),
}


CYCLE = {"name": "OneCycleLR", "max_lr": 1.0, "total_steps": 40, "cycle_momentum": False}


class Slope(LightningModule):
    def __init__(self, optimizer: str = "SGD", schedule: dict[str, Any] | None = None, **options: float) -> None:
        super().__init__()
        self.kind, self.schedule, self.options = optimizer, schedule, options
        self.layer = torch.nn.Linear(2, 2, bias=False)
        torch.nn.init.zeros_(self.layer.weight)
        self.rates: list[float] = []

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        loss: torch.Tensor = self.layer(batch[0]).sum() / len(batch[0])
        self.log("constant", 1.0)
        return loss

    def configure_optimizers(self) -> Any:
        optimizer = getattr(torch.optim, self.kind)(self.parameters(), **self.options)
        if self.schedule is None:
            return optimizer
        arguments = {**self.schedule}
        return [optimizer], [getattr(torch.optim.lr_scheduler, arguments.pop("name"))(optimizer, **arguments)]


def fit(
    folder: Path, module: Slope, epochs: int, strategy: Any = "auto", checkpoint: Path | None = None,
    callbacks: list[Callback] | None = None,
) -> tuple[Path, float, Trainer]:  # fmt: skip
    """The checkpoint at the end, and the weight."""
    trainer = Trainer(
        strategy=strategy, accelerator="cpu", devices=1 if strategy == "auto" else 2, max_epochs=epochs, logger=False,
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False, default_root_dir=folder,
        log_every_n_steps=1, callbacks=[*(callbacks or []), ResumedSettings(), Saved(folder / f"{epochs}.ckpt")],
    )  # fmt: skip
    data = DataLoader(TensorDataset(torch.ones(16, 2)), batch_size=2)
    trainer.fit(module, data, ckpt_path=checkpoint, weights_only=True)
    weights = module.layer.weight.detach()
    assert bool((weights == weights[0, 0]).all())
    return folder / f"{epochs}.ckpt", float(weights[0, 0]), trainer


class Saved(Callback):
    """Saves a checkpoint when training ends, in the workers."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.save_checkpoint(self.path)


pytestmark = pytest.mark.filterwarnings("ignore:.*does not have many workers.*", "ignore:.*callbacks used to create.*")


@pytest.mark.sampled
@pytest.mark.parametrize("name", [*STRATEGIES])
def test_another_learning_rate_trains_from_the_first_update_on(
    name: str, tmp_path: Path, one_thread: None, capfd: pytest.CaptureFixture[str]
) -> None:
    first, before, _ = fit(tmp_path, Slope(lr=0.1), 1, STRATEGIES[name]())
    _, after, _ = fit(tmp_path, Slope(lr=0.01), 2, STRATEGIES[name](), first)
    assert before < -0.1
    assert after - before == pytest.approx(before / 10, rel=1e-5), "an epoch has as many updates as the one before"
    assert capfd.readouterr().out.count("resumed with optimizer.lr 0.01 (in the checkpoint: 0.1)") == 1


@pytest.mark.parametrize("strategy", ["auto", "async"])
def test_a_schedule_goes_on_with_the_new_rate(strategy: str, tmp_path: Path, one_thread: None) -> None:
    made = STRATEGIES["one" if strategy == "auto" else strategy]
    halving = {"name": "StepLR", "step_size": 1, "gamma": 0.5}
    first, before, _ = fit(tmp_path, Slope(lr=0.1, schedule=halving), 2, made())
    assert before == pytest.approx(-8 * 0.1 * (1 + 0.5), rel=1e-5)
    _, same, _ = fit(tmp_path, Slope(lr=0.1, schedule=halving), 4, made(), first)
    assert same - before == pytest.approx(-8 * 0.1 * (0.25 + 0.125), rel=1e-5), (
        "what only the schedule has changed goes on"
    )
    _, after, _ = fit(tmp_path, Slope(lr=0.2, schedule=halving), 4, made(), first)
    assert after - before == pytest.approx(-8 * 0.2 * (0.25 + 0.125), rel=1e-5)
    _, steeper, _ = fit(tmp_path, Slope(lr=0.1, schedule={**halving, "gamma": 0.1}), 4, made(), first)
    assert steeper - before == pytest.approx(-8 * 0.1 * (0.25 + 0.025), rel=1e-5)


@pytest.mark.parametrize(
    ("options", "update"),
    [({"weight_decay": 0.5}, lambda w: -0.1 * (1 + 0.5 * w)), ({"maximize": True}, lambda w: 0.1)],
)
def test_so_do_other_options_of_the_optimizer(options: dict[str, Any], update: Any, tmp_path: Path) -> None:
    first, weight, _ = fit(tmp_path, Slope(lr=0.1, weight_decay=0.0, maximize=False), 1)
    _, after, _ = fit(tmp_path, Slope(lr=0.1, **{"weight_decay": 0.0, "maximize": False, **options}), 2, "auto", first)
    for _ in range(8):
        weight += update(weight)
    assert after == pytest.approx(weight, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("strategy", ["one", "async"])
def test_a_callback_has_its_own_patience(strategy: str, tmp_path: Path, one_thread: None) -> None:
    made = STRATEGIES[strategy]

    def early(patience: int) -> list[Callback]:
        return [EarlyStopping("constant", patience=patience, check_on_train_epoch_end=True)]

    first, _, trainer = fit(tmp_path, Slope(lr=0.1), 9, made(), callbacks=early(1))
    assert trainer.current_epoch == 2, "the second epoch is no better"
    _, _, trainer = fit(tmp_path, Slope(lr=0.1), 12, made(), first, callbacks=early(1))
    assert trainer.current_epoch == 3
    _, _, trainer = fit(tmp_path, Slope(lr=0.1), 12, made(), first, callbacks=early(5))
    assert trainer.current_epoch == 6, "five epochs in all that are no better than the first"


@pytest.mark.parametrize(
    ("module", "words"),
    [
        (Slope("Adam", lr=0.1), r"optimizer: is Adam, but the checkpoint has SGD"),
        (Slope(lr=0.1, schedule={"name": "ExponentialLR", "gamma": 0.5}), r"lr_scheduler: is ExponentialLR, but"),
        (Slope(lr=0.1), r"lr_scheduler: is none, but the checkpoint has OneCycleLR"),
        (Slope(lr=0.1, weight_decay=0.5, schedule=CYCLE), r"optimizer.weight_decay: is 0.5 but was 0.0"),
    ],
)
def test_what_cannot_be_changed_is_an_error_before_training(module: Slope, words: str, tmp_path: Path) -> None:
    first, _, _ = fit(tmp_path, Slope(lr=0.1, weight_decay=0.0, schedule=CYCLE), 1)
    content = torch.load(first, weights_only=True)
    content["optimizer_states"][0]["param_groups"][0]["weight_decay"] = 0.25  # as a hook of the model could have done
    torch.save(content, first)
    with pytest.raises(ConfigError, match=words):
        fit(tmp_path, module, 2, "auto", first)


def test_a_checkpoint_of_an_earlier_version_warns(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    early: list[Callback] = [EarlyStopping("constant", patience=3, check_on_train_epoch_end=True)]
    first, before, _ = fit(tmp_path, Slope(lr=0.1), 1, callbacks=early)
    content = torch.load(first, weights_only=True)
    del content["callbacks"]["ResumedSettings"]
    torch.save(content, first)
    early = [EarlyStopping("constant", patience=7, check_on_train_epoch_end=True)]
    _, after, _ = fit(tmp_path, Slope(lr=0.01), 2, "auto", first, callbacks=early)
    assert after == pytest.approx(2 * before)
    said = capfd.readouterr().out
    assert "warning: training uses the checkpoint's settings: optimizer.lr 0.1 (configured: 0.01)" in said
    assert "EarlyStopping.patience 3 (configured: 7)" in said
    fit(tmp_path, Slope(lr=0.1), 3, "auto", first, callbacks=[EarlyStopping("constant", patience=3)])
    assert "warning" not in capfd.readouterr().out
