"""A parameter whose class is another for a while, which torch allows and promises nowhere: these fail on the day that
it no longer holds."""

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn import Parameter
from torch.optim import SGD

from scalebook.training.engine.net.remote_tables import RemoteParameterStub, give_back, keep_away

IDS = torch.tensor([1, 2])


def refuse(operation: str, only_writes: bool) -> None:
    raise ValueError(operation)


def test_whoever_holds_the_parameter_holds_it_still_and_is_refused() -> None:
    """Another object in the module's place would leave the optimizer's, a tied layer's and a caller's with zeros."""
    table, tied = nn.Embedding(4, 2, sparse=True), nn.Linear(2, 4, bias=False)
    tied.weight = held = table.weight
    assert isinstance(held, Parameter)
    optimizer, values = SGD(table.parameters(), lr=0.1), held.detach().clone()
    keep_away(held, refuse)
    for one in (held, table.weight, tied.weight, optimizer.param_groups[0]["params"][0], next(table.parameters())):
        assert one is held
        with pytest.raises(ValueError, match=r"^sum$"):
            one.sum()
    with pytest.raises(ValueError, match=r"^linear$"):
        tied(torch.ones(2))
    give_back(held)
    assert type(held) is Parameter
    assert not hasattr(held, "refuse")
    assert torch.equal(held, values)
    table(IDS).sum().backward()
    optimizer.step()
    assert torch.equal(held[0], values[0])
    assert torch.allclose(held[1], values[1] - 0.1)


@pytest.mark.parametrize(
    "read",
    [
        Tensor.tolist,
        Tensor.numpy,
        torch.ops.aten.sum.default,
        torch.norm,
        lambda weight: weight + 1,
        lambda weight: 1 - weight,
        lambda weight: weight[0],
        lambda weight: torch.stack([weight]),
        lambda weight: F.embedding(IDS, weight, sparse=True),
        lambda weight: torch.ones(1, 2) @ weight.T,
        lambda weight: float(weight.data[0, 0]),
        lambda weight: torch.autograd.grad(F.embedding(IDS, weight).sum(), weight),
    ],
)
def test_torch_asks_the_class_that_the_parameter_has_now(read: Callable[[Parameter], object]) -> None:
    weight = Parameter(torch.ones(4, 2))
    read(Parameter(weight.detach().clone(), requires_grad=read is not Tensor.numpy))  # else the test would show nothing
    keep_away(weight, refuse)
    with pytest.raises(ValueError, match=r"^[\w.]+$"):
        read(weight)


def test_both_classes_have_the_same_layout() -> None:
    assert RemoteParameterStub.__basicsize__ == Parameter.__basicsize__
    assert RemoteParameterStub.__dictoffset__ == Parameter.__dictoffset__
