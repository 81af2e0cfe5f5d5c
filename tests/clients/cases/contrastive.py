"""Contrastive learning: embeddings of all workers gathered with their gradients, and a queue of negatives as buffer."""

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn.functional import cross_entropy, normalize

from tests.clients.case import Setting
from tests.clients.cases.buffers import Apart
from tests.clients.cases.data import held_out, training
from tests.clients.fitting import best, make_trainer, plainly, saved, seeded


class Clip(LightningModule):
    """Two towers for two views of a sample; a batch's loss is over the samples of all workers."""

    def __init__(self) -> None:
        super().__init__()
        self.left, self.right = torch.nn.Linear(8, 16), torch.nn.Linear(8, 16)
        self.temperature = torch.nn.Parameter(torch.tensor(2.0))

    def loss(self, batch: list[Tensor], gathered: bool) -> Tensor:
        left, right = normalize(self.left(batch[0])), normalize(self.right(batch[0].flip(1)))
        if gathered:
            left = self._of_all(left)
            right = self._of_all(right)
        scores = left @ right.T * self.temperature.exp()
        matches = torch.arange(len(scores))
        return (cross_entropy(scores, matches) + cross_entropy(scores.T, matches)) / 2

    def _of_all(self, points: Tensor) -> Tensor:
        gathered = self.all_gather(points, sync_grads=True)
        assert isinstance(gathered, Tensor)
        return gathered.reshape(-1, 16)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        loss = self.loss(batch, gathered=True)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", self.loss(batch, gathered=False), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def clip(setting: Setting) -> dict[str, float]:
    model = seeded(Clip)
    make_trainer(setting, [best(setting)]).fit(model, training(classes=8), held_out(classes=8))
    data = held_out(classes=8)
    return {"loss": plainly(model, data), "saved": saved(setting, Clip, data)}


class Moco(LightningModule):
    """He et al. 2020: keys by an encoder that follows the other one slowly, negatives from a queue that is a buffer."""

    queue: Tensor
    place: Tensor

    def __init__(self, length: int = 64) -> None:
        super().__init__()
        self.query, self.key = torch.nn.Linear(8, 16), torch.nn.Linear(8, 16)
        self.key.load_state_dict(self.query.state_dict())
        self.key.requires_grad_(False)
        self.register_buffer("queue", normalize(torch.randn(length, 16)))
        self.register_buffer("place", torch.zeros(1, dtype=torch.long))

    @torch.no_grad()
    def _follow(self) -> None:
        for key, query in zip(self.key.parameters(), self.query.parameters(), strict=True):
            key.mul_(0.99).add_(query, alpha=0.01)

    @torch.no_grad()
    def _enqueue(self, keys: Tensor) -> None:
        gathered = self.all_gather(keys)
        assert isinstance(gathered, Tensor)
        keys = gathered.reshape(-1, 16)
        places = (int(self.place) + torch.arange(len(keys))) % len(self.queue)
        self.queue[places] = keys
        self.place[0] = (int(self.place) + len(keys)) % len(self.queue)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        inputs = batch[0]
        query = normalize(self.query(inputs + 0.1 * torch.randn_like(inputs)))
        self._follow()
        with torch.no_grad():
            key = normalize(self.key(inputs + 0.1 * torch.randn_like(inputs)))
        scores = torch.cat([(query * key).sum(1, keepdim=True), query @ self.queue.clone().T], dim=1) / 0.1
        self._enqueue(key)
        return cross_entropy(scores, torch.zeros(len(scores), dtype=torch.long))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.query.parameters(), lr=0.03, momentum=0.9)


def moco(setting: Setting) -> dict[str, float]:
    """`hits`: how many held-out samples are nearest to another one of their class."""
    model = seeded(Moco)
    apart = Apart("queue", setting.folder)
    make_trainer(setting, [apart]).fit(model, training(batches=32))
    inputs, labels = held_out().dataset[:]
    with torch.no_grad():
        points = normalize(model.query(inputs))
    near = (points @ points.T).fill_diagonal_(-2.0).argmax(1)
    return {"hits": (labels[near] == labels).float().mean().item(), "apart": apart.read()}
