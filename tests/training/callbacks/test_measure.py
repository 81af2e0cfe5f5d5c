import pytest
import torch
from lightning.pytorch.profilers import SimpleProfiler
from torch import Tensor

from scalebook.training.base.workspace import Workspace
from scalebook.training.callbacks import measure as measure_module
from scalebook.training.callbacks import step_clocks as clock_module
from scalebook.training.callbacks.measure import Measure
from scalebook.training.callbacks.step_clocks import DataClock
from scalebook.training.lightning import run_figures as figures_module
from scalebook.training.tracking import names
from scalebook.training.zoo.models.classifiers import Classifier
from tests.training.callbacks.small import Kept, OneWeight, loader, trainer
from tests.training.runs import config, run


def test_the_loss_is_recorded_against_updates_however_many_batches_make_one() -> None:
    kept, clock = Kept(), DataClock()
    measure = Measure(clock)
    trainer(measure, logger=kept, profiler=clock, accumulate_grad_batches=2).fit(OneWeight(), loader(), loader(1))
    steps = [step for step, points in kept.points if names.TRAIN_LOSS in points]
    losses = [points[names.TRAIN_LOSS] for _, points in kept.points if names.TRAIN_LOSS in points]
    assert (steps[0], steps[-1]) == (0, 4)  # the first batch is half an update
    assert losses[0] == pytest.approx(10.0)
    assert losses[-1] == pytest.approx(9.7)
    assert kept.points[0][1]["train/weight"] == pytest.approx(10.0)
    last = kept.points[-1][1]
    assert last["best/val/loss"] == pytest.approx(9.6)
    assert last["train/loss"] == measure.latest["final/train/loss"] == pytest.approx(9.7)
    assert "final/train/loss" not in last, "it is the last mini-batch's, and there are validations"
    assert measure.counts() == (4, 24)


def test_time_goes_where_it_was_spent(monkeypatch: pytest.MonkeyPatch) -> None:
    """A third of each step is spent in the data, the rest in the model, by a clock that nothing else moves."""
    now = 100.0

    def spend(seconds: float) -> None:
        nonlocal now
        now += seconds

    for module in (measure_module, clock_module, figures_module):
        monkeypatch.setattr(module, "perf_counter", lambda: now)

    class Slow(OneWeight):
        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            spend(0.02)
            return super().training_step(batch, batch_idx)

        def validation_step(self, batch: torch.Tensor, batch_idx: int) -> None:
            spend(0.2)
            super().validation_step(batch, batch_idx)

    class SlowData(torch.utils.data.Dataset[torch.Tensor]):
        def __len__(self) -> int:
            return 10

        def __getitem__(self, index: int) -> torch.Tensor:
            spend(0.01)
            return torch.zeros(1)

    kept, clock = Kept(), DataClock()
    data = torch.utils.data.DataLoader(SlowData(), batch_size=1)
    trainer(measure := Measure(clock), logger=kept, profiler=clock, max_epochs=1).fit(Slow(), data, loader(1))
    last = kept.points[-1][1]
    assert measure.latest[names.DATA_SHARE] == pytest.approx(1 / 3)
    assert last[names.COMPUTE_SHARE] == pytest.approx(2 / 3)
    assert names.completed(last)[names.DATA_SHARE] == pytest.approx(1 / 3), "what the others leave is not recorded"
    assert measure.latest[names.UPDATES_PER_SECOND] == pytest.approx(
        10 / (10 * 0.02 + 9 * 0.01)
    )  # since the first batch began


def test_the_users_profiler_still_hears_everything() -> None:
    theirs = SimpleProfiler()
    clock = DataClock(theirs)
    trainer(Measure(clock), profiler=clock, max_epochs=1).fit(OneWeight(), loader())
    assert len(theirs.recorded_durations["[_TrainingEpochLoop].train_dataloader_next"]) >= 4
    assert len(theirs.recorded_durations["run_training_batch"]) == 4
    assert clock.seconds > 0
    assert "run_training_batch" in clock.summary()


def test_metrics_of_one_worker_of_ddp_are_named(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    of_all = Classifier.validation_step

    def validation_step(model: Classifier, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        of_all(model, batch, batch_idx)
        model.log("val/odd", 1.0, rank_zero_only=True)

    monkeypatch.setattr(Classifier, "validation_step", validation_step)
    _, code, record = run(workspace, config("ddp"))
    assert (code, record.tags[names.TAG_OWN]) == (0, "val/odd")
