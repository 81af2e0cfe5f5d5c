"""Collectives of two real workers: what each of them is answered, by value."""

import json
import logging
import re
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from torch import Tensor
from torch.utils.data import DataLoader
from torchmetrics import CatMetric, MeanMetric, SumMetric

from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning.async_ps.async_ps import AsyncPS
from scalebook.training.lightning.async_ps.collective_order import number_of_metric
from scalebook.training.lightning.async_ps.peers import Peers
from tests.training.lightning.async_ps.small import AtBatch, Batch, Small, data, held_out, kill_me, loader, trainer

pytestmark = pytest.mark.long

RULES = ["async", "sync"]


class Told(Small):
    """Writes what it hears into `folder/<worker>.json` at the end of training."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        self.heard: dict[str, Any] = {}

    @property
    def strategy(self) -> Any:
        return self.trainer.strategy

    def gather(self, value: Any, **options: Any) -> Tensor:
        gathered: Any = self.all_gather(value, **options)
        assert isinstance(gathered, Tensor)
        return gathered

    def hear(self, name: str, value: Any) -> None:
        self.heard.setdefault(name, []).append(value.tolist() if isinstance(value, Tensor) else value)

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        return torch.nn.functional.cross_entropy(self.net(batch[0]), batch[1])

    def on_fit_end(self) -> None:
        (self.folder / f"{self.global_rank}.json").write_text(json.dumps(self.heard))


def run(model: Told, rule: Any = "async", callbacks: list[Callback] | None = None, **settings: Any) -> list[Any]:
    """Fit with two workers; what each of them heard."""
    arguments = {"limits": Limits(deadline_s=20), **settings.pop("ps", {})}
    strategy = AsyncPS(rule=rule, workers=2, **arguments)
    made = trainer(model.folder, strategy, callbacks=callbacks, **{"max_epochs": 1, **settings})
    made.fit(model, loader(), held_out())
    return [json.loads(path.read_text()) for path in sorted(model.folder.glob("?.json"))]


class InSteps(Told):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        rank, strategy = self.global_rank, self.strategy
        mine = torch.tensor([rank + 1.0, batch_idx])
        self.hear("gathered", self.gather(mine))
        both: Any = self.all_gather({"a": rank})
        self.hear("dict", both["a"])
        self.hear("sum", strategy.reduce(torch.tensor(rank + 1), reduce_op="sum"))
        self.hear("mean", strategy.reduce(torch.tensor(rank + 1.0)))
        self.hear("max", strategy.reduce(torch.tensor(rank + 1.0), reduce_op="max"))
        self.hear("from 1", strategy.broadcast({"rank": rank, "path": self.folder}, src=1)["rank"])
        self.hear("all", strategy.reduce_boolean_decision(rank == 0, all=True))
        self.hear("any", strategy.reduce_boolean_decision(rank == 0, all=False))
        strategy.barrier("a user's")
        return super().training_step(batch, batch_idx)


@pytest.mark.parametrize("rule", RULES)
def test_in_a_training_step_each_worker_hears_all(rule: str, tmp_path: Path) -> None:
    heard = run(InSteps(tmp_path), rule)
    assert len(heard) == 2
    for one in heard:
        both = [index for index, value in enumerate(one["gathered"]) if len(value) == 2]
        assert len(both) >= 4  # of 6; at the end of the data one of them may have a batch more
        first = both[0]
        assert [row[0] for row in one["gathered"][first]] == [1.0, 2.0]
        names = ("dict", "sum", "mean", "max", "from 1", "all", "any")
        assert [one[name][first] for name in names] == [[0, 1], 3, 1.5, 2.0, 1, False, True]
    assert heard[0]["gathered"][0] == heard[1]["gathered"][0]


class Contrasts(Told):
    """A loss over the outputs of all workers, as SimCLR has it: (sum of all outputs) ** 2 / 2."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.weight = torch.nn.Parameter(torch.ones(()))

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        mine = self.weight * (self.global_rank + 1.0)
        every = self.gather(mine, sync_grads=True)
        loss: Tensor = every.sum() ** 2 / 2 + 0 * sum(p.sum() for p in self.net.parameters())
        return loss

    def on_train_start(self) -> None:
        self.weight.register_hook(lambda gradient: self.hear("own gradient", gradient))  # type: ignore[no-untyped-call]

    def on_before_optimizer_step(self, optimizer: Any) -> None:
        assert self.weight.grad is not None
        self.hear("gradient", self.weight.grad)


