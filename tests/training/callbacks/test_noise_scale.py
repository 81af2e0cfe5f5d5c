"""The gradient noise scale against closed forms; and training that is the same with and without it."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader

from scalebook.training.base.errors import ConfigError
from scalebook.training.callbacks.measure import Measure
from scalebook.training.callbacks.noise_scale import NoiseScale, Probe, estimate, explained, suggested
from scalebook.training.callbacks.step_clocks import DataClock
from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.ddp.ddp import DDP
from scalebook.training.tracking import names
from tests.training.callbacks.small import Kept, OneWeight
from tests.training.callbacks.small import trainer as plain_trainer
from tests.training.lightning.async_ps.small import fit, trainer

WIDTH = 40

pytestmark = pytest.mark.usefixtures("one_thread")


class Inner(LightningModule):
    """Loss = mean of x . w: a sample's gradient is the sample itself, wherever the weights are."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(WIDTH))

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        return (batch @ self.weights).mean()

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.0)


def samples(count: int, mean: float) -> Tensor:
    """Mean `mean` and variance 1 in each of the coordinates, as far as the draw goes."""
    return mean + torch.randn(count, WIDTH, generator=torch.Generator().manual_seed(5))


def measured(data: Any, batch: int, epochs: int = 1, **told: Any) -> NoiseScale:
    torch.manual_seed(1)
    measure = Measure(DataClock())
    noise = NoiseScale(measure, every=1)
    loader: DataLoader[Any] = DataLoader(data, batch_size=batch, shuffle=True)
    plain_trainer(measure, noise, max_epochs=epochs, **told).fit(Inner(), loader)
    return noise


@pytest.mark.parametrize("batch", [8, 64])
def test_it_finds_the_noise_scale_of_known_gradients(batch: int) -> None:
    """tr(Sigma) / |G|^2 = 40 / (40 * 0.2^2) = 25 samples; of the drawn ones, exactly what is computed here."""
    data = samples(100 * batch, 0.2)
    truth = float(data.var(0).sum() / data.mean(0).square().sum())
    kept = Kept()
    noise = measured(data, batch, logger=kept)
    found = estimate(noise.probes, len(data))
    assert found is not None
    assert found.low < truth < found.high
    assert found.scale == pytest.approx(truth, rel=0.15)
    assert found.high / found.low < (1.8 if batch == 8 else 1.2)
    assert truth == pytest.approx(25, rel=0.1)
    last = [points for _, points in kept.points if names.NOISE_SCALE in points][-1]
    assert last[names.NOISE_SCALE] == pytest.approx(found.scale)
    assert last[names.NOISE_BATCH] in (16, 32)
    assert noise.measure.latest[names.NOISE_SCALE] == last[names.NOISE_SCALE]


def test_the_interval_holds_the_truth_as_often_as_it_says() -> None:
    """300 draws of 100 probes each, with the moments that halves of 8 Gaussian samples have."""
    torch.manual_seed(2)
    truth, inside = 25.0, 0
    for _ in range(300):
        halves = 0.2 + torch.randn(100, 2, WIDTH) / math.sqrt(8)
        products = (halves[:, 0] * halves[:, 1]).sum(1)
        spreads = (halves[:, 0] - halves[:, 1]).square().sum(1) * 8 / 2
        found = estimate([Probe(*pair) for pair in zip(products.tolist(), spreads.tolist(), strict=True)], None)
        inside += found is not None and found.low < truth < found.high
    assert 0.90 <= inside / 300 <= 0.99


def test_a_small_training_set_is_drawn_without_replacement() -> None:
    """64 samples whose noise scale is 5 times their number: each half tells something of the other."""
    data = samples(64, 0.0)
    truth = float(data.var(0).sum() / data.mean(0).square().sum())
    noise = measured(data, 16, epochs=25)
    found = estimate(noise.probes, len(data))
    blind = estimate(noise.probes, None)
    assert found is not None
    assert found.low < truth < found.high
    assert blind is None or blind.low > truth or blind.scale > 1.5 * truth
    assert suggested(found.scale, len(data)) <= 64


