"""Training streams of two real workers: every sample once, whether the data set divides itself or not."""

import os
from collections.abc import Callable, Iterator
from itertools import chain, islice, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from lightning.pytorch import LightningModule
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning.async_ps.async_ps import AsyncPS
from scalebook.training.lightning.data.data_sharing import Stream, digest
from tests.training.lightning.async_ps.small import SAMPLES, Diary, Small, data, diaries, held_out, loader, trainer

Share = tuple[int, int]  # which, of how many


class Numbers(IterableDataset[tuple[Tensor, ...]]):
    """The samples whose number is `which` modulo `of`; further divided among the loader's own processes."""

    def __init__(self, share: Callable[[], Share]) -> None:
        self.share = share

    def __iter__(self) -> Iterator[tuple[Tensor, ...]]:
        which, of = self.share()
        if (info := get_worker_info()) is not None:
            which, of = which + of * info.id, of * info.num_workers
        samples: Any = data()
        return (samples[number] for number in range(which, SAMPLES, of))


class Sized(Numbers):
    """Says how many there are of its own share, as DDP wants it."""

    def __len__(self) -> int:
        which, of = self.share()
        return len(range(which, SAMPLES, of))


def _environment() -> Share:
    return int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def _everything() -> Share:
    return 0, 1


class Streams(Small):
    """The loader is made in the worker, where the Trainer knows its rank."""

    def __init__(self, kind: type[Numbers], share: Callable[[], Share] | None, processes: int) -> None:
        super().__init__()
        self.kind, self.share, self.processes = kind, share, processes

    def train_dataloader(self) -> DataLoader[Any]:
        rank = self.trainer.global_rank, self.trainer.world_size
        numbers = self.kind(self.share or (lambda: rank))
        return DataLoader(numbers, batch_size=8, num_workers=self.processes)

    def training_step(self, batch: list[Tensor], batch_idx: int) -> Tensor:
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])


def seen(folder: Path, model: LightningModule, epochs: int = 2, **settings: Any) -> list[list[int]]:
    """By worker, the numbers of the samples that it trained on."""
    made = trainer(
        folder,
        AsyncPS(workers=2, limits=Limits(deadline_s=20)),
        callbacks=[Diary(folder)],
        max_epochs=epochs,
        **settings,
    )
    made.fit(model, val_dataloaders=loader())
    return [diary["train"] for diary in diaries(folder)]


@pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined")
@pytest.mark.parametrize("kind", [Numbers, Sized])
@pytest.mark.parametrize("share", [None, _environment], ids=["trainer's rank", "environment"])
def test_a_stream_that_divides_itself_is_used_as_a_whole(
    kind: type[Numbers], share: Callable[[], Share] | None, tmp_path: Path
) -> None:
    workers = seen(tmp_path, Streams(kind, share, processes=0))
    assert workers == [2 * list(range(worker, SAMPLES, 2)) for worker in range(2)]


def test_also_in_the_loaders_own_processes(tmp_path: Path) -> None:
    workers = seen(tmp_path, Streams(Numbers, _environment, processes=2), epochs=1)
    assert [sorted(numbers) for numbers in workers] == [list(range(worker, SAMPLES, 2)) for worker in range(2)]


@pytest.mark.filterwarnings("ignore:Your `IterableDataset` has `__len__` defined")
@pytest.mark.parametrize("kind", [Numbers, Sized])
def test_a_stream_that_does_not_is_divided_by_turns(kind: type[Numbers], tmp_path: Path) -> None:
    workers = seen(tmp_path, Streams(kind, _everything, processes=0))
    batches = [list(range(start, start + 8)) for start in range(0, SAMPLES, 8)]
    assert workers == [2 * list(chain(*batches[worker::2])) for worker in range(2)]


def test_reloaded_each_epoch_it_is_still_the_same_stream(tmp_path: Path) -> None:
    workers = seen(tmp_path, Streams(Numbers, None, processes=0), reload_dataloaders_every_n_epochs=1)
    assert workers == [2 * list(range(worker, SAMPLES, 2)) for worker in range(2)]


def test_the_user_divides(tmp_path: Path) -> None:
    workers = seen(tmp_path, Streams(Numbers, None, processes=0), use_distributed_sampler=False)
    assert workers == [2 * list(range(worker, SAMPLES, 2)) for worker in range(2)]


class Batches:
    """A loader that is no DataLoader; worker 1 has no batch."""

    def __iter__(self) -> Iterator[Any]:
        return islice(loader(), len(self))

    def __len__(self) -> int:
        return 0 if os.environ["RANK"] == "1" else SAMPLES // 8


class Partly(Small):
    def train_dataloader(self) -> Any:
        return Batches()


@pytest.mark.filterwarnings("ignore:Total length of")
def test_a_stream_of_nothing_ends_the_fit(tmp_path: Path) -> None:
    """Also one without a last epoch."""
    made = trainer(tmp_path, AsyncPS(workers=2, limits=Limits(deadline_s=20)), max_epochs=-1, max_steps=2)
    made.fit(Small(), [], held_out())
    assert made.global_step == 0


class Nothing(IterableDataset[Any]):
    """Without a length, so that only drawing tells that there is nothing."""

    def __iter__(self) -> Iterator[Any]:
        return iter(())


@pytest.mark.parametrize("processes", [0, 1])
def test_epochs_of_an_unsized_stream_of_nothing_pass(processes: int, tmp_path: Path) -> None:
    made = trainer(tmp_path, AsyncPS(workers=2, limits=Limits(deadline_s=20)), max_epochs=2)
    made.fit(Small(), DataLoader(Nothing(), batch_size=8, num_workers=processes), held_out())
    assert (made.global_step, made.current_epoch) == (0, 2)


def test_a_worker_may_have_nothing(tmp_path: Path) -> None:
    assert seen(tmp_path, Partly()) == [2 * list(range(SAMPLES)), []]


def test_a_digest_is_of_all_that_a_batch_holds() -> None:
    batch = {"x": torch.arange(6.0).view(2, 3).t(), "y": [np.ones(2), "text", 1, None], "z": torch.ones(2).bfloat16()}
    same = {"x": torch.arange(6.0).view(2, 3).t(), "y": [np.ones(2), "text", 1, None], "z": torch.ones(2).bfloat16()}
    assert digest(batch) == digest(same) > 0
    for changed in (
        {**batch, "x": torch.arange(6.0).view(3, 2)},
        {**batch, "y": [np.zeros(2), "text", 1, None]},
        {**batch, "y": [np.ones(2), "other", 1, None]},
        {**batch, "z": torch.ones(2).half()},
    ):
        assert digest(changed) != digest(batch)


def test_turns_of_a_stream_of_known_length_are_all_of_it() -> None:
    """As many as each is told; a worker that has none has no length, since Lightning would end there."""
    for batches, worker in product((0, 1, 2, 5, 6), range(3)):
        part = Stream(list(range(batches)), worker, 3, None)
        own = list(range(worker, batches, 3))
        assert list(part) == own
        if own or not batches:
            assert len(part) == len(own)
        else:
            with pytest.raises(TypeError):
                len(part)
