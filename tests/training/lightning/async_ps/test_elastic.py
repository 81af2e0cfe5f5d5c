"""Machines that join and leave while others train: two processes of this machine."""

import logging
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.failures import TimedOut, WorkerLost
from scalebook.training.engine.rules.run_limits import Limits, WorkerRange
from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.processes import elastic_monitor
from tests.cluster.far_run import wait
from tests.cluster.joins import Numbers
from tests.training.lightning.async_ps.machines import Machine, behind, by_hand
from tests.training.lightning.async_ps.small import Diary, diaries, fit, trainer

pytestmark = pytest.mark.long
STARTS_S = 60.0


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEBOOK_KEY_FILE", str(tmp_path / "state" / "key"))


class Until(Callback):
    """Each worker counts its batches, each of which takes 5 ms; the file `stop` ends all."""

    def __init__(self, folder: Path, batches: Numbers) -> None:
        self._folder, self._batches = folder, batches

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._batches[trainer.global_rank] += 1
        time.sleep(0.005)
        if (self._folder / "stop").exists():
            trainer.should_stop = True


class Cluster:
    """So many machines at most, of one worker each, each started when a test wants it."""

    def __init__(self, folder: Path, least: int, most: int, **settings: Any) -> None:
        self.folder, self.batches = folder, Numbers(most, "q")
        self._environments, self._started = by_hand(most), 0
        self._elastic, self._settings = WorkerRange(least, most), settings
        self.machines: list[Machine] = []

    def start(
        self, node: int, body: Callable[[], Any] | None = None, behind_s: float = 0.0, **settings: Any
    ) -> Machine:
        """`behind_s`: its clock."""
        self._started += 1
        answer = self.folder / f"machine-{node}-{self._started}"
        machine = Machine(self._environments[node], body or (lambda: self._train(settings, behind_s)), answer)
        self.machines.append(machine)
        return machine

    def _train(self, settings: dict[str, Any], behind_s: float) -> Any:
        behind(behind_s)
        log = self.folder / f"log-{os.environ['NODE_RANK']}"
        logging.getLogger("scalebook").addHandler(logging.FileHandler(log))
        strategy = AsyncPS(workers=self._elastic, **{**self._settings, **settings})
        made = trainer(
            self.folder, strategy, num_nodes=len(self._environments), max_epochs=100_000, limit_val_batches=0,
            callbacks=[Until(self.folder, self.batches)],
        )  # fmt: skip
        weights = fit(made)
        return (
            weights,
            made.global_step,
            strategy.figures.counts(),
            [time.updates for time in strategy.figures.worker_times()],
        )

    def goes_on(self, *nodes: int, batches: int = 20) -> None:
        before = self.batches.all()
        wait(lambda: all(self.batches[node] >= before[node] + batches for node in nodes), STARTS_S)

    def log(self, node: int = 0) -> str:
        path = self.folder / f"log-{node}"
        return path.read_text() if path.exists() else ""

    def stop(self) -> None:
        (self.folder / "stop").touch()

    def end(self) -> None:
        for machine in self.machines:
            machine.end()


@pytest.fixture
def made(tmp_path: Path) -> Any:
    clusters: list[Cluster] = []

    def make(least: int, most: int, **settings: Any) -> Cluster:
        clusters.append(Cluster(tmp_path, least, most, **settings))
        return clusters[-1]

    yield make
    for cluster in clusters:
        cluster.end()


def test_a_machine_joins_leaves_and_another_takes_its_place(made: Any, tmp_path: Path) -> None:
    """Whose clock is an hour behind."""
    cluster = made(1, 3)
    first = cluster.start(0)
    cluster.goes_on(0)
    second = cluster.start(2)  # machines come in any order
    cluster.goes_on(0, 2)
    assert "worker 2 of node 2" in cluster.log()
    os.kill(second.process.pid, signal.SIGTERM)
    with pytest.raises(SystemExit):
        second.result()
    wait(lambda: "Training continues with 1" in cluster.log(), STARTS_S)
    cluster.goes_on(0)
    again, third = cluster.start(2, behind_s=3600), cluster.start(1)
    cluster.goes_on(0, 1, 2)
    os.killpg(third.process.pid, signal.SIGKILL)
    wait(lambda: "Training continues with 2" in cluster.log(), STARTS_S)
    cluster.goes_on(0, 2)
    cluster.stop()
    (here, steps, counts, updates), (there, steps_there, *_) = first.result(), again.result()
    assert torch.equal(here, there)
    assert steps == steps_there == counts.updates == sum(updates)
    assert min(updates) > 0


