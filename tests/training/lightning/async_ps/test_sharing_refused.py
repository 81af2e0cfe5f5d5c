"""Streams, and loaders that cannot be shared batch by batch."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, IterableDataset

from tests.training.lightning.async_ps.sharing_runs import Net, in_order, numbers, run


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


def test_several_loaders_need_one_worker(tmp_path: Path) -> None:
    class Pair(Net):
        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return super().training_step([torch.cat((batch["a"][0], batch["b"][0]))], batch_idx)

    def loaders() -> Any:
        return {"a": numbers(20), "b": numbers(40)}

    notes = run(tmp_path, loaders, 1, net=Pair, max_epochs=1)
    assert notes.samples(1) == [Counter([*range(20), *range(20), *range(40)])]
    with pytest.raises(
        ValueError, match=r"data: several training loaders cannot be shared by 2 workers. Use one loader"
    ):
        run(tmp_path, loaders, 2, net=Pair)


@pytest.mark.filterwarnings("ignore:You are using the `dataloader_iter` step flavor", "ignore:Found `dataloader_iter`")
def test_a_training_step_that_fetches_needs_one_worker(tmp_path: Path) -> None:
    class Fetches(Net):
        def training_step(self, dataloader_iter: Iterator[Any]) -> torch.Tensor:  # type: ignore[override]  # its point
            batch, batch_idx, _ = next(dataloader_iter)
            return super().training_step(batch, batch_idx)

    assert run(tmp_path, lambda: numbers(40), 1, net=Fetches, max_epochs=1).samples(1) == [Counter(range(40))]
    with pytest.raises(ValueError, match="a training_step that takes `dataloader_iter` cannot be shared by 2 workers"):
        run(tmp_path, lambda: numbers(40), 2, net=Fetches)
