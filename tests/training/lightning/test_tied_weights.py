"""Two parameters in the same memory: refused where workers would train them apart."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import Linear, Module, Parameter

from scalebook.training.lightning import AsyncPS, ModelParallel, Peers
from scalebook.training.lightning.tied_weights import refuse_shared_memory
from tests.training.lightning.async_ps.small import fit, seeded_model, trainer


class Two(Module):
    def __init__(self, one: torch.Tensor, other: torch.Tensor, trains: bool = True) -> None:
        super().__init__()
        self.one, self.other = Parameter(one, trains), Parameter(other, trains)


def matrix() -> torch.Tensor:
    return torch.zeros(4, 6)


def tied() -> tuple[torch.Tensor, torch.Tensor]:
    whole = matrix()
    return whole, whole


def parts(cut: Callable[[torch.Tensor], Any]) -> tuple[torch.Tensor, torch.Tensor]:
    one, other = cut(matrix())
    return one, other


@pytest.mark.parametrize(
    "tensors",
    [
        tied(),
        parts(lambda whole: (whole, whole.t())),
        parts(lambda whole: (whole, whole[2:])),
        parts(lambda whole: (whole[:3], whole[2:])),
        parts(lambda whole: (whole[:, 1:3], whole[:, 2:])),
    ],
)
def test_tensors_with_common_elements_are_refused(tensors: tuple[torch.Tensor, torch.Tensor]) -> None:
    with pytest.raises(ValueError, match="are two tensors in the same memory"):
        refuse_shared_memory(Two(*tensors))


@pytest.mark.parametrize(
    "module",
    [
        Two(matrix(), matrix()),
        Two(*parts(lambda whole: whole.chunk(2))),
        Two(*parts(lambda whole: whole.chunk(2, 1))),
        Two(torch.empty(0), torch.empty(0)),
        Two(*tied(), trains=False),
        nn.LSTM(3, 4, 2),
        nn.LazyLinear(3),
    ],
)
def test_others_are_not(module: Module) -> None:
    refuse_shared_memory(module)


def test_one_parameter_of_two_layers_is_not_refused() -> None:
    model = nn.Sequential(Linear(4, 4), Linear(4, 4))
    model[1].weight = model[0].weight
    refuse_shared_memory(model)


def test_a_buffer_over_a_parameter_is_refused() -> None:
    model = Linear(2, 2)
    model.register_buffer("seen", model.weight.data)
    with pytest.raises(ValueError, match="weight and seen are two tensors"):
        refuse_shared_memory(model)


@pytest.mark.parametrize("strategy", [AsyncPS, Peers, ModelParallel])
def test_strategies_refuse_it(strategy: Any, tmp_path: Path) -> None:
    model: Any = seeded_model()
    model.other = Parameter(torch.zeros(3))
    model.other.data = model.net[3].bias.data
    with pytest.raises(ValueError, match=r"are two tensors in the same memory.*b\.weight = a\.weight"):
        fit(trainer(tmp_path, strategy(), devices=1 if strategy is AsyncPS else 2), model)
