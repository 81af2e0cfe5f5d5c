"""The parameter server over two machines, which are two processes of this one."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from scalebook.training.engine.rules.update_rules import RuleName
from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.async_ps import nodes
from scalebook.training.lightning.buffers import BufferPolicy
from scalebook.training.lightning.portable_checkpoint import KEY
from tests.training.lightning.async_ps.contract.models import Averages
from tests.training.lightning.async_ps.machines import by_hand, free_port, slurm, together, torchrun
from tests.training.lightning.async_ps.small import Diary, diaries, fit, held_out, seeded_model, trainer
from tests.training.lightning.async_ps.small import weights as weights_of

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("machines_key")]


class Listening(Callback):
    """The first worker of each machine notes where its machine's processes listen."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if trainer.local_rank == 0:
            monitor = psutil.Process(os.getppid())
            processes = [monitor, *monitor.children(recursive=True)]
            found = {one.laddr for p in processes for one in p.net_connections("inet") if one.status == "LISTEN"}
            (self.folder / f"listening-{trainer.node_rank}").write_text(json.dumps(sorted(found)))


def trained(folder: Path, rule: RuleName, settings: dict[str, Any], **trainers: Any) -> dict[str, Any]:
    saving = ModelCheckpoint(folder / "saved", filename="last")
    made = trainer(
        folder,
        AsyncPS(rule, **settings),
        callbacks=[Diary(folder), Listening(folder), saving],
        enable_checkpointing=True,
        **trainers,
    )
    model = seeded_model()
    weights = fit(made, model)
    made.validate(model, held_out(), verbose=False)  # each machine by itself, all of it
    told = {
        "weights": weights,
        "loss": float(made.callback_metrics["val/loss"]),
        "steps": made.global_step,
        "after": weights_of(model),
    }
    if made.is_global_zero:
        told |= torch.load(folder / "saved" / "last.ckpt", weights_only=True)[KEY]
    return told


@pytest.mark.parametrize(
    "settings",
    [
        {"tls": True},
        {"push_codec": "topk", "pull_codec": "int8"},
        {"local": "local_sgd", "push_codec": "int8"},
    ],
    ids=["TLS", "codecs both ways", "local steps"],
)
def test_two_machines_are_one_to_the_last_bit(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what codecs leave out, as checkpoints have it; and as if it were not loopback."""
    monkeypatch.setattr(nodes, "goes_out", lambda _: True)
    settings = {"tls": False, **settings}
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    alone = trained(one, "sync", settings, devices=2)
    told = together(by_hand(), lambda: trained(two, "sync", settings, num_nodes=2), tmp_path)
    for machine in told:
        assert torch.equal(machine["weights"], alone["weights"])
        assert (machine["steps"], machine["loss"]) == (alone["steps"], alone["loss"])
    same = ("train", "val", "lrs", "updates", "histogram")
    pairs = zip(diaries(two), diaries(one), strict=True)
    assert all([a[key] == b[key] for key in same] for a, b in pairs)
    residuals = [one.get("residuals", []) for one in (told[0], alone)]
    assert bool(residuals[0]) is ("push_codec" in settings)
    flat = [[shard for partition in one for worker in partition for shard in worker] for one in residuals]
    assert all(torch.equal(a, b) for a, b in zip(*flat, strict=True))


@pytest.mark.thorough
@pytest.mark.parametrize("policy", [None, "averaged"])
def test_buffers_of_two_machines_are_those_of_one(policy: BufferPolicy | None, tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()

    def buffers(folder: Path, **machines: Any) -> list[list[float]]:
        model, settings = Averages(), {"callbacks": [Diary(folder)], "max_epochs": 1, **machines}
        fit(trainer(folder, AsyncPS("sync", buffers=policy, tls=False), **settings), model)
        return [buffer.tolist() for buffer in model.buffers()]

    alone = buffers(one, devices=2)
    assert together(by_hand(), lambda: buffers(two, num_nodes=2), tmp_path) == [alone, alone]
    seen = [notes["begins"] for notes in [*diaries(one), *diaries(two)]]
    assert seen == [seen[0]] * 4, "all workers compute from the same"


@pytest.mark.thorough
def test_with_overlap_all_machines_end_with_the_last_version_and_each_batch_is_an_update(tmp_path: Path) -> None:
    """A worker on another machine has one push under way while it computes."""
    settings = {"host": "overlap"}
    first, second = together(by_hand(), lambda: trained(tmp_path, "async", settings, num_nodes=2, devices=1), tmp_path)
    assert torch.equal(first["weights"], second["weights"])
    assert first["steps"] == second["steps"] == 24
    assert sum(diaries(tmp_path)[0]["histogram"]) == 24


@pytest.mark.thorough
@pytest.mark.parametrize("started", ["a task a machine", "a task a worker", "torchrun"])
def test_all_machines_end_with_the_last_version(started: str, tmp_path: Path) -> None:
    """Whoever starts them, and whatever the order in which their workers come."""
    environments = torchrun(free_port()) if started == "torchrun" else slurm(1 if "machine" in started else 2)
    told = together(environments, lambda: trained(tmp_path, "async", {}, num_nodes=2, devices=2), tmp_path)
    assert len(told) == len(environments)
    for machine in told:
        assert torch.equal(machine["weights"], told[0]["weights"])
        assert machine["steps"] == 24
    port = int(environments[0]["MASTER_PORT"]) + (started == "torchrun")  # at its own torchrun's agent listens
    assert json.loads((tmp_path / "listening-0").read_text()) == [["127.0.0.1", port]]
    assert json.loads((tmp_path / "listening-1").read_text()) == []
    every = diaries(tmp_path)
    assert [one["updates"] for one in every] == [24] * 4
    assert sorted(sample for one in every for sample in one["train"]) == sorted(2 * list(range(96)))


def test_without_what_makes_certificates_tls_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a bare machine has only torch and Lightning, on which everything else works."""
    monkeypatch.setattr(nodes, "goes_out", lambda _: True)
    monkeypatch.setitem(sys.modules, "cryptography", None)

    def body() -> None:
        fit(trainer(tmp_path, AsyncPS(), num_nodes=2))

    with pytest.raises(ValueError, match=r"^tls: needs the package cryptography, .*Install the package, or set tls"):
        together(by_hand()[:1], body, tmp_path)
