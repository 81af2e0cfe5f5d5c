"""After a fit the Trainer in the process that called knows what its optimizers and schedules have come to."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import LearningRateMonitor
from lightning.pytorch.loggers import CSVLogger
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import LambdaLR, ReduceLROnPlateau, StepLR
from typing_extensions import override

from scalebook.training.lightning import DDP, ModelParallel
from tests.training.lightning.async_ps.small import held_out, loader, trainer
from tests.training.lightning.model_parallel.split_model import Pair
from tests.training.lightning.model_parallel.staged_model import Staged


def two(model: Pair) -> Any:
    """A class, and a function, that the process which calls fit never has."""

    class Own(SGD):
        pass

    first: Optimizer = Own(model.net[:3].parameters(), lr=0.04, momentum=0.9)
    groups: list[dict[str, Any]] = [{"params": model.net[3].parameters(), "name": "middle"}]
    second = SGD([*groups, {"params": model.net[5].parameters()}], 0.1)
    halves = {"scheduler": StepLR(first, 1, gamma=0.5), "name": "halves"}
    same = {"scheduler": LambdaLR(second, lambda epoch: 0.1), "interval": "step", "frequency": 2}
    return [first, second], [halves, same]


def one(model: Pair) -> Any:
    optimizer = SGD(model.parameters(), lr=0.04, momentum=0.9)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": ReduceLROnPlateau(optimizer), "monitor": "val/loss"}}


class TwoOptimizers(Pair):
    """Steps both, and their schedules after each epoch."""

    automatic_optimization = False

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        optimizers: Any = self.optimizers()
        self.manual_backward(self.loss(batch))
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()

    @override
    def on_train_epoch_end(self) -> None:
        schedules: Any = self.lr_schedulers()
        for schedule in schedules:
            schedule.step()


def fitted(folder: Path, strategy: Any, model: LightningModule, **settings: Any) -> Trainer:
    made = trainer(folder, strategy, 1 if strategy == "auto" else 2, max_epochs=3, **settings)
    made.fit(model, loader(), held_out())
    return made


@pytest.mark.parametrize(
    "strategy", [DDP, partial(ModelParallel, tensor=2), ModelParallel], ids=["ddp", "tensor", "shard"]
)
@pytest.mark.parametrize(("kind", "configure"), [(TwoOptimizers, two), (Pair, one)])
def test_they_are_those_of_one_process(strategy: Any, kind: Any, configure: Any, tmp_path: Path) -> None:
    alone, model = fitted(tmp_path, "auto", kind(configure)), kind(configure)
    made = fitted(tmp_path, strategy(), model)
    names = {parameter: name for name, parameter in model.named_parameters()}
    for ended, plain in zip(made.optimizers, alone.optimizers, strict=True):
        assert f"{type(plain).__name__} from a finished fit" == repr(ended)
        for group, as_one in zip(ended.param_groups, plain.param_groups, strict=True):
            assert {**group, "params": None} == {**as_one, "params": None}
            assert [tuple(own.shape) for own in group["params"]] == [tuple(own.shape) for own in as_one["params"]]
            assert all(own in names for own in group["params"])
        with pytest.raises(RuntimeError, match="was lost when the workers of the fit exited"):
            ended.step()
    for config, as_config in zip(made.lr_scheduler_configs, alone.lr_scheduler_configs, strict=True):
        assert (config.name, config.interval, config.frequency) == (
            as_config.name, as_config.interval, as_config.frequency
        )  # fmt: skip
        assert config.scheduler.get_last_lr() == as_config.scheduler.get_last_lr()
        assert config.scheduler.state_dict().keys() == as_config.scheduler.state_dict().keys()


def test_what_is_saved_then_has_the_schedules_and_says_what_it_has_not(tmp_path: Path) -> None:
    def configured(model: Pair) -> Any:
        optimizer = SGD(model.parameters(), lr=0.04, momentum=0.9)
        return [optimizer], [StepLR(optimizer, 1, gamma=0.5)]

    made = fitted(tmp_path, ModelParallel(), Pair(configured))
    with pytest.warns(UserWarning, match=r"trainer.optimizers: the state of SGD .* was lost when the workers exited"):
        made.save_checkpoint(tmp_path / "after.ckpt")
    made.save_checkpoint(tmp_path / "weights.ckpt", weights_only=True)
    on = trainer(tmp_path, ModelParallel(), 2, max_epochs=4)
    on.fit(Pair(configured), loader(), held_out(), ckpt_path=tmp_path / "after.ckpt")
    assert on.optimizers[0].param_groups[0]["lr"] == 0.04 / 2**4


def test_a_pipeline_s_are_those_of_all_stages(tmp_path: Path) -> None:
    model = Staged()
    made = fitted(tmp_path, ModelParallel(stages=2), model)
    (group,) = made.optimizers[0].param_groups
    assert {*map(id, group["params"])} == {*map(id, model.parameters())}


class Without(Pair):
    """Trains nothing."""

    automatic_optimization = False

    @override
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.loss(batch)

    @override
    def configure_optimizers(self) -> None:
        pass


@pytest.mark.filterwarnings("ignore:.*returned `None`, this fit will run with no optimizer")
def test_a_model_without_an_optimizer_has_lightning_s_own(tmp_path: Path) -> None:
    alone, made = (fitted(tmp_path, strategy, Without()) for strategy in ("auto", DDP()))
    assert [repr(each) for each in made.optimizers] == [repr(each) for each in alone.optimizers] == ["No Optimizer"]


def test_a_callback_s_rates_are_of_optimizers_that_are_there(tmp_path: Path) -> None:
    """As one of Lightning's tests has it."""
    rates = LearningRateMonitor(log_momentum=True)
    made = Trainer(
        accelerator="cpu", devices=2, strategy=ModelParallel(), max_epochs=1, callbacks=[rates], log_every_n_steps=1,
        logger=CSVLogger(tmp_path), enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    made.fit(Pair(one), loader(), held_out())
    assert rates.last_momentum_values == {"lr-SGD-momentum": made.optimizers[0].param_groups[0]["momentum"]}
