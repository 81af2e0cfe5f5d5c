"""The learning rate that a trace says an update was made with is the one it was made with, whatever multiplies it.

Every gradient is 1, and summed by `downpour`: the updates are made again by hand, with an optimizer of their own and
the rates of the trace, and give the same weights to the last bit.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Adam, Optimizer
from torch.optim.lr_scheduler import StepLR

from scalebook.training.callbacks.scaled_rates import ScaledRates
from scalebook.training.engine.rules.damping import Damping, DropAbove, Inverse, NoDamping
from scalebook.training.engine.rules.local_steps import Downpour, Local, NoLocalSteps
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.engine.trace import read_head, read_hyper, read_updates
from scalebook.training.experiments.lr_scaling import RateScaling
from scalebook.training.lightning import DDP, AsyncPS
from scalebook.training.lightning.async_ps.applied_step import AppliedStep
from scalebook.training.zoo.optimizers import LARS
from tests.training.callbacks.rates import Falling
from tests.training.lightning.async_ps.small import Diary, diaries, loader, trainer

Make = Callable[[list[Parameter]], Optimizer]
OPTIMIZERS: dict[str, Make] = {
    "sgd": partial(SGD, lr=0.1),
    "momentum": partial(SGD, lr=0.1, momentum=0.9, weight_decay=0.01),
    "adam": partial(Adam, lr=0.1),
    "lars": partial(LARS, lr=0.1, adapt_vectors=True, rate_in_momentum=True),
}
WAYS: list[tuple[Rule, Local]] = [
    (Async(), NoLocalSteps()),
    (Async(), Downpour(1, 3)),
    (Async(), Downpour(2, 1)),
    (Async(), Downpour(5, 1)),
    (Bounded(2), NoLocalSteps()),
    (Sync(), NoLocalSteps()),
    (Softsync(2), NoLocalSteps()),
]
PAIRS: list[tuple[Damping, bool, bool]] = [
    (NoDamping(), False, False),
    (NoDamping(), True, True),
    (Inverse(), False, True),
    (Inverse(), True, False),
    (DropAbove(1), False, False),
    (DropAbove(1), True, True),
]
"""A damping, whether there is a schedule, whether the rate is scaled: any two of them in every combination."""
BATCHES = 12


def configured(make: Make, scheduled: bool) -> Callable[[LightningModule], Any]:
    def configure(model: LightningModule) -> Any:
        optimizer = make(list(model.parameters()))
        steps = [{"scheduler": StepLR(optimizer, 5, 0.5), "interval": "step"}] if scheduled else []
        return [optimizer], steps

    return configure


def fitted(folder: Path, strategy: Any, make: Make, scheduled: bool, scaled: bool, workers: int = 1) -> Falling:
    """One epoch."""
    model = Falling(configured(make, scheduled))
    callbacks = [ScaledRates(RateScaling("linear", per=4, warmup_epochs=0.6), 8)] if scaled else []
    settings: dict[str, Any] = {"max_epochs": 1, "limit_val_batches": 0, "callbacks": [*callbacks, Diary(folder)]}
    trainer(folder, strategy, workers, **settings).fit(model, loader())
    return model


def by_hand(make: Make, rates: list[float], n_push: int = 1) -> Tensor:
    """The last of the sums of `n_push` gradients has what is left of a worker's batches."""
    parameter = Parameter(torch.zeros(1, dtype=torch.float64))
    optimizer = make([parameter])
    for number, rate in enumerate(rates):
        optimizer.param_groups[0]["lr"] = rate
        parameter.grad = torch.full_like(parameter, min(n_push, BATCHES - number * n_push))
        optimizer.step()
    return parameter.detach()


def recorded(folder: Path, damping: Damping, n_push: int = 1) -> list[float]:
    """Of each update, in order. The rates that travelled are those that the worker's model saw in its steps."""
    trace = folder / "trace"
    head = read_head(trace)
    hyper = [read_hyper(trace, 0, worker) for worker in range(head.workers)]
    seen = [notes["steps"] for notes in diaries(folder)]
    found = []
    for records in read_updates(trace, 0, 0, head.most, 1, head.last[0][0]):
        assert {one.rate for one in records} == {damping.rate([one.version - 1 - one.base_version for one in records])}
        last = records[-1]
        lr = next(groups[0]["lr"] for seq, groups in reversed(hyper[last.worker]) if seq <= last.seq)
        assert [lr] == seen[last.worker][min(last.seq * n_push, BATCHES) - 1][1]
        found.append(lr * last.rate)
    return found


