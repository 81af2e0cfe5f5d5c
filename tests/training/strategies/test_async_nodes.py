"""The parameter server over two machines, which are two processes of this one."""

import json
import os
import re
import signal
import socket
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch

import psutil
import pytest
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint

from scalebook.training.errors import ConfigError
from scalebook.training.failures import NodeLost, TimedOut
from scalebook.training.ps.far import Secret
from scalebook.training.ps.policy.rules import RuleName
from scalebook.training.strategies import AsyncPS, spread
from scalebook.training.strategies.far_side import FarSide
from scalebook.training.strategies.portable import KEY
from tests.training.strategies.machines import Machine, by_hand, free_port, slurm, together, torchrun
from tests.training.strategies.small import AtBatch, Diary, diaries, fit, held_out, kill_me, seeded_model, trainer
from tests.training.strategies.small import weights as weights_of

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Of these machines; the first makes it."""
    path = tmp_path / "state" / "key"
    monkeypatch.setenv("SCALEBOOK_KEY_FILE", str(path))
    return path


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
        {"push_codec": "topk", "pull_codec": "int8", "pull_delta": True},
        {"local": "local_sgd", "push_codec": "int8"},
    ],
    ids=["TLS", "codecs both ways", "local steps"],
)
def test_two_machines_are_one_to_the_last_bit(
    settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what codecs leave out, as checkpoints have it; and as if it were not loopback."""
    monkeypatch.setattr(spread, "goes_out", lambda _: True)
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
    flat = [[shard for section in one for worker in section for shard in worker] for one in residuals]
    assert all(torch.equal(a, b) for a, b in zip(*flat, strict=True))


def test_with_overlap_all_machines_end_with_the_last_version_and_each_batch_is_an_update(tmp_path: Path) -> None:
    """A worker on another machine has one push under way while it computes."""
    settings = {"host": "process", "overlap": True}
    first, second = together(by_hand(), lambda: trained(tmp_path, "async", settings, num_nodes=2, devices=1), tmp_path)
    assert torch.equal(first["weights"], second["weights"])
    assert first["steps"] == second["steps"] == 24
    assert sum(diaries(tmp_path)[0]["histogram"]) == 24


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


# --- deaths ----------------------------------------------------------------------------------------------------------

TOLD_S = 6.0
"""After a death, on both sides; and as much again for a machine that others use."""


class UntilFewer(Callback):
    """Worker 0 stops the run when a worker is gone for good, and notes when."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder, self.workers = folder, workers

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        strategy: Any = trainer.strategy
        if trainer.global_rank == 0 and not trainer.should_stop and len(strategy._end.living()) < self.workers:
            (self.folder / "told").touch()
            trainer.should_stop = True


def dying(what: Callable[[Trainer], None], worker: int, folder: Path) -> Callback:
    def noted(trainer: Trainer) -> None:
        (folder / "died").touch()
        what(trainer)

    return AtBatch(worker, 5, noted)


def seconds_until(told: str, folder: Path) -> float:
    return (folder / told).stat().st_mtime - (folder / "died").stat().st_mtime


def outcomes(body: Callable[[], Any], folder: Path) -> list[Any]:
    """What each of two machines returns or raises; how long after the death the second has ended is noted."""

    def ends() -> Any:
        try:
            return body()
        finally:
            (folder / f"ended-{os.environ['NODE_RANK']}").touch()

    machines = [Machine(one, ends, folder / f"machine-{node}") for node, one in enumerate(by_hand())]
    found: list[Any] = []
    try:
        for machine in machines:
            try:
                found.append(machine.result())
            except BaseException as error:  # noqa: BLE001  # which is the question
                found.append(error)
    finally:
        for machine in machines:
            machine.end()
    return found


HOST = socket.gethostname()


def test_a_worker_that_dies_elsewhere_is_told_on_both_machines(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And the rest, also of its machine, trains on to the same end."""

    def body() -> Any:
        made = trainer(
            tmp_path, AsyncPS(), num_nodes=2, devices=2, max_epochs=100_000,
            callbacks=[UntilFewer(tmp_path, 4), dying(kill_me, 2, tmp_path)],
        )  # fmt: skip
        weights = fit(made)
        return weights, made.global_step, caplog.text

    (here, steps, said_here), (there, steps_there, said_there) = outcomes(body, tmp_path)
    assert torch.equal(here, there)
    assert steps == steps_there
    assert seconds_until("told", tmp_path) < TOLD_S
    assert f"worker 2 died: on node 1 ({HOST}), process " in said_here
    assert "was killed by signal SIGKILL. Training goes on with 3." in said_here
    assert "worker 2 died: process " in said_there


