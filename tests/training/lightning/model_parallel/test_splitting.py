"""What a module says of its split, and what is refused of it."""

import re
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, PrepareModuleInput, RowwiseParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from scalebook.training.lightning.model_parallel.splitting import DATA, TENSOR, shard_units, split, tensor_plan
from scalebook.training.zoo.models import Ranker
from tests.training.lightning.model_parallel.split_model import Pair


class Parts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.bag = nn.EmbeddingBag(8, 4)
        self.attention = nn.MultiheadAttention(4, 2)
        self.conv = nn.Conv2d(4, 4, 3)
        self.blocks = nn.ModuleList(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4)) for _ in range(2))
        self.plan: dict[str, Any] = {}
        self.units: dict[str, Any] = {}

    def parallel_plan(self) -> dict[str, Any]:
        return self.plan


def test_wildcards_name_a_layer_of_each_block() -> None:
    module = Parts()
    module.plan = {"blocks.*.0": ColwiseParallel(), "blocks.*.2": RowwiseParallel(), "conv": PrepareModuleInput()}
    plan = tensor_plan(module, 2)
    assert sorted(plan) == ["blocks.0.0", "blocks.0.2", "blocks.1.0", "blocks.1.2", "conv"]
    assert isinstance(plan["blocks.1.2"], RowwiseParallel)


@pytest.mark.parametrize(
    ("plan", "message"),
    [
        ({"blocks.*.7": ColwiseParallel()}, r"model: parallel_plan names blocks.*.7, but Parts has no such part"),
        ({"bag": RowwiseParallel()}, "model: parallel_plan splits bag, a EmbeddingBag"),
        ({"conv": ColwiseParallel()}, "model: parallel_plan splits conv, a Conv2d"),
        ({"attention.out_proj": RowwiseParallel()}, "splits attention.out_proj, a NonDynamically"),
        ({"blocks.0.2": ColwiseParallel()}, "tensor: blocks.0.2 has a width of 4, which 3 workers cannot"),
    ],
)
def test_what_torch_would_compute_wrong_is_refused(plan: dict[str, Any], message: str) -> None:
    module = Parts()
    module.plan = plan
    with pytest.raises(ValueError, match=re.escape(message)):
        tensor_plan(module, 3)


def test_widths_are_those_of_what_is_divided() -> None:
    module = Parts()
    module.plan = {"blocks.0.0": ColwiseParallel(), "blocks.0.2": RowwiseParallel()}
    assert len(tensor_plan(module, 3)) == 2, "6 outputs, then 6 inputs"


def test_a_module_without_a_plan_is_told_what_to_write() -> None:
    with pytest.raises(ValueError, match=r"^tensor: Linear does not define how to split it. Define parallel_plan"):
        tensor_plan(nn.Linear(2, 2), 2)
    with pytest.raises(ValueError, match=r"^tensor: Ranker sums a few rows of one table.* AsyncPS with sparse: true"):
        tensor_plan(Ranker(rows=16, width=4), 2)


def test_units_are_large_children_of_containers() -> None:
    module = nn.Sequential(nn.Linear(100, 100), nn.LayerNorm(4), nn.ReLU(), nn.ModuleList([nn.Linear(100, 50)]))
    assert shard_units(module) == {"0": (), "3.0": ()}


def test_units_of_one_s_own() -> None:
    class Own(Pair):
        def shard_units(self) -> dict[str, Any]:
            return {"": ("sample",), "net.3": ()}

    class Wrong(Pair):
        def shard_units(self) -> dict[str, Any]:
            return {"net.9": ()}

    assert shard_units(Own()) == {"": ("sample",), "net.3": ()}
    with pytest.raises(ValueError, match=r"model: shard_units names net.9, but Wrong has no such part"):
        shard_units(Wrong())


def test_parts_that_share_a_parameter_are_gathered_together() -> None:
    class Tied(nn.Sequential):
        units: dict[str, Any]

    module = Tied(nn.Linear(6, 6), nn.Linear(6, 6), nn.Linear(6, 6))
    module[2].weight = module[0].weight
    assert shard_units(module) == {"1": ()}
    module.shard_units = lambda: {"0": (), "1": ()}  # type: ignore[assignment]
    with pytest.raises(
        ValueError, match=r"model: 0\.weight and 2\.weight share one parameter but are in different units"
    ):
        shard_units(module)


@pytest.mark.parametrize(
    ("parameter", "reason"),
    [(torch.tensor(1.0), "scalar parameters"), (torch.ones(2, 3).t(), "non-contiguous parameters")],
    ids=["scalar", "transposed"],
)
def test_what_torch_cannot_shard_names_the_model(parameter: torch.Tensor, reason: str) -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.own = nn.Parameter(parameter)

    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2, 1), mesh_dim_names=(DATA, TENSOR))
        with pytest.raises(ValueError, match=rf"model: torch cannot shard Own \(.*{reason}.*or use strategy ddp"):
            split(Own(), mesh)
    finally:
        dist.destroy_process_group()


def test_sparse_gradients_are_refused() -> None:
    mesh: Any = None
    with pytest.raises(ValueError, match=r"model: the gradients of 1 are sparse.* sparse=False, or use AsyncPS"):
        split(nn.Sequential(nn.Linear(2, 2), nn.Embedding(4, 2, sparse=True)), mesh)
    assert torch.is_grad_enabled()
