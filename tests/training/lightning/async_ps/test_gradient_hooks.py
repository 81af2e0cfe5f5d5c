"""Models and callbacks that clip gradients themselves, or read them, under rules that average: as under DDP, or an
error."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import Strategy
from torch import Tensor
from torch.optim import SGD, Optimizer
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.update_rules import Softsync, Sync
from scalebook.training.lightning import AsyncPS
from tests.training.lightning.async_ps.machines import by_hand, together
from tests.training.lightning.async_ps.small import trainer, weights

pytestmark = pytest.mark.long

SAMPLES = 44
"""Of two workers with batches of 4, one has a batch more than the other."""
LIMIT = 0.3
"""Below the norm of nearly every gradient."""


class Line(LightningModule):
    """Two layers, of which models below clip the gradients."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.layer, self.second = torch.nn.Linear(2, 3), torch.nn.Linear(3, 1)

    def loss(self, batch: list[Tensor]) -> Tensor:
        missed: Tensor = self.second(self.layer(batch[0]).tanh()) - batch[1]
        return missed.square().mean()

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor | None:
        return self.loss(batch)

    def configure_optimizers(self) -> Any:
        return SGD(self.parameters(), 0.1)


class Overrides(Line):
    def configure_gradient_clipping(self, optimizer: Optimizer, *_: Any, **__: Any) -> None:
        torch.nn.utils.clip_grad_norm_([self.layer.weight], LIMIT)


class PassesOn(Line):
    def configure_gradient_clipping(
        self, optimizer: Optimizer, gradient_clip_val: Any = None, gradient_clip_algorithm: Any = None
    ) -> None:
        self.clip_gradients(optimizer, gradient_clip_val, gradient_clip_algorithm)


class BeforeStep(Line):
    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        for parameter in self.parameters():
            assert parameter.grad is not None
            parameter.grad.sign_().mul_(0.05)


class AfterBackward(Line):
    def on_after_backward(self) -> None:
        torch.nn.utils.clip_grad_value_(self.parameters(), LIMIT / 4)


class Backward(Line):
    def backward(self, loss: Tensor, *args: Any, **kwargs: Any) -> None:
        loss.backward()  # type: ignore[no-untyped-call]
        torch.nn.utils.clip_grad_norm_(self.parameters(), LIMIT)


class OwnStep(Line):
    def optimizer_step(  # type: ignore[override]
        self, epoch: int, batch_idx: int, optimizer: Any, closure: Callable[[], Any]
    ) -> None:
        closure()
        torch.nn.utils.clip_grad_norm_(self.parameters(), LIMIT)
        optimizer.step()


class Manual(Line):
    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.run_backward(self.loss(batch))
        self.clip_gradients(optimizer, LIMIT, "norm")
        optimizer.step()

    def run_backward(self, loss: Tensor) -> None:
        self.manual_backward(loss)


class ManualByTorch(Manual):
    def run_backward(self, loss: Tensor) -> None:
        loss.backward()  # type: ignore[no-untyped-call]


class Sharpness(Manual):
    """SAM (Foret et al. 2021)."""

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        kept = [parameter.detach().clone() for parameter in self.parameters()]
        gradients = [parameter.grad for parameter in self.parameters() if parameter.grad is not None]
        norm = torch.nn.utils.get_total_norm(gradients)
        with torch.no_grad():
            for parameter, gradient in zip(self.parameters(), gradients, strict=True):
                parameter.add_(gradient, alpha=0.5 / float(norm))
        optimizer.zero_grad()
        self.manual_backward(self.loss(batch))
        with torch.no_grad():
            for parameter, value in zip(self.parameters(), kept, strict=True):
                parameter.copy_(value)
        optimizer.step()


class Signs(Callback):
    def on_before_optimizer_step(self, trainer: Trainer, pl_module: LightningModule, optimizer: Optimizer) -> None:
        BeforeStep.on_before_optimizer_step(pl_module, optimizer)  # type: ignore[arg-type]


def train(
    folder: Path,
    model: Line,
    strategy: Strategy | str,
    devices: int,
    batch: int,
    samples: int = SAMPLES,
    **settings: Any,
) -> Tensor:
    made = trainer(folder, strategy, devices, num_sanity_val_steps=0, **settings)
    inputs = torch.randn(samples, 2, generator=torch.Generator().manual_seed(3))
    made.fit(model, DataLoader(TensorDataset(inputs, 2 * inputs.sum(1, keepdim=True)), batch))
    return weights(model)


