"""DDP over machines with a network between them."""

import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from lightning.pytorch import Callback

from scalebook.training.base.failures import NodeLost
from scalebook.training.engine import served_run
from scalebook.training.engine.net import mailbox
from scalebook.training.engine.net.wire import DEAD_S
from scalebook.training.lightning import DDP
from tests.cluster.far_run import wait
from tests.cluster.joins import Numbers
from tests.cluster.namespaces import Machines, Namespaces
from tests.training.lightning.async_ps.machines import Machine, by_hand, together
from tests.training.lightning.async_ps.small import fit, trainer
from tests.training.lightning.ddp.test_ddp_nodes import agree, trained

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("ignore:Using `DistributedSampler`")]
ENDED_S = 6.0
"""From when a monitor knows it, until its workers have ended; measured 1 to 3 s."""


def node() -> int:
    return int(os.environ["NODE_RANK"])


@pytest.mark.thorough
def test_two_machines_are_one_to_the_last_bit(two: Machines, tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    other.mkdir()
    alone = trained(one, "fp32", devices=2)

    def body() -> dict[str, Any]:
        two.enter(node())
        return trained(other, "fp32", num_nodes=2)

    agree(together(by_hand(address=two.addresses[0]), body, tmp_path), alone, other, one)


@contextmanager
def training(machines: Namespaces, folder: Path, ended: Numbers) -> Iterator[list[Machine]]:
    """DDP on both, for ever; since both have made a batch."""

    class Note(Callback):
        def on_train_batch_end(self, *_: Any) -> None:
            (folder / f"batch-{node()}").touch()

    def body() -> None:
        machines.enter(node())
        try:
            fit(trainer(folder, DDP(), num_nodes=2, max_epochs=100_000, callbacks=[Note()]))
        finally:
            ended[node()] = time.monotonic()

    environments = by_hand(address=machines.addresses[0])
    nodes = [Machine(one, body, folder / f"{n}") for n, one in enumerate(environments)]
    try:
        wait(lambda: all((folder / f"batch-{n}").exists() for n in range(2)), 60)
        yield nodes
    finally:
        for one in nodes:
            one.end()


@pytest.mark.parametrize("silent_s", [3.0, pytest.param(DEAD_S, marks=pytest.mark.thorough)])
def test_a_cut_link_is_told_by_both_and_nobody_listened_elsewhere(
    apart: Namespaces, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent_s: float
) -> None:
    for module in (mailbox, served_run):
        monkeypatch.setattr(module, "DEAD_S", silent_s)
    ended = Numbers(2, "d")
    with training(apart, tmp_path, ended) as nodes:
        for number, address in enumerate(apart.addresses):
            assert {(one.protocol, one.host) for one in apart.listening(number)} == {("tcp", address)}
        apart.cut(1)
        began, said = time.monotonic(), []
        for one in nodes:
            with pytest.raises(NodeLost) as caught:
                one.result()
            said.append(str(caught.value))
    here = socket.gethostname()
    assert said[0] == f"node 1 ({here}) has been silent for {silent_s:g} s"
    assert said[1].startswith(f"node 0 ({here}) has not answered at {apart.addresses[0]}:")
    assert f" for {silent_s:g} s: channel: " in said[1]
    assert all(silent_s - 1 < at - began < silent_s + ENDED_S for at in ended.all()), [at - began for at in ended.all()]
