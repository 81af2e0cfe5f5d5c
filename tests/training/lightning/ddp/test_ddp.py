import os
import socket
from pathlib import Path

import torch
from lightning.pytorch.strategies import DDPStrategy
from torch.testing import assert_close

from scalebook.training.lightning import DDP, register
from tests.training.lightning.async_ps.small import SAMPLES, Diary, Small, diaries, fit, seeded_model, trainer


def test_without_random_numbers_it_is_lightnings_ddp_to_the_last_bit(tmp_path: Path) -> None:
    """With dropout Lightning's workers all drop the same units, and ours each its own."""
    register()

    def alike() -> Small:
        model = seeded_model()
        model.net[2].p = 0.0  # type: ignore[assignment]
        return model

    ours, theirs = (trainer(tmp_path, strategy, devices=2) for strategy in ("ddp", DDPStrategy(start_method="fork")))
    assert isinstance(ours.strategy, DDP)
    assert torch.equal(fit(ours, alike()), fit(theirs, alike()))
    assert_close(ours.callback_metrics, theirs.callback_metrics)  # validated in other batches


def test_options_reach_torch(tmp_path: Path) -> None:
    class Unused(Small):
        def __init__(self) -> None:
            super().__init__()
            self.spare = torch.nn.Linear(2, 2)

    fit(trainer(tmp_path, DDP(find_unused_parameters=True), devices=2, callbacks=[Diary(tmp_path)]), Unused())
    assert [len(notes["train"]) for notes in diaries(tmp_path)] == [SAMPLES] * 2


def test_a_taken_port_is_no_obstacle(tmp_path: Path, monkeypatch: object) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        os.environ["MASTER_PORT"] = str(taken.getsockname()[1])
        try:
            fit(trainer(tmp_path, DDP(), devices=2, max_epochs=1, callbacks=[Diary(tmp_path)]))
        finally:
            del os.environ["MASTER_PORT"]
    assert len(diaries(tmp_path)) == 2