AUTOMATIC = (Overrides, BeforeStep, AfterBackward, Backward, OwnStep)
CLIPS_BY_TRAINER: dict[type[Line], Any] = {PassesOn: {"gradient_clip_val": LIMIT}}


@pytest.mark.parametrize("model", [*AUTOMATIC, PassesOn, Manual, ManualByTorch, Sharpness])
def test_own_clipping_under_sync_acts_on_the_mean_as_one_process_has_it(model: type[Line], tmp_path: Path) -> None:
    settings: Any = CLIPS_BY_TRAINER.get(model, {})
    expected = train(tmp_path, model(), "auto", 1, 8, **settings)
    found = train(tmp_path, model(), AsyncPS("sync", workers=2), 2, 4, **settings)
    assert torch.allclose(found, expected, rtol=0, atol=1e-6)
    assert not torch.allclose(train(tmp_path, Line(), "auto", 1, 8), expected, rtol=0, atol=1e-3)


@pytest.mark.parametrize("host", ["inline", "process"])
@pytest.mark.parametrize("workers", [2, 3])
def test_with_accumulation_and_a_callback_and_several_shards(workers: int, host: Any, tmp_path: Path) -> None:
    settings: Any = {"accumulate_grad_batches": 2, "samples": 48}
    expected = train(tmp_path, Line(), "auto", 1, 4 * workers, callbacks=[Signs()], **settings)
    strategy = AsyncPS("sync", workers=workers, host=host, shards=2)
    found = train(tmp_path, Line(), strategy, workers, 4, callbacks=[Signs()], **settings)
    assert torch.allclose(found, expected, rtol=0, atol=1e-6)


def test_on_two_machines(tmp_path: Path, machines_key: None) -> None:
    expected = train(tmp_path, Overrides(), "auto", 1, 8)

    def body() -> Tensor:
        return train(tmp_path, Overrides(), AsyncPS("sync", tls=False), 1, 4, num_nodes=2)

    for found in together(by_hand(), body, tmp_path):
        assert torch.allclose(found, expected, rtol=0, atol=1e-6)


LATER = {
    "softsync": lambda: AsyncPS(Softsync(2), workers=2),
    "backup workers": lambda: AsyncPS(Sync(1), workers=3),
    "codec": lambda: AsyncPS("sync", workers=2, push_codec="int8"),
    "virtual": lambda: AsyncPS("sync", workers=2, host="virtual", clock=ClockSettings(gradient_s=0.05)),
}
"""Where the mean is known only after the hooks."""


@pytest.mark.parametrize("name", LATER)
def test_clipping_is_an_error_where_the_mean_comes_later(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"Overrides\.configure_gradient_clipping would clip.*before rule \w+ averages"
    ):
        train(tmp_path, Overrides(), LATER[name](), 1, 4)
    for model in (BeforeStep, AfterBackward, OwnStep):
        with pytest.raises(ValueError, match=r"\.on_\w+|optimizer_step changed a gradient before rule \w+ averages it"):
            train(tmp_path, model(), LATER[name](), 1, 4)


class Reads(Line):
    """Logs the norm of the gradient, as many do."""

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        gradients = [parameter.grad for parameter in self.parameters() if parameter.grad is not None]
        self.log("norm", torch.nn.utils.get_total_norm(gradients))


@pytest.mark.parametrize("name", LATER)
def test_a_gradient_may_be_read_and_clipped_by_the_trainer_there(name: str, tmp_path: Path) -> None:
    train(tmp_path, Reads(), LATER[name](), 1, 4, gradient_clip_val=LIMIT, max_epochs=1)


def test_a_worker_that_averages_with_nobody_clips_its_own_gradient(tmp_path: Path) -> None:
    expected = train(tmp_path, Overrides(), "auto", 1, 4)
    for strategy in (AsyncPS("sync", workers=1), AsyncPS(workers=1), AsyncPS("bounded", workers=1)):
        assert torch.equal(train(tmp_path, Overrides(), strategy, 1, 4), expected)
