"""Parts of the data whose labels differ between workers."""

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler

from scalebook.training.zoo.shuffle import EpochShuffle
from scalebook.training.zoo.skew import SkewedSampler, SkewedShare, divided

LABELS = torch.arange(1003) % 10


@pytest.fixture(autouse=True)
def _seed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", "5")


def sampler(alpha: float = 0.1, workers: int = 4, epoch: int = 0) -> SkewedSampler:
    made = SkewedSampler(LABELS, 16, alpha)
    made.workers = workers
    made.set_epoch(epoch)
    return made


@pytest.mark.parametrize("workers", [1, 2, 4, 63, 70])
@pytest.mark.parametrize("alpha", [1e-300, 0.1, 1e6])
def test_every_sample_is_in_a_batch_of_its_own_worker_once(workers: int, alpha: float) -> None:
    made = sampler(alpha, workers)
    batches = list(BatchSampler(made, 16, drop_last=False))
    assert sorted(sample for batch in batches for sample in batch) == list(range(1003))
    for number, batch in enumerate(batches):
        assert set(made.owners()[batch].tolist()) == {number % workers}


def test_one_worker_has_the_order_of_data_that_are_not_skewed() -> None:
    plain = EpochShuffle(LABELS)
    plain.set_epoch(3)
    assert list(sampler(workers=1, epoch=3)) == list(plain)


def test_a_part_lasts_for_the_run_and_its_order_for_an_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = sampler(epoch=0), sampler(epoch=1)
    owners = first.owners()
    assert torch.equal(owners, second.owners())
    assert list(first) != list(second)
    monkeypatch.setenv("PL_GLOBAL_SEED", "6")
    assert not torch.equal(owners, first.owners())


def test_the_parts_never_change_between_versions() -> None:
    owners = divided(np.arange(12) % 3, np.array([4, 4, 4]), 0.3, seed=0)
    assert owners.tolist() == OWNERS_OF_12


OWNERS_OF_12 = [1, 2, 0, 0, 2, 0, 0, 1, 2, 1, 1, 2]


@pytest.mark.parametrize(("alpha", "least", "most"), [(0.01, 0.9, 1.0), (1e5, 0.1, 0.2)])
def test_a_small_alpha_leaves_one_label_and_a_large_one_all(alpha: float, least: float, most: float) -> None:
    """Shares of the commonest label of ten, a mean over workers of 100 samples; even counts would have 0.1."""
    labels = np.arange(4_000) % 10
    owners = divided(labels, np.array([100] * 20 + [2_000]), alpha, seed=2)
    commonest = [np.bincount(labels[owners == worker]).max() / 100 for worker in range(20)]
    assert least <= np.mean(commonest) <= most


@pytest.mark.parametrize("concentration", [0.5, 2.0])
def test_shares_have_the_moments_of_the_dirichlet_distribution(concentration: float) -> None:
    """Var q_i = p_i (1 - p_i) / (alpha + 1), and drawing n samples by q adds the multinomial part; closed forms."""
    labels = np.repeat([0, 1], [12_000, 28_000])
    sizes = np.array([50] * 300 + [25_000])
    owners = divided(labels, sizes, concentration, seed=1)
    shares = np.array([np.mean(labels[owners == worker] == 0) for worker in range(300)])
    spread = 0.3 * 0.7 / (concentration + 1)
    expected = spread + (0.3 * 0.7 - spread) / 50
    assert shares.mean() == pytest.approx(0.3, abs=4 * (expected / 300) ** 0.5)
    assert shares.var() == pytest.approx(expected, rel=0.25)


def test_processes_of_a_group_have_as_many_samples_each_and_all_of_them_together() -> None:
    parts = [SkewedShare(SkewedSampler(LABELS, 16, 0.1), 4, rank) for rank in range(4)]
    for part in parts:
        part.set_epoch(2)
    drawn = [list(part) for part in parts]
    assert {len(part) for part in drawn} == {len(parts[0])} == {256}
    assert {sample for part in drawn for sample in part} == set(range(1003))
    owners = sampler().owners()
    assert [set(owners[part].tolist()) for part in drawn] == [{0}, {1}, {2}, {3}]
