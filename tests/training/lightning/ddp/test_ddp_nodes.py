"""DDP over two machines, which are two processes of this one."""

import os
import signal
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch._C._distributed_c10d import TCPStore

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.failures import WorkerLost
from scalebook.training.engine.rules.codecs import CodecName
from scalebook.training.lightning import DDP
from tests.training.lightning.async_ps.machines import Machine, by_hand, free_port, slurm, together, torchrun
from tests.training.lightning.async_ps.small import (
    AtBatch,
    Diary,
    diaries,
    fit,
    held_out,
    kill_me,
    seeded_model,
    trainer,
)
from tests.training.lightning.async_ps.small import weights as weights_of

pytestmark = [
    pytest.mark.filterwarnings("ignore:Using `DistributedSampler`"),  # on any number of machines
    pytest.mark.long,
]
TOLD_S = 30.0
"""After an end on one machine; measured 1 to 2 s, on a quiet one."""


def trained(folder: Path, codec: CodecName, **settings: Any) -> dict[str, Any]:
    """Fit, then validate with the same Trainer, and tell of both."""
    saving = ModelCheckpoint(folder / f"saved-{os.environ.get('NODE_RANK')}-{os.getpid()}", save_top_k=-1)
    made = trainer(folder, DDP(codec), callbacks=[Diary(folder), saving], enable_checkpointing=True, **settings)
    model = seeded_model()
    weights = fit(made, model)
    made.validate(model, held_out(), verbose=False)
    steps, metrics = made.global_step, {name: float(value) for name, value in made.callback_metrics.items()}
    return {"weights": weights, "steps": steps, "metrics": metrics, "after": weights_of(model)}


def agree(told: list[dict[str, Any]], alone: dict[str, Any], folder: Path, one: Path) -> None:
    """All machines end as the single one did, and every worker saw what it saw there."""
    for machine in told:
        assert torch.equal(machine["weights"], alone["weights"])
        assert machine["metrics"] == alone["metrics"]
        assert machine["steps"] == alone["steps"]
    same = ("train", "val", "lrs", "validations", "updates")
    pairs = list(zip(diaries(folder), diaries(one), strict=True))
    assert [{key: a[key] for key in same} for a, _ in pairs] == [{key: b[key] for key in same} for _, b in pairs]


def test_two_machines_are_one_to_the_last_bit(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    alone = trained(one, "fp32", devices=2)
    told = together(by_hand(), lambda: trained(two, "fp32", num_nodes=2), tmp_path)
    agree(told, alone, two, one)
    (written,) = two.glob("saved-*")  # by rank 0 alone
    assert len(list(written.glob("*.ckpt"))) == 2
    assert told[0]["steps"] == 12  # 96 samples by 8, for two workers, twice


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """Four workers of one machine, whose gradients travel as a share of their values."""
    folder = tmp_path_factory.mktemp("four")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    alone = trained(folder, "topk", devices=4)
    torch.set_num_threads(threads)
    return folder, alone


@pytest.mark.thorough
@pytest.mark.parametrize("tasks", [1, 2], ids=["a task a machine", "a task a worker"])
def test_under_slurm_also_with_a_codec(tasks: int, four: tuple[Path, dict[str, Any]], tmp_path: Path) -> None:
    one, alone = four
    told = together(slurm(tasks), lambda: trained(tmp_path, "topk", num_nodes=2, devices=2), tmp_path)
    agree(told, alone, tmp_path, one)


@pytest.mark.thorough
@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2"], ids=["on the first", "on another"])
def test_under_torchrun_whose_agent_has_the_store(
    address: str, four: tuple[Path, dict[str, Any]], tmp_path: Path
) -> None:
    """Which may be on a machine that is not the first."""
    one, alone = four
    port = free_port()
    environments = torchrun(port, address)

    def agent() -> None:
        store = TCPStore(address, port, is_master=True, wait_for_workers=False)
        store.wait(["never"])

    host = Machine({}, agent, tmp_path / "agent")
    try:
        told = together(environments, lambda: trained(tmp_path, "topk", num_nodes=2, devices=2), tmp_path)
    finally:
        host.end()
    agree(told, alone, tmp_path, one)


# --- how it ends -----------------------------------------------------------------------------------------------------


def sigterm(_trainer: Trainer) -> None:
    os.kill(os.getppid(), signal.SIGTERM)


def ended(what: Callable[[Trainer], None], folder: Path) -> list[BaseException]:
    """How both machines end when worker 1, on the second, does this before its fifth batch."""

    class Note(Callback):
        def on_train_batch_start(self, *_: Any) -> None:
            (folder / "last").touch()

    def body() -> None:
        fit(trainer(folder, DDP(), num_nodes=2, max_epochs=100_000, callbacks=[AtBatch(1, 5, what), Note()]))

    machines = [Machine(one, body, folder / f"{node}") for node, one in enumerate(by_hand())]
    errors: list[BaseException] = []
    try:
        for machine in machines:
            with pytest.raises(BaseException) as caught:  # which is the question
                machine.result()
            errors.append(caught.value)
        assert time.time() - (folder / "last").stat().st_mtime < TOLD_S
    finally:
        for machine in machines:
            machine.end()
    return errors


def test_a_death_ends_both_and_names_machine_and_process(tmp_path: Path) -> None:
    there, here = ended(kill_me, tmp_path)
    assert isinstance(here, WorkerLost)
    assert isinstance(there, WorkerLost)
    assert here.number == there.number == 1
    assert there.cause == f"on node 1 ({socket.gethostname()}), {here.cause}"
    assert here.cause.endswith("was killed by signal SIGKILL")


@pytest.mark.thorough
def test_sigterm_on_one_stops_both(tmp_path: Path) -> None:
    for error in ended(sigterm, tmp_path):
        assert isinstance(error, SystemExit)  # as Lightning says it of one machine


# --- what does not begin ---------------------------------------------------------------------------------------------


def test_numbers_that_the_environment_does_not_tell_are_refused_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ConfigError, match=r"trainer.num_nodes: is 2, but the environment names no other node"):
        trainer(tmp_path, DDP(), num_nodes=2)
    for name, value in slurm(1)[0].items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"trainer.num_nodes: is 1, but Slurm started this run on 2"):
        trainer(tmp_path, DDP(), devices=2)
    with pytest.raises(ValueError, match=r"^deadline_s: 0 is not above 0"):
        DDP(deadline_s=0)


def test_a_name_that_means_this_machine_everywhere_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [(socket.AF_INET, 0, 0, "", ("127.0.1.1", 1))])
    for name, value in by_hand(address="node-a")[0].items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=r"MASTER_ADDR: is 'node-a', which is 127.0.1.1 on this machine"):
        fit(trainer(tmp_path, DDP(), num_nodes=2))
