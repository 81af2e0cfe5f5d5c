"""The ranker with sparse tables under AsyncPS: as in one process, among several workers, on a virtual clock."""

import os
from collections.abc import Callable, Iterable
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint, ModelSummary
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD, Adagrad, Adam, Optimizer
from torch.utils.data import DataLoader, Dataset

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.settings import HostName
from scalebook.training.lightning.async_ps.async_ps import AsyncPS
from scalebook.training.zoo.models import Ranker
from tests.training.lightning.async_ps.machines import by_hand, together

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:Sparse invariant checks"),
    pytest.mark.filterwarnings("ignore:The .*dataloader. does not have many workers"),
]
Make = Callable[[Iterable[Parameter]], Optimizer]


class _Pairs(Dataset[tuple[Tensor, Tensor]]):
    """A document has four of its query's six hashes."""

    def __len__(self) -> int:
        return 128

    def __getitem__(self, index: int) -> tuple[Tensor, Tensor]:
        draw = torch.Generator().manual_seed(index)
        query = torch.randint(1, 5000, (6,), generator=draw)
        return query, torch.cat([query[:4], torch.randint(1, 5000, (6,), generator=draw)])


class _Ranker(Ranker):
    make: Make

    def configure_optimizers(self) -> Optimizer:
        return self.make(self.parameters())

    @torch.no_grad()
    def training_step_loss(self, batch: Any) -> float:
        return self._loss(self(*batch)).item()


def untrained(sparse: bool) -> _Ranker:
    seed_everything(1, verbose=False)
    return _Ranker(rows=300, width=8, dropout=0.0, sparse=sparse)


def sgd(parameters: Iterable[Parameter]) -> Optimizer:
    return SGD(parameters, lr=0.5)


def adagrad(parameters: Iterable[Parameter]) -> Optimizer:
    return Adagrad(parameters, lr=0.05)


def fitted(
    strategy: AsyncPS | str,
    make: Make,
    epochs: int = 2,
    sparse: bool = True,
    ckpt_path: Path | None = None,
    devices: int = 1,
    num_nodes: int = 1,
    callbacks: list[Callback] | None = None,
) -> tuple[Trainer, _Ranker]:
    model = untrained(sparse)
    model.make = make
    trainer = Trainer(
        strategy=strategy, accelerator="cpu", devices=devices, num_nodes=num_nodes, max_epochs=epochs, logger=False,
        enable_progress_bar=False, enable_model_summary=False, callbacks=callbacks,
        enable_checkpointing=any(isinstance(one, ModelCheckpoint) for one in callbacks or ()),
    )  # fmt: skip
    data: DataLoader[Any] = DataLoader(_Pairs(), batch_size=16)
    trainer.fit(model, data, DataLoader(_Pairs(), batch_size=64), ckpt_path=ckpt_path)
    return trainer, model


def test_one_worker_is_one_process_and_goes_on_from_a_checkpoint(tmp_path: Path) -> None:
    _, plain = fitted("auto", adagrad, epochs=3)
    trainer, first = fitted(AsyncPS(workers=1), adagrad, epochs=1)
    assert type(first.table) is torch.nn.EmbeddingBag
    trainer.save_checkpoint(tmp_path / "first.ckpt")
    _, resumed = fitted(AsyncPS(workers=1), adagrad, epochs=3, ckpt_path=tmp_path / "first.ckpt")
    for mine, theirs in zip(resumed.parameters(), plain.parameters(), strict=True):
        assert torch.equal(mine, theirs)


def test_two_workers_train() -> None:
    trainer, model = fitted(AsyncPS(workers=2), adagrad, epochs=4)
    assert trainer.global_step == 32
    batch = next(iter(DataLoader(_Pairs(), batch_size=64)))
    trained, before = (one.training_step_loss(batch) for one in (model, untrained(sparse=True)))
    assert trained < 0.8 * before


