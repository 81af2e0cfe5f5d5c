import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.optim import SGD, Optimizer
from torch.optim.lr_scheduler import StepLR
from torch.utils.data import BatchSampler, DataLoader, IterableDataset, TensorDataset, WeightedRandomSampler

from training.data.batches import ImageBatches
from training.data.batches import loader as memory_loader
from training.data.images import LabelledImages
from training.data.shuffle import EpochShuffle
from training.strategies.independent import IndependentWorkers
from training.strategies.processes import Lost, Reaction, run_workers
from training.strategies.sharing import SharedData


class Sharing(IndependentWorkers):
    """The smallest strategy that shares data: each worker trains a model of its own."""

    def __init__(self, data: SharedData, worker: int) -> None:
        super().__init__()
        self.data, self._worker = data, worker
        self.rests: list[bool] = []
        data.join(worker, 20.0, idle=self.rests.append)

    @property
    def num_processes(self) -> int:
        return self.data.workers

    @property
    def is_distributed(self) -> bool:
        return False

    def process_dataloader(self, dataloader: object) -> object:
        return self.data.process(self._trainer, dataloader) if self._trainer.training else dataloader

    def on_train_start(self) -> None:
        self.data.start(self._trainer)

    def optimizer_step(self, optimizer: Optimizer, closure: Callable[[], Any], model: Any = None, **kwargs: Any) -> Any:
        output = super().optimizer_step(optimizer, closure, model, **kwargs)
        self.data.pushed(self._trainer)
        return output

    def on_train_end(self) -> None:
        self.data.end()


class Net(LightningModule):
    """Writes down what it sees: samples' numbers by epoch of the worker, validations, steps."""

    def __init__(self, notes: Callable[[str, Any], None], pause_s: float = 0.0) -> None:
        super().__init__()
        self.note, self.pause_s = notes, pause_s
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        time.sleep(self.pause_s)
        self.note("train", [self.current_epoch, *batch[0].flatten().tolist()])
        loss: torch.Tensor = self.layer(batch[0].float().view(-1, 1) / 100).square().mean()
        return loss

    def validation_step(self, batch: list[torch.Tensor], batch_idx: int) -> None:
        if not self.trainer.sanity_checking:
            self.note("val", [self.current_epoch, self.trainer.fit_loop.epoch_loop.batch_progress.current.ready])

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        self.note("step", [self.current_epoch, self.trainer.num_training_batches])

    def configure_optimizers(self) -> Any:
        optimizer = SGD(self.parameters(), lr=0.01)
        return {"optimizer": optimizer, "lr_scheduler": StepLR(optimizer, 1, 0.5)}


