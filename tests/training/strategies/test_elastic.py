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

from scalebook.training.errors import ConfigError
from scalebook.training.failures import TimedOut, WorkerLost
from scalebook.training.ps.policy.elastic import Elastic
from scalebook.training.strategies import AsyncPS, elastic_side
from tests.cluster.far_run import Numbers, wait
from tests.training.strategies.machines import Machine, by_hand
from tests.training.strategies.small import Diary, diaries, fit, trainer

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
        self._elastic, self._settings = Elastic(least, most), settings
        self.machines: list[Machine] = []

    def start(self, node: int, body: Callable[[], Any] | None = None, **settings: Any) -> Machine:
        self._started += 1
        answer = self.folder / f"machine-{node}-{self._started}"
        machine = Machine(self._environments[node], body or (lambda: self._train(settings)), answer)
        self.machines.append(machine)
        return machine

    def _train(self, settings: dict[str, Any]) -> Any:
        log = self.folder / f"log-{os.environ['NODE_RANK']}"
        logging.getLogger("scalebook").addHandler(logging.FileHandler(log))
        strategy = AsyncPS(workers=self._elastic, **{**self._settings, **settings})
        made = trainer(
            self.folder, strategy, num_nodes=len(self._environments), max_epochs=100_000, limit_val_batches=0,
            callbacks=[Until(self.folder, self.batches)],
        )  # fmt: skip
        weights = fit(made)
        return weights, made.global_step, strategy.counts(), [time.updates for time in strategy.worker_times()]

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
    cluster = made(1, 3)
    first = cluster.start(0)
    cluster.goes_on(0)
    second = cluster.start(2)  # machines come in any order
    cluster.goes_on(0, 2)
    assert "worker 2 of node 2" in cluster.log()
    os.kill(second.process.pid, signal.SIGTERM)
    with pytest.raises(SystemExit):
        second.result()
    wait(lambda: "Training goes on with 1" in cluster.log(), STARTS_S)
    cluster.goes_on(0)
    again, third = cluster.start(2), cluster.start(1)
    cluster.goes_on(0, 1, 2)
    os.killpg(third.process.pid, signal.SIGKILL)
    wait(lambda: "Training goes on with 2" in cluster.log(), STARTS_S)
    cluster.goes_on(0, 2)
    cluster.stop()
    (here, steps, counts, updates), (there, steps_there, *_) = first.result(), again.result()
    assert torch.equal(here, there)
    assert steps == steps_there == counts.updates == sum(updates)
    assert min(updates) > 0
