"""Going on from a checkpoint within an epoch."""

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.utils.data import DataLoader, TensorDataset

from scalebook.training.engine.rules.settings import Deal
from scalebook.training.zoo.shuffle import EpochShuffle
from tests.training.lightning.async_ps.sharing_runs import numbers, run


def saving(folder: Path, **when: Any) -> Callable[[int], list[Callback]]:
    return lambda worker: [ModelCheckpoint(folder, save_top_k=-1, **when)] if worker == 0 else []


PACES = [
    (1, 1, (0.0,), Deal.ONE_EACH), (3, 2, (0.0, 0.02, 0.0), Deal.ONE_EACH), (2, 1, (0.02, 0.01), Deal.ONE_EACH),
    (3, 3, (0.0, 0.0, 0.03), Deal.WORKER_0),
]  # fmt: skip


@pytest.mark.each_value
@pytest.mark.parametrize(("before", "after", "pauses", "deal"), PACES)
@pytest.mark.parametrize("moment", ["batch", "validation", "validation_end", "epoch_end"])
def test_a_run_resumed_in_the_middle_of_an_epoch_sees_no_sample_twice(
    tmp_path: Path, before: int, after: int, pauses: tuple[float, ...], deal: Deal, moment: str
) -> None:
    def loader() -> DataLoader[Any]:
        data = TensorDataset(torch.arange(144))
        return DataLoader(data, batch_size=4, sampler=EpochShuffle(data))

    class Save(Callback):
        """Writes a checkpoint in the middle of the second epoch; what is done after it is not part of the run."""

        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            self.save(trainer, moment == "batch" and trainer.fit_loop.batch_idx == 1)

        def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
            progress = trainer.fit_loop.epoch_loop.batch_progress
            self.save(trainer, moment == ("validation_end" if progress.is_last_batch else "validation"))

        def on_train_epoch_end(self, trainer: Trainer, *_: Any) -> None:
            self.save(trainer, moment == "epoch_end")

        def save(self, trainer: Trainer, wanted: bool) -> None:
            if wanted and trainer.global_rank == 0 and trainer.current_epoch == 1:
                trainer.save_checkpoint(tmp_path / "middle.ckpt")

    folders = tmp_path / "first", tmp_path / "second"
    for folder in folders:
        folder.mkdir()
    settings: dict[str, Any] = {"val_check_interval": 0.5, "max_epochs": 3}
    first = run(folders[0], loader, before, pauses, deal, callbacks=lambda worker: [Save()], **settings)
    second = run(folders[1], loader, after, deal=deal, ckpt_path=tmp_path / "middle.ckpt", **settings)

    saved = torch.load(tmp_path / "middle.ckpt", weights_only=True)
    left = saved["position"]["left"]
    shuffle, rest = EpochShuffle(range(144)), Counter[int]()
    for origin, start, stop in [part for parts in left.values() for part in parts]:
        shuffle.set_epoch(origin)
        rest.update(list(shuffle)[4 * start : 4 * stop])
    rest.update([*range(144)] * len({1, 2} - set(left)))
    assert sum(second.samples(after), Counter()) == rest
    done = Counter(dict.fromkeys(range(144), 3)) - rest
    assert done <= sum(first.samples(before), Counter())
    validated = {epoch for epoch, _ in second.read("val", 0)}
    assert validated == ({1, 2} if moment in ("batch", "validation") else {2})
    assert [second.read("end", worker)[0][:2] for worker in range(after)] == [[3, 0.00125]] * after


@pytest.mark.parametrize("deal", [Deal.WORKER_0, Deal.ONE_EACH, Deal.IN_TURNS])
def test_who_gets_nothing_of_the_epoch_that_is_resumed_still_follows_the_schedule(tmp_path: Path, deal: Deal) -> None:
    """One batch of the second of three epochs is left, for worker 0."""

    class Save(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            if trainer.current_epoch == 1 and trainer.fit_loop.batch_idx == 8:
                trainer.save_checkpoint(tmp_path / "middle.ckpt")

    for folder in (tmp_path / "first", tmp_path / "second"):
        folder.mkdir()
    run(tmp_path / "first", lambda: numbers(40), 1, callbacks=lambda worker: [Save()], max_epochs=2)
    notes = run(
        tmp_path / "second", lambda: numbers(40), 3, deal=deal, ckpt_path=tmp_path / "middle.ckpt", max_epochs=3
    )
    assert sum(notes.samples(3), Counter()) == Counter([*range(36, 40), *range(40)])
    assert [notes.read("end", worker)[0][:2] for worker in range(3)] == [[3, 0.00125]] * 3


def test_resuming_an_order_that_nobody_knows_or_another_batch_size_warns(tmp_path: Path) -> None:
    class Save(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            if trainer.fit_loop.total_batch_idx == 2:
                trainer.save_checkpoint(tmp_path / "middle.ckpt")

    run(tmp_path, lambda: numbers(40, shuffle=True), 1, callbacks=lambda worker: [Save()])
    with pytest.raises(UserWarning, match="the order of samples before the checkpoint is unknown"):
        run(tmp_path, lambda: numbers(40, shuffle=True), 1, ckpt_path=tmp_path / "middle.ckpt")
    with pytest.raises(UserWarning, match="written in an epoch of 10 batches, but now an epoch has 5"):
        run(tmp_path, lambda: numbers(40, batch_size=8), 1, ckpt_path=tmp_path / "middle.ckpt")
