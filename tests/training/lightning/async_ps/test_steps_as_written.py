"""An optimizer's step is what its author wrote, wherever it is made: with attributes and classes of parameters, with
hooks, with a step that was put on the object, and with classes that look at the model. Each is compared with one
process."""

from collections.abc import Callable
from pathlib import Path
from types import MethodType
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor, nn
from torch.nn import Parameter
from torch.nn.functional import cross_entropy
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.optim.optimizer import _global_optimizer_post_hooks, register_optimizer_step_post_hook
from torch.utils.data import DataLoader

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.local_steps import LocalSGD
from scalebook.training.engine.store.rebuilt_optimizer import UnfitError
from scalebook.training.lightning import AsyncPS, ModelParallel, Peers
from tests.training.lightning.async_ps.small import AtBatch, data, trainer, weights

pytestmark = pytest.mark.long
CLOCK = ClockSettings(gradient_s=0.05)
BOUND = 0.15


class Kind(Parameter):
    """A parameter that an optimizer knows by its class."""


class Looking(SGD):
    """Has a rate for each parameter, and keeps a Kind at norm 1, by itself as geoopt's do."""

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        loss = None if closure is None else torch.enable_grad()(closure)()
        for group in self.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.add_(parameter.grad, alpha=-group["lr"] * getattr(parameter, "lr_mult", 1.0))
                    if isinstance(parameter, Kind):
                        parameter.div_(parameter.norm())
        return loss


def clamp(model: Any) -> None:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.clamp_(-BOUND, BOUND)


def clamp_groups(optimizer: Optimizer) -> None:
    with torch.no_grad():
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                parameter.clamp_(-BOUND, BOUND)


Make = Callable[[Any], Optimizer]
MAKES: dict[str, Make] = {
    "sgd": lambda parameters: SGD(parameters, lr=0.1),
    "momentum": lambda parameters: SGD(parameters, lr=0.1, momentum=0.9),
    "adam": lambda parameters: Adam(parameters, lr=0.01),
}


def plainly(model: "Net", make: Make) -> Any:
    return make(model.parameters())


def with_attributes(model: "Net", make: Make) -> Any:
    model.net[0].weight.lr_mult = 5.0
    model.net[2].weight = Kind(model.net[2].weight.detach() / model.net[2].weight.detach().norm())
    return Looking(model.parameters(), lr=0.1)


def with_hook_on_groups(model: "Net", make: Make) -> Any:
    optimizer = make(model.parameters())
    optimizer.register_step_post_hook(lambda optimizer, args, kwargs: clamp_groups(optimizer))
    return optimizer


def with_hook_on_model(model: "Net", make: Make) -> Any:
    optimizer = make(model.parameters())
    optimizer.register_step_post_hook(lambda *_: clamp(model))
    optimizer.register_step_pre_hook(lambda optimizer, args, kwargs: scale(optimizer))
    return optimizer


