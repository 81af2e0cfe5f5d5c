"""What DDP logs of a validation or test set is what one process logs of it, whether workers divide it or not."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import EarlyStopping
from lightning_utilities.core import rank_zero
from torch import Tensor
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset
from torchmetrics import CatMetric, MeanMetric

from scalebook.training.lightning import DDP
from tests.training.lightning.async_ps.small import trainer

pytestmark = pytest.mark.filterwarnings(
    "ignore:torch.distributed.nn.functional.all_gather:FutureWarning"
)  # Lightning's
VALUES = torch.randn(64, generator=torch.Generator().manual_seed(5)).double().float() + 3


def values(samples: int, **options: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(VALUES[:samples, None]), **({"batch_size": 8} | options))


class Figures(LightningModule):
    """Logs in every way there is, without `sync_dist`."""

    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(1, 1)
        self.norm = torch.nn.BatchNorm1d(1)
        self.mean, self.median = MeanMetric(), CatMetric()
        self.every_step = MeanMetric(dist_sync_on_step=True)
        self.lists: dict[str, list[Tensor]] = {"seen": []}
        self.total, self.count = torch.zeros(()), 0

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss: Tensor = self.norm(self.line(batch[0])).mean() * 0
        self.log("train_mean", batch[0].mean(), on_step=False, on_epoch=True)
        return loss

    def evaluate(self, batch: list[Tensor]) -> None:
        (x,) = batch
        self.norm(x)
        self.log("val_loss", x.square().mean())
        self.log("val_spread", x.std(unbiased=False) if len(x) > 1 else x.mean() * 0)  # of batches, not of samples
        self.log("val_sum", x.sum(), reduce_fx="sum")
        self.log("val_max", x.max(), reduce_fx="max", sync_dist=True)
        self.log("val_both", x.mean(), on_step=True, on_epoch=True, sync_dist=True)
        self.log("val_sync", x.mean(), sync_dist=True)
        self.log("val_metric", self.mean(x))
        self.mean_logged(x)
        self.lists["seen"].append(x[:, 0])
        self.total += x.sum()
        self.count += len(x)

    def mean_logged(self, x: Tensor) -> None:
        self.median.update(x)
        self.every_step(x)
        self.log("val_every_step", self.every_step)
        self.all_gather(x)

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.evaluate(batch)

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.evaluate(batch)

    def at_end(self) -> None:
        self.log("val_median", self.median.compute().median())
        self.log("val_of_list", torch.cat(self.lists["seen"]).mean())
        self.log("val_counted", self.count / 1.0, reduce_fx="sum")
        self.log("val_total", self.total.clone(), reduce_fx="sum")
        self.lists["seen"].clear()
        self.total.zero_()
        self.count = 0
        for metric in (self.mean, self.median):
            metric.reset()

    def on_validation_epoch_end(self) -> None:
        self.at_end()

    def on_test_epoch_end(self) -> None:
        self.at_end()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.0)


class Heard(Callback):
    """Each worker writes what callbacks can monitor."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_validation_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
        (self.folder / f"{trainer.global_rank}.json").write_text(json.dumps(metrics))

    on_test_end = on_train_end = on_validation_end


class Plain(Figures):
    """Without collectives in its steps."""

    def mean_logged(self, x: Tensor) -> None:
        self.median.update(x)


class Alone(Plain):
    """Logs worker 0's alone, a figure that another worker never logs, and one that is no mean."""

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        self.log("val_odd", batch[0].mean(), rank_zero_only=True)
        if batch_idx == 0 and self.global_rank == 1:
            self.log("val_of_one", batch[0].mean())

    def on_validation_epoch_end(self) -> None:
        self.log("val_list_max", torch.cat(self.lists["seen"]).max())
        super().on_validation_epoch_end()


class Ragged(Plain):
    def on_validation_epoch_end(self) -> None:
        self.all_gather(torch.cat(self.lists["seen"]))