def test_gradients_cross_all_gather(tmp_path: Path) -> None:
    """With w = 1 both losses are 3 ** 2 / 2, and the gradient of their sum is 2 * 3 * 1 in worker 0, 2 * 3 * 2 in 1.
    Before the step both workers see the mean, as under DDP."""
    heard = run(Contrasts(tmp_path), "sync", max_steps=1)
    assert [one["own gradient"][0] for one in heard] == [6.0, 12.0]
    assert [one["gradient"][0] for one in heard] == [9.0, 9.0]


class Logs(Told):
    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.mean_rank, self.steps, self.ranks = MeanMetric(), SumMetric(), CatMetric()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        rank = float(self.global_rank)
        self.log("sum", rank + 1, sync_dist=True, reduce_fx="sum", on_epoch=True)
        self.log("mean", rank + 1, sync_dist=True, on_epoch=True, batch_size=1)
        self.mean_rank.update(rank)
        self.log("mean_rank", self.mean_rank, on_epoch=True, on_step=False)
        self.steps.update(1.0)
        self.ranks.update(rank)
        return super().training_step(batch, batch_idx)

    def on_train_epoch_end(self) -> None:
        self.hear("steps", self.steps.compute())
        self.hear("ranks", self.ranks.compute().sort().values)
        self.steps.reset()
        self.ranks.reset()

    def validation_step(self, batch: Batch, batch_idx: int) -> None:
        self.log("val/one", 1.0, sync_dist=True, reduce_fx="sum")
        self.hear("val", list(self.gather(torch.ones(3)).shape))

    def on_train_end(self) -> None:
        for name in ("sum_step", "sum_epoch", "mean_step", "mean_epoch", "mean_rank"):
            self.hear(name, self.trainer.callback_metrics[name])


@pytest.mark.parametrize("rule", RULES)
def test_what_is_logged_and_measured_in_training_is_of_all_workers(rule: str, tmp_path: Path) -> None:
    heard = run(Logs(tmp_path), rule, max_epochs=2, num_sanity_val_steps=1)
    for one in heard:
        assert one["steps"] == [12, 12]  # batches of the epoch, whoever computed them
        assert [len(ranks) for ranks in one["ranks"]] == [12, 12]
        shares = [sum(ranks) for ranks in one["ranks"]]
        assert one["mean_rank"] == [pytest.approx(shares[-1] / 12)]
        assert one["sum_epoch"] == [pytest.approx(12 + shares[-1])]
        assert one["mean_epoch"] == [pytest.approx(1 + shares[-1] / 12)]
    assert heard[0]["ranks"] == heard[1]["ranks"]
    assert heard[0]["sum_step"] in ([3.0], [1.0])
    assert heard[0]["val"][0] == [1, 3]  # one worker has all of the validation data


class Prepares(Told):
    """As in Lightning's guides: worker 0 makes a file, the others wait, all read it."""

    def setup(self, stage: str) -> None:
        if self.global_rank == 0:
            time.sleep(0.5)
            (self.folder / "made").write_text("by worker 0")
        self.strategy.barrier()
        self.hear("read", (self.folder / "made").read_text())
        self.hear("chosen", self.strategy.broadcast(self.global_rank + 7))

    def on_fit_start(self) -> None:
        self.hear("world", self.gather(torch.tensor(self.global_rank)))

    def on_train_end(self) -> None:
        self.hear("end", self.gather(torch.tensor(self.global_rank)))


