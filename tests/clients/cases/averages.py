"""Moving averages of the weights, by which a model is validated: a copy inside the model, and a list beside it."""

from typing import Any

from ema_pytorch import EMA
from lightning.pytorch.utilities.types import STEP_OUTPUT
from torch import Tensor
from torch.nn.functional import cross_entropy
from torch_ema import ExponentialMovingAverage

from tests.clients.case import Setting
from tests.clients.cases.data import clusters, held_out, in_order
from tests.clients.fitting import BEST, Simple, perceptron, plainly, trained


class InsideModel(Simple):
    """The average is a part of the model, and so of its checkpoints."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron()
        self.average = EMA(self.net, beta=0.9, update_every=1, update_after_step=0, include_online_model=False)

    def loss(self, batch: Any) -> Tensor:
        return cross_entropy((self.net if self.training else self.average)(batch[0]), batch[1])

    def on_train_batch_end(self, outputs: STEP_OUTPUT, batch: Any, batch_idx: int) -> None:
        self.average.update()


class BesideModel(Simple):
    """In validation the average takes the weights' place; checkpoints have it by its own state."""

    def __init__(self) -> None:
        super().__init__()
        self.net = perceptron()
        self.average = ExponentialMovingAverage(self.net.parameters(), decay=0.9)

    def loss(self, batch: Any) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])

    def on_train_batch_end(self, outputs: STEP_OUTPUT, batch: Any, batch_idx: int) -> None:
        self.average.update()

    def on_validation_start(self) -> None:
        self.average.store()
        self.average.copy_to()

    def on_validation_end(self) -> None:
        self.average.restore()

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint["average"] = self.average.state_dict()

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.average.load_state_dict(checkpoint["average"])


def ema_inside(setting: Setting) -> dict[str, float]:
    return trained(setting, InsideModel, in_order(setting, *clusters(240)), held_out())[1]


def ema_beside(setting: Setting) -> dict[str, float]:
    """Its loss is of the best checkpoint: after a fit in processes, the list is only there."""
    found = trained(setting, BesideModel, in_order(setting, *clusters(240)), held_out())[1]
    loss = plainly(BesideModel(), held_out(), ckpt_path=setting.folder / BEST, weights_only=False)
    return {**found, "loss": loss}
