"""Workers that make steps of their own under the Trainer: weights, updates, schedules, checkpoints."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import StepLR

from scalebook.training.callbacks.scaled_rates import ScaledRates
from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.local_steps import DiLoCo, Elastic, Local, LocalSGD, Significance
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Sync
from scalebook.training.experiments.lr_scaling import RateScaling
from scalebook.training.lightning import AsyncPS
from tests.training.callbacks.rates import Falling
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.contract.test_schedules import RATE, by_step
from tests.training.lightning.async_ps.small import (
    SAMPLES,
    Diary,
    diaries,
    fit,
    held_out,
    kill_me,
    loader,
    seeded_model,
    trainer,
    weights,
)
from tests.training.lightning.async_ps.test_async_ps_deaths import Once, run

BATCHES = 24  # in two epochs, each of which takes a rate off the weights


def by_one(model: LightningModule) -> SGD:
    return SGD(model.parameters(), lr=1.0)


def falling_rate(model: LightningModule) -> Any:
    optimizer = by_one(model)
    return [optimizer], [{"scheduler": StepLR(optimizer, 4, 0.5), "interval": "step"}]


def fitted(
    folder: Path, strategy: AsyncPS, configure: Any = by_one, **settings: Any
) -> tuple[Falling, list[dict[str, Any]]]:
    model, workers = Falling(configure), 1 if strategy.arguments.is_simulated else strategy.arguments.on_each(1)
    settings = {"callbacks": [], "limit_val_batches": 0, **settings}
    settings["callbacks"] = [*settings["callbacks"], Diary(folder)]
    trainer(folder, strategy, workers, **settings).fit(model, loader())
    return model, diaries(folder)


@pytest.mark.parametrize(
    ("rule", "local", "updates", "weight"),
    [
        (Async(), LocalSGD(5), (5, 6), -BATCHES / 2),
        (Sync(), LocalSGD(5), (3, 3), -BATCHES / 2),
        (Async(), LocalSGD(5, dense_updates=4), (7, 11), -BATCHES / 2),
        (Bounded(2), LocalSGD(5), (5, 6), -BATCHES / 2),
        (Sync(), DiLoCo(5, outer_rate=1.0, outer_momentum=0.0), (3, 3), -BATCHES / 2),
        (Async(), Significance(1e9, most=5), (6, 8), -BATCHES),
    ],
    ids=repr,
)
def test_two_workers(rule: Rule, local: Local, updates: tuple[int, int], weight: float, tmp_path: Path) -> None:
    """Alone each would come half the way; what is left at the end is pushed too."""
    strategy = AsyncPS(rule, workers=2, local=local, limits=Limits(deadline_s=60), record="updates")
    model, (first, second) = fitted(tmp_path, strategy)
    assert model.weights[0].item() == pytest.approx(weight, rel=1e-12)
    least, most = updates
    assert least <= strategy.figures.counts().updates == first["updates"] <= most
    assert strategy.figures.moved_bytes().pushed == 16 * sum(times.updates for times in strategy.figures.worker_times())
    own = [notes["steps"][-1][0] + 1 for notes in (first, second)]
    assert sum(own) == BATCHES, "each counts its own steps"
    assert [times.gradients for times in strategy.figures.worker_times()] == own


def test_elastic_workers_meet_at_the_centre(tmp_path: Path) -> None:
    """With one worker and alpha a, d' = (d + 2) (1 - 2 a) is their distance after two steps, c' = c - a (d + 2)."""
    model, _ = fitted(tmp_path, AsyncPS(workers=1, local=Elastic(2, alpha=0.25), limits=Limits(deadline_s=60)))
    centre = distance = 0.0
    for _ in range(BATCHES // 2):
        centre, distance = centre - 0.25 * (distance + 2), (distance + 2) * 0.5
    assert model.weights[0].item() == pytest.approx(centre, rel=1e-12)


@pytest.mark.parametrize("host", ["inline", "virtual"])
def test_schedules_and_warm_ups_count_a_workers_own_steps(host: Any, tmp_path: Path) -> None:
    clock = ClockSettings(gradient_s=1.0) if host == "virtual" else None
    strategy = AsyncPS(Sync(), workers=2, local=LocalSGD(3), host=host, clock=clock, limits=Limits(deadline_s=60))
    scaled = ScaledRates(RateScaling("linear", per=4, warmup_epochs=0.5), 8)
    model, notes = fitted(tmp_path, strategy, falling_rate, callbacks=[scaled])
    steps, epoch = range(BATCHES // 2), BATCHES / 4
    rates = [0.5 ** (step // 4) * (1 + min(1.0, step / epoch / 0.5)) for step in steps]
    if host == "inline":
        assert [[rate for _, (rate,) in of["steps"]] for of in notes] == [pytest.approx(rates)] * 2
    assert model.weights[0].item() == pytest.approx(-sum(rates), rel=1e-12)
    assert strategy.figures.counts().updates == BATCHES // 2 // 3


def test_the_budget_counts_updates(tmp_path: Path) -> None:
    def noting(model: LightningModule) -> SGD:
        assert isinstance(model, Falling)
        model.notes["estimated"] = model.trainer.estimated_stepping_batches
        return by_one(model)

    strategy = AsyncPS(workers=1, local=LocalSGD(5), limits=Limits(deadline_s=60))
    model, (notes,) = fitted(tmp_path, strategy, noting, max_steps=2)
    assert strategy.figures.counts().updates == 2
    assert model.weights[0].item() == -10
    assert notes["estimated"] == 10, "of a worker's own steps"


@pytest.mark.parametrize("local", [LocalSGD(4), DiLoCo(4)], ids=repr)
def test_a_checkpoint_has_the_workers_optimizer_and_the_outer_one(local: Local, tmp_path: Path) -> None:
    """One epoch is 12 steps, three pushes: interrupted after it, nothing is lost with one worker."""

    def adam(model: LightningModule) -> Adam:
        return Adam(model.parameters(), lr=0.01)

    def strategy() -> AsyncPS:
        return AsyncPS(workers=1, local=local, limits=Limits(deadline_s=60))

    def fit_in_order(epochs: int, path: Path | None = None) -> Tensor:
        model = Plain(adam)
        made = trainer(tmp_path, strategy(), max_epochs=epochs, enable_checkpointing=True)
        made.fit(model, loader(), held_out(), ckpt_path=path)
        return weights(model)

    fit_in_order(1)
    (path,) = tmp_path.rglob("*.ckpt")
    saved = torch.load(path, weights_only=True)
    assert saved["global_step"] == 3
    assert saved["optimizer_states"][0]["state"][0]["step"].item() == 12
    assert torch.equal(fit_in_order(2, path), fit_in_order(2))


@pytest.mark.thorough
def test_virtual_workers_do_the_same_twice(tmp_path: Path) -> None:
    ends = []
    for number, local in enumerate([LocalSGD(4), LocalSGD(4), Elastic(3)]):
        folder = tmp_path / str(number)
        folder.mkdir()
        clock = ClockSettings(gradient_s=1.0, stragglers={1: 1.7})
        strategy = AsyncPS(Async(), workers=3, local=local, host="virtual", clock=clock, limits=Limits(deadline_s=60))
        ends.append(fit(trainer(folder, strategy), seeded_model()))
        assert strategy.figures.counts().updates == pytest.approx(BATCHES / local.every, abs=3)
    assert torch.equal(ends[0], ends[1])
    assert not torch.equal(ends[0], ends[2])


@pytest.mark.thorough
@pytest.mark.parametrize("rule", [Sync(), Async()], ids=repr)
def test_a_worker_that_is_started_again_counts_on_with_the_others(rule: Rule, tmp_path: Path) -> None:
    """Its own steps since the last push are lost, and its optimizer begins anew; the others do not wait for them."""
    strategy = AsyncPS(rule, workers=2, local=LocalSGD(3), limits=Limits(restarts=1, deadline_s=30))
    run(tmp_path, strategy, Once(1, 5, kill_me), model=Plain(by_step))
    first, second = diaries(tmp_path)
    assert first["updates"] == strategy.figures.counts().updates
    assert second["train"]
    assert second["lrs"][0] < RATE, "it joins where the others are"
    assert set(first["train"]) | set(second["train"]) == set(range(SAMPLES))