CASES = [
    *((*way, "sgd") for way in WAYS),
    *((*WAYS[place], "lars") for place in (0, 1, 3, 6)),
    (*WAYS[0], "momentum"),
    (*WAYS[0], "adam"),
]


@pytest.mark.each_value
@pytest.mark.parametrize(("rule", "local", "optimizer"), CASES, ids=repr)
def test_with_one_worker(rule: Rule, local: Local, optimizer: str, tmp_path: Path) -> None:
    """Schedule, scaling with a warm-up and damping, in every pair."""
    make, several = OPTIMIZERS[optimizer], set()
    for damping, scheduled, scaled in PAIRS:
        folder = tmp_path / f"{damping.name}-{scheduled}-{scaled}"
        folder.mkdir()
        strategy = AsyncPS(rule=rule, local=local, damping=damping, workers=1, record="updates")
        model = fitted(folder, strategy, make, scheduled, scaled)
        rates = recorded(folder, damping, local.n_push)
        several.add(tuple(rates))
        assert torch.equal(model.weights[0].detach(), by_hand(make, rates, local.n_push))
    assert len(several) >= 4  # what multiplies the rate did


@pytest.mark.each_value
@pytest.mark.parametrize("host", ["inline", "process"])
@pytest.mark.parametrize("rule", [Async(), Sync(), Softsync(2)], ids=repr)
def test_with_two_workers(rule: Rule, host: Any, tmp_path: Path) -> None:
    make = OPTIMIZERS["momentum"]
    strategy = AsyncPS(rule=rule, damping=Inverse(), workers=2, host=host, record="updates")
    model = fitted(tmp_path, strategy, make, scheduled=True, scaled=True, workers=2)
    rates = recorded(tmp_path, Inverse())
    assert torch.equal(model.weights[0].detach(), by_hand(make, rates))


@pytest.mark.each_value
@pytest.mark.parametrize("strategy", ["auto", "ddp"])
@pytest.mark.parametrize("scheduled", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
def test_without_a_server(strategy: str, scheduled: bool, scaled: bool, tmp_path: Path) -> None:
    """Here the rates are those that the model sees in its steps."""
    make, workers = OPTIMIZERS["lars"], 1 + (strategy == "ddp")
    model = fitted(tmp_path, DDP() if workers == 2 else "auto", make, scheduled, scaled, workers)
    rates = [rate for _, (rate,) in diaries(tmp_path)[0]["steps"]]
    assert len(rates) == BATCHES // workers
    assert torch.equal(model.weights[0].detach(), by_hand(make, rates))


def test_a_step_is_wrapped_once(tmp_path: Path) -> None:
    class Looks(Falling):
        def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
            found = vars(optimizer)["step"]
            assert type(found) is AppliedStep
            assert not isinstance(found._own, AppliedStep)
            self.notes["looked"] = self.notes.get("looked", 0) + 1

    model = Looks(configured(OPTIMIZERS["sgd"], scheduled=False))
    made: Trainer = trainer(
        tmp_path,
        AsyncPS(workers=1),
        callbacks=[ScaledRates(RateScaling("linear", per=4), 8), Diary(tmp_path)],
        limit_val_batches=0,
    )
    made.fit(model, loader())
    assert diaries(tmp_path)[0]["looked"] == 24


def test_whoever_had_replaced_the_step_has_it_again() -> None:
    parameter = Parameter(torch.zeros(1))
    optimizer = SGD([parameter], lr=0.5)
    calls: list[str] = []
    theirs = partial(calls.append, "theirs")
    optimizer.step = theirs  # type: ignore[method-assign]  # as people do
    first, second = AppliedStep.of(optimizer), AppliedStep.of(optimizer)
    assert first is second
    first.push(partial(calls.append, "push"))
    optimizer.step()
    first.push(None)
    assert optimizer.step is theirs
    optimizer.step()
    assert calls == ["push", "theirs"]
    plain = SGD([parameter], lr=0.5)
    second = AppliedStep.of(plain)
    second.push(theirs)
    second.push(None)
    assert "step" not in vars(plain)
