"""What people look at, copy and pickle while AsyncPS trains, and afterwards."""

import copy
import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import Strategy
from torch import Tensor
from torch.optim import SGD, Adam
from torch.optim.lr_scheduler import StepLR

from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.async_ps import refusals
from tests.training.lightning.async_ps.contract.models import Plain
from tests.training.lightning.async_ps.small import fit, trainer, weights


def adam(model: LightningModule) -> Any:
    optimizer = Adam(model.parameters(), lr=0.01)
    return {"optimizer": optimizer, "lr_scheduler": {"scheduler": StepLR(optimizer, 3), "interval": "step"}}


class Moments(Callback):
    """Logs Adam's moments after every step, in worker 0; saves what it saw."""

    def __init__(self, path: Path) -> None:
        self.path, self.seen = path, list[Tensor]()

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        state = trainer.optimizers[0].state
        assert len(state) == 4
        assert all(parameter in state for parameter in pl_module.parameters())
        kept = [one[name].flatten() for one in state.values() for name in ("step", "exp_avg", "exp_avg_sq")]
        self.seen.append(torch.cat([one.clone() for one in kept]))

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.is_global_zero:
            torch.save(torch.stack(self.seen), self.path)


def test_the_state_of_an_optimizer_is_there_while_it_trains(tmp_path: Path) -> None:
    strategies: dict[str, Strategy | str] = {"plain": "auto", "one": AsyncPS(), "two": AsyncPS(workers=2)}
    for name, strategy in strategies.items():
        fit(trainer(tmp_path, strategy, max_epochs=1, callbacks=[Moments(tmp_path / name)]), Plain(adam))
    plain, one, two = (torch.load(tmp_path / name, weights_only=True) for name in ("plain", "one", "two"))
    assert torch.equal(one, plain)
    steps = two[:, 0].tolist()
    assert 1 <= len(steps) < 12
    assert steps == sorted(steps)
    assert steps[-1] <= 12


class Copies(Callback):
    """Copies and pickles everything in worker 0, after its second batch."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, out: Any, batch: Any, idx: int) -> None:
        if not trainer.is_global_zero or idx != 1:
            return
        optimizer = trainer.optimizers[0]
        for thing in (trainer, trainer.strategy, optimizer, pl_module, optimizer.state, optimizer.state_dict()):
            for way in WAYS:
                way(thing)
        other: Any = copy.deepcopy(pl_module)
        assert torch.equal(weights(other), weights(pl_module))
        other.lr_scheduler_step(StepLR(SGD(other.parameters(), lr=1.0), 1), None)
        again = pickle.loads(pickle.dumps(optimizer))  # noqa: S301  # made here
        states = zip(again.state.values(), optimizer.state.values(), strict=True)
        assert all(torch.equal(a["exp_avg"], b["exp_avg"]) for a, b in states)
        assert trainer.strategy.session.trains  # type: ignore[attr-defined]
        assert not copy.deepcopy(trainer).strategy.session.trains  # type: ignore[attr-defined]


def _saved(thing: Any) -> None:
    torch.save(thing, io.BytesIO())


WAYS: list[Callable[[Any], Any]] = [copy.copy, copy.deepcopy, pickle.dumps, _saved]


@pytest.mark.thorough
@pytest.mark.filterwarnings("ignore")  # of torch, about schedulers and loaders that are pickled
@pytest.mark.parametrize("workers", [1, 2])
def test_everything_can_be_copied(workers: int, tmp_path: Path) -> None:
    made = trainer(tmp_path, AsyncPS(workers=workers), max_epochs=1, callbacks=[Copies()])
    found = fit(made, Plain(adam))
    other: Any = copy.deepcopy(made)
    assert torch.equal(weights(other.lightning_module), found)
    pickle.dumps(made)


class Saves(Callback):
    """Saves in every worker, as is usual under DDP."""

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, out: Any, batch: Any, idx: int) -> None:
        if idx == 1:
            trainer.save_checkpoint(Path(trainer.default_root_dir) / "every.ckpt")


def test_a_checkpoint_that_every_worker_saves_is_worker_0s(tmp_path: Path) -> None:
    fit(trainer(tmp_path, AsyncPS(workers=2), max_epochs=1, callbacks=[Saves()]), Plain(adam))
    saved = torch.load(tmp_path / "every.ckpt", weights_only=True)
    assert len(saved["optimizer_states"][0]["state"]) == len(list(Plain().parameters()))


class Loads(Callback):
    """Puts the optimizer's state of an earlier run into this one."""

    def __init__(self, state: dict[str, Any]) -> None:
        self.state = state

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        trainer.optimizers[0].load_state_dict(self.state)


def test_a_state_that_is_loaded_before_training_is_the_first(tmp_path: Path) -> None:
    model = Plain()
    optimizer = SGD(model.parameters(), lr=0.05, momentum=0.9)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    state = optimizer.state_dict()
    found = []
    strategies: list[Strategy | str] = ["auto", AsyncPS()]
    for strategy in strategies:
        made = Plain(lambda model: SGD(model.parameters(), lr=0.05, momentum=0.9))
        found.append(fit(trainer(tmp_path, strategy, callbacks=[Loads(copy.deepcopy(state))]), made))
    assert torch.equal(*found)


class Demands(SGD):
    """Its step has to be given a closure, which it evaluates once, as some people write it."""

    def step(self, closure: Any) -> Any:  # type: ignore[override]
        with torch.enable_grad():
            loss = closure()
        super().step()
        return loss


def test_an_optimizer_that_demands_a_closure(tmp_path: Path) -> None:
    def demands(model: LightningModule) -> Any:
        return Demands(model.parameters(), lr=0.05, momentum=0.9)

    expected = fit(trainer(tmp_path, "auto"), Plain(demands))
    assert torch.equal(fit(trainer(tmp_path, AsyncPS()), Plain(demands)), expected)
    two = fit(trainer(tmp_path, AsyncPS(workers=2, host="process")), Plain(demands))
    assert not torch.equal(two, weights(Plain()))


def test_what_a_run_needs_is_known_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two workers: four versions, a gradient each; Adam's two moments, twice."""
    size = sum(p.numel() for p in Plain().parameters()) * 4
    said = tmp_path / "said"
    monkeypatch.setattr(refusals, "WORTH_SAYING", 1)
    monkeypatch.setattr(refusals, "rank_zero_info", said.write_text)
    monkeypatch.setattr(refusals, "available_bytes", lambda: 100 * size)
    fit(trainer(tmp_path, AsyncPS(workers=2), max_epochs=1), Plain(adam))
    assert "The run takes 0.00 GB of memory for parameters" in said.read_text()
    assert said.read_text().endswith(" GB for gradients, 0.00 GB for a snapshot of the state.")
    monkeypatch.setattr(refusals, "available_bytes", lambda: 9 * size)
    with pytest.raises(MemoryError, match=r"0\.00 GB are available. Use fewer workers"):
        fit(trainer(tmp_path, AsyncPS(workers=2), max_epochs=1), Plain(adam))
    fit(trainer(tmp_path, AsyncPS(workers=2), max_epochs=1), Plain())
