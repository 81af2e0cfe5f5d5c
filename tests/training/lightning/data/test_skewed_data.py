"""Each strategy deals a skewed sampler's parts: which worker computes on which samples, in real runs."""

from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader
from typing_extensions import override

from scalebook.training.base.errors import ConfigError
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.worker.cursor import Cursor
from scalebook.training.lightning import DDP, AsyncPS, ModelParallel, Peers
from scalebook.training.lightning.data import shared_loader
from scalebook.training.lightning.data.data_sharing import SharedData
from scalebook.training.zoo.shuffle import EpochShuffle
from scalebook.training.zoo.skew import SkewedSampler, skewed
from tests.training.lightning.async_ps.small import (
    SAMPLES,
    Diary,
    Small,
    data,
    diaries,
    held_out,
    make_sgd,
    seeded_model,
    trainer,
)

pytestmark = pytest.mark.long
SEED = 11
LIMITS = Limits(deadline_s=30)
CLOCK: Any = {"gradient_s": 0.05, "stragglers": {1: 3.0}}
MADE = data()
LABELS = torch.stack([MADE[sample][1] for sample in range(SAMPLES)])


class Skewed(LightningDataModule):
    """`small.data`, whose three labels differ between workers."""

    @override
    def train_dataloader(self) -> DataLoader[Any]:
        return DataLoader(MADE, batch_size=8, sampler=skewed(LABELS, 8, 0.3, self.trainer))

    @override
    def val_dataloader(self) -> DataLoader[Any]:
        return held_out()


class Planned(Small):
    """Says how it splits: not at all, so each worker of a tensor group computes the whole."""

    def parallel_plan(self) -> dict[str, Any]:
        return {}


class Batches(Callback):
    """The samples of each batch, in the process that simulates all workers."""

    def __init__(self) -> None:
        self.samples: list[list[int]] = []

    @override
    def on_train_batch_start(self, trainer: Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.samples.append(batch[2].tolist())


def owners(workers: int) -> torch.Tensor:
    whole = SkewedSampler(LABELS, 8, 0.3)
    whole.workers = workers
    return whole.owners()


@pytest.mark.parametrize(
    "strategy",
    [
        DDP,
        lambda: AsyncPS("async", workers=2, limits=LIMITS),
        pytest.param(lambda: AsyncPS("sync", workers=2, limits=LIMITS), marks=pytest.mark.sampled),
        pytest.param(lambda: Peers(2, limits=LIMITS), marks=pytest.mark.sampled),
        pytest.param(lambda: Peers(2, exchange="ad_psgd", limits=LIMITS), marks=pytest.mark.sampled),
    ],
    ids=["ddp", "async", "sync", "d_psgd", "ad_psgd"],
)
def test_each_process_sees_its_own_part_in_every_epoch(
    strategy: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", str(SEED))
    trainer(tmp_path, strategy(), 2, callbacks=[Diary(tmp_path)]).fit(seeded_model(), Skewed())
    of = owners(2)
    for worker, notes in enumerate(diaries(tmp_path)):
        own = torch.nonzero(of == worker).flatten().tolist()
        assert sorted(set(notes["train"])) == own
        assert len(notes["train"]) <= 2 * (len(own) + 8)
        assert len(notes["train"]) >= 2 * len(own)


def test_workers_who_compute_a_batch_together_have_one_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PL_GLOBAL_SEED", str(SEED))
    strategy = ModelParallel(tensor=2)
    trainer(tmp_path, strategy, 2, max_epochs=1, callbacks=[Diary(tmp_path)]).fit(Planned(make_sgd), Skewed())
    order = EpochShuffle(MADE)  # type: ignore[arg-type]
    assert [notes["train"] for notes in diaries(tmp_path)] == [list(order)] * 2


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("kind", [AsyncPS, Peers])
def test_virtual_workers_have_batches_of_one_part_each(
    kind: Any, workers: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with one worker three times slower: nobody takes its batches."""
    monkeypatch.setenv("PL_GLOBAL_SEED", str(SEED))
    seen = Batches()
    strategy = kind(workers=workers, host="virtual", clock=CLOCK if workers > 1 else {"gradient_s": 0.05})
    trainer(tmp_path, strategy, callbacks=[seen]).fit(seeded_model(), Skewed())
    of = owners(workers)
    assert sorted(sample for batch in seen.samples for sample in batch) == sorted(2 * [*range(SAMPLES)])
    assert all(len(set(of[batch].tolist())) == 1 for batch in seen.samples)
    if workers == 1:
        order = EpochShuffle(MADE)  # type: ignore[arg-type]
        assert [sample for batch in seen.samples for sample in batch][:SAMPLES] == list(order)


def resumed(folder: Path, workers: int, monkeypatch: pytest.MonkeyPatch) -> tuple[list[list[int]], list[list[int]]]:
    """The batches of a run that is stopped within its first epoch, and of the one that goes on with so many workers."""
    monkeypatch.setenv("PL_GLOBAL_SEED", str(SEED))
    first, second, path = Batches(), Batches(), None
    for strategy, seen, steps in (2, first, 3), (workers, second, 15):
        saved = ModelCheckpoint(folder, "saved", every_n_train_steps=3, save_top_k=-1)
        simulated = AsyncPS("async", workers=strategy, host="virtual", clock={"gradient_s": 0.05})  # type: ignore[arg-type]
        made = trainer(folder, simulated, callbacks=[seen, saved], max_steps=steps, enable_checkpointing=True)
        made.fit(seeded_model(), Skewed(), ckpt_path=path)
        path = str(folder / "saved.ckpt")
    return first.samples, second.samples


def test_a_run_goes_on_within_its_epoch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = resumed(tmp_path, 2, monkeypatch)
    together = [sample for batch in first + second[:9] for sample in batch]
    assert sorted(together) == list(range(SAMPLES))


def test_among_others_the_epoch_begins_anew_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = tmp_path / "said"  # by the process that simulates the workers
    monkeypatch.setattr(shared_loader, "rank_zero_warn", said.write_text)
    _, second = resumed(tmp_path, 4, monkeypatch)
    assert (
        "skew: the checkpoint was written in an epoch divided among 2 workers, but now there are 4 workers."
        in said.read_text()
    )
    assert sorted(sample for batch in second[:12] for sample in batch) == list(range(SAMPLES))


def test_it_is_refused_where_nobody_deals(tmp_path: Path) -> None:
    made = trainer(tmp_path, AsyncPS("async", workers=2, limits=LIMITS), 2, use_distributed_sampler=False)
    with pytest.raises(Exception, match=r"data.init_args.skew.*use_distributed_sampler is false. Remove data"):
        made.fit(seeded_model(), Skewed())


def test_it_is_refused_where_nodes_join_and_leave(tmp_path: Path) -> None:
    shared = SharedData(Cursor(2), Deal.ONE_EACH, is_elastic=True)
    with pytest.raises(
        ConfigError, match=r"data.init_args.skew.*nodes may join or leave. Remove data.init_args.skew, or set a fix"
    ):
        shared.process(trainer(tmp_path, "auto"), Skewed().train_dataloader())
