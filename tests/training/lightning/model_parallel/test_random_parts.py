"""Weights that are drawn when a model is split already: other numbers in each part, also on a CPU."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.placement_types import _StridedShard
from torch.optim import SGD

from scalebook.training.lightning import ModelParallel
from scalebook.training.lightning.model_parallel.splitting import number_of_part
from tests.training.lightning.async_ps.small import loader, trainer
from tests.training.lightning.model_parallel.split_model import Pair


def still(model: nn.Module) -> SGD:
    return SGD(model.parameters(), lr=0.0)


class Fresh(Pair):
    """As Lightning's example of tensor parallelism begins: weights exist once they are split."""

    def on_train_start(self) -> None:
        torch.manual_seed(3)
        for layer in self.net.children():
            if isinstance(layer, nn.Linear):
                nn.init.normal_(layer.weight)
                nn.init.zeros_(layer.bias)


def test_a_model_without_weights_is_drawn_in_its_parts_and_brought_back(tmp_path: Path) -> None:
    made = trainer(tmp_path, ModelParallel(tensor=2), 2, max_epochs=1)
    with made.init_module(empty_init=True):
        model = Fresh(still)
    net: Any = model.net
    assert net[3].weight.is_meta
    made.fit(model, loader(), loader())
    upper, lower = net[3].weight.detach().chunk(2)
    assert not torch.equal(upper, lower)
    assert abs(float(upper.std()) - 1) < 0.2
    assert torch.equal(net[1].weight, torch.ones(17)), "by reset_parameters of a layer that is whole"


def test_parts_are_numbered_by_what_divides_them() -> None:
    def number(place: tuple[int, int], *placements: Any) -> int:
        mesh = SimpleNamespace(size=lambda dim: 2, get_local_rank=lambda dim: place[dim])
        return number_of_part(SimpleNamespace(mesh=mesh, placements=placements))

    places = [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert [number(place, _StridedShard(0, split_factor=2), Shard(0)) for place in places] == [0, 1, 2, 3]
    assert [number(place, Replicate(), Shard(1)) for place in places] == [0, 1, 0, 1]
    assert [number(place, Shard(0), Replicate()) for place in places] == [0, 0, 1, 1]