@pytest.mark.thorough
@pytest.mark.parametrize("host", ["inline", "process"])
def test_two_machines_are_one_to_the_last_bit(host: HostName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And both have the whole table at the end."""
    monkeypatch.setenv("SCALEBOOK_KEY_FILE", str(tmp_path / "state" / "key"))

    def weights(devices: int = 1, num_nodes: int = 1) -> list[Tensor]:
        _, model = fitted(AsyncPS("sync", host=host), adagrad, devices=devices, num_nodes=num_nodes)
        return [parameter.detach() for parameter in model.parameters()]

    alone = weights(devices=2)
    for machine in together(by_hand(), lambda: weights(num_nodes=2), tmp_path):
        assert all(torch.equal(mine, theirs) for mine, theirs in zip(machine, alone, strict=True))


class _Reads(Callback):
    """Does this to the model's table in the worker of another machine, once training has begun."""

    def __init__(self, read: Callable[[Parameter], Any]) -> None:
        self.read = read

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        if trainer.global_rank == 1:
            self.read(pl_module.get_parameter("table.weight"))


@torch.no_grad()
def _tied(weight: Parameter) -> Tensor:
    return torch.ones(1, weight.shape[1]) @ weight.T


@pytest.mark.thorough
def test_who_reads_a_table_on_another_machine_is_told_and_both_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCALEBOOK_KEY_FILE", str(tmp_path / "state" / "key"))

    def told() -> str:
        with pytest.raises((ValueError, SystemExit, RuntimeError)) as raised:
            fitted(AsyncPS(), adagrad, num_nodes=2, epochs=1000, callbacks=[_Reads(_tied)])
        return str(raised.value)

    here, there = together(by_hand(), told, tmp_path)
    said = "model: table.weight is a table with sparse gradients, whose values are only on the first node"
    assert there.startswith(said)
    assert said in here


@pytest.mark.thorough
def test_callbacks_that_look_at_no_values_go_on_on_another_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Lightning's own do: summaries, checkpoints, moves to a device, copies of the model."""
    monkeypatch.setenv("SCALEBOOK_KEY_FILE", str(tmp_path / "state" / "key"))

    class Looks(Callback):
        def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
            ModelSummary(max_depth=2).on_fit_start(trainer, pl_module)
            copied, moved = deepcopy(pl_module), pl_module.to("cpu")
            assert copied.get_parameter("table.weight").shape == moved.get_parameter("table.weight").shape
            assert len(pl_module.state_dict()) == len(list(pl_module.parameters()))

    def weights() -> list[Tensor]:
        saving = ModelCheckpoint(tmp_path / "saved", every_n_train_steps=2)
        trainer, model = fitted(AsyncPS("sync"), adagrad, num_nodes=2, callbacks=[Looks(), saving])
        assert trainer.global_step == 8
        return [parameter.detach() for parameter in model.parameters()]

    here, there = together(by_hand(), weights, tmp_path)
    assert all(torch.equal(mine, theirs) for mine, theirs in zip(here, there, strict=True))
    assert any((tmp_path / "saved").iterdir())


def test_virtual_workers_read_the_rows_of_the_version_that_they_hold() -> None:
    """So four of them come to what they come to with dense gradients, whose versions are whole."""
    clock = ClockSettings(gradient_s=0.1, stragglers={3: 2.0})
    weights = [
        list(fitted(AsyncPS(host="virtual", workers=4, clock=clock), sgd, sparse=sparse)[1].parameters())
        for sparse in (True, False)
    ]
    first = list(untrained(sparse=False).parameters())
    for mine, theirs, before in zip(*weights, first, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-6)
        assert not torch.equal(mine, before)


def test_an_optimizer_that_cannot_step_on_rows_is_refused() -> None:
    with pytest.raises(ValueError, match="optimizer: is Adam, which changes rows"):
        fitted(AsyncPS(workers=1), Adam)


def test_settings_that_need_a_copy_of_the_tables_are_refused_before_anything_is_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "fork", lambda: pytest.fail("a worker was forked"))
    with pytest.raises(ValueError, match=r"^local: is local_sgd, but sparse tables exist only once"):
        fitted(AsyncPS(workers=2, local="local_sgd"), adagrad)