def test_what_cannot_be_told_is_not_told() -> None:
    one = Probe(1.0, 100.0)
    assert estimate([one] * 7, None) is None
    assert estimate([Probe(-1.0, 100.0)] * 8, None) is None
    assert estimate([Probe(1.0, 0.0)] * 8, None) is None
    found = estimate([one] * 8, None)
    assert found is not None
    assert tuple(found) == pytest.approx((100, 100, 100))
    wide = estimate([Probe(5.0, 100.0), Probe(-3.0, 100.0)] * 8, None)
    assert wide is not None
    assert wide.scale == pytest.approx(100)
    assert wide.high == math.inf
    assert "batch 128 over all workers (noise scale 100 samples" in explained(wide, None)
    assert "to ?)" in explained(wide, None)
    assert [suggested(scale, None) for scale in (0.3, 1, 90, 91, 1000)] == [1, 1, 64, 128, 1024]
    assert suggested(1000, 700) == 512


STRATEGIES = pytest.mark.parametrize("name", ["single", "ddp", "async"])


def workers(name: str) -> tuple[Any, int]:
    """A strategy and its number of devices."""
    if name == "single":
        return "auto", 1
    return (DDP() if name == "ddp" else AsyncPS("sync")), 2


@pytest.mark.sampled
@STRATEGIES
def test_training_is_the_same_to_the_last_bit(name: str, tmp_path: Path) -> None:
    """With dropout, a torchmetric and shuffling; rule `sync`, because two asynchronous runs never are the same."""

    def weights(*more: NoiseScale) -> Tensor:
        strategy, devices = workers(name)
        told: dict[str, Any] = {"callbacks": [noise.measure for noise in more] + list(more)}
        return fit(trainer(tmp_path, strategy, devices, **told))

    with_it = weights(NoiseScale(Measure(DataClock()), every=1))
    assert torch.equal(with_it, weights())


@pytest.mark.sampled
@STRATEGIES
def test_it_measures_under_every_strategy(name: str, tmp_path: Path) -> None:
    """Worker 0 writes down what it has; the workers end with their processes."""

    class Told(NoiseScale):
        def on_train_end(self, trainer: Any, pl_module: LightningModule) -> None:
            if trainer.is_global_zero:
                torch.save(torch.tensor(list(self.probes)), tmp_path / "probes")

    data: Any = samples(1600, 0.2)
    strategy, devices = workers(name)
    measure = Measure(DataClock())
    made = trainer(tmp_path, strategy, devices, max_epochs=1, callbacks=[measure, Told(measure, every=1)])
    made.fit(Inner(), DataLoader(data, batch_size=8, shuffle=True))
    probes = [Probe(*one) for one in torch.load(tmp_path / "probes").tolist()]
    found = estimate(probes, len(data))
    assert found is not None
    assert len(probes) >= (99 if name != "async" else 50)
    assert found.low < data.var(0).sum() / data.mean(0).square().sum() < found.high


def test_the_cost_stays_within_its_share(monkeypatch: pytest.MonkeyPatch) -> None:
    """By a clock that tells 10 ms for a probe and 4 ms for a step: 10 / (0.03 * 4), one probe in 84 steps."""
    now = 0.0

    class Timed(Inner):
        def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
            nonlocal now
            now += 0.005 if "log" in vars(self) else 0.004  # the copy of a probe has a `log` of its own
            return super().training_step(batch, batch_idx)

    monkeypatch.setattr("scalebook.training.callbacks.noise_scale.perf_counter", lambda: now)
    measure = Measure(DataClock())
    noise = NoiseScale(measure)
    data: Any = samples(4 * 260, 0.2)
    plain_trainer(measure, noise, max_epochs=1).fit(Timed(), DataLoader(data, batch_size=4))
    assert len(noise.probes) == 4  # after 5 steps, and 3 times 84 later
    assert now == pytest.approx(260 * 0.004 + 4 * 0.010)


def test_batches_of_one_sample_have_no_halves() -> None:
    assert not measured(samples(12, 0.2), 1).probes


def test_manual_optimization_is_refused_by_name() -> None:
    class Manual(OneWeight):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

    with pytest.raises(ConfigError, match=r"noise_scale: cannot be combined with Manual"):
        plain_trainer(NoiseScale(Measure(DataClock()))).fit(Manual(), DataLoader(samples(4, 0.0)))  # type: ignore[arg-type]  # a tensor is a data set
