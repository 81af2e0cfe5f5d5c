"""Buffers that training changes are those of one model, however many workers have their own."""

import logging
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule
from lightning_utilities.core import rank_zero
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, one_hot
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.lightning import AsyncPS
from tests.training.lightning.async_ps.contract.cases import CASES, WORKERS, Case, fitted, in_order, parameter_server
from tests.training.lightning.async_ps.contract.models import Averages, Plain
from tests.training.lightning.async_ps.small import Batch, trainer

GROUPS = 6
DDP = next(case for case in CASES if case.is_ddp)
SYNC = next(case for case in CASES if case.name == "sync-inline")


def groups(samples: int = 768) -> TensorDataset:
    """Points around centres, with the number of each one's centre."""
    draw = torch.Generator().manual_seed(1)
    labels = torch.randint(GROUPS, (samples,), generator=draw)
    centres = 3 * torch.randn(GROUPS, 8, generator=draw)
    return TensorDataset(centres[labels] + torch.randn(samples, 8, generator=draw), labels, torch.arange(samples))


class Clusters(Plain):
    """Online k-means as a buffer, which each worker begins with points of its own first batch; a linear layer learns
    what each cluster means, so workers that number them otherwise unlearn what others learn."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(GROUPS, GROUPS))
        self.centroids: Tensor
        self.register_buffer("centroids", torch.zeros(GROUPS, 8))

    def nearest(self, inputs: Tensor) -> Tensor:
        return torch.cdist(inputs, self.centroids).argmin(1)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        if not self.centroids.any():
            far = [0]
            for _ in range(GROUPS - 1):
                far.append(int(torch.cdist(batch[0], batch[0][far]).amin(1).argmax()))
            self.centroids.data.copy_(batch[0][far])
        clusters = one_hot(self.nearest(batch[0]), GROUPS).float()
        there = clusters.sum(0)[:, None]
        means = clusters.T @ batch[0] / there.clamp(min=1)
        self.centroids = torch.where(there > 0, 0.9 * self.centroids + 0.1 * means, self.centroids)
        return cross_entropy(self.net(clusters), batch[1])

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        pass

    def on_train_batch_end(self, *_: Any) -> None:
        self.notes["centroids"] = self.centroids.flatten().tolist()

    def configure_optimizers(self) -> Any:
        return SGD(self.parameters(), lr=0.5)

    def accuracy(self) -> float:
        inputs, labels, _ = groups().tensors
        with torch.no_grad():
            answers = self.net(one_hot(self.nearest(inputs), GROUPS).float()).argmax(1)
        return float((answers == labels).float().mean())


def apart(seen: list[dict[str, Any]]) -> float:
    first, *others = (torch.tensor(notes["centroids"]) for notes in seen)
    return max(float((one - first).norm() / first.norm()) for one in others)


def shuffled() -> DataLoader[Any]:
    return DataLoader(groups(), batch_size=16, shuffle=True)


@pytest.mark.thorough
@parameter_server
def test_clusters_are_found_as_well_as_under_ddp(case: Case, tmp_path: Path) -> None:
    model, reference = Clusters(), Clusters()
    for name in ("ours", "ddp", "own"):
        (tmp_path / name).mkdir()
    _, seen = fitted(case, tmp_path / "ours", model, train=shuffled(), max_epochs=3)
    fitted(DDP, tmp_path / "ddp", reference, train=shuffled(), max_epochs=3)
    assert apart(seen) < 0.1
    assert model.accuracy() > reference.accuracy() - 0.05
    assert reference.accuracy() > 0.9
    own = Clusters()
    _, seen = fitted(case, tmp_path / "own", own, {"buffers": "per_worker"}, train=shuffled(), max_epochs=3)
    assert apart(seen) > 0.3
    assert own.accuracy() < 0.9


@pytest.mark.thorough
@pytest.mark.parametrize("rule", ["async", "sync"])
def test_virtual_workers_find_them_too(rule: Any, tmp_path: Path) -> None:
    model = Clusters()
    strategy = AsyncPS(rule=rule, workers=4, host="virtual", clock=ClockSettings(1.0))
    made = trainer(tmp_path, strategy, max_epochs=4)
    made.fit(model, shuffled(), in_order())
    assert model.accuracy() > 0.9


class Codebook(Plain):
    """A VQ-VAE, whose codes are quotients of two moving averages, all written through `.data`."""

    def __init__(self) -> None:
        super().__init__()
        self.encode, self.decode = nn.Linear(8, 4), nn.Linear(4, 8)
        self.net = nn.Sequential(self.encode, self.decode)
        self.codes: Tensor
        self.counts: Tensor
        self.sums: Tensor
        self.register_buffer("codes", torch.randn(12, 4))
        self.register_buffer("counts", torch.ones(12))
        self.register_buffer("sums", self.codes.clone())

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        encoded = self.encode(batch[0])
        nearest = torch.cdist(encoded, self.codes).argmin(1)
        chosen = one_hot(nearest, 12).float()
        self.counts.data.mul_(0.95).add_(chosen.sum(0), alpha=0.05)
        self.sums.data.mul_(0.95).add_(chosen.T @ encoded.detach(), alpha=0.05)
        self.codes.data.copy_(self.sums / self.counts.clamp(min=1e-3)[:, None])
        codes = self.codes[nearest]
        decoded = self.decode(encoded + (codes - encoded).detach())
        loss: Tensor = (decoded - batch[0]).square().mean() + 0.25 * (encoded - codes).square().mean()
        return loss

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        pass

    def on_train_batch_end(self, *_: Any) -> None:
        self.notes["centroids"] = self.codes.flatten().tolist()

    def configure_optimizers(self) -> Any:
        return SGD(self.parameters(), lr=0.02)


@parameter_server
def test_a_codebook_is_one_for_all(case: Case, tmp_path: Path) -> None:
    _, seen = fitted(case, tmp_path, Codebook(), train=shuffled(), max_epochs=2)
    assert apart(seen) < 0.1


def values(model: LightningModule) -> list[Tensor]:
    return list(model.buffers())


def test_under_sync_they_are_those_of_ddp(tmp_path: Path) -> None:
    ours, theirs = Averages(), Averages()
    for name in ("ours", "ddp"):
        (tmp_path / name).mkdir()
    whole: Any = {"use_distributed_sampler": False, "max_epochs": 1}  # each worker has all batches, in one order
    _, seen = fitted(SYNC, tmp_path / "ours", ours, **whole)
    _, expected = fitted(DDP, tmp_path / "ddp", theirs, **whole)
    for mine, its in zip(values(ours), values(theirs), strict=True):
        torch.testing.assert_close(mine, its)
    assert seen[0]["begins"] == seen[1]["begins"] == expected[0]["begins"]
    assert len(set(map(tuple, seen[0]["begins"]))) == len(seen[0]["begins"]), "each batch changes them"


def test_under_sync_the_mean_is_that_of_both_batches(tmp_path: Path) -> None:
    """From the second update on: the first is worker 0's."""
    model = Averages()
    _, seen = fitted(SYNC, tmp_path, model, {"buffers": "averaged"}, max_epochs=1)
    assert seen[0]["begins"] == seen[1]["begins"]
    inputs = torch.randn(96, 5, generator=torch.Generator().manual_seed(3))
    pairs = [
        inputs[[*one, *two]].mean(0).double() + 0.5
        for one, two in zip(_batches(seen[0]["train"]), _batches(seen[1]["train"]), strict=True)
    ]
    average = torch.tensor(seen[0]["begins"][1], dtype=torch.float64)
    torch.testing.assert_close(average, 0.25 * inputs[seen[0]["train"][:8]].mean(0).double())
    for pair in pairs[1:]:
        average = 0.75 * average + 0.25 * pair
    torch.testing.assert_close(model.average, average)


