"""What a fit of a large model takes, and that the process that asked for it has its parameters again afterwards."""

from functools import partial
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.utils.data import DataLoader

from benchmarks.memory import measured
from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.async_ps.async_run import WORTH

pytestmark = pytest.mark.long

WIDTH = 4200
SMALL_STEPS = 200


class Wide(LightningModule):
    """One layer of 71 MB."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.layer, self.fails = torch.nn.Linear(WIDTH, WIDTH, bias=False), fails

    def training_step(self, batch: Tensor, batch_idx: int) -> Tensor:
        if self.fails and self.trainer.global_step > 0:
            raise RuntimeError("in a later step")
        loss: Tensor = self.layer(batch).sum()
        return loss

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.5)


@pytest.mark.parametrize("fails", [False, True])
def test_large_parameters_come_back_trained_or_as_they_were(fails: bool) -> None:
    model = Wide(fails)
    before, place = model.layer.weight.detach().clone(), model.layer.weight.data_ptr()
    assert before.nbytes > WORTH
    trainer = Trainer(
        accelerator="cpu", strategy=AsyncPS(workers=2), max_steps=8, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False,
    )  # fmt: skip
    loader: Any = DataLoader(torch.ones(8, WIDTH), batch_size=1)  # type: ignore[arg-type]  # a tensor is a data set
    if fails:
        with pytest.raises(RuntimeError, match="in a later step"):
            trainer.fit(model, loader)
    else:
        trainer.fit(model, loader)
    expected = before.clone()
    for _ in range(0 if fails else 8):
        expected -= 0.5
    assert torch.equal(model.layer.weight.detach(), expected)
    assert model.layer.weight.data_ptr() == place


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_two_workers_take_so_many_copies_of_the_parameters_at_their_peak() -> None:
    """SGD: three versions, two gradients. Adam: two copies of its state more, and one of a snapshot, each twice the
    parameters. The rest, a copy and more, are holes in the workers' heaps, which differ from run to run. What Python
    takes is that of a small model, which trains for so many steps that all its processes are met at work."""
    peak, parameters = partial(measured, workers=2, imported=True), 20_000_000
    pythons = peak("sgd", 20_000, steps=SMALL_STEPS)
    sgd, adam = ((peak(name, parameters, steps=8) - pythons) / (4 * parameters) for name in ("sgd", "adam"))
    assert 4.9 <= sgd < 8, sgd  # a tenth is 8 MB, by which what Python takes differs
    assert 9 <= adam < 14, adam
