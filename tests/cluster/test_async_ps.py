"""AsyncPS over machines with a network between them."""

import logging
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from typing_extensions import override

from scalebook.training.base.failures import NodeLost
from scalebook.training.engine.rules.run_limits import Limits
from scalebook.training.lightning import AsyncPS
from tests.cluster.far_run import wait
from tests.cluster.joins import Numbers
from tests.cluster.namespaces import Listening, Machines, Namespaces
from tests.training.lightning.async_ps.machines import Machine, by_hand, together
from tests.training.lightning.async_ps.small import diaries, fit, trainer
from tests.training.lightning.async_ps.test_async_nodes import trained

pytestmark = pytest.mark.long
TOLD_S = 6.0


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SCALEBOOK_KEY_FILE", str(tmp_path / "state" / "key"))


def node() -> int:
    return int(os.environ["NODE_RANK"])


@pytest.mark.thorough
def test_two_machines_are_one_to_the_last_bit(two: Machines, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    other.mkdir()
    alone = trained(one, "sync", {}, devices=2)

    def body() -> dict[str, Any]:
        two.enter(node())
        return trained(other, "sync", {}, num_nodes=2)

    for machine in together(by_hand(address=two.addresses[0]), body, tmp_path):
        assert torch.equal(machine["weights"], alone["weights"])
        assert machine["steps"] == alone["steps"] == 12
    same = ("train", "val", "lrs", "updates", "histogram")
    pairs = zip(diaries(other), diaries(one), strict=True)
    assert all([a[key] == b[key] for key in same] for a, b in pairs)


class Warned(logging.Handler):
    """Tells when a monitor says something, and what."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = tell

    @override
    def emit(self, record: logging.LogRecord) -> None:
        self._tell(record.getMessage())


class Until(Callback):
    """Each worker counts its batches; all end when the file `stop` is there."""

    def __init__(self, folder: Path, batches: Numbers) -> None:
        self._folder, self._batches = folder, batches

    @override
    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self._batches[trainer.global_rank] += 1
        time.sleep(0.005)
        if (self._folder / "stop").exists():
            trainer.should_stop = True


@pytest.mark.parametrize("comes_back", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_a_cut_link_is_told_by_both_and_the_first_goes_on(apart: Namespaces, tmp_path: Path, comes_back: bool) -> None:
    told, batches, ended = Numbers(2, "d"), Numbers(2, "q"), Numbers(2, "d")

    def body() -> float:
        apart.enter(node())

        def tell(text: str) -> None:
            if "worker 1 died" in text:
                (tmp_path / f"said-{node()}").write_text(text)
                told[node()] = time.monotonic()

        logging.getLogger("scalebook").addHandler(Warned(tell))
        strategy = AsyncPS(limits=Limits(restarts=int(comes_back)))
        made = trainer(tmp_path, strategy, num_nodes=2, max_epochs=100_000, callbacks=[Until(tmp_path, batches)])
        try:
            fit(made)
        finally:
            ended[node()] = time.monotonic()
        return float(strategy.figures.counts().updates)

    environments = by_hand(address=apart.addresses[0])
    machines = [Machine(one, body, tmp_path / f"{n}") for n, one in enumerate(environments)]
    try:
        wait(lambda: min(batches.all()) >= 20, 60)
        port = int(environments[0]["MASTER_PORT"])
        assert apart.listening(0) == {Listening("tcp", "10.77.0.1", port)}
        assert apart.listening(1) == set()
        apart.cut(1)
        began = time.monotonic()
        wait(lambda: min(told.all()) > 0, 15)
        before = batches.all()
        assert all(4 < at - began < TOLD_S for at in told.all()), [at - began for at in told.all()]
        host = socket.gethostname()
        assert (tmp_path / "said-0").read_text().startswith(f"worker 1 died: on node 1 ({host}), ")
        if comes_back:
            apart.restore(1)
            wait(lambda: batches[1] > before[1] + 20, 60)
        wait(lambda: batches[0] > before[0] + 20)
        (tmp_path / "stop").touch()
        if not comes_back:
            with pytest.raises(
                NodeLost,
                match=rf"^node 0 .* can no longer be reached from this node, at 10\.77\.0\.1:{port}: channel: ",
            ):
                machines[1].result()
            assert ended[1] - began < 3 * TOLD_S
        updates = [machine.result() for machine in machines[: 1 + comes_back]]
        assert updates[0] >= 40
    finally:
        for machine in machines:
            machine.end()
