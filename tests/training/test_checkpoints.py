"""A checkpoint that would run code, read in every way there is: nothing of it runs."""

import functools
import http.server
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.lightning_cli import TrainingCLI
from scalebook.training.cli.main import main
from scalebook.training.cli.runner import run_job
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs.job_requests import submit
from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.ddp.ddp import DDP
from tests.training.runs import ASYNC, config

pytestmark = pytest.mark.long


class Bomb:
    """Unpickled it makes a folder."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.file),)


@pytest.fixture
def crafted(tmp_path: Path) -> Path:
    """A checkpoint whose hyper-parameters make a folder `it ran` beside it."""
    path = tmp_path / "crafted" / "last.ckpt"
    path.parent.mkdir()
    torch.save({"state_dict": {}, "hyper_parameters": {"x": Bomb(path.parent / "it ran")}}, path)
    return path


@pytest.fixture
def address(crafted: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The same, from a server here."""
    monkeypatch.setenv("TORCH_HOME", str(crafted.parent / "hub"))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(crafted.parent))
    monkeypatch.setattr(http.server.SimpleHTTPRequestHandler, "log_message", lambda *_: None)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/last.ckpt"
        server.shutdown()


def ran(crafted: Path) -> bool:
    return (crafted.parent / "it ran").exists()


def test_it_would_run(crafted: Path) -> None:
    torch.load(crafted, weights_only=False)
    assert ran(crafted)


@pytest.mark.each_value
@pytest.mark.parametrize("command", ["fit", "validate", "test", "predict"])
@pytest.mark.parametrize("place", ["file", "address"])
def test_no_command_runs_it(
    command: str, place: str, crafted: Path, address: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even past the validation, and where torch is told to be careless."""
    monkeypatch.setenv("TORCH_FORCE_NO_WEIGHTS_ONLY_LOAD", "1")
    given = {**config(), "ckpt_path": address if place == "address" else str(crafted)}
    given["trainer"]["default_root_dir"] = str(workspace.root)
    with pytest.raises(
        ConfigError,
        match=r"ckpt_path: .*last\.ckpt contains more than tensors.*refers to posix.mkdir, which is "
        r"code.*save_hyperparam",
    ):
        TrainingCLI(command, given, None)
    assert not ran(crafted)


def test_the_commands_refuse_addresses(
    address: str, crafted: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    file = workspace.root / "x.yaml"
    file.write_text(yaml.dump(config()), encoding="utf-8")
    for command in ("fit", "validate", "test", "predict"):
        assert main([command, "-c", str(file), "--ckpt_path", address]) == 2
        assert capsys.readouterr().err.startswith(f"scalebook: error: ckpt_path: is the web address '{address}', but")
    assert not ran(crafted)


@pytest.mark.sampled
@pytest.mark.parametrize("strategy", ["ddp", ASYNC], ids=["ddp", "async"])
def test_a_job_ends_with_the_remedy(
    strategy: Any, crafted: Path, workspace: Workspace, description: Description, one_thread: None
) -> None:
    (job,) = submit(
        workspace, Experiment.read({**config(strategy), "ckpt_path": str(crafted)}, description), seeds=[1], inline=True
    )
    assert run_job(job.path) == 2
    result = job.result()
    assert result is not None
    assert result.failure == "configuration"
    assert result.cause.startswith(f"ckpt_path: {crafted} contains more than tensors")
    assert not ran(crafted)


class Small(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(1, 1)

    def training_step(self, batch: list[torch.Tensor], _: int) -> torch.Tensor:
        return torch.sum(self.layer(batch[0]))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


@pytest.mark.parametrize("strategy", [AsyncPS, DDP])
def test_a_script_with_our_strategies_must_ask_for_it_by_name(
    strategy: Any, crafted: Path, address: str, one_thread: None
) -> None:
    """Lightning itself runs what comes from an address unless it is told not to."""
    made = Trainer(
        strategy=strategy(workers=1) if strategy is AsyncPS else strategy(), accelerator="cpu", devices=1, max_epochs=1,
        logger=False, enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        default_root_dir=crafted.parent,
    )  # fmt: skip
    with pytest.raises(Exception, match="Weights only load failed"):
        made.fit(
            Small(), torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(2, 1))), ckpt_path=address
        )
    assert not ran(crafted)


def test_what_lightnings_tuner_keeps_for_a_moment_is_still_read(workspace: Workspace) -> None:
    """Its temporary checkpoint is written in the same way."""
    given = config()
    given["trainer"] |= {
        "default_root_dir": str(workspace.root),
        "callbacks": [{"class_path": "lightning.pytorch.callbacks.BatchSizeFinder", "init_args": {"max_trials": 2}}],
    }
    assert TrainingCLI("fit", given, None).trainer.global_step > 0
