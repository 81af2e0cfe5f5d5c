"""What a module says of its stages, who has which, and what is refused of it."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from scalebook.training.lightning import ModelParallel
from scalebook.training.lightning.model_parallel.stages import OwnStage, own_state, parts_of
from scalebook.training.zoo.models import Ranker, Translator
from tests.training.lightning.async_ps.small import loader, trainer
from tests.training.lightning.model_parallel.split_model import held_out
from tests.training.lightning.model_parallel.staged_model import Staged, staged


class Chain(nn.Module):
    """Four parts, and something beside them."""

    def __init__(self, *widths: int) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for width in widths or (4, 4, 4, 4))
        self.beside = nn.Linear(2, 2)
        self.layers[0].register_buffer("counted", torch.zeros(3), persistent=False)

    def stages(self) -> list[nn.Module]:
        return list(self.layers)


def test_stages_are_cut_where_the_largest_has_the_fewest_parameters() -> None:
    by_stage = [OwnStage(Chain(2, 2, 9, 2), stage, 3) for stage in range(3)]
    assert [len(one.parts) for one in by_stage] == [2, 1, 1]
    assert by_stage[1].names == ["layers.2.weight", "layers.2.bias"]
    assert by_stage[0].rest == ["beside.weight", "beside.bias"]
    assert [len(OwnStage(Chain(), stage, 4).parts) for stage in range(4)] == [1] * 4


def test_others_have_no_values_and_an_optimizer_numbers_all() -> None:
    module = Chain()
    own = OwnStage(module, 1, 2)
    values = {name: tensor.clone() for name, tensor in own.foreign.items()}
    names = ["0.bias", "0.counted", "0.weight", "1.bias", "1.weight"]
    assert sorted(values) == [f"layers.{name}" for name in names]
    assert all(tensor.is_meta for name, tensor in module.named_parameters() if name in values)
    optimizer = torch.optim.Adam(module.parameters())
    module.layers[3](module.layers[2](torch.ones(1, 4))).sum().backward()
    optimizer.step()
    assert list(optimizer.state_dict()["state"]) == [4, 5, 6, 7]
    whole = torch.optim.Adam(Chain().parameters()).state_dict() | {"state": {number: {} for number in range(10)}}
    assert list(own_state(optimizer, whole)["state"]) == [4, 5, 6, 7, 8, 9]
    with own.whole({**values, **own.values(with_rest=True)}):
        assert torch.equal(module.get_parameter("layers.0.weight"), values["layers.0.weight"])
        assert module.layers[0](torch.ones(1, 4)).shape == (1, 4)
    assert module.layers[0].weight.is_meta
    with pytest.raises(
        ValueError, match=r"model: layers.0 is called directly, but it is in stage 0.* call self\(...\)"
    ):
        module.layers[0](torch.ones(1, 4))


def test_parameters_that_a_stage_shares_with_itself_stay_shared() -> None:
    module = Chain()
    module.layers[1].weight = module.layers[0].weight
    own = OwnStage(module, 1, 2)
    assert module.layers[0].weight is module.layers[1].weight
    assert {name for name in own.foreign if name.endswith("weight")} == {"layers.0.weight", "layers.1.weight"}


def test_modules_that_stages_makes_are_trained_and_evaluated_with_the_model() -> None:
    class Dropping(Chain):
        def stages(self) -> list[nn.Module]:
            return [*self.layers, nn.Sequential(nn.Dropout(0.5))]

    module = Dropping()
    own, ones = OwnStage(module, 1, 2), torch.ones(64, 4)
    assert not torch.equal(own.computed(ones), own.computed(ones))
    module.eval()
    assert torch.equal(own.computed(ones), own.computed(ones))


def test_a_plain_sequential_needs_no_word() -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Flatten(), nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
            self.loss = nn.CrossEntropyLoss()

    assert len(parts_of(Plain(), 2)) == 4


class Tied(Chain):
    def __init__(self) -> None:
        super().__init__()
        self.layers[3].weight = self.layers[0].weight


class Foreign(Chain):
    def stages(self) -> list[nn.Module]:
        return [*self.layers, nn.Linear(4, 4)]


class Named(Chain):
    def stages(self) -> Any:
        return ["layers.0", "layers.1"]


class Holder(nn.Module):
    """Its `stages` are no method."""

    def __init__(self) -> None:
        super().__init__()
        self.stages = nn.Sequential(nn.Linear(2, 2))
        self.head = nn.Linear(2, 2)


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (Holder(), "stages: Holder does not define how to divide it into stages. Define stages(self)"),
        (Tied(), "model: layers.0.weight is in stage 0 and in stage 1, but stages cannot share a parameter"),
        (Foreign(), "model: stages() of Foreign returns parameters that are not part of the model"),
        (Named(), "model: stages() of Named returns a str, but must return only modules"),
        (
            nn.Sequential(nn.Sequential(nn.Linear(2, 2))),
            "has 1 parts in its stages(), fewer than 2 stages. Write",
        ),
    ],
)
def test_what_has_no_stages_is_told_what_to_write(module: nn.Module, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        OwnStage(module, 0, 2)


@pytest.mark.parametrize("kind", [Ranker, Translator])
def test_models_that_ship_say_why_not(kind: Any) -> None:
    with pytest.raises(ValueError, match=rf"^stages: {kind.__name__} .* Set stages: 1"):
        parts_of(kind(), 2)


class Twice(Staged):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self.loss(batch) + self.loss(batch)


class Never(Staged):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return torch.zeros((), requires_grad=True)


class Inside(Staged):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.net(batch[0]).sum()


class Summed(Staged):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss(batch) * len(batch[0])


class Skipping(Staged):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        self.loss(batch)


class More(Staged):
    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return {"loss": self.loss(batch), "labels": batch[1]}


class Before(Staged):
    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.scale = nn.Parameter(torch.ones(5))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self.loss([batch[0] * self.scale, batch[1]])


class Other(Staged):
    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(inputs) * 2


class Normal(Staged):
    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.net.insert(1, nn.BatchNorm1d(17))


class ByHand(Staged):
    automatic_optimization = False


class Growing(Staged):
    """The shape of what passes depends on the values."""

    def __init__(self, optimizer: Any) -> None:
        super().__init__(optimizer)
        self.chosen = _Chosen()

    def stages(self) -> Any:
        return [self.chosen, *super().stages()]

    def forward(self, inputs: Tensor) -> Tensor:
        return super().forward(self.chosen(inputs))

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return self(batch[0]).square().mean()


class _Chosen(nn.Module):
    def forward(self, inputs: Tensor) -> Tensor:
        return inputs[inputs[:, 0] > 0] if self.training else inputs


class Counting(Staged):
    def stages(self) -> Any:
        first, *others = super().stages()
        return [first, _Counted(), *others]


class _Counted(nn.Module):
    def forward(self, value: Any) -> Any:
        return {**value, "count": len(value["features"])}


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Twice, r"model: training_step of Twice calls self\(...\) twice.*Call it once"),
        (Never, r"model: training_step of Never does not call self\(...\)"),
        (Inside, r"model: net.\d is called directly, but it is in stage 1"),
        (Summed, r"microbatches: the loss of the first batch is .* is a mean over samples"),
        (Skipping, "model: training_step of Skipping returns a NoneType, but each microbatch needs a loss"),
        (More, "returns a dict with more than a loss.* Return only the loss"),
        (Before, r"model: the input that training_step of Before passes to self\(...\) depends on trained parameters"),
        (Other, r"model: running the parts of stages\(\) in order gives a different result from forward of Other"),
        (Normal, r"stages: net.1, a BatchNorm1d, normalises with batch statistics.* Use LayerNorm"),
        (ByHand, "stages: ByHand steps its optimizers itself.* Let Lightning step the optimizers"),
        (Growing, r"model: the output of stage 0 is .*, but was .* for a batch of the same shape"),
        (Counting, "model: the output of stage 0 has a int, but only tensors can pass between stages"),
    ],
)
def test_steps_that_would_train_something_else_are_refused(kind: Any, message: str, tmp_path: Any) -> None:
    made = ModelParallel(stages=2, microbatches=2)
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, made, 2, max_epochs=1, num_sanity_val_steps=0).fit(staged(kind=kind), loader(), held_out())


class Together(torch.optim.SGD):
    """Its rate depends on all gradients, as those of optimizers that estimate it."""

    def step(self, closure: Any = None) -> Any:
        loss = super().step(closure)
        group = self.param_groups[0]
        group["estimate"] = sum(float(one.grad.norm()) for one in group["params"] if one.grad is not None)
        return loss


@pytest.mark.parametrize(
    ("optimizer", "message"),
    [
        (lambda model: torch.optim.LBFGS(model.parameters()), "optimizer: LBFGS needs all parameters together"),
        (
            lambda model: Together(model.parameters(), lr=0.1),
            "optimizer: the settings of Together, .* now differ between workers",
        ),
    ],
)
def test_optimizers_of_all_parameters_are_refused(optimizer: Any, message: str, tmp_path: Any) -> None:
    with pytest.raises(ValueError, match=message):
        trainer(tmp_path, ModelParallel(stages=2), 2, max_epochs=1).fit(staged(optimizer), loader(), held_out())


@pytest.mark.thorough
@pytest.mark.parametrize("name", ["Adagrad", "Adafactor", "Rprop", "NAdam", "RMSprop"])
def test_optimizers_that_keep_a_state_for_each_parameter(name: str, tmp_path: Any) -> None:
    def after(made: Any, devices: int) -> Tensor:
        model = staged(lambda model: getattr(torch.optim, name)(model.parameters(), lr=0.01))
        trainer(tmp_path, made, devices, max_epochs=1).fit(model, loader(), held_out())
        return torch.cat([one.detach().flatten() for one in model.parameters()])

    torch.testing.assert_close(after(ModelParallel(stages=2), 2), after("auto", 1), rtol=0, atol=1e-5)