@pytest.mark.thorough
def test_each_sample_is_used_once_an_epoch_whoever_joins(tmp_path: Path) -> None:
    batches, epochs = Numbers(3, "q"), 50
    environments = by_hand(3)

    def body() -> Any:
        strategy = AsyncPS(workers=WorkerRange(2, 3), record="updates")
        made = trainer(
            tmp_path, strategy, num_nodes=3, max_epochs=epochs, limit_val_batches=0,
            callbacks=[Until(tmp_path, batches), Diary(tmp_path)],
        )  # fmt: skip
        return fit(made), made.global_step

    machines = [Machine(environments[node], body, tmp_path / f"machine-{node}") for node in (0, 1)]
    try:
        wait(lambda: min(batches[0], batches[1]) >= 20, STARTS_S)
        machines.append(Machine(environments[2], body, tmp_path / "machine-2"))
        ends = [machine.result() for machine in machines]
    finally:
        for machine in machines:
            machine.end()
    assert all(torch.equal(weights, ends[0][0]) and steps == epochs * 12 for weights, steps in ends)
    seen = [sample for one in diaries(tmp_path) for sample in one["train"]]
    assert sorted(seen) == sorted(epochs * list(range(96)))
    assert 0 < batches[2] < batches[1]


@pytest.mark.thorough
def test_it_begins_with_the_least_and_says_who_is_missing(made: Any) -> None:
    cluster = made(2, 3, limits=Limits(deadline_s=2.0))
    with pytest.raises(
        TimedOut,
        match=r"workers\.min: is 2, but only 1 workers have joined at 127.* within 2 s\..*raise .*limits\.deadline_s",
    ):
        cluster.start(0).result()


@pytest.mark.thorough
def test_a_machine_that_was_started_otherwise_takes_no_part_and_the_others_train_on(made: Any) -> None:
    cluster = made(1, 2)
    first = cluster.start(0)
    cluster.goes_on(0)
    with pytest.raises(ConfigError, match="has different arguments on node 0"):
        cluster.start(1, shards=2).result()
    assert "takes no part" in cluster.log()
    second = cluster.start(1)
    cluster.goes_on(0, 1)
    cluster.stop()
    assert torch.equal(first.result()[0], second.result()[0])


@pytest.mark.thorough
def test_an_exception_elsewhere_is_a_machine_that_leaves(made: Any, tmp_path: Path) -> None:
    cluster = made(1, 2)

    class Wrong(Until):
        def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
            raise KeyError("a sample")

    def body() -> None:
        callbacks = [Wrong(tmp_path, cluster.batches)]
        fit(trainer(tmp_path, AsyncPS(workers=WorkerRange(1, 2)), num_nodes=2, max_epochs=100_000, callbacks=callbacks))

    first = cluster.start(0)
    cluster.goes_on(0)
    with pytest.raises(KeyError, match="a sample"):
        cluster.start(1, body).result()
    wait(lambda: "has left: KeyError" in cluster.log(), STARTS_S)
    cluster.goes_on(0)
    cluster.stop()
    assert first.result()[1] > 0


@pytest.mark.thorough
def test_with_too_few_for_a_while_it_ends_and_says_so(made: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elastic_monitor, "COME_AGAIN_S", 2.0)
    cluster = made(2, 2)
    first, second = cluster.start(0), cluster.start(1)
    cluster.goes_on(0, 1)
    os.killpg(second.process.pid, signal.SIGKILL)
    with pytest.raises(WorkerLost, match=r"worker 1 died: on node 1 .*workers\.min is 2, but only 1 remained for 2 s"):
        first.result()


@pytest.mark.parametrize(
    ("settings", "nodes", "said"),
    [
        ({"rule": "sync"}, 2, "workers: is {min, max}, but an update of sync averages one gradient per worker"),
        ({}, 1, "workers: is {min, max}, but trainer.num_nodes is 1, so no worker can join"),
        ({}, 3, "workers.max: is 2, but 3 nodes with 1 workers each make 3 workers. Use 3, or change devices"),
    ],
    ids=["sync", "one machine", "another number"],
)
def test_where_the_number_cannot_change_it_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], nodes: int, said: str
) -> None:
    for name, value in by_hand()[0].items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ValueError) as caught:
        fit(trainer(tmp_path, AsyncPS(workers=WorkerRange(1, 2), **settings), num_nodes=nodes))
    assert str(caught.value).startswith(said)


def test_of_least_and_most_the_least_is_no_more() -> None:
    with pytest.raises(ValueError, match=r"workers\.max: is 1, which is less than min \(2\)\. Use 2 or more"):
        WorkerRange(2, 1)
    with pytest.raises(ValueError, match=r"workers\.min: 0 is less than 1"):
        WorkerRange(0, 1)