def scale(optimizer: Optimizer) -> None:
    """In one process, as Lightning calls it, the gradient is computed later."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                parameter.grad.mul_(2.0)


def with_global_hook(model: "Net", make: Make) -> Any:
    register_optimizer_step_post_hook(lambda *_: clamp(model))
    return make(model.parameters())


def with_replaced_step(model: "Net", make: Make) -> Any:
    """A schedule wraps the replaced step once more."""
    optimizer = make(model.parameters())
    before = optimizer.step

    def step(self: Optimizer, closure: Any = None) -> Any:
        loss = before(closure)
        clamp(model)
        return loss

    optimizer.step = MethodType(step, optimizer)  # type: ignore[method-assign]
    return [optimizer], [{"scheduler": StepLR(optimizer, 3, 0.8), "interval": "step"}]


def with_closure(model: "Net", make: Make) -> Any:
    class Clamping(SGD):
        def step(self, closure: Any = None) -> Any:
            loss = super().step(closure)
            clamp(model.net[0])
            return loss

    return Clamping(model.parameters(), lr=0.1, momentum=0.9 if make is MAKES["momentum"] else 0.0)


WAYS = [
    with_attributes,
    with_hook_on_groups,
    with_hook_on_model,
    with_global_hook,
    with_replaced_step,
    with_closure,
]


class Net(LightningModule):
    """Draws nothing, so that two halves of a batch are one batch."""

    def __init__(self, way: Callable[["Net", Make], Any], make: Make = MAKES["sgd"]) -> None:
        super().__init__()
        torch.manual_seed(7)
        self.net: Any = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 3))
        self.way, self.make = way, make

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return cross_entropy(self.net(batch[0]), batch[1])

    def configure_optimizers(self) -> Any:
        return self.way(self, self.make)


@pytest.fixture(autouse=True)
def _no_hooks_of_other_tests() -> Any:
    yield
    _global_optimizer_post_hooks.clear()


def trained(folder: Path, strategy: Any, model: LightningModule, batch: int, **settings: Any) -> Tensor:
    made = trainer(folder, strategy, **{"max_epochs": 1, **settings})
    made.fit(model, DataLoader(data(64), batch_size=batch))
    return weights(model)


ONE_WORKER = {
    "inline": {},
    "process": {"host": "process"},
    "virtual": {"host": "virtual", "clock": CLOCK},
}


@pytest.mark.each_value
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("arguments", ONE_WORKER.values(), ids=ONE_WORKER)
def test_one_worker_is_one_process_to_the_last_bit(way: Any, make: str, arguments: Any, tmp_path: Path) -> None:
    expected = trained(tmp_path, "auto", Net(way, MAKES[make]), 8)
    _global_optimizer_post_hooks.clear()
    assert torch.equal(trained(tmp_path, AsyncPS(**arguments), Net(way, MAKES[make]), 8), expected)


SYNC: dict[str, Any] = {
    "inline": lambda: AsyncPS(rule="sync", workers=2),
    "process": lambda: AsyncPS(rule="sync", workers=2, host="process"),
    "virtual": lambda: AsyncPS(rule="sync", workers=2, host="virtual", clock=CLOCK),
}


@pytest.mark.each_value
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("make", MAKES)
@pytest.mark.parametrize("strategy", SYNC.values(), ids=SYNC)
def test_sync_is_one_process_with_the_double_batch(way: Any, make: str, strategy: Any, tmp_path: Path) -> None:
    expected = trained(tmp_path, "auto", Net(way, MAKES[make]), 16)
    _global_optimizer_post_hooks.clear()
    found = trained(tmp_path, strategy(), Net(way, MAKES[make]), 8)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.each_value
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    "strategy",
    [
        lambda: AsyncPS(workers=1, local=LocalSGD(1)),
        lambda: AsyncPS(workers=1, local=LocalSGD(1), host="virtual", clock=CLOCK),
    ],
    ids=["local", "local virtual"],
)
def test_local_steps_are_the_steps_of_the_optimizer(way: Any, strategy: Any, tmp_path: Path) -> None:
    expected = trained(tmp_path, "auto", Net(way, MAKES["momentum"]), 8)
    _global_optimizer_post_hooks.clear()
    found = trained(tmp_path, strategy(), Net(way, MAKES["momentum"]), 8)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.each_value
@pytest.mark.parametrize("way", [with_hook_on_model, with_replaced_step, with_global_hook])
@pytest.mark.parametrize(
    "strategy",
    [lambda: AsyncPS(workers=2), lambda: AsyncPS(workers=2, host="process"), lambda: Peers(workers=2)],
    ids=["async", "process", "peers"],
)
def test_a_clamp_after_each_step_holds_with_two_workers(way: Any, strategy: Any, tmp_path: Path) -> None:
    found = trained(tmp_path, strategy(), Net(way), 8)
    assert float(found.abs().max()) == pytest.approx(BOUND)


def test_what_a_worker_changes_in_attributes_holds_from_its_next_push(tmp_path: Path) -> None:
    """With `host: inline`; a server process would not see it, so there it is refused."""

    def change(trainer: Trainer) -> None:
        model: Any = trainer.lightning_module
        model.net[0].weight.lr_mult = 0.0

    def run(strategy: Any) -> Tensor:
        return trained(tmp_path, strategy, Net(with_attributes), 8, callbacks=[AtBatch(0, 3, change)])

    assert torch.equal(run(AsyncPS()), run("auto"))
    with pytest.raises(ValueError, match=r"an attribute of a parameter changed during training, .*host: inline"):
        run(AsyncPS(host="process"))


def add_hook(trainer: Trainer) -> None:
    trainer.optimizers[0].register_step_post_hook(lambda optimizer, args, kwargs: clamp_groups(optimizer))


def test_a_hook_that_is_added_during_training(tmp_path: Path) -> None:
    def run(strategy: Any) -> Tensor:
        return trained(tmp_path, strategy, Net(plainly), 8, callbacks=[AtBatch(0, 3, add_hook)])

    assert torch.equal(run(AsyncPS()), run("auto"))
    with pytest.raises(ValueError, match=r"a step hook was added or removed during training, .*host: inline"):
        run(AsyncPS(host="process"))


def replace_step(trainer: Trainer) -> None:
    optimizer = trainer.optimizers[0]
    before = optimizer.step

    def step(closure: Any = None) -> Any:
        return before(closure)

    optimizer.step = step  # type: ignore[method-assign]


@pytest.mark.parametrize("strategy", [AsyncPS, lambda: Peers(workers=2)])
def test_a_step_that_is_replaced_during_training_is_refused(strategy: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"step of SGD was replaced during .*Make the replacement in configure_opt"):
        trained(tmp_path, strategy(), Net(plainly), 8, callbacks=[AtBatch(0, 3, replace_step)])


def with_average(model: Net, make: Make) -> Any:
    optimizer = make(model.parameters())
    shadow = [p.detach().clone() for p in model.parameters()]

    def average(*_: Any) -> None:
        with torch.no_grad():
            for mean, parameter in zip(shadow, model.parameters(), strict=True):
                mean.lerp_(parameter, 0.1)

    optimizer.register_step_post_hook(average)
    return optimizer


def test_an_average_that_a_hook_keeps_is_refused_where_several_processes_step(tmp_path: Path) -> None:
    expected = trained(tmp_path, "auto", Net(with_average), 8)
    assert torch.equal(trained(tmp_path, AsyncPS(), Net(with_average), 8), expected)
    for strategy in (AsyncPS(workers=2), AsyncPS(host="process")):
        with pytest.raises(UnfitError, match=r"a hook or replaced step of SGD changes shadow\.0, .*Use one worker"):
            trained(tmp_path, strategy, Net(with_average), 8)


def with_setting(model: Net, make: Make) -> Any:
    optimizer = make(model.parameters())
    optimizer.register_step_post_hook(lambda optimizer, *_: optimizer.param_groups[0].update(lr=0.01))
    return optimizer


@pytest.mark.parametrize("make", ["sgd", "momentum"])
def test_a_hook_that_changes_param_groups_is_refused(make: str, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="SGD added or changed entries of its param groups"):
        trained(tmp_path, AsyncPS(), Net(with_setting, MAKES[make]), 8)


@pytest.mark.parametrize("way", [with_hook_on_groups, with_replaced_step, with_closure])
def test_several_shards_are_refused(way: Any, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"shards: a step of \w+ calls hooks, .*Set shards: 1"):
        trained(tmp_path, AsyncPS(shards=2), Net(way), 8)


def test_several_shards_with_attributes(tmp_path: Path) -> None:
    expected = trained(tmp_path, "auto", Net(with_attributes), 8)
    assert torch.equal(trained(tmp_path, AsyncPS(shards=2), Net(with_attributes), 8), expected)


class Manual(Net):
    """Where the model steps by itself, a hook before the step sees the gradient."""

    automatic_optimization = False

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        optimizer: Any = self.optimizers()
        optimizer.zero_grad()
        loss = cross_entropy(self.net(batch[0]), batch[1])
        self.manual_backward(loss)
        optimizer.step()
        return loss


def test_a_hook_before_the_step_with_manual_optimization(tmp_path: Path) -> None:
    expected = trained(tmp_path, "auto", Manual(with_hook_on_model), 16)
    assert not torch.equal(expected, trained(tmp_path, "auto", Manual(plainly), 16))
    found = trained(tmp_path, AsyncPS(rule="sync", workers=2), Manual(with_hook_on_model), 8)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


# --- a split model ---------------------------------------------------------------------------------------------------


def with_rates(model: Net, make: Make) -> Any:
    return Looking(model.parameters(), lr=0.1)


class Rates(Net):
    """Its attributes are set before it is split."""

    def __init__(self) -> None:
        super().__init__(with_rates)
        self.net[0].weight.lr_mult = 5.0


class Kinds(Net):
    def __init__(self) -> None:
        super().__init__(with_rates)
        self.net[2].weight = Kind(self.net[2].weight.detach())


def test_split_parameters_keep_their_attributes(tmp_path: Path) -> None:
    expected = trained(tmp_path, "auto", Rates(), 8)
    assert not torch.equal(expected, trained(tmp_path, "auto", Net(with_rates), 8))
    found = trained(tmp_path, ModelParallel(), Rates(), 8, devices=2, use_distributed_sampler=False)
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


def test_split_parameters_lose_their_class_so_an_optimizer_that_may_look_at_it_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"Looking may depend on the parameters' class, Kind, but"):
        trained(tmp_path, ModelParallel(), Kinds(), 8, devices=2)