@pytest.mark.thorough
@pytest.mark.parametrize("ps", [{}, {"host": "process"}, {"warmup_updates": 3}], ids=str)
def test_before_and_after_training_all_come(ps: dict[str, Any], tmp_path: Path) -> None:
    heard = run(Prepares(tmp_path), ps=ps)
    expected = {"read": ["by worker 0"], "chosen": [7], "world": [[0, 1]], "end": [[0, 1]]}
    assert heard == [expected, expected]


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_worker_that_dies_is_not_waited_for(restarts: int, tmp_path: Path) -> None:
    """Also a restarted one hears what was said before training, and comes to the meetings again."""

    class Both(InSteps, Prepares):
        pass

    model = Both(tmp_path)
    once = AtBatch(1, 2, lambda trainer: _die_once(tmp_path))
    heard = run(model, max_epochs=3, callbacks=[once], ps={"limits": Limits(restarts, 20)})
    assert len(heard) == 1 + restarts
    together = [len(value) == 2 for value in heard[0]["gathered"]]
    assert together[0]
    assert together[-3] == (restarts == 1)
    assert all(one["chosen"] == [7] and one["read"] == ["by worker 0"] for one in heard)


def _die_once(folder: Path) -> None:
    flag = folder / "died"
    if not flag.exists():
        flag.write_text("")
        kill_me(None)  # type: ignore[arg-type]


class Disagrees(Told):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        if self.global_rank == 0:
            self.gather(torch.ones(2))
        else:
            self.strategy.reduce(torch.ones(2))
        return super().training_step(batch, batch_idx)


def test_different_collectives_at_the_same_place_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="same collectives in the same order in every worker, on tensors"):
        run(Disagrees(tmp_path))


class Odd(Told):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.gather(torch.ones(2 + self.global_rank))
        return super().training_step(batch, batch_idx)


@pytest.mark.thorough
def test_different_shapes_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        RuntimeError, match=r"worker \d called all_gather of shape \[\d\], but other workers called \{\d: .* \[\d\]"
    ):
        run(Odd(tmp_path))


class Alone(Told):
    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        if self.global_rank == 0:
            self.strategy.barrier("mine alone")
        else:
            time.sleep(30)
        return super().training_step(batch, batch_idx)


def test_a_meeting_has_a_deadline_that_names_who_is_missing(tmp_path: Path) -> None:
    with pytest.raises(TimeoutError, match=r"worker 0 waits at barrier 'mine alone' for workers \[1\]"):
        run(Alone(tmp_path), ps={"limits": Limits(deadline_s=1.5)})


def test_one_worker_is_answered_as_lightning_does(tmp_path: Path) -> None:
    class Single(Told):
        def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
            self.hear("shape", list(self.gather(torch.ones(3)).shape))
            return super().training_step(batch, batch_idx)

    model: LightningModule = Single(tmp_path)
    made: Trainer = trainer(tmp_path, AsyncPS(workers=1), max_epochs=1)
    made.fit(model, loader(), held_out())
    assert json.loads((tmp_path / "0.json").read_text())["shape"][0] == [3]


