"""The rate of every step against its closed form: asked x schedule x warm-up, in one process and in several."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import CosineAnnealingLR, OneCycleLR, SequentialLR, StepLR
from torch.utils.data import DataLoader, IterableDataset

from scalebook.training.base.errors import ConfigError
from scalebook.training.callbacks.job_files import LastCheckpoint
from scalebook.training.callbacks.scaled_rates import ScaledRates
from scalebook.training.engine.rules.update_rules import Async, Softsync, Sync
from scalebook.training.experiments.lr_scaling import RateScaling
from scalebook.training.lightning import DDP, AsyncPS
from tests.training.callbacks.rates import Falling, TwoByHand, plain
from tests.training.lightning.async_ps.contract.test_checkpoints import path_of
from tests.training.lightning.async_ps.small import Diary, diaries, loader, trainer

BATCH, BATCHES = 8, 12  # of small.loader
RISING = RateScaling("linear", per=4, warmup_epochs=1.5)


def ramp(updates: int, factor: float, length: float) -> float:
    """From 1 to the factor in equal steps."""
    return 1 + (factor - 1) * min(1.0, updates / length)


def cosine(updates: int, length: int) -> float:
    return (1 + math.cos(math.pi * updates / length)) / 2


def run(
    folder: Path, model: LightningModule, strategy: Any = "auto", scaling: RateScaling = RISING, **settings: Any
) -> Trainer:
    """Two epochs of 12 batches of 8, two workers where the strategy is not `auto`."""
    devices = 1 if strategy == "auto" else 2
    callbacks = [*settings.pop("callbacks", []), ScaledRates(scaling, BATCH), Diary(folder)]
    ckpt_path, train = settings.pop("ckpt_path", None), settings.pop("train", None)
    made = trainer(folder, strategy, devices, callbacks=callbacks, limit_val_batches=0, **settings)
    made.fit(model, loader() if train is None else train, ckpt_path=ckpt_path)
    return made


def by_cosine(model: LightningModule) -> Any:
    optimizer = SGD(model.parameters(), lr=0.1)
    return [optimizer], [{"scheduler": CosineAnnealingLR(optimizer, 24), "interval": "step"}]


def groups(model: LightningModule) -> Any:
    assert isinstance(model, Falling)
    first, second = model.weights
    parts: list[dict[str, Any]] = [{"params": [first], "lr": 0.3}, {"params": [second]}]
    optimizer = Adam(parts, lr=0.1)
    return [optimizer], [{"scheduler": StepLR(optimizer, 5, 0.5), "interval": "step"}]


def one_cycle(model: LightningModule) -> Any:
    optimizer = SGD(model.parameters(), lr=0.1, momentum=0.9)
    return [optimizer], [{"scheduler": OneCycleLR(optimizer, 0.5, total_steps=24), "interval": "step"}]


def sequence(model: LightningModule) -> Any:
    optimizer = SGD(model.parameters(), lr=0.1)
    parts = [StepLR(optimizer, 3, 0.5), CosineAnnealingLR(optimizer, 14, eta_min=0.01)]
    return [optimizer], [{"scheduler": SequentialLR(optimizer, parts, [10]), "interval": "step"}]


def unscaled(folder: Path, configure: Callable[[LightningModule], Any]) -> list[list[float]]:
    """The rates of each step where nothing scales them."""
    model = Falling(configure)
    trainer(folder, "auto", limit_val_batches=0).fit(model, loader())
    return [rates for _, rates in model.notes["steps"]]


def test_a_warm_up_in_one_process_takes_equal_steps_to_the_scaled_rate(tmp_path: Path) -> None:
    model = Falling()
    run(tmp_path, model)
    expected = [0.1 * ramp(update, 2.0, 18) for update in range(24)]
    assert [rates for _, rates in model.notes["steps"]] == [[pytest.approx(rate, rel=1e-12)] for rate in expected]
    assert model.notes["steps"][0][1] == [0.1]
    assert [weight.item() for weight in model.weights] == [pytest.approx(-sum(expected), rel=1e-12)] * 2


def test_under_a_cosine_it_is_the_cosine_times_the_warm_up(tmp_path: Path) -> None:
    """Its rates are made each from the one before, which the factor must not disturb."""
    model = Falling(by_cosine)
    made = run(tmp_path, model)
    expected = [0.1 * cosine(update, 24) * ramp(update, 2.0, 18) for update in range(24)]
    assert [rates for _, rates in model.notes["steps"]] == [[pytest.approx(rate, rel=1e-12)] for rate in expected]
    assert made.optimizers[0].param_groups[0]["lr"] == pytest.approx(0.0, abs=1e-15)


@pytest.mark.sampled
@pytest.mark.parametrize("configure", [groups, one_cycle, sequence])
def test_any_schedule_of_any_groups_is_multiplied(configure: Callable[[LightningModule], Any], tmp_path: Path) -> None:
    """Exactly: what the schedule does alone, times the factor."""
    alone, model = unscaled(tmp_path, configure), Falling(configure)
    run(tmp_path, model)
    expected = [[rate * RISING.warmed(8, update / 12) for rate in rates] for update, rates in enumerate(alone)]
    assert [rates for _, rates in model.notes["steps"]] == expected


def test_two_optimizers_stepped_by_hand_are_scaled_each_by_its_own_updates(tmp_path: Path) -> None:
    def two(model: LightningModule) -> Any:
        assert isinstance(model, Falling)
        made = [SGD([weight], lr=rate) for weight, rate in zip(model.weights, (0.1, 0.4), strict=True)]
        return made, [CosineAnnealingLR(one, 24) for one in made]

    model = TwoByHand(two)
    run(tmp_path, model)
    shares = [cosine(update, 24) * ramp(update, 2.0, 18) for update in range(24)]
    assert model.seen[0] == [[pytest.approx(0.1 * share, rel=1e-12)] for share in shares]
    assert model.seen[1] == [[pytest.approx(0.4 * share, rel=1e-12)] for share in shares]
    assert model.weights[1].item() == pytest.approx(-0.4 * sum(shares), rel=1e-12)


def test_the_square_root_without_a_warm_up_and_accumulated_batches(tmp_path: Path) -> None:
    model = Falling()
    run(tmp_path, model, scaling=RateScaling("sqrt", per=2), accumulate_grad_batches=3)
    within = [rates for _, rates in model.notes["steps"]][2::3]  # the third batch is computed inside the step
    assert within == [[0.1 * math.sqrt(3 * 8 / 2)]] * 8
    assert model.weights[0].item() == pytest.approx(-8 * 0.1 * math.sqrt(12), rel=1e-12)


def test_accumulated_batches_make_fewer_updates_of_an_epoch(tmp_path: Path) -> None:
    model = Falling()
    run(tmp_path, model, accumulate_grad_batches=3)
    expected = [0.1 * ramp(update, 6.0, 6) for update in range(8)]
    assert model.weights[0].item() == pytest.approx(-sum(expected), rel=1e-12)


@pytest.mark.sampled
@pytest.mark.parametrize(
    "strategy",
    [DDP(), AsyncPS(rule=Sync(), workers=2), AsyncPS(rule=Sync(), workers=2, host="process")],
    ids=["ddp", "sync", "sync-process"],
)
def test_two_workers_in_step(strategy: Any, tmp_path: Path) -> None:
    model = Falling(by_cosine)
    run(tmp_path, model, strategy)
    expected = [0.1 * cosine(update, 24) * ramp(update, 4.0, 9) for update in range(12)]
    for notes in diaries(tmp_path):
        assert notes["steps"] == [[update, [pytest.approx(rate, rel=1e-12)]] for update, rate in enumerate(expected)]
    assert model.weights[0].item() == pytest.approx(-sum(expected), rel=1e-12)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("rule", "factor", "length"), [(Async(), 2.0, 18), (Softsync(2), 4.0, 9)], ids=["async", "softsync"]
)
def test_two_workers_that_do_not_wait_have_the_rate_of_the_version(
    rule: Any, factor: float, length: float, tmp_path: Path
) -> None:
    """Whatever the order of the pushes: the rate that travels with each is that of the version it was computed at."""
    model = Falling(by_cosine)
    run(tmp_path, model, AsyncPS(rule=rule, workers=2))
    steps = [step for notes in diaries(tmp_path) for step in notes["steps"]]
    assert len(steps) == 24
    for version, (rate,) in steps:
        assert rate == pytest.approx(0.1 * cosine(version, 24) * ramp(version, factor, length), rel=1e-12)
    if factor == 2.0:  # each push is an update by its own rate
        assert model.weights[0].item() == pytest.approx(-sum(rates[0] for _, rates in steps), rel=1e-12)


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("first", "second"),
    [("auto", "auto"), ("auto", "sync"), ("sync", "ddp"), ("ddp", "auto")],
)
def test_a_resumed_run_goes_on_where_the_warm_up_was(first: str, second: str, tmp_path: Path) -> None:
    """Also under another strategy, and after another batch: a checkpoint has the rates that were asked for."""

    def strategy(name: str) -> Any:
        return {"auto": "auto", "ddp": DDP(), "sync": AsyncPS(rule="sync", workers=2)}[name]

    before, after = Falling(by_cosine), Falling(by_cosine)
    made = run(tmp_path, before, strategy(first), max_epochs=1, enable_checkpointing=True)
    path = path_of(made)
    saved = torch.load(path, weights_only=True)
    done = 12 if first == "auto" else 6
    assert saved["optimizer_states"][0]["param_groups"][0]["lr"] == pytest.approx(0.1 * cosine(done, 24), rel=1e-12)
    run(tmp_path, after, strategy(second), enable_checkpointing=True, ckpt_path=path)
    more, factor = (12, 2.0) if second == "auto" else (6, 4.0)
    updates = range(done, done + more)
    expected = [0.1 * cosine(update, 24) * ramp(update, factor, 1.5 * more) for update in updates]
    seen = diaries(tmp_path)[0]["steps"]
    assert [rates for _, rates in seen] == [[pytest.approx(rate, rel=1e-9)] for rate in expected]


def test_a_checkpoint_from_before_the_scaling_is_taken_at_its_number_of_updates(tmp_path: Path) -> None:
    plainly = trainer(tmp_path, "auto", max_epochs=1, enable_checkpointing=True, limit_val_batches=0)
    plainly.fit(Falling(), loader())
    model = Falling()
    run(tmp_path, model, enable_checkpointing=True, ckpt_path=path_of(plainly))
    expected = [0.1 * ramp(update, 2.0, 18) for update in range(12, 24)]
    assert [rates[0] for _, rates in model.notes["steps"]] == [pytest.approx(rate, rel=1e-12) for rate in expected]


def test_a_checkpoint_of_the_end_counts_the_updates_of_each_optimizer(tmp_path: Path) -> None:
    """The second is stepped in every third batch, so that their common number of steps says nothing of either."""

    def two(model: LightningModule) -> Any:
        assert isinstance(model, Falling)
        made = [SGD([weight], lr=0.1) for weight in model.weights]
        return made, [CosineAnnealingLR(one, 1000) for one in made]

    keep = LastCheckpoint(tmp_path)
    first = run(tmp_path, TwoByHand(two, every=3), max_epochs=1, callbacks=[keep], enable_checkpointing=True)
    model = TwoByHand(two, every=3)
    run(tmp_path, model, callbacks=[LastCheckpoint(tmp_path / "again")], ckpt_path=keep.path, enable_checkpointing=True)
    (saved,) = [one for one in first.callbacks if isinstance(one, ScaledRates)]  # type: ignore[attr-defined]  # Lightning's
    assert saved.state_dict() == {"updates": [12, 4]}
    for seen, updates in zip(model.seen, (range(12, 24), range(4, 8)), strict=True):
        expected = [0.1 * cosine(update, 1000) * ramp(update, 2.0, 18) for update in updates]
        assert seen == [[pytest.approx(rate, rel=1e-9)] for rate in expected]


def test_optimizers_get_their_own_step_back(tmp_path: Path) -> None:
    made = run(tmp_path, Falling(plain))
    assert "step" not in vars(made.optimizers[0])


class Endless(IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter([[torch.zeros(5), torch.tensor(0), torch.tensor(0)]] * 24)


def test_an_epoch_without_a_length_cannot_be_warmed_up_over(tmp_path: Path) -> None:
    train: Any = DataLoader(Endless(), batch_size=8)
    with pytest.raises(ConfigError, match=r"lr_scaling.warmup_epochs: needs a data set that knows its length. Use 0"):
        run(tmp_path, Falling(), train=train)
    model = Falling()
    run(tmp_path, model, scaling=RateScaling("linear", per=4), train=train)
    assert {rates[0] for _, rates in model.notes["steps"]} == {0.2}


def test_an_optimizer_without_a_rate_is_refused_by_name(tmp_path: Path) -> None:
    def rateless(model: LightningModule) -> Any:
        optimizer = SGD(model.parameters(), lr=0.1)
        del optimizer.param_groups[0]["lr"]
        return optimizer

    with pytest.raises(ConfigError, match="lr_scaling: needs a learning rate, but SGD has no `lr`"):
        run(tmp_path, Falling(rateless))
