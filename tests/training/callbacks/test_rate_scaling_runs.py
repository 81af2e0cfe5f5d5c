"""`lr_scaling` and `noise_scale` from the config to the record: a scaled run is the run whose rate was written out."""

from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.main import main
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs.job_requests import all_jobs
from scalebook.training.lightning import AsyncPS
from scalebook.training.tracking import names
from tests.training.runs import ASYNC, config, reader, run

SYNC: dict[str, Any] = {"class_path": "AsyncPS", "init_args": {"workers": 2, "rule": "sync"}}


@pytest.mark.sampled
@pytest.mark.parametrize(("strategy", "per"), [("auto", 2), ("ddp", 4), (SYNC, 4)], ids=["single", "ddp", "sync"])
def test_a_scaled_run_is_the_run_with_that_rate(strategy: Any, per: int, workspace: Workspace) -> None:
    """Batches of 8, or of two workers' 16: four times 0.1, to the last bit."""
    _, _, written = run(workspace, config(strategy, lr=0.4))
    scaled = {**config(strategy, lr=0.1), "lr_scaling": {"rule": "linear", "per": per}}
    _, code, record = run(workspace, scaled)
    assert code == 0
    assert record.metrics[names.final(names.VAL_LOSS)] == written.metrics[names.final(names.VAL_LOSS)]
    assert (record.tags[names.TAG_LR_ASKED], record.tags[names.TAG_LR_SCALED]) == ("0.1", "0.4")
    assert names.TAG_LR_SCALED not in written.tags


@pytest.mark.thorough
def test_from_the_command_line(tmp_path: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "x.yaml"
    file.write_text(yaml.dump(config(ASYNC)), encoding="utf-8")
    words = ["--lr_scaling.rule", "sqrt", "--lr_scaling.per", "2", "--optimizer", "LARS", "--optimizer.lr", "2.0"]
    assert main(["fit", "-c", str(file), *words]) == 0
    (job,) = all_jobs(workspace)
    ran = yaml.load(job.config.read_text())
    assert ran["lr_scaling"] == {"rule": "sqrt", "per": 2, "warmup_epochs": 0.0}
    assert ran["optimizer"]["class_path"] == "scalebook.training.zoo.optimizers.LARS"
    assert reader(workspace).run(job.id).tags[names.TAG_LR_SCALED] == "4.0"
    assert main(["fit", "-c", str(file), "--lr_scaling.rul", "sqrt"]) == 2
    assert "lr_scaling.rul: " in capsys.readouterr().err


@pytest.mark.sampled
@pytest.mark.parametrize(
    ("rule", "written"),
    [
        (Async(), "async"),
        (Bounded(), "bounded"),
        (Sync(), "sync"),
        (Sync(1), {"class_path": "Sync", "init_args": {"backup_workers": 1}}),
        (Softsync(3), {"class_path": "Softsync", "init_args": {"average": 3}}),
    ],
    ids=["async", "bounded", "sync", "backup", "softsync"],
)
def test_what_is_said_before_the_start_is_what_is_done(rule: Rule, written: Any, description: Description) -> None:
    """The spec and the strategy agree on how many gradients are averaged."""
    strategy = AsyncPS(rule=rule, workers=4)
    rule.check(4)
    told = {"class_path": "AsyncPS", "init_args": {"workers": 4, "rule": written}}
    load = Experiment.read(config(told), description)
    assert strategy.gradients_averaged() == load.strategy.gradients
    assert load.batch.averaged == 8 * load.strategy.gradients


def test_the_noise_scale_is_measured_where_the_config_says_so(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here at every step, so that few are enough."""
    monkeypatch.setattr("scalebook.training.callbacks.noise_scale.COST", 1e9)
    given = {**config(max_epochs=2), "noise_scale": True, "lr_scaling": {"rule": "sqrt"}}
    _, code, record = run(workspace, given)
    assert code == 0
    assert record.metrics[names.NOISE_SCALE] > 0
    assert record.tags[names.TAG_NOISE].startswith("batch ")