class Counts(Told):
    """Logs of each epoch how many batches it had, and how many were of this worker: worker 0 alone, or with `own` each
    under a name of its own."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.own: str | None = None
        self.net, self.batches, self.mine = torch.nn.Sequential(torch.nn.Linear(5, 3)), SumMetric(), SumMetric()

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        self.batches.update(1.0)
        self.log("batches", self.batches, on_step=False, on_epoch=True)
        self.mine.update(1.0)
        if self.global_rank == 0 or self.own is not None:
            self.log(f"{self.own or 'of worker'} {self.global_rank}", self.mine, on_step=False, on_epoch=True)
        return super().training_step(batch, batch_idx)

    def on_train_end(self) -> None:
        self.hear("batches", self.trainer.callback_metrics.get("batches", 0.0))
        self.hear("gathered", self.gather(torch.tensor(self.global_rank)))


@pytest.mark.thorough
@pytest.mark.parametrize("rule", ["sync", "bounded", "async"])
def test_the_default_checkpoint_reads_a_metric_of_the_epoch(rule: str, tmp_path: Path) -> None:
    """No progress bar reads it before, and another metric is of one worker alone."""
    model = Counts(tmp_path)
    made = trainer(tmp_path, AsyncPS(rule=rule, workers=2, limits=Limits(deadline_s=20)), enable_checkpointing=True)  # type: ignore[arg-type]
    made.fit(model, loader(samples=88), held_out())
    heard = [json.loads(path.read_text()) for path in sorted(tmp_path.glob("?.json"))]
    assert [one["batches"] for one in heard] == [[11.0], [11.0]]
    assert [one["gathered"] for one in heard] == [[[0, 1]], [[0, 1]]]


@pytest.mark.thorough
@pytest.mark.parametrize("first", ["own", "common"])
@pytest.mark.parametrize("rule", ["sync", "async"])
def test_metrics_of_some_workers_are_met_beside_those_of_all(rule: str, first: str, tmp_path: Path) -> None:
    """Each worker has one that the other lacks; in whichever order their names are met."""
    common = number_of_metric("batches")
    names = (f"of worker {i}" for i in range(1000))
    model = Counts(tmp_path)
    model.own = next(n for n in names if (number_of_metric(f"{n} 0") < common) is (first == "own"))
    made = trainer(tmp_path, AsyncPS(rule=rule, workers=2, limits=Limits(deadline_s=20)))  # type: ignore[arg-type]
    made.fit(model, loader(samples=88), held_out())
    assert made.callback_metrics["batches"] == 11.0
    assert made.callback_metrics[f"{model.own} 0"] == (6.0 if rule == "sync" else pytest.approx(5.5, abs=5.5))


@pytest.mark.parametrize("logs", [True, False])
@pytest.mark.parametrize("host", ["inline", "process", "virtual"])
def test_the_last_round_of_an_epoch_is_of_those_who_have_a_batch(host: Any, logs: bool, tmp_path: Path) -> None:
    """11 batches of 8 by two workers in step are what one process does with 5 batches of 16 and one of 8, whether or
    not anything is asked of all at the epoch's end."""
    weights, clock = [], ClockSettings(0.1, stragglers={1: 3.0}) if host == "virtual" else None
    shared = AsyncPS(rule="sync", workers=2, host=host, clock=clock, limits=Limits(deadline_s=20))
    for strategy, batch_size in ((shared, 8), ("auto", 16)):
        seed_everything(5, verbose=False)
        made = trainer(tmp_path, strategy, max_epochs=3, enable_checkpointing=True)
        model = Counts(tmp_path) if logs else Told(tmp_path)
        model.net = torch.nn.Sequential(torch.nn.Linear(5, 3))  # without dropout, which draws for each gradient
        made.fit(model, DataLoader(data(88), batch_size=batch_size), held_out())
        assert made.global_step == 18
        weights.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*weights, rtol=1e-6, atol=1e-7)


