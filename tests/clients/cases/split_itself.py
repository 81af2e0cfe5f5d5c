"""A model that splits itself in `configure_model`, in the manner of Lightning's documentation of tensor parallelism."""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.functional import cross_entropy, silu

from tests.clients.case import Setting
from tests.clients.cases.data import clusters, held_out, loader
from tests.clients.fitting import best, make_trainer, parts, saved, seeded, size

SAMPLES, UPDATES = 64, 20
"""All samples make one update, so that it does not matter in which order shards take them."""


class FeedForward(nn.Module):
    """Gated, by three layers."""

    def __init__(self, width: int, hidden: int, classes: int) -> None:
        super().__init__()
        self.first, self.gate = nn.Linear(width, hidden), nn.Linear(width, hidden)
        self.last = nn.Linear(hidden, classes)

    def forward(self, features: Tensor) -> Tensor:
        found: Tensor = self.last(silu(self.first(features)) * self.gate(features))
        return found


class SplitsItself(LightningModule):
    """Does not look whether there is anything to split."""

    def __init__(self) -> None:
        super().__init__()
        self.model = FeedForward(8, 32, 4)

    def configure_model(self) -> None:
        mesh: Any = self.device_mesh
        plan = {"first": ColwiseParallel(), "gate": ColwiseParallel(), "last": RowwiseParallel()}
        parallelize_module(self.model, mesh["tensor_parallel"], plan)
        fully_shard(self.model, mesh=mesh["data_parallel"])

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self.model(batch[0]), batch[1])

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", cross_entropy(self.model(batch[0]), batch[1]), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


class Plain(SplitsItself):
    """For a plain Trainer, which has no mesh."""

    def configure_model(self) -> None:
        pass


def mlp(setting: Setting) -> dict[str, float]:
    model = seeded(SplitsItself if "strategy" in setting.trainer else Plain)
    made = make_trainer(setting, [best(setting)], max_epochs=UPDATES)
    made.fit(model, loader(*clusters(SAMPLES), batch=SAMPLES // parts(setting)), held_out())
    again = Plain()
    again.load_state_dict(model.state_dict())
    with torch.no_grad():
        loss = sum(float(cross_entropy(again.model(x), y)) for x, y in held_out()) / len(held_out())
    return {"loss": loss, "weights": size(model), "saved": saved(setting, Plain, held_out())}
