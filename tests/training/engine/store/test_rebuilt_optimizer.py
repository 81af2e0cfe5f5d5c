from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import Linear, Parameter
from torch.optim import SGD, Adam, AdamW, Optimizer

from scalebook.training.engine.store.group_changes import NotedParts
from scalebook.training.engine.store.rebuilt_optimizer import groups_of, parameters_of, rebuild
from scalebook.training.engine.store.state_discovery import FoundState, Hole, discover, refuse_coupling
from tests.training.engine.custom_optimizers import (
    CountsInGroups,
    Elsewhere,
    Estimating,
    GlobalState,
    GrowingState,
    InAttribute,
    ListState,
    LooksAtLoss,
    Noisy,
    PythonNumbers,
    Worded,
    Wrapping,
)


def test_rebuilt_optimizer_has_the_same_groups_on_the_other_parameters() -> None:
    layer = Linear(3, 2)
    groups: list[dict[str, Any]] = [{"params": [layer.weight], "lr": 0.3}, {"params": [layer.bias]}]
    given = AdamW(groups, lr=0.1, amsgrad=True)
    torch.optim.lr_scheduler.StepLR(given, 1)  # wraps given.step
    others = [Parameter(torch.ones(2, 3)), Parameter(torch.ones(2))]
    made = rebuild(given, others)
    assert type(made) is AdamW
    assert all(a is b for a, b in zip(parameters_of(made), others, strict=True))
    assert [(g["lr"], g["amsgrad"], g["decoupled_weight_decay"]) for g in made.param_groups] == [
        (0.3, True, True),
        (0.1, True, True),
    ]
    others[0].grad = torch.ones(2, 3)
    made.step()
    assert bool((others[0] < 1).all())
    assert given.state == {}
    assert parameters_of(given)[0] is layer.weight


def test_discover_names_what_adam_keeps_and_leaves_everything_as_it_was() -> None:
    layer = Linear(3, 2)
    before = layer.weight.detach().clone()
    kept = discover(Adam(layer.parameters(), amsgrad=True)).entries
    assert {(k.parameter, k.name, tuple(k.example.shape)) for k in kept} == {
        (index, name, () if name == "step" else shape)
        for index, shape in enumerate([(2, 3), (2,)])
        for name in ("step", "exp_avg", "exp_avg_sq", "max_exp_avg_sq")
    }
    assert torch.equal(layer.weight, before)
    assert layer.weight.grad is None


def test_discover_tells_python_numbers_by_type() -> None:
    kept = discover(PythonNumbers([Parameter(torch.zeros(2))])).entries
    assert {k.name: k.number for k in kept} == {"step": int, "sum": float, "warm": bool}


def test_discover_leaves_the_random_numbers_alone() -> None:
    torch.manual_seed(5)
    expected = torch.rand(1)
    torch.manual_seed(5)
    discover(Noisy([Parameter(torch.zeros(2))]))
    assert torch.equal(torch.rand(1), expected)


