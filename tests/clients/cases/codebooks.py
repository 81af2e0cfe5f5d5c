"""Models whose forward pass changes buffers by what it sees: codes of a VQ-VAE, centroids of an online clustering."""

import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.nn.functional import cross_entropy, mse_loss, one_hot

from tests.clients.case import Setting
from tests.clients.cases.buffers import Apart
from tests.clients.cases.data import held_out, training
from tests.clients.fitting import best, make_trainer, plainly, saved, seeded


class VqVae(LightningModule):
    """Van den Oord et al. 2017, with codes that follow by moving averages (their appendix A.1)."""

    codes: Tensor
    counts: Tensor
    sums: Tensor

    def __init__(self, codes: int = 16, width: int = 4) -> None:
        super().__init__()
        self.encoder, self.decoder = torch.nn.Linear(8, width), torch.nn.Linear(width, 8)
        self.register_buffer("codes", torch.randn(codes, width))
        self.register_buffer("counts", torch.ones(codes))
        self.register_buffer("sums", self.codes.clone())

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        hidden = self.encoder(inputs)
        nearest = torch.cdist(hidden, self.codes).argmin(1)
        if self.training:
            self._follow(hidden.detach(), nearest)
        code = self.codes[nearest]
        return self.decoder(hidden + (code - hidden).detach()), mse_loss(hidden, code)

    @torch.no_grad()
    def _follow(self, hidden: Tensor, nearest: Tensor) -> None:
        seen = one_hot(nearest, len(self.codes)).float()
        self.counts.mul_(0.9).add_(seen.sum(0), alpha=0.1)
        self.sums.mul_(0.9).add_(seen.T @ hidden, alpha=0.1)
        self.codes.copy_(self.sums / self.counts.clamp(min=1e-3)[:, None])

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        made, commitment = self(batch[0])
        loss: Tensor = mse_loss(made, batch[0]) + 0.25 * commitment
        return loss

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", mse_loss(self(batch[0])[0], batch[0]), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=5e-3)


def vq_vae(setting: Setting) -> dict[str, float]:
    model = seeded(VqVae)
    apart = Apart("codes", setting.folder)
    make_trainer(setting, [best(setting), apart], max_epochs=5).fit(model, training(batches=32), held_out())
    return {"loss": plainly(model, held_out()), "apart": apart.read(), "saved": saved(setting, VqVae, held_out())}


class Clustering(LightningModule):
    """A classifier learns the number of the centroid that is nearest; centroids begin in the first batch, and follow.

    Two workers whose centroids are numbered in another order teach it contradictions.
    """

    centroids: Tensor
    begun: Tensor

    def __init__(self, classes: int = 4) -> None:
        super().__init__()
        self.head = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, classes))
        self.register_buffer("centroids", torch.zeros(classes, 8))
        self.register_buffer("begun", torch.tensor(False))

    def forward(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Logits, and the nearest centroid's number."""
        if self.training:
            self._follow(inputs)
        return self.head(inputs), torch.cdist(inputs, self.centroids).argmin(1)

    @torch.no_grad()
    def _follow(self, inputs: Tensor) -> None:
        if not self.begun:
            chosen = [0]  # then whichever is farthest from those chosen
            while len(chosen) < len(self.centroids):
                chosen.append(int(torch.cdist(inputs, inputs[chosen]).min(1).values.argmax()))
            self.centroids.copy_(inputs[chosen])
            self.begun.fill_(True)
        nearest = torch.cdist(inputs, self.centroids).argmin(1)
        for number in set(nearest.tolist()):
            self.centroids[number].lerp_(inputs[nearest == number].mean(0), 0.1)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(*self(batch[0]))

    def validation_step(self, batch: list[Tensor], batch_idx: int) -> None:
        self.log("val_loss", cross_entropy(*self(batch[0])), sync_dist=True)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.Adam(self.parameters(), lr=1e-2)


def clustering(setting: Setting) -> dict[str, float]:
    """`accuracy`: how many held-out samples the classifier gives the number of the centroid that is nearest."""
    model = seeded(Clustering)
    apart = Apart("centroids", setting.folder)
    make_trainer(setting, [best(setting), apart]).fit(model, training(batches=32), held_out())
    inputs, _ = held_out().dataset[:]
    model.eval()
    with torch.no_grad():
        logits, nearest = model(inputs)
    accuracy = (logits.argmax(1) == nearest).float().mean().item()
    return {"accuracy": accuracy, "apart": apart.read(), "saved": saved(setting, Clustering, held_out())}
