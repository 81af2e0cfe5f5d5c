"""AsyncArguments of AsyncPS, each seen to do what it says."""

import math
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch.optim.lr_scheduler import LambdaLR

from scalebook.training.callbacks.heartbeat import fraction
from scalebook.training.engine.rules.argument_limits import declared_limits
from scalebook.training.engine.rules.damping import DelayCompensation, DropAbove, Inverse
from scalebook.training.engine.rules.local_steps import Downpour
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.rules.update_rules import Bounded, Sync
from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.arguments import AsyncArguments
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import SAMPLES, Diary, diaries, fit, make_sgd, trainer, weights

BATCHES = SAMPLES // 8


def run(folder: Path, strategy: AsyncPS, *callbacks: Callback, **settings: Any) -> tuple[AsyncPS, dict[str, Any]]:
    """The strategy, whose measures are readable after the fit, and worker 0's diary; one epoch."""
    fit(trainer(folder, strategy, callbacks=[*callbacks, Diary(folder)], **{"max_epochs": 1, **settings}), Plain())
    return strategy, diaries(folder)[0]


def test_its_signature_tells_the_bounds_that_are_checked() -> None:
    checked = declared_limits(Settings) | declared_limits(AsyncArguments) | declared_limits(Limits)
    told = {name: limits for name, limits in declared_limits(AsyncPS).items() if limits}
    assert set(told) == {"workers", "warmup_updates", "shards"}
    assert {name: checked[name] for name in told} == told


@pytest.mark.parametrize("local", [Downpour(3, 1), Downpour(3, 3)], ids=repr)
def test_downpour_sums_gradients(local: Downpour, tmp_path: Path) -> None:
    _, seen = run(tmp_path, AsyncPS(local=local, workers=2))
    assert BATCHES // 3 <= seen["updates"] <= BATCHES // 3 + 1  # what each has left at the end is pushed too


def test_fewer_pulls_leave_the_updates_as_many(tmp_path: Path) -> None:
    strategy, seen = run(tmp_path, AsyncPS(local=Downpour(1, 4), workers=2))
    assert seen["updates"] == BATCHES
    histogram = strategy.figures.staleness()
    assert histogram is not None
    assert histogram.max() >= 3


@pytest.mark.parametrize("host", ["inline", "process"])
def test_worker_0_makes_the_first_updates_alone(host: Any, tmp_path: Path) -> None:
    strategy, seen = run(tmp_path, AsyncPS(workers=2, warmup_updates=6, host=host), max_epochs=-1, max_steps=6)
    assert seen["updates"] == 6
    assert [times.updates for times in strategy.figures.worker_times()] == [6, 0]


def test_a_warm_up_longer_than_the_run_ends_with_the_run(tmp_path: Path) -> None:
    _, seen = run(tmp_path, AsyncPS(workers=2, warmup_updates=1000, limits=Limits(deadline_s=20)), max_epochs=2)
    assert seen["updates"] == 2 * BATCHES


def test_what_is_too_stale_is_dropped_and_counted(tmp_path: Path) -> None:
    strategy, seen = run(tmp_path, AsyncPS(damping=DropAbove(limit=1), workers=3), max_epochs=6)
    dropped = sum(push.dropped for push in strategy.figures.pushes())
    assert seen["updates"] + dropped == 6 * BATCHES
    histogram = strategy.figures.staleness()
    assert histogram is not None
    assert histogram.max() <= 1


@pytest.mark.parametrize("damping", [Inverse(), DelayCompensation(), DelayCompensation(adaptive=True)], ids=repr)
def test_with_one_worker_nothing_is_stale_so_nothing_is_damped(damping: Any, tmp_path: Path) -> None:
    expected, model = Plain(), Plain()
    fit(trainer(tmp_path, "auto"), expected)
    fit(trainer(tmp_path, AsyncPS(damping=damping, workers=1)), model)
    assert torch.equal(weights(model), weights(expected))


def test_overlap_is_one_push_behind(tmp_path: Path) -> None:
    strategy, seen = run(tmp_path, AsyncPS(workers=1, host="overlap"))
    assert seen["updates"] == BATCHES
    histogram = strategy.figures.staleness()
    assert histogram is not None
    assert histogram.max() <= 1


