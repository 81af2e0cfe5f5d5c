"""TabNet: batch normalisation of the inputs, and of parts of a batch."""

from typing import Any

import torch
from pytorch_tabnet.tab_network import TabNet
from torch import Tensor
from torch.nn.functional import cross_entropy

from tests.clients.case import Setting
from tests.clients.cases.data import clusters, held_out, in_order
from tests.clients.fitting import Simple, trained


class Table(Simple):
    """The library's network, with its penalty for attention to many columns."""

    rate = 0.01

    def __init__(self) -> None:
        super().__init__()
        self.net = TabNet(8, 4, n_d=4, n_a=4, n_steps=2, virtual_batch_size=8, group_attention_matrix=torch.eye(8))

    def loss(self, batch: Any) -> Tensor:
        logits, attention = self.net(batch[0])
        loss: Tensor = cross_entropy(logits, batch[1]) - 1e-3 * attention
        return loss


def tabnet(setting: Setting) -> dict[str, float]:
    """`seen`: the running mean of the inputs, of which a batch's is the mean over its halves."""
    model, found = trained(setting, Table, in_order(setting, *clusters(240)), held_out(), max_epochs=20)
    return {**found, "seen": float(model.get_buffer("net.tabnet.encoder.initial_bn.running_mean").double().abs().sum())}