class Notes:
    """Lines appended to a file by each worker at once, so that a kill loses none."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def writer(self, worker: int) -> Callable[[str, Any], None]:
        out = os.open(self.folder / f"{worker}.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def write(kind: str, what: Any) -> None:
            os.write(out, json.dumps([kind, what]).encode() + b"\n")

        return write

    def read(self, kind: str, worker: int) -> list[Any]:
        path = self.folder / f"{worker}.jsonl"
        lines = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
        return [what for name, what in lines if name == kind]

    def samples(self, workers: int) -> list[Counter[int]]:
        """How often each sample was seen, by the epoch of the worker that saw it."""
        seen: list[Counter[int]] = []
        for worker in range(workers):
            for epoch, *numbers in self.read("train", worker):
                seen += [Counter() for _ in range(epoch + 1 - len(seen))]
                seen[epoch].update(numbers)
        return seen


def numbers(samples: int, **settings: Any) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.arange(samples)), **{"batch_size": 4, **settings})


def trainer(folder: Path, strategy: Sharing, **settings: Any) -> Trainer:
    settings = {"max_epochs": 2, "enable_checkpointing": False, "num_sanity_val_steps": 0, **settings}
    if strategy._worker > 0:
        settings["limit_val_batches"] = 0
    made = Trainer(
        accelerator="cpu",
        strategy=strategy,
        devices=1,
        default_root_dir=folder,
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        **settings,
    )
    strategy.parallel_devices = [torch.device("cpu")]
    made.strategy._launcher = None
    return made


def run(
    folder: Path,
    loader: Callable[[], Any],
    workers: int,
    pauses: tuple[float, ...] = (),
    turns: bool = False,
    lost: Callable[[SharedData, Lost], Reaction] | None = None,
    callbacks: Callable[[int], list[Callback]] = lambda worker: [],
    net: Callable[..., Net] = Net,
    ckpt_path: Path | None = None,
    **settings: Any,
) -> Notes:
    seed_everything(5, verbose=False)
    notes, data = Notes(folder), SharedData(workers, turns)

    def body(worker: int) -> None:
        strategy = Sharing(data, worker)
        made = trainer(folder, strategy, callbacks=callbacks(worker), **settings)
        note = notes.writer(worker)
        model = net(note, (*pauses, *[0.0] * workers)[worker])
        made.fit(model, loader(), numbers(1), ckpt_path=ckpt_path)
        (optimizer,) = made.optimizers
        note("end", [made.current_epoch, optimizer.param_groups[0]["lr"], len(strategy.rests)])

    run_workers(workers, body, lost=lambda one: Reaction.END if lost is None else lost(data, one))
    return notes


def every(samples: int, epochs: int = 2) -> list[Counter[int]]:
    return [Counter(range(samples))] * epochs


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize(("workers", "samples"), [(1, 46), (2, 46), (3, 40), (3, 9)])
def test_every_sample_is_seen_once_an_epoch(tmp_path: Path, workers: int, samples: int, turns: bool) -> None:
    notes = run(tmp_path, lambda: numbers(samples, shuffle=True), workers, turns=turns)
    assert notes.samples(workers) == every(samples)
    assert [line[0] for line in notes.read("val", 0)] == [0, 1]
    assert [notes.read("end", worker)[0][:2] for worker in range(workers)] == [[2, 0.0025]] * workers


def test_a_slow_worker_takes_fewer_batches(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: numbers(160, shuffle=True), 2, pauses=(0.0, 0.04))
    assert notes.samples(2) == every(160)
    fast, slow = (len(notes.read("train", worker)) for worker in (0, 1))
    assert fast > 3 * slow >= 2 * 3
    assert [epoch for epoch, _ in notes.read("val", 0)] == [0, 1]


def test_a_slow_worker_0_validates_once_an_epoch_however_far_the_others_are(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: numbers(40), 3, pauses=(0.1, 0.0, 0.0), max_epochs=4)
    assert notes.samples(3) == every(40, 4)
    batches = Counter(epoch for epoch, *_ in notes.read("train", 0))
    assert notes.read("val", 0) == [[epoch, batches[epoch]] for epoch in range(4)]


class Evens(BatchSampler):
    """A user's own batch sampler, of no torch class's arguments: pairs (i, i + half), in random order."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[list[int]]:
        half = self.samples // 2
        for index in torch.randperm(half).tolist():
            yield [index, index + half]

    def __len__(self) -> int:
        return self.samples // 2


def images() -> DataLoader[Any]:
    pixels = torch.arange(42, dtype=torch.uint8).view(-1, 1, 1, 1)
    return memory_loader(
        ImageBatches(LabelledImages(pixels, pixels.flatten().long()), torch.zeros(1), torch.ones(1)), 4, True
    )


@pytest.mark.parametrize(
    "loader",
    [
        lambda: numbers(42, num_workers=2, shuffle=True),
        lambda: numbers(42, num_workers=1, persistent_workers=True, prefetch_factor=4),
        lambda: DataLoader(TensorDataset(torch.arange(42)), batch_sampler=Evens(42)),
        lambda: DataLoader(TensorDataset(torch.arange(42)), batch_size=None, shuffle=True),
        images,
    ],
    ids=["workers", "persistent", "batch_sampler", "no_batches", "memory"],
)
def test_any_loader_over_a_map_style_data_set(tmp_path: Path, loader: Callable[[], Any]) -> None:
    notes = run(tmp_path, loader, 2, turns=False)
    assert notes.samples(2) == every(42)