def test_it_comes_back_as_a_new_incarnation(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    def body() -> Any:
        def once(trainer: Trainer) -> None:
            if not (tmp_path / "died").exists():
                (tmp_path / "died").touch()
                kill_me(trainer)

        callbacks = [AtBatch(1, 5, once), Diary(tmp_path)]
        made = trainer(
            tmp_path, AsyncPS(restarts=1), num_nodes=2, max_epochs=10, limit_val_batches=0, callbacks=callbacks
        )
        return fit(made), made.global_step, caplog.text

    (here, steps, said), (there, *_) = outcomes(body, tmp_path)
    assert torch.equal(here, there)
    assert steps == 10 * 12
    assert f"worker 1 died: on node 1 ({HOST}), process " in said
    assert "SIGKILL. It is started again." in said
    assert len(diaries(tmp_path)[1]["train"]) > 0


def test_a_machine_that_is_gone_is_told_and_the_rest_trains_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def body() -> Any:
        callbacks = [UntilFewer(tmp_path, 2), dying(lambda _: os.killpg(0, signal.SIGKILL), 1, tmp_path)]
        made = trainer(tmp_path, AsyncPS(), num_nodes=2, max_epochs=100_000, callbacks=callbacks)
        return fit(made), caplog.text

    (_, said), gone = outcomes(body, tmp_path)
    assert "without a word" in str(gone)
    assert f"worker 1 died: on node 1 ({HOST}), worker 1 was silent for 5 s. Training goes on with 1." in said
    assert seconds_until("told", tmp_path) < 2 * TOLD_S


def test_a_machine_that_is_told_to_stop_leaves_and_the_rest_trains_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Also where workers meet in each step, as this model's do."""

    def body() -> Any:
        callbacks = [UntilFewer(tmp_path, 2), dying(lambda _: os.kill(os.getppid(), signal.SIGTERM), 1, tmp_path)]
        made = trainer(tmp_path, AsyncPS(), num_nodes=2, max_epochs=100_000, callbacks=callbacks)
        return fit(made), caplog.text

    (_, said), stopped = outcomes(body, tmp_path)
    assert isinstance(stopped, SystemExit)
    assert f"worker 1 died: on node 1 ({HOST}), it has left in the middle of its training. Training goes on wi" in said
    assert seconds_until("told", tmp_path) < TOLD_S


def test_when_the_server_s_machine_is_gone_the_others_end_and_a_checkpoint_goes_on(tmp_path: Path) -> None:
    saved = tmp_path / "saved" / "last.ckpt"

    def body() -> Any:
        resumed = saved if saved.exists() else None

        def gone(_trainer: Trainer) -> None:
            if resumed is None:
                until = time.monotonic() + 20
                while not (tmp_path / "heard").exists() and time.monotonic() < until:
                    time.sleep(0.01)  # a checkpoint is told by the way
                (tmp_path / "died").touch()
                os.killpg(0, signal.SIGKILL)

        saving = ModelCheckpoint(saved.parent, filename="last", enable_version_counter=False)
        callbacks = [AtBatch(0, 50, gone), saving]  # 12 batches an epoch are everybody's
        made = trainer(tmp_path, AsyncPS(), num_nodes=2, max_epochs=20, enable_checkpointing=True, callbacks=callbacks)
        with patch.object(FarSide, "_hear", hears):
            return fit(made, ckpt_path=resumed), made.global_step

    hear = FarSide._hear

    def hears(side: FarSide, what: str, told: Any) -> None:
        hear(side, what, told)
        if what == "saved":
            (tmp_path / "heard").touch()

    _, there = outcomes(body, tmp_path)
    assert isinstance(there, NodeLost)
    assert str(there).startswith(f"node 0 ({HOST}) is lost to this machine, at 127.0.0.1:")
    assert f". Resume on all from its checkpoint {saved}: since then " in str(there)
    assert re.search(
        r"since then (no updates that are known here|\d+ updates or more) were made, and are lost$", str(there)
    )
    assert seconds_until("ended-1", tmp_path) < 2 * TOLD_S
    before = torch.load(saved, weights_only=True)["global_step"]
    assert 0 < before < 20 * 12
    (here, steps), (there, steps_there) = outcomes(body, tmp_path)
    assert torch.equal(here, there)
    assert steps == steps_there
    assert 20 * 12 <= steps <= 20 * 12 + 4  # what was under way when the checkpoint was written comes again


def test_an_exception_ends_both(tmp_path: Path) -> None:
    def wrong(_trainer: Trainer) -> None:
        raise KeyError("a sample")

    for worker in (0, 1):
        folder = tmp_path / str(worker)
        folder.mkdir()

        def body(worker: int = worker, folder: Path = folder) -> None:
            fit(trainer(folder, AsyncPS(), num_nodes=2, max_epochs=100_000, callbacks=[dying(wrong, worker, folder)]))

        found = outcomes(body, folder)
        assert isinstance(found[worker], KeyError)
        assert str(found[1 - worker]) == f"node {worker} ({HOST}) has ended with KeyError: 'a sample'"


# --- what does not begin ---------------------------------------------------------------------------------------------


def test_who_does_not_come_is_named_after_the_deadline(tmp_path: Path) -> None:
    first, second = by_hand()
    (tmp_path / "state").mkdir()
    Secret.made(tmp_path / "state" / "key")
    for environment, missing in ((first, "node 1"), (second, "node 0")):
        with pytest.raises(TimedOut) as caught:
            together([environment], lambda: fit(trainer(tmp_path, AsyncPS(deadline_s=1.5), num_nodes=2)), tmp_path)
        said = str(caught.value)
        assert said.startswith(f"trainer.num_nodes: is 2, and {missing} has not come, for 1.5 s: ")
        assert said.endswith("with its own NODE_RANK, or raise trainer.strategy.init_args.deadline_s.")


def test_machines_that_are_not_started_alike_are_refused_on_both(tmp_path: Path) -> None:
    def body() -> None:
        fit(trainer(tmp_path, AsyncPS(shards=1 + int(os.environ["NODE_RANK"])), num_nodes=2))

    for error in outcomes(body, tmp_path):
        assert isinstance(error, ConfigError)
        assert str(error).startswith("trainer.strategy: has other arguments on node 0")


def test_another_key_gets_nobody_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def body() -> None:
        own = tmp_path / f"key-{os.environ['NODE_RANK']}"
        Secret.made(own)
        os.environ["SCALEBOOK_KEY_FILE"] = str(own)
        fit(trainer(tmp_path, AsyncPS(deadline_s=8.0 - 5 * int(os.environ["NODE_RANK"])), num_nodes=2))

    here, there = outcomes(body, tmp_path)
    assert isinstance(here, TimedOut)
    assert "node 1 has not come" in str(here)
    assert "another key" in str(there)


def test_without_what_makes_certificates_tls_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And a bare machine has only torch and Lightning, on which everything else works."""
    monkeypatch.setattr(spread, "goes_out", lambda _: True)
    monkeypatch.setitem(sys.modules, "cryptography", None)

    def body() -> None:
        fit(trainer(tmp_path, AsyncPS(), num_nodes=2))

    with pytest.raises(ConfigError, match=r"init_args.tls: needs the package cryptography, .*Install it, or write fal"):
        together(by_hand()[:1], body, tmp_path)