def _batches(samples: list[int]) -> list[list[int]]:
    return [samples[first : first + 8] for first in range(0, len(samples), 8)]


class Drawn(Plain):
    """With a projection that each worker draws for itself, and one that only some of the batches change."""

    def configure_model(self) -> None:
        if not hasattr(self, "projection"):
            torch.manual_seed(os.getpid())
            self.register_buffer("projection", torch.randn(5, 5))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        projection: Any = self.projection
        self.notes["projection"] = projection.tolist()
        return cross_entropy(self.net(batch[0] @ projection), batch[1])

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        pass


def test_all_begin_with_what_worker_0_has_drawn(tmp_path: Path) -> None:
    model = Drawn()
    _, seen = fitted(SYNC, tmp_path, model, max_epochs=1)
    assert len(seen) == WORKERS
    assert seen[0]["projection"] == seen[1]["projection"]


def test_what_training_changes_is_said_once_and_saved_in_memory_of_its_own(
    tmp_path: Path,
) -> None:
    model, says = Clusters(), logging.FileHandler(tmp_path / "said")
    logger = rank_zero.log  # whichever package of Lightning was imported last has named it
    logger.addHandler(says)
    try:
        made, _ = fitted(SYNC, tmp_path, model, train=shuffled(), max_epochs=2)
    finally:
        logger.removeHandler(says)
        says.close()
    path = tmp_path / "after.ckpt"
    made.save_checkpoint(path, weights_only=True)
    saved = torch.load(path, weights_only=True)["state_dict"]["centroids"]
    assert saved.untyped_storage().nbytes() == saved.nbytes
    assert torch.equal(saved, model.centroids)
    said = (tmp_path / "said").read_text()
    assert said.count("These buffers are set to worker 0's values at each pull: centroids") == 1