def test_sgd_without_momentum_keeps_nothing() -> None:
    assert discover(SGD([Parameter(torch.zeros(2))], lr=0.1)) == FoundState([], {}, NotedParts())


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (
            torch.optim.LBFGS,
            "LBFGS does not work with a parameter server: it reads the loss, or evaluates it ",
        ),
        (LooksAtLoss, "LooksAtLoss does not work .* it reads the loss"),
        (Wrapping, "Wrapping does not work .* it wraps another optimizer"),
        (InAttribute, "InAttribute does not work .* a step changes its attribute 'last'"),
        (GrowingState, "GrowingState does not work .* the shape of its state 'history' changes"),
        (ListState, "ListState does not work .* its state 'past' is a list that changes"),
        (GlobalState, "GlobalState does not work .* tensors that do not belong to any parameter"),
        (torch.optim.SparseAdam, "SparseAdam does not work .* a step on CPU with dense gradients fails"),
    ],
)
def test_what_cannot_be_followed_is_refused_by_name(make: Callable[[list[Parameter]], Optimizer], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        discover(make([Parameter(torch.zeros(2, 2))]))


def test_what_steps_change_beside_the_state_is_found() -> None:
    groups: list[dict[str, Any]] = [{"params": [Parameter(torch.zeros(2))]}, {"params": [Parameter(torch.zeros(3))]}]
    assert discover(CountsInGroups(groups)).noted.keys == {(0, "k"), (1, "k")}
    assert discover(Estimating([Parameter(torch.zeros(2))])).noted.keys == {(0, "seen"), (0, "d")}
    noted = discover(Elsewhere([Parameter(torch.zeros(2))])).noted
    assert (noted.keys, noted.attributes) == (frozenset(), frozenset({"steps"}))
    assert noted.room > 0
    assert discover(Adam([Parameter(torch.zeros(2))], lr=torch.tensor(0.1))).noted == NotedParts()


def test_lists_dicts_and_texts_have_a_form() -> None:
    found = discover(Worded([Parameter(torch.zeros(2, 3))]))
    averages = {0.5: Hole(0), 0.9: Hole(1)}
    assert found.forms == {
        (0, "averages"): averages,
        (0, "ends"): [Hole(0), [Hole(1)]],
        (0, "kind"): "mean",
        (0, "nothing"): None,
    }
    assert [(e.name, e.hole, tuple(e.example.shape)) for e in found.entries] == [
        ("averages", 0, (2, 3)),
        ("averages", 1, (2, 3)),
        ("ends", 0, (2, 3)),
        ("ends", 1, ()),
    ]


def test_a_part_of_an_optimizer_has_the_groups_of_its_parameters() -> None:
    first, second, third = (Parameter(torch.ones(2)) for _ in range(3))
    given = Adam([{"params": [first], "lr": 0.1}, {"params": [second, third], "lr": 0.2}])
    others = [Parameter(torch.zeros(2))]
    made = rebuild(given, others, [2])
    assert [(group["lr"], [p is others[0] for p in group["params"]]) for group in made.param_groups] == [(0.2, [True])]
    assert groups_of(given, [2]) == [1]
    assert groups_of(given, [0, 1]) == [0, 1]


@pytest.mark.parametrize("make", [SGD, Adam, torch.optim.Adagrad, torch.optim.RMSprop])
def test_optimizers_that_look_at_one_parameter_at_a_time_may_be_cut(make: Callable[..., Optimizer]) -> None:
    refuse_coupling(make([Parameter(torch.ones(3)) for _ in range(4)], lr=0.1), [[0], [1, 2], [3]])


def test_an_optimizer_that_couples_layers_is_refused_by_name() -> None:
    class Normalised(SGD):
        """Divides every gradient by the norm over all of them."""

        def step(self, closure: Any = None) -> Any:
            parameters = parameters_of(self)
            norm = torch.nn.utils.get_total_norm([p.grad for p in parameters if p.grad is not None])
            for parameter in parameters:
                assert parameter.grad is not None
                parameter.grad /= norm
            return super().step(closure)

    made = Normalised([Parameter(torch.ones(3)) for _ in range(2)], lr=0.1)
    with pytest.raises(ValueError, match=r"^shards: Normalised keeps state across layers"):
        refuse_coupling(made, [[0], [1]])
    refuse_coupling(made, [[0, 1]])


def test_an_estimate_over_all_layers_is_seen_before_it_shows_in_weights() -> None:
    made = Estimating([Parameter(torch.full((3,), 1e6)) for _ in range(2)])
    with pytest.raises(ValueError, match=r"^shards: Estimating keeps state across layers"):
        refuse_coupling(made, [[0], [1]])
    refuse_coupling(CountsInGroups([Parameter(torch.ones(3)) for _ in range(2)]), [[0], [1]])