def heard(folder: Path, model: LightningModule, data: Any, workers: int, test: bool = False, **settings: Any) -> Any:
    """By worker, what it can monitor."""
    folder = folder / str(workers)
    folder.mkdir()
    strategy: Any = DDP() if workers > 1 else "auto"
    callbacks = [Heard(folder), *settings.pop("callbacks", [])]
    made = trainer(folder, strategy, workers, max_epochs=1, callbacks=callbacks, **settings)
    if test:
        made.test(model, data, verbose=False)
    else:
        made.fit(model, values(48, batch_size=48 // workers), data)
    return [json.loads(path.read_text()) for path in sorted(folder.glob("?.json"))]


@pytest.mark.parametrize(("samples", "workers"), [(31, 2), (31, 3), (32, 2), (34, 3), (15, 2), (8, 2)])
def test_every_worker_has_the_figures_of_one_process(tmp_path: Path, samples: int, workers: int) -> None:
    (alone,) = heard(tmp_path, Figures(), values(samples), 1)
    found = heard(tmp_path, Figures(), values(samples), workers)
    per_batch = {"val_metric", "val_both_step"}  # of a worker's own step
    assert len(found) == workers
    assert [alone["val_loss"], alone["val_median"], alone["val_counted"]] == pytest.approx(
        [float(VALUES[:samples].square().mean()), float(VALUES[:samples].median()), samples], rel=1e-6
    )
    for each in found:
        wanted = {name: value for name, value in alone.items() if name not in per_batch}
        assert {name: each[name] for name in wanted} == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("limit", [3, 1, 0.3, 0.75])
def test_a_limit_is_of_all_of_the_data(tmp_path: Path, limit: float) -> None:
    (alone,) = heard(tmp_path, Plain(), values(63, batch_size=6), 1, limit_val_batches=limit, num_sanity_val_steps=0)
    for each in heard(tmp_path, Plain(), values(63, batch_size=6), 2, limit_val_batches=limit, num_sanity_val_steps=0):
        assert each["val_loss"] == pytest.approx(alone["val_loss"], rel=1e-6)
        assert each["val_counted"] == alone["val_counted"] == int(11 * limit if limit < 1 else limit) * 6


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore:.*shuffling enabled")
@pytest.mark.parametrize("settings", [{}, {"shuffle": True}, {"batch_size": None}, {"drop_last": True}])
def test_loaders_of_every_kind(tmp_path: Path, settings: dict[str, Any]) -> None:
    model = Plain if settings.get("batch_size", 8) else Single
    data = values(31, **settings)
    (alone,), both = (heard(tmp_path, model(), data, workers, test=True) for workers in (1, 2))
    names = ["val_loss", "val_counted", "val_median"]
    for each in both:
        assert [each[name] for name in names] == pytest.approx([alone[name] for name in names], rel=1e-6)


class Single(Plain):
    """Of a loader that makes no batches."""

    def test_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.evaluate([batch[0][None]])


def test_each_of_two_loaders_is_summed_up(tmp_path: Path) -> None:
    data = [values(31), values(9)]

    class Two(Plain):
        def validation_step(self, batch: list[Tensor], batch_idx: int, dataloader_idx: int = 0) -> None:
            self.log("val_loss", batch[0].mean())

        def on_validation_epoch_end(self) -> None:
            pass

    for each in heard(tmp_path, Two(), data, 2):
        found = [each[f"val_loss/dataloader_idx_{index}"] for index in range(2)]
        assert found == pytest.approx([float(VALUES[:31].mean()), float(VALUES[:9].mean())], rel=1e-6)


def test_a_worker_hears_what_it_has_not_logged_and_of_what_is_not_shared(tmp_path: Path) -> None:
    log, said = rank_zero.log, tmp_path / "said"
    level = log.level
    log.addHandler(handler := logging.FileHandler(said))
    log.setLevel(logging.INFO)
    try:
        found = heard(tmp_path, Alone(), values(31), 2)
    finally:
        log.setLevel(level)
        log.removeHandler(handler)
        handler.close()
    assert [each["val_of_one"] for each in found] == pytest.approx([float(VALUES[8:16].mean())] * 2, rel=1e-6)
    assert found[0]["val_odd"] == pytest.approx(float(torch.cat([VALUES[:8], VALUES[16:24]]).mean()), rel=1e-6)
    assert said.read_text().count("log: 'val_odd' is not reduced over all workers") == 1
    assert said.read_text().count("log: 'val_list_max' is computed by each worker") == 1


def test_train_values_of_an_epoch_are_of_all_workers(tmp_path: Path) -> None:
    for each in heard(tmp_path, Plain(), values(16), 2):
        assert each["train_mean"] == pytest.approx(float(VALUES[:48].mean()), rel=1e-6)


def test_parts_that_differ_in_shape_are_refused_not_mixed_up(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"all_gather: the workers' tensors have different shapes, \[\[16\], \[15\]\]"):
        heard(tmp_path, Ragged(), values(31), 2, num_sanity_val_steps=0)


def test_what_the_user_has_divided_stays(tmp_path: Path) -> None:
    data = values(30, sampler=DistributedSampler(values(30).dataset, num_replicas=2, rank=0, shuffle=False))
    for each in heard(tmp_path, Plain(), data, 2, test=True):
        assert each["val_loss"] == pytest.approx(float(VALUES[:30:2].square().mean()), rel=1e-6)


@pytest.mark.thorough
def test_those_who_monitor_stop_alike(tmp_path: Path) -> None:
    """Worker 0's half alone is better each time; all of the data are not."""

    class Turning(Plain):
        def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
            sign = -1 if self.global_rank == 0 else 3
            self.log("val_loss", torch.tensor(float(sign * self.current_epoch)))

        def on_validation_epoch_end(self) -> None:
            pass

    made = trainer(tmp_path, DDP(), 2, max_epochs=5, callbacks=[EarlyStopping("val_loss", patience=1)])
    made.fit(Turning(), values(48, batch_size=24), values(32))
    assert made.global_step == 2  # epochs of one update
