import pytest
import torch

from scalebook.training.zoo.data.module import stratified_split


@pytest.mark.parametrize("fraction", [0.1, 0.25, 0.5])
def test_each_class_is_held_out_in_proportion(fraction: float) -> None:
    labels = torch.tensor([0] * 40 + [1] * 80 + [2] * 20)
    train, val = stratified_split(labels, fraction, seed=3)
    assert sorted([*train.tolist(), *val.tolist()]) == list(range(140))
    assert torch.bincount(labels[val]).tolist() == [40 * fraction, 80 * fraction, 20 * fraction]


def test_the_split_never_changes_between_versions() -> None:
    labels = torch.arange(12) % 3
    assert stratified_split(labels, 0.3, seed=0)[1].tolist() == [1, 6, 9, 11]


def test_uneven_shares_add_up_to_the_whole() -> None:
    labels = torch.tensor([0] * 7 + [1] * 7 + [2] * 7)
    _, val = stratified_split(labels, 0.2, seed=0)
    assert len(val) == 5  # ceil(4.2)
    assert sorted(torch.bincount(labels[val]).tolist()) == [1, 2, 2]
