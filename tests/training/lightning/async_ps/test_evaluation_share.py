"""Whose batch is whose, of data that several workers validate with."""

from itertools import chain, product

import torch
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.lightning.process_group.evaluation import EvaluationShare


def shares(samples: int, workers: int, limit: float = 1.0, drop_last: bool = False) -> list[EvaluationShare]:
    loader = DataLoader(TensorDataset(torch.arange(samples)), batch_size=4, drop_last=drop_last)
    return [EvaluationShare(loader, worker, workers, limit) for worker in range(workers)]


def test_every_sample_counts_once_and_all_make_rounds_of_one_size() -> None:
    for workers, samples in product((1, 2, 3, 5), (3, 4, 8, 10, 12, 21)):
        every = shares(samples, workers)
        rounds = [list(share) for share in every]
        for sizes in zip(*[[len(batch) for batch in batches] for batches in rounds], strict=True):
            assert len(set(sizes)) == 1
        counted: list[int] = []
        for worker, (share, batches) in enumerate(zip(every, rounds, strict=True)):
            mine = [batch for place, batch in enumerate(batches) if share.counts(place)]
            assert {batch[0] // 4 % workers for batch in mine} <= {worker}, "batch i is worker i % workers'"
            counted += chain(*mine)
        assert sorted(counted) == list(range(samples))
        assert sum(share.samples for share in every) == samples
        assert len({len(share) for share in every}) == 1


def test_a_limit_is_of_all_batches_and_lightning_takes_the_rounds() -> None:
    """Of ten batches. A Trainer takes a number as it is, and a fraction of the length that it is told."""
    for limit, batches in ((0.5, 5), (0.7, 7), (3, 3), (100, 10), (0.0, 0), (1.0, 10)):
        for share in shares(40, 3, limit):
            assert share.batches == batches
            taken = min(len(share), limit) if isinstance(limit, int) else int(len(share) * limit)
            assert taken == share.rounds == -(-batches // 3)


def test_a_last_batch_that_is_dropped_is_nobody_s() -> None:
    assert [list(share) for share in shares(10, 2, drop_last=True)] == [[[0, 1, 2, 3]], [[4, 5, 6, 7]]]
