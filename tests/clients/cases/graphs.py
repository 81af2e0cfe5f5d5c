"""torch_geometric: LightningDataset makes the loaders of graphs, and wants to know the strategy."""

import torch
from lightning.pytorch import LightningModule
from torch.nn.functional import cross_entropy
from torch_geometric.data import Batch, Data
from torch_geometric.data.lightning import LightningDataset
from torch_geometric.nn import GCNConv, global_mean_pool
from torchmetrics import Accuracy

from tests.clients.case import Setting
from tests.clients.fitting import best, make_trainer, plainly, saved, seeded


def _graphs(number: int, seed: int) -> list[Data]:
    """Circles whose nodes have features around one of two means."""
    draws = torch.Generator().manual_seed(seed)
    nodes = torch.arange(6)
    circle = torch.stack([nodes, nodes.roll(1)])
    return [
        Data(
            x=torch.randn(6, 4, generator=draws) + 0.7 * (label := index % 2),
            edge_index=circle,
            y=torch.tensor([label]),
        )
        for index in range(number)
    ]


class Gcn(LightningModule):
    """Two convolutions and a mean; accuracies are torchmetrics."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second, self.head = GCNConv(4, 16), GCNConv(16, 16), torch.nn.Linear(16, 2)
        self.train_acc, self.val_acc = (Accuracy(task="multiclass", num_classes=2) for _ in range(2))

    def forward(self, batch: Batch) -> torch.Tensor:
        hidden = self.first(batch.x, batch.edge_index).relu()
        hidden = self.second(hidden, batch.edge_index).relu()
        logits: torch.Tensor = self.head(global_mean_pool(hidden, batch.batch))
        return logits

    def training_step(self, batch: Batch, batch_idx: int) -> torch.Tensor:
        logits = self(batch)
        self.train_acc(logits.softmax(-1), batch.y)
        self.log("train_acc", self.train_acc, prog_bar=True, on_step=False, on_epoch=True, batch_size=batch.num_graphs)
        return cross_entropy(logits, batch.y)

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        logits = self(batch)
        self.val_acc(logits.softmax(-1), batch.y)
        self.log("val_acc", self.val_acc, on_epoch=True, batch_size=batch.num_graphs)
        self.log("val_loss", cross_entropy(logits, batch.y), batch_size=batch.num_graphs, sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=0.01)


def graph_classifier(setting: Setting) -> dict[str, float]:
    data = LightningDataset(_graphs(248, 1), _graphs(64, 2), batch_size=8, num_workers=0)
    model = seeded(Gcn)
    make_trainer(setting, [best(setting)]).fit(model, data)
    return {"loss": plainly(model, data.val_dataloader()), "saved": saved(setting, Gcn, data.val_dataloader())}