def test_drift_is_measured_when_asked_for(tmp_path: Path) -> None:
    measured, _ = run(tmp_path, AsyncPS(workers=2, shards=2, record="drift"))
    assert len(measured.figures.pushes()) == 4
    assert all(push.applied == 0 or push.drift >= 0 for push in measured.figures.pushes())
    plain, _ = run(tmp_path, AsyncPS(workers=2))
    assert all(math.isnan(push.drift) for push in plain.figures.pushes())


def test_a_trace_is_written_below_the_runs_folder(tmp_path: Path) -> None:
    run(tmp_path, AsyncPS(workers=2, record="updates"))
    assert sorted(path.name for path in tmp_path.iterdir() if path.is_dir()) == ["trace"]
    assert sum(path.stat().st_size for path in (tmp_path / "trace").iterdir()) > 0


def test_a_backup_worker_is_not_waited_for(tmp_path: Path) -> None:
    strategy, seen = run(tmp_path, AsyncPS(Sync(backup_workers=1), workers=3), max_epochs=-1, max_steps=10)
    assert seen["updates"] == 10
    assert sum(times.updates for times in strategy.figures.worker_times()) == 20


def test_progress_is_told_in_updates(tmp_path: Path) -> None:
    class Told(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            strategy: Any = trainer.strategy
            if trainer.global_step == 3 and trainer.global_rank == 0:
                updates = strategy.figures.counts().updates
                assert fraction(trainer, updates) == updates / 40

    _, seen = run(tmp_path, AsyncPS(Bounded(bound=1), workers=2), Told(), max_epochs=-1, max_steps=40)
    assert seen["updates"] == 40


def test_others_may_wait_longer_than_the_deadline_for_a_validation(tmp_path: Path) -> None:
    class LongValidation(Plain):
        def validation_step(self, batch: Any, batch_idx: int) -> None:
            time.sleep(0.2 * (self.current_epoch == 0))
            super().validation_step(batch, batch_idx)

    strategy = AsyncPS("sync", workers=2, limits=Limits(deadline_s=1.5))
    made = trainer(tmp_path, strategy, callbacks=[Diary(tmp_path)], max_epochs=2, num_sanity_val_steps=0)
    fit(made, LongValidation())
    assert [notes["validations"] for notes in diaries(tmp_path)] == [2, 0]


def test_a_scheduler_with_a_step_of_the_models_own(tmp_path: Path) -> None:
    class Own(Plain):
        def configure_optimizers(self) -> Any:
            optimizer = make_sgd(self)
            return [optimizer], [{"scheduler": LambdaLR(optimizer, lambda step: 1 / (1 + step)), "interval": "step"}]

        def lr_scheduler_step(self, scheduler: Any, metric: Any) -> None:
            self.notes["steps"] = self.notes.get("steps", 0) + 1
            scheduler.step()

    fit(trainer(tmp_path, AsyncPS(workers=2), callbacks=[Diary(tmp_path)], max_epochs=1), Own())
    seen = diaries(tmp_path)[0]
    assert seen["steps"] == BATCHES
    assert seen["lr"] == pytest.approx(0.05 / (1 + BATCHES))


def test_a_world_size_that_is_set_is_what_the_trainer_says(tmp_path: Path) -> None:
    made = trainer(tmp_path, AsyncPS(workers=2), 2)
    assert made.world_size == 2
    made.strategy.world_size = 3  # type: ignore[attr-defined]  # as Lightning's own tests do
    assert made.world_size == 3
    assert AsyncPS(workers=2).world_size == 2


class LooksAround(Callback):
    """Which callbacks there are, when the fit begins and at its last step."""

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        assert isinstance(pl_module, Plain)
        pl_module.notes["first"] = names_of(trainer)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        assert isinstance(pl_module, Plain)
        pl_module.notes["last"] = names_of(trainer)


def names_of(trainer: Trainer) -> list[str]:
    return [type(one).__name__ for one in trainer.callbacks]  # type: ignore[attr-defined]  # made by a connector


def test_when_the_fit_begins_the_callbacks_are_the_users(tmp_path: Path) -> None:
    _, seen = run(tmp_path, AsyncPS(workers=2), LooksAround())
    assert seen["first"] == ["LooksAround", "Diary"]
    assert seen["last"] == ["FirstCallback", "LooksAround", "Diary"]


def test_a_policy_of_buffers_that_there_is_not() -> None:
    with pytest.raises(ValueError, match=r"^buffers"):
        AsyncPS(buffers="mean")  # type: ignore[arg-type]
