"""pytorch-metric-learning: a loss with parameters of its own, and triplets that a miner chooses in the batch."""

import torch
from lightning.pytorch import LightningModule
from pytorch_metric_learning import losses, miners
from torch import Tensor

from tests.clients.case import Setting
from tests.clients.cases.data import held_out, training
from tests.clients.fitting import make_trainer, seeded


class Embedding(LightningModule):
    """An embedding by triplets and proxies, each with an optimizer's param group of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.net = torch.nn.Sequential(torch.nn.Linear(8, 32), torch.nn.ReLU(), torch.nn.Linear(32, 8))
        self.miner, self.triplets = miners.TripletMarginMiner(margin=0.2), losses.TripletMarginLoss()
        self.proxies = losses.ProxyAnchorLoss(num_classes=4, embedding_size=8)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        points = self.net(batch[0])
        loss: Tensor = self.triplets(points, batch[1], self.miner(points, batch[1])) + self.proxies(points, batch[1])
        self.log("train_loss", loss, on_epoch=True, sync_dist=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        groups = [{"params": self.net.parameters()}, {"params": self.proxies.parameters(), "lr": 1e-1}]
        return torch.optim.AdamW(groups, lr=3e-3)


def embedding(setting: Setting) -> dict[str, float]:
    """`neighbours`: how many held-out samples are nearest to another one of their class."""
    model = seeded(Embedding)
    make_trainer(setting).fit(model, training())
    inputs, labels = held_out().dataset[:]
    with torch.no_grad():
        points = model.net(inputs)
    near = torch.cdist(points, points).fill_diagonal_(float("inf")).argmin(1)
    return {"neighbours": (labels[near] == labels).float().mean().item()}