def in_order(notes: Notes, workers: int, epochs: int = 2) -> list[list[int]]:
    """Batches in the order of the data, when they were taken in turns."""
    batches = []
    for epoch in range(epochs):
        rows = [[line[1:] for line in notes.read("train", worker) if line[0] == epoch] for worker in range(workers)]
        batches += [rows[i % workers][i // workers] for i in range(sum(map(len, rows)))]
    return batches


@pytest.mark.parametrize("workers", [1, 2])
def test_a_shuffled_epoch_has_the_order_of_epoch_shuffle(tmp_path: Path, workers: int) -> None:
    def loader() -> DataLoader[Any]:
        data = TensorDataset(torch.arange(40))
        return DataLoader(data, batch_size=4, sampler=EpochShuffle(data))

    notes = run(tmp_path, loader, workers, turns=True)
    shuffle = EpochShuffle(range(40))
    expected = []
    for epoch in (0, 1):
        shuffle.set_epoch(epoch)
        order = list(shuffle)
        expected += [order[at : at + 4] for at in range(0, 40, 4)]
    assert in_order(notes, workers) == expected


def test_a_sequential_epoch_keeps_its_order_and_drops_the_last(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: numbers(27, drop_last=True), 3, turns=True, max_epochs=1)
    assert in_order(notes, 3) == [list(range(at, at + 4)) for at in range(0, 24, 4)]


def test_a_weighted_sampler_draws_the_same_in_every_worker(tmp_path: Path) -> None:
    def loader(generator: torch.Generator | None = None) -> DataLoader[Any]:
        return numbers(40, sampler=WeightedRandomSampler(range(40), 40, generator=generator))

    folders = [tmp_path / name for name in "abc"]
    for folder in folders:
        folder.mkdir()
    two = run(folders[0], loader, 2, turns=True)
    four = run(folders[1], lambda: loader(torch.Generator()), 4, turns=True)
    assert in_order(two, 2) == in_order(four, 4)
    assert in_order(two, 2)[:10] != in_order(two, 2)[10:]
    assert two.samples(2)[0][0] == 0


@pytest.mark.parametrize(
    ("settings", "seen"),
    [
        ({"limit_train_batches": 3}, 24),
        ({"limit_train_batches": 0.5}, 40),
        ({"limit_train_batches": 100}, 80),
        ({"overfit_batches": 2}, 16),
        ({"fast_dev_run": True}, 8),
    ],
)
def test_limits_are_per_worker_as_numbers_and_of_the_epoch_as_fractions(
    tmp_path: Path, settings: dict[str, Any], seen: int
) -> None:
    notes = run(tmp_path, lambda: numbers(80), 2, max_epochs=1, **settings)
    assert notes.samples(2) == [Counter(range(seen))]


@pytest.mark.parametrize("samples", [40, 36, 44])
def test_the_rest_of_an_accumulation_is_applied_at_the_end_of_the_epoch(tmp_path: Path, samples: int) -> None:
    notes = run(tmp_path, lambda: numbers(samples), 2, turns=True, accumulate_grad_batches=3)
    assert notes.samples(2) == every(samples)
    for worker in (0, 1):
        mine = -(-(samples // 4 - worker) // 2)
        assert Counter(epoch for epoch, _ in notes.read("step", worker)) == {0: -(-mine // 3), 1: -(-mine // 3)}


@pytest.mark.parametrize(("workers", "turns"), [(1, False), (2, False), (2, True)])
@pytest.mark.parametrize(
    ("settings", "at"),
    [
        ({}, [10]),
        ({"val_check_interval": 0.5}, [5, 10]),
        ({"val_check_interval": 0.3}, [3, 6, 9]),
        ({"val_check_interval": 4}, [4, 8]),
        ({"val_check_interval": 10}, [10]),
    ],
)
def test_validation_comes_at_its_interval(
    tmp_path: Path, workers: int, turns: bool, settings: dict[str, Any], at: list[int]
) -> None:
    notes = run(tmp_path, lambda: numbers(40 * workers), workers, turns=turns, pauses=(0.002, 0.002), **settings)
    found = notes.read("val", 0)
    if turns or workers == 1:
        assert found == [[epoch, batch] for epoch in (0, 1) for batch in at]
    else:
        assert [epoch for epoch, _ in found] == [0] * len(at) + [1] * len(at)


@pytest.mark.parametrize(
    "settings", [{"check_val_every_n_epoch": 2}, {"check_val_every_n_epoch": None, "val_check_interval": 20}]
)
def test_validation_every_second_epoch_or_by_batches_of_worker_0(tmp_path: Path, settings: dict[str, Any]) -> None:
    notes = run(tmp_path, lambda: numbers(80), 2, turns=True, max_epochs=4, **settings)
    assert notes.read("val", 0) == [[1, 10], [3, 10]]


class DieAt(Callback):
    """Kills the process at its batch number `batch` of the run, before it or after its push."""

    def __init__(self, batch: int, after: bool = False) -> None:
        self.batch, self.after = batch, after

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if not self.after and trainer.fit_loop.total_batch_idx == self.batch:
            os.kill(os.getpid(), signal.SIGKILL)

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if self.after and trainer.fit_loop.total_batch_idx == self.batch:
            os.kill(os.getpid(), signal.SIGKILL)


def bury(data: SharedData, lost: Lost) -> Reaction:
    data.cursor.bury(lost.number)
    return Reaction.GO_ON


def bury_and_restart(data: SharedData, lost: Lost) -> Reaction:
    data.cursor.bury(lost.number)
    data.cursor.revive(lost.number)
    return Reaction.RESTART


@pytest.mark.parametrize("turns", [False, True])
@pytest.mark.parametrize(("batch", "after"), [(0, False), (3, True), (11, False), (18, True)])
def test_what_a_dead_worker_leaves_is_done_by_the_others(tmp_path: Path, batch: int, after: bool, turns: bool) -> None:
    notes = run(
        tmp_path,
        lambda: numbers(80, shuffle=True),
        2,
        pauses=(0.02, 0.01 if turns else 0.02),
        turns=turns,
        lost=bury,
        callbacks=lambda worker: [DieAt(batch, after)] if worker == 1 else [],
    )
    seen = sum(notes.samples(2), Counter())
    assert seen == Counter(dict.fromkeys(range(80), 2))
    assert notes.read("end", 1) == []
    assert [epoch for epoch, _ in notes.read("val", 0)] == [0, 1]


class DieOnce(DieAt):
    def __init__(self, batch: int, mark: Path) -> None:
        super().__init__(batch)
        self.mark = mark

    def on_train_batch_start(self, trainer: Trainer, *_: Any) -> None:
        if not self.mark.exists() and trainer.fit_loop.total_batch_idx == self.batch:
            self.mark.touch()
            os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("turns", [False, True])
def test_a_restarted_worker_takes_part_again(tmp_path: Path, turns: bool) -> None:
    notes = run(
        tmp_path,
        lambda: numbers(240, shuffle=True),
        2,
        pauses=(0.03, 0.01),
        turns=turns,
        lost=bury_and_restart,
        callbacks=lambda worker: [DieOnce(12, tmp_path / "mark")] if worker == 1 else [],
        max_epochs=3,
    )
    assert sum(notes.samples(2), Counter()) == Counter(dict.fromkeys(range(240), 3))
    assert notes.read("end", 1)[0][:2] == [3, 0.01 / 8]  # it passed by what it had missed, schedulers too
    assert len(notes.read("train", 1)) > 20
    assert [epoch for epoch, _ in notes.read("val", 0)] == [0, 1, 2]


class ByHand(Net):
    """Manual optimization: two steps a batch."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.automatic_optimization = False

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:
        for _ in range(2):
            loss = super().training_step(batch, batch_idx)
            self.manual_backward(loss)
            self.optimizers().step()  # type: ignore[union-attr]
        return loss


def test_manual_optimization_with_a_death_at_the_very_end(tmp_path: Path) -> None:
    notes = run(
        tmp_path,
        lambda: numbers(40),
        2,
        pauses=(0.03, 1.0),
        lost=bury,
        callbacks=lambda worker: [DieAt(1)] if worker == 1 else [],
        net=ByHand,
        max_epochs=1,
    )
    assert notes.samples(1) == [Counter({sample: 2 for sample in range(40) if sample not in range(4, 8)})]
    assert notes.read("end", 0)[0][2] == 3  # out of the rule's clocks, in again for what was left, out


def saving(folder: Path, **when: Any) -> Callable[[int], list[Callback]]:
    return lambda worker: [ModelCheckpoint(folder, save_top_k=-1, **when)] if worker == 0 else []


PACES = [(1, 1, (0.0,)), (3, 2, (0.0, 0.02, 0.0)), (2, 1, (0.02, 0.01))]


@pytest.mark.parametrize(("before", "after", "pauses"), PACES)
@pytest.mark.parametrize("moment", ["batch", "validation", "validation_end", "epoch_end"])
def test_a_run_resumed_in_the_middle_of_an_epoch_sees_no_sample_twice(
    tmp_path: Path, before: int, after: int, pauses: tuple[float, ...], moment: str
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
    first = run(folders[0], loader, before, pauses, callbacks=lambda worker: [Save()], **settings)
    second = run(folders[1], loader, after, ckpt_path=tmp_path / "middle.ckpt", **settings)

    saved = torch.load(tmp_path / "middle.ckpt", weights_only=True)
    left = saved["loops"]["fit_loop"]["state_dict"]["combined_loader"][0]["left"]
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


def test_resuming_an_order_that_nobody_knows_or_another_batch_size_warns(tmp_path: Path) -> None:
    class Save(Callback):
        def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
            if trainer.fit_loop.total_batch_idx == 2:
                trainer.save_checkpoint(tmp_path / "middle.ckpt")

    run(tmp_path, lambda: numbers(40, shuffle=True), 1, callbacks=lambda worker: [Save()])
    with pytest.raises(UserWarning, match="their order before the checkpoint is not known"):
        run(tmp_path, lambda: numbers(40, shuffle=True), 1, ckpt_path=tmp_path / "middle.ckpt")
    with pytest.raises(UserWarning, match="written in an epoch of 10 batches; now it has 5"):
        run(tmp_path, lambda: numbers(40, batch_size=8), 1, ckpt_path=tmp_path / "middle.ckpt")


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


def test_one_worker_draws_as_a_plain_trainer_does(tmp_path: Path) -> None:
    one = run(tmp_path, lambda: numbers(40, shuffle=True), 1)
    plain = tmp_path / "plain"
    plain.mkdir()
    seed_everything(5, verbose=False)
    notes = Notes(plain)
    made = Trainer(
        accelerator="cpu", devices=1, max_epochs=2, logger=False, enable_checkpointing=False,
        enable_progress_bar=False, enable_model_summary=False, num_sanity_val_steps=0, default_root_dir=plain,
    )  # fmt: skip
    made.fit(Net(notes.writer(0)), numbers(40, shuffle=True), numbers(1))
    assert one.read("train", 0) == notes.read("train", 0)


def test_the_length_that_lightning_is_told_is_an_equal_share_until_it_is_passed(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: numbers(80), 2, pauses=(0.0, 0.05), max_epochs=1)
    lengths = [length for _, length in notes.read("step", 0)]
    taken = len(lengths)
    assert taken > 12
    assert lengths == [max(10, number + 1) for number in range(1, taken)] + [taken]


def test_the_loaders_are_asked_for_again_each_epoch(tmp_path: Path) -> None:
    notes = run(tmp_path, lambda: numbers(42), 2, pauses=(0.0, 0.005), reload_dataloaders_every_n_epochs=1)
    assert notes.samples(2) == every(42)


def test_a_user_may_skip_the_rest_of_an_epoch(tmp_path: Path) -> None:
    class Skips(Net):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if batch_idx == 3 and self.current_epoch == 0 else None

    notes = run(tmp_path, lambda: numbers(80, num_workers=1), 2, turns=True, net=Skips)
    assert [sum(seen.values()) for seen in notes.samples(2)] == [24, 80]
