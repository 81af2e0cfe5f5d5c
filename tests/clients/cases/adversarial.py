"""A GAN with two optimizers and manual optimization."""

import torch
from lightning.pytorch import LightningModule
from torch import Tensor

from tests.clients.case import Setting
from tests.clients.cases.data import BATCHES, loader
from tests.clients.fitting import make_trainer, seeded

MEAN = torch.tensor([1.6, -1.2])


class WganGp(LightningModule):
    """Gulrajani et al. 2017: a critic with a penalty on its gradient, a generator that steps every third batch."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.generator = torch.nn.Sequential(torch.nn.Linear(4, 32), torch.nn.ReLU(), torch.nn.Linear(32, 2))
        self.critic = torch.nn.Sequential(torch.nn.Linear(2, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))

    def _penalty(self, real: Tensor, made: Tensor) -> Tensor:
        share = torch.rand(len(real), 1)
        between = (share * real + (1 - share) * made).requires_grad_()
        (gradient,) = torch.autograd.grad(self.critic(between).sum(), between, create_graph=True)
        penalty: Tensor = ((gradient.norm(dim=1) - 1) ** 2).mean()
        return penalty

    def training_step(self, batch: list[Tensor], batch_idx: int) -> None:
        of_generator, of_critic = self.optimizers()  # type: ignore[attr-defined]  # two were configured
        real = batch[0]
        made = self.generator(torch.randn(len(real), 4)).detach()
        loss = self.critic(made).mean() - self.critic(real).mean() + 10 * self._penalty(real, made)
        of_critic.zero_grad()
        self.manual_backward(loss)
        of_critic.step()
        self.log("critic_loss", loss)
        if batch_idx % 3 == 2:
            self.toggle_optimizer(of_generator)
            generated = -self.critic(self.generator(torch.randn(len(real), 4))).mean()
            of_generator.zero_grad()
            self.manual_backward(generated)
            of_generator.step()
            self.untoggle_optimizer(of_generator)

    def configure_optimizers(self) -> list[torch.optim.Optimizer]:
        rates = ((self.generator, 1e-3), (self.critic, 1e-2))
        return [torch.optim.Adam(module.parameters(), lr=rate, betas=(0.0, 0.9)) for module, rate in rates]


def wgan_gp(setting: Setting) -> dict[str, float]:
    """`mean_error`: how far the mean of what is generated is from that of the data, a ball; 2 before training."""
    ball = MEAN + 0.5 * torch.randn(16 * BATCHES, 2, generator=torch.Generator().manual_seed(2))
    model = seeded(WganGp)
    make_trainer(setting, max_epochs=20).fit(model, loader(ball, shuffle=True, batch=16))
    with torch.no_grad():
        made = model.generator(torch.randn(512, 4))
    return {"mean_error": (made.mean(0) - MEAN).norm().item()}
