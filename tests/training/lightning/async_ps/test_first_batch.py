"""Parameters and buffers initialised by the first batch: refused, with the line that makes them train."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.optim import SGD
from torch.utils.data import DataLoader

from scalebook.training.engine.worker.worker_end import WrittenError
from scalebook.training.lightning import AsyncPS, Peers
from tests.training.lightning.async_ps.small import data, held_out, trainer, weights

LINE = "self(batch)"
"""What the errors advise to write into configure_model."""


class Norm(nn.Module):
    """ActNorm (Kingma and Dhariwal, 2018): the first batch comes out with mean 0 and variance 1."""

    def __init__(self) -> None:
        super().__init__()
        self.shift, self.scale = nn.Parameter(torch.zeros(5)), nn.Parameter(torch.ones(5))
        self.is_set: Tensor
        self.register_buffer("is_set", torch.tensor(False))

    def forward(self, values: Tensor) -> Tensor:
        if not self.is_set:
            with torch.no_grad():
                self.scale.copy_(1 / (values.std(0) + 1e-6))
                self.shift.copy_(-values.mean(0))
                self.is_set.fill_(True)
        return (values + self.shift) * self.scale


class Observer(nn.Module):
    """The largest value of each channel, in a buffer that the first batch resizes, as quantisation does."""

    def __init__(self) -> None:
        super().__init__()
        self.most: Tensor
        self.register_buffer("most", torch.ones(1))

    def forward(self, values: Tensor) -> Tensor:
        now = values.detach().abs().amax(0)
        if self.most.shape != now.shape:
            self.most.resize_(now.shape).copy_(now)
        elif self.training:
            self.most.lerp_(now, 0.01)
        return values / self.most


class Net(LightningModule):
    def __init__(self, first: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.net = nn.Sequential(first(), nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))

    def forward(self, values: Tensor) -> Tensor:
        out: Tensor = self.net(values)
        return out

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val/loss", cross_entropy(self(batch[0]), batch[1]))

    def configure_optimizers(self) -> Any:
        return SGD(self.parameters(), lr=0.1)


class WithLine(Net):
    def configure_model(self) -> None:
        batch = data(16)[:][0]
        eval(LINE, {"self": self, "batch": batch})  # noqa: S307  # exactly what the error says


def trained(folder: Path, strategy: Any, model: LightningModule, batch: int, validates: bool = True) -> Tensor:
    made = trainer(folder, strategy, max_epochs=1, limit_val_batches=1.0 if validates else 0)
    made.fit(model, DataLoader(data(64), batch_size=batch), held_out())
    return weights(model)


@pytest.mark.parametrize("validates", [False, True])
@pytest.mark.parametrize("strategy", [lambda: AsyncPS(rule="sync", workers=2), lambda: Peers(workers=2)])
def test_parameters(strategy: Any, validates: bool, tmp_path: Path) -> None:
    with pytest.raises(WrittenError, match="If the first batch initialises parameters, call ") as caught:
        trained(tmp_path, strategy(), Net(Norm), 8, validates)
    assert f"call {LINE} in configure_model" in str(caught.value)


@pytest.mark.parametrize("strategy", [lambda: AsyncPS(rule="sync", workers=2), lambda: AsyncPS(host="process")])
def test_parameters_with_the_line(strategy: Any, tmp_path: Path) -> None:
    made = strategy()
    expected = trained(tmp_path, "auto", WithLine(Norm), 16 if made.arguments.server.rule.synchronous else 8)
    torch.testing.assert_close(trained(tmp_path, made, WithLine(Norm), 8), expected, rtol=1e-5, atol=1e-6)


def test_buffers(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"buffer net\.0\.most was float32 \[1\] and is float32 \[5\] now") as caught:
        trained(tmp_path, AsyncPS(rule="sync", workers=2), Net(Observer), 8)
    assert f"call {LINE} in configure_model" in str(caught.value)
    assert "buffers to per_worker" in str(caught.value)


@pytest.mark.parametrize(
    ("model", "arguments"), [(WithLine(Observer), {}), (Net(Observer), {"buffers": "per_worker"})], ids=["line", "own"]
)
def test_buffers_with_what_the_error_says(model: Net, arguments: Any, tmp_path: Path) -> None:
    began = weights(model)
    assert not torch.equal(trained(tmp_path, AsyncPS(rule="sync", workers=2, **arguments), model, 8), began)
    most: Any = model.net[0].most
    assert most.shape == (5,)


def test_one_worker_with_resized_buffers_is_one_process(tmp_path: Path) -> None:
    expected = trained(tmp_path, "auto", Net(Observer), 8)
    assert torch.equal(trained(tmp_path, AsyncPS(), Net(Observer), 8), expected)
