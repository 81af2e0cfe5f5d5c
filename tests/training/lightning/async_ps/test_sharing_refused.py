"""Streams, and loaders that cannot be shared batch by batch."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.utilities import CombinedLoader
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, IterableDataset

from scalebook.training.base.errors import ConfigError
from scalebook.training.lightning import AsyncPS, Peers
from tests.training.lightning.async_ps.sharing_runs import Net, in_order, numbers, run
from tests.training.lightning.async_ps.small import Small, data, held_out, trainer, weights


class Stream(IterableDataset[tuple[int]]):
    def __init__(self, length: int) -> None:
        self.length = length

    def __iter__(self) -> Iterator[tuple[int]]:
        return zip(range(self.length), strict=True)


class SizedStream(Stream):
    def __len__(self) -> int:
        return self.length


@pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined")
@pytest.mark.parametrize("stream", [Stream, SizedStream])
@pytest.mark.parametrize(("workers", "samples"), [(1, 40), (2, 44), (3, 8)])
def test_a_stream_is_divided_by_turns(tmp_path: Path, stream: type[Stream], workers: int, samples: int) -> None:
    notes = run(tmp_path, lambda: DataLoader(stream(samples), batch_size=4), workers)
    assert notes.samples(workers) == [Counter(range(samples))] * 2
    assert in_order(notes, workers) == [list(range(at, at + 4)) for at in range(0, samples, 4)] * 2
    assert [epoch for epoch, _ in notes.read("val", 0)] == [0, 1]


def test_what_the_user_divides_stays_as_it_is(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: numbers(40), 2, max_epochs=1, use_distributed_sampler=False)
    assert notes.samples(2) == [Counter(dict.fromkeys(range(40), 2))]


class Pair(Net):
    def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
        return super().training_step([torch.cat((batch["a"][0], batch["b"][0]))], batch_idx)


def pair() -> Any:
    return {"a": numbers(20), "b": numbers(40)}


def test_one_worker_has_all_of_several_loaders(tmp_path: Path) -> None:
    notes = run(tmp_path, pair, 1, net=Pair, max_epochs=1)
    assert notes.samples(1) == [Counter([*range(20), *range(20), *range(40)])]


@pytest.mark.parametrize("reloads", [0, 1])
def test_several_loaders_are_each_divided_by_turns(tmp_path: Path, reloads: int) -> None:
    """Of five batches and of ten, in batches of four: worker 0 has three of the first, and begins them again."""
    notes = run(tmp_path, pair, 2, net=Pair, reload_dataloaders_every_n_epochs=reloads)
    short = [range(4), range(8, 12), range(16, 20)], [range(4, 8), range(12, 16)]
    for worker, parts in enumerate(short):
        once = [[*parts[step % len(parts)], *range(start := 8 * step + 4 * worker, start + 4)] for step in range(5)]
        assert notes.read("train", worker) == [[epoch, *row] for epoch in range(2) for row in once]
    assert [epoch for epoch, _ in notes.read("val", 0)] == [0, 1]


def test_validation_may_be_rarer_than_the_shortest_of_several_loaders_has_batches(tmp_path: Path) -> None:
    """Worker 0 has three batches of the first, five of the second, and so five in an epoch."""
    notes = run(tmp_path, pair, 2, net=Pair, max_epochs=1, val_check_interval=4)
    assert [epoch for epoch, _ in notes.read("val", 0)] == [0]
    with pytest.raises(
        ValueError, match=r"`val_check_interval` \(6\) must be less than or equal to the number .*\(5\)"
    ):
        run(tmp_path, pair, 2, net=Pair, max_epochs=1, val_check_interval=6)
    with pytest.raises(ConfigError, match="is 6, but each of the 2 workers has 5 batches"):
        run(tmp_path, lambda: numbers(40), 2, max_epochs=1, val_check_interval=6)


def test_the_shortest_of_several_loaders_ends_the_epoch_where_the_user_says_so(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: CombinedLoader(pair(), "min_size"), 2, net=Pair, max_epochs=1)
    assert [len(notes.read("train", worker)) for worker in range(2)] == [3, 2]


def test_a_loader_with_fewer_batches_than_workers_gives_each_one(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: {"a": numbers(4), "b": numbers(40)}, 3, net=Pair, max_epochs=1)
    assert all(row[1:5] == [0, 1, 2, 3] for worker in range(3) for row in notes.read("train", worker))
    assert sum((Counter(row[5:]) for w in range(3) for row in notes.read("train", w)), Counter()) == Counter(range(40))


@pytest.mark.parametrize(
    "strategy",
    [AsyncPS(workers=2, rule="sync"), Peers(workers=2, topology="complete", exchange="d_psgd")],
    ids=["sync", "peers"],
)
def test_two_workers_with_two_loaders_train_as_one_process_with_twice_the_batches(
    tmp_path: Path, strategy: Any
) -> None:
    """What semi-supervised training does: a loss of labelled samples, and one of others."""

    class Semi(Small):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            loss = cross_entropy(self.net.eval()(batch["labelled"][0]), batch["labelled"][1])
            return torch.add(loss, self.net(batch["others"][0]).square().mean(), alpha=0.1)

    def trained(size: int, chosen: Any, devices: int) -> torch.Tensor:
        made, model = trainer(tmp_path, chosen, devices), Semi()  # seeded by the former
        loaders = {"labelled": DataLoader(data(48), size), "others": DataLoader(data(32), size)}
        made.fit(model, loaders, held_out())
        return weights(model)

    one = trained(8, "auto", 1)
    torch.testing.assert_close(trained(4, strategy, 2), one, rtol=0, atol=1e-6)


@pytest.mark.filterwarnings("ignore:You are using the `dataloader_iter` step flavor", "ignore:Found `dataloader_iter`")
def test_a_training_step_that_fetches_needs_one_worker(tmp_path: Path) -> None:
    class Fetches(Net):
        def training_step(self, dataloader_iter: Iterator[Any]) -> torch.Tensor:  # type: ignore[override]  # its point
            batch, batch_idx, _ = next(dataloader_iter)
            return super().training_step(batch, batch_idx)

    assert run(tmp_path, lambda: numbers(40), 1, net=Fetches, max_epochs=1).samples(1) == [Counter(range(40))]
    with pytest.raises(ValueError, match="a training_step that takes `dataloader_iter` cannot be shared by 2 workers"):
        run(tmp_path, lambda: numbers(40), 2, net=Fetches)