class SkipsRest(LightningModule):
    """Leaves its second epoch after three batches."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.net, self.means = torch.nn.Linear(5, 1), list[float]()

    def on_train_batch_start(self, batch: Batch, batch_idx: int) -> int | None:
        return -1 if (self.current_epoch, batch_idx) == (1, 3) else None

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        loss: Tensor = (self.net(batch[0]) - 1).square().mean()
        self.log("loss", loss, on_step=False, on_epoch=True, sync_dist=True)
        return loss

    def on_train_epoch_end(self) -> None:
        self.means.append(float(self.trainer.callback_metrics["loss"]))

    def on_train_end(self) -> None:
        self.trainer.callback_metrics.update({f"mean {e}": torch.tensor(mean) for e, mean in enumerate(self.means)})

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), 0.1)


@pytest.mark.parametrize("strategy", [AsyncPS("sync", workers=2), Peers(workers=2, topology="complete")], ids=repr)
def test_epochs_after_one_that_was_left_are_of_all_workers(strategy: Any, tmp_path: Path) -> None:
    made = [trainer(tmp_path, one, max_epochs=4) for one in ("auto", strategy)]
    models = [SkipsRest(), SkipsRest()]
    for one, model, batch in zip(made, models, (16, 8), strict=True):
        one.fit(model, DataLoader(data(), batch))
    assert made[0].global_step == made[1].global_step == 3 * 6 + 3
    for epoch in range(4):
        means = [float(one.callback_metrics[f"mean {epoch}"]) for one in made]
        assert means[1] == pytest.approx(means[0], abs=1e-6)
    torch.testing.assert_close(models[1].net.weight, models[0].net.weight, rtol=0, atol=1e-6)


class Alternates(Told):
    """The second optimizer steps in every third batch, as a generator does."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.automatic_optimization = False
        self.often, self.seldom = torch.nn.Linear(5, 3), torch.nn.Linear(5, 3)

    def training_step(self, batch: Batch, batch_idx: int) -> None:  # type: ignore[override]  # as Lightning allows
        optimizers: Any = self.optimizers()
        for optimizer, net in zip(optimizers, (self.often, self.seldom), strict=True):
            if net is self.often or batch_idx % 3 == 2:
                optimizer.zero_grad()
                self.manual_backward(torch.nn.functional.cross_entropy(net(batch[0]), batch[1]))
                optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(net.parameters(), lr=0.05) for net in (self.often, self.seldom)]


@pytest.mark.thorough
def test_two_optimizers_step_in_the_same_order_in_workers_in_step(tmp_path: Path) -> None:
    """One worker has a batch more than the other, whose next epoch would begin a batch too early."""
    strategy = AsyncPS(rule="sync", workers=2, limits=Limits(deadline_s=20))
    made = trainer(tmp_path, strategy, max_epochs=4)
    made.fit(Alternates(tmp_path), loader(samples=88), held_out())
    assert made.global_step == 4 * (6 + 2)


@pytest.mark.parametrize("rule", RULES)
def test_a_worker_without_a_batch_is_not_waited_for(rule: Any, tmp_path: Path) -> None:
    model = Counts(tmp_path)
    made = trainer(
        tmp_path, AsyncPS(rule=rule, workers=2, limits=Limits(deadline_s=20)), max_epochs=3, enable_checkpointing=True
    )
    made.fit(model, loader(samples=8), held_out())
    assert made.global_step == 3
    assert made.callback_metrics["batches"] == 1.0


def test_a_wait_says_after_a_minute_where_everybody_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A minute of 0.4 s, long before the deadline."""
    monkeypatch.setattr("scalebook.training.engine.memory.region.STILL_S", 0.4)
    monkeypatch.setattr("scalebook.training.lightning.processes.peer_monitor.LOOK_S", 0.1)
    said = Said()
    logging.getLogger("scalebook.training.lightning.processes.process_watch").addHandler(said)
    with pytest.raises(TimeoutError, match=r"worker 0 waits at barrier 'mine alone' for workers \[1\]"):
        run(Alone(tmp_path), ps={"limits": Limits(deadline_s=4)})
    first = said.messages[0]
    assert first.startswith("worker 0 waits at barrier 'mine alone' for workers [1]")
    assert all(f"worker {worker} (process" in first for worker in (0, 1))
    assert len(re.findall(r'test_collectives.py", line \d+ in training_step', first)) == 2
    assert len(said.messages) == 1


class Said(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())
