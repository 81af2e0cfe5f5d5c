"""What DDP's exchange says it has moved, against the bytes that the kernel has sent over the workers' sockets."""

import json
import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from scalebook.training.engine.rules.codecs import CodecName
from scalebook.training.lightning import DDP
from tests.training.lightning.async_ps.small import Small, fit, make_sgd, trainer

ACKED, RECEIVED = 120, 128
"""Where `struct tcp_info` of Linux has `tcpi_bytes_acked` and `tcpi_bytes_received`."""
SMALL_TALK = 20_000
"""Bytes that may go along: barriers, and the sum of a logged loss in each step."""


class Wide(Small):
    """200,000 parameters, beside which what else is exchanged is little."""

    def __init__(self) -> None:
        super().__init__(make_sgd)
        self.net = torch.nn.Sequential(torch.nn.Linear(5, 25_000), torch.nn.ReLU(), torch.nn.Linear(25_000, 3))


class Wire(Callback):
    """Bytes sent and received since before the third batch, and what the exchange has counted since then."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.before = folder, [0, 0, 0, 0]

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if batch_idx == 2:
            trainer.strategy.barrier()
            self.before = figures(trainer)

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *args: Any) -> None:
        if trainer.global_step == trainer.max_steps:
            trainer.strategy.barrier()  # all has arrived, and almost all acknowledgements
            since = [now - before for now, before in zip(figures(trainer), self.before, strict=True)]
            (self.folder / f"{trainer.global_rank}.json").write_text(json.dumps(since))


def figures(trainer: Trainer) -> list[int]:
    strategy: Any = trainer.strategy
    infos = [one.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192) for one in sockets()]
    sent, received = (sum(struct.unpack_from("Q", info, at)[0] for info in infos) for at in (ACKED, RECEIVED))
    return [sent, received, strategy.exchange.pushed_bytes, strategy.exchange.pulled_bytes]


def sockets() -> Iterator[socket.socket]:
    """Those over TCP of this process, each as a copy that is closed again."""
    for number in map(int, os.listdir("/proc/self/fd")):
        try:
            one = socket.socket(fileno=os.dup(number))
        except OSError:  # no socket, or the descriptor that lists
            continue
        with one:
            if one.family in (socket.AF_INET, socket.AF_INET6) and one.type == socket.SOCK_STREAM:
                yield one


@pytest.mark.each_value
@pytest.mark.parametrize("codec", ["fp32", "bf16", "int8", "topk"])
def test_what_is_counted_is_what_went_over_the_sockets(codec: CodecName, tmp_path: Path) -> None:
    """Of two workers: in an all-reduce, too, each sends as much as its buffer has."""
    fit(
        trainer(tmp_path, DDP(codec=codec), devices=2, max_steps=6, limit_val_batches=0, callbacks=[Wire(tmp_path)]),
        Wide(),
    )
    for path in sorted(tmp_path.glob("?.json")):
        sent, received, pushed, pulled = json.loads(path.read_text())
        assert pushed == pulled > 4 * 10_000
        assert pushed - SMALL_TALK < sent < 1.01 * pushed + SMALL_TALK
        assert pulled - SMALL_TALK < received < 1.01 * pulled + SMALL_TALK
