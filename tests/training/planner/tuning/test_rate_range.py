"""The learning-rate range test: rates by the count of updates under every strategy, an end where the loss explodes."""

import json
import math
import random
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader

from scalebook.training.base.errors import ConfigError
from scalebook.training.callbacks.divergence import DivergenceGuard
from scalebook.training.callbacks.measure import Measure
from scalebook.training.callbacks.scaled_rates import ScaledRates
from scalebook.training.callbacks.step_clocks import DataClock
from scalebook.training.engine.rules.update_rules import Async, Bounded, Sync
from scalebook.training.experiments.lr_scaling import RateScaling
from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.ddp.ddp import DDP
from scalebook.training.planner.tuning.rate_range import RateRange
from scalebook.training.tracking import names
from tests.training.lightning.async_ps.small import trainer

CURVATURE = 4.0
RULES = {"sync": Sync(), "async": Async(), "bounded": Bounded(1)}

pytestmark = pytest.mark.usefixtures("one_thread")


class Bowl(LightningModule):
    """Loss = 1 + 2 w^2 with w = 1 at first: gradient descent falls below a rate of 2 / 4 and explodes above it."""

    def __init__(self, schedule: bool = False) -> None:
        super().__init__()
        self.schedule = schedule
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.other = torch.nn.Parameter(torch.zeros(1))

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return 1 + CURVATURE / 2 * self.weight.square().mean() * 3 + 0 * self.other.sum()

    def configure_optimizers(self) -> Any:
        groups = [{"params": [self.weight], "lr": 0.5}, {"params": [self.other], "lr": 0.05}]
        sgd = torch.optim.SGD(groups)
        return ([sgd], [torch.optim.lr_scheduler.ConstantLR(sgd, 0.01)]) if self.schedule else sgd


def data() -> "DataLoader[Any]":
    rows: Any = torch.zeros(400, 1)
    return DataLoader(rows, batch_size=4)


def strategy(name: str) -> tuple[Any, int]:
    if name == "single":
        return "auto", 1
    return (DDP() if name == "ddp" else AsyncPS(RULES[name])), 2


def run(folder: Path, name: str, test: RateRange, model: LightningModule | None = None, **told: Any) -> dict[str, Any]:
    kind, devices = strategy(name)
    measure = Measure(DataClock())
    callbacks = [test, measure, DivergenceGuard(measure)]
    told = {"max_steps": test.updates, "max_epochs": -1, "limit_val_batches": 0, "callbacks": callbacks, **told}
    trainer(folder, kind, devices, **told).fit(model or Bowl(), data())
    found: dict[str, Any] = json.loads((folder / names.RATES_JSON).read_text())
    return found


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["single", "ddp", "sync", "bounded"])
def test_the_loss_falls_until_the_rate_at_which_it_must_explode(name: str, tmp_path: Path) -> None:
    """Bounded instead of async: a gradient that is older than a few updates explodes at a much lower rate."""
    found = run(tmp_path, name, RateRange(1e-4, 10.0, 150))
    assert found["diverged"]
    other = 0.01 if name == "bounded" else 0.0  # worker 1 may have made one update, by a rate of 1e-4
    assert found["losses"][0] == pytest.approx(3.0 + 4.0, abs=max(other, 1e-5))
    assert min(found["losses"]) < 1.1
    assert found["rates"][-1] < 6  # from the bottom it takes a while until the explosion shows
    assert 0.003 < found["steepest"] < 0.25
    assert 0.25 < found["largest"] < 4
    assert (tmp_path / names.RATES_PICTURE).read_bytes().startswith(b"\x89PNG")


@pytest.mark.sampled
@pytest.mark.parametrize("name", ["single", "ddp", "sync", "async"])
def test_the_rate_of_an_update_is_a_function_of_those_before_it(name: str, tmp_path: Path) -> None:
    test = RateRange(1e-6, 1e-4, 41)
    found = run(tmp_path, name, test)
    assert not found["diverged"]
    ladder = [1e-6 * 100 ** (i / 40) for i in range(41)]
    for rate in found["rates"]:
        nearest = min(ladder, key=lambda one: abs(math.log(one / rate)))
        assert rate == pytest.approx(nearest)
    assert found["rates"] == sorted(found["rates"])
    if name != "async":
        assert found["rates"] == pytest.approx([ladder[0], *ladder[:-1]])  # a loss is of the update before


def test_noise_of_batches_is_no_explosion() -> None:
    """Losses that are 40 % off, at rates that are too low to change them; then one that doubles with each update."""
    for seed in range(50):
        draw, test = random.Random(seed), RateRange()
        for _ in range(test.updates):
            test._take(math.exp(draw.gauss(0, 0.4)))
        assert not test.diverged, f"seed {seed}"
        for update in range(8):
            test._take(2.0**update)
        assert test.diverged


def test_groups_keep_their_ratio_and_a_schedule_is_put_aside(tmp_path: Path) -> None:
    """The step sees the rates; outside of it they are relative."""
    seen: list[list[float]] = []

    class Told(Bowl):
        def configure_optimizers(self) -> Any:
            ([optimizer], schedules) = super().configure_optimizers()
            step = optimizer.step

            def noting(*args: Any, **kwargs: Any) -> Any:
                seen.append([group["lr"] for group in optimizer.param_groups])
                return step(*args, **kwargs)

            optimizer.step = noting
            return [optimizer], schedules

    with pytest.warns(UserWarning, match="ignores the model's schedule"):
        run(tmp_path, "single", RateRange(1e-5, 1e-2, 30), Told(schedule=True))
    assert [first for first, _ in seen] == pytest.approx([1e-5 * 1000 ** (i / 29) for i in range(30)])
    assert [second / first for first, second in seen] == pytest.approx([0.1] * 30)


def test_accumulated_batches_make_one_point(tmp_path: Path) -> None:
    found = run(tmp_path, "single", RateRange(1e-5, 1e-4, 20), accumulate_grad_batches=3)
    assert len(found["rates"]) == 20
    assert found["losses"][0] == pytest.approx(7.0)


def test_a_loss_that_is_no_number_ends_it_without_failing(tmp_path: Path) -> None:
    found = run(tmp_path, "single", RateRange(1.0, 1e30, 60))
    assert found["diverged"]
    assert all(math.isfinite(loss) for loss in found["losses"])
    assert (found["steepest"], found["largest"]) == (None, None)


def test_what_it_cannot_test_is_refused_by_name(tmp_path: Path) -> None:
    class Manual(Bowl):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

    with pytest.raises(ConfigError, match="model: Manual steps its optimizers itself"):
        run(tmp_path, "single", RateRange(), Manual())
    scaled = [RateRange(), ScaledRates(RateScaling("linear", 256, 0.0), 4)]
    with pytest.raises(ConfigError, match="lr_scaling: would change the learning rates"):
        run(tmp_path, "single", RateRange(), callbacks=scaled)
    with pytest.raises(ConfigError, match="highest: is 1, which is not above the lowest rate, 2"):
        RateRange(2.0, 1.0)
