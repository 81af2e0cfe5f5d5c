"""What a config of a folder that is not trusted may do: name harmless classes, write within the workspace."""

import re
from typing import Any

import pytest

from scalebook.training.base import trust
from scalebook.training.base.errors import ConfigError
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.runner import run_job
from scalebook.training.experiments.catalogue import describe
from scalebook.training.jobs import job_requests
from tests.training.runs import config

LAMBDA = {"class_path": "lightning.pytorch.callbacks.LambdaCallback", "init_args": {}}


@pytest.mark.parametrize(
    ("trainer", "key"),
    [
        ({"callbacks": [LAMBDA]}, "trainer.callbacks.0.class_path"),
        ({"callbacks": ["LambdaCallback"]}, "trainer.callbacks.0"),
        ({"callbacks": {"class_path": "LambdaCallback"}}, "trainer.callbacks.class_path"),
        ({"callbacks": "a_module_of_mine.Callback"}, "trainer.callbacks"),
        ({"logger": {"class_path": "lightning.pytorch.loggers.MLFlowLogger"}}, "trainer.logger.class_path"),
        ({"profiler": {"class_path": "os.system"}}, "trainer.profiler.class_path"),
        ({"plugins": ["x.Y"]}, "trainer.plugins.0"),
    ],
)
def test_untrusted_configs_name_harmless_classes_alone(
    trainer: dict[str, Any], key: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = config(**trainer)
    with pytest.raises(ConfigError, match=r"which needs a folder that you trust.*--trust") as caught:
        job_requests.submit(workspace, given, seeds=[1], description=describe(workspace))
    assert caught.value.problem.key == key
    monkeypatch.setattr(job_requests, "require", lambda *_, **__: None)  # as if it had got past the validation
    (job,) = job_requests.submit(workspace, given, seeds=[1], description=describe(workspace), start=False)
    assert run_job(job.path) == 2
    result = job.result()
    assert result is not None
    assert "which needs a folder that you trust" in result.cause


def test_a_job_that_version_0_1_left_runs_is_resumed_and_run_again(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_requests, "ensure", lambda *_: None)
    (job,) = job_requests.submit(workspace, config(), seeds=[1], description=describe(workspace))
    text = job.config.read_text(encoding="utf-8")
    for name, package in (("MLPClassifier", "models"), ("Digits", "data")):
        full = re.search(rf"[\w.]*\b{name}\b", text)
        assert full is not None
        text = text.replace(full[0], f"scalebook.training.{package}.{name}")
    job.config.write_text(text, encoding="utf-8")
    trust.sign(job.path, job.id, trust.JOB)
    assert run_job(job.path) == 0, job.tail()
    for submitted in (
        job_requests.resume(workspace, job, describe(workspace)),
        job_requests.again(workspace, job, describe(workspace)),
    ):
        assert "scalebook.training.zoo.models.MLPClassifier" in submitted.config.read_text(encoding="utf-8")


HARMLESS: list[dict[str, Any]] = [
    {"callbacks": [{"class_path": "lightning.pytorch.callbacks.EarlyStopping", "init_args": {"monitor": "val/loss"}}]},
    {"callbacks": ["LearningRateMonitor"]},
    {"profiler": "simple", "logger": False},
    {"callbacks": [{"class_path": "ModelCheckpoint", "init_args": {"dirpath": "kept", "filename": "{epoch}"}}]},
]


@pytest.mark.parametrize("trainer", HARMLESS, ids=str)
def test_harmless_ones_need_no_trust(trainer: dict[str, Any], workspace: Workspace) -> None:
    job_requests.submit(workspace, config(**trainer), seeds=[1], description=describe(workspace), start=False)


def checkpoint(**told: str) -> dict[str, Any]:
    return {"callbacks": [{"class_path": "lightning.pytorch.callbacks.ModelCheckpoint", "init_args": told}]}


@pytest.mark.parametrize(
    ("trainer", "key"),
    [
        (checkpoint(dirpath="/tmp/elsewhere"), "trainer.callbacks.0.init_args.dirpath"),
        (checkpoint(dirpath="a/../../b"), "trainer.callbacks.0.init_args.dirpath"),
        (checkpoint(dirpath="~/x"), "trainer.callbacks.0.init_args.dirpath"),
        (checkpoint(dirpath="~nobody-of-this-name/x"), "trainer.callbacks.0.init_args.dirpath"),
        (checkpoint(dirpath="s3://bucket/x"), "trainer.callbacks.0.init_args.dirpath"),
        (checkpoint(dirpath="link/x"), "trainer.callbacks.0.init_args.dirpath"),
        (checkpoint(filename="../../x"), "trainer.callbacks.0.init_args.filename"),
        ({"default_root_dir": "/tmp"}, "trainer.default_root_dir"),
        ({"logger": {"class_path": "CSVLogger", "init_args": {"save_dir": ".."}}}, "trainer.logger.init_args.save_dir"),
        (
            {"logger": [{"class_path": "CSVLogger", "init_args": {"save_dir": ".", "name": "../x"}}]},
            "trainer.logger.0.init_args.name",
        ),
        (
            {"profiler": {"class_path": "SimpleProfiler", "init_args": {"dirpath": "/tmp"}}},
            "trainer.profiler.init_args.dirpath",
        ),
    ],
)
def test_runs_write_within_the_workspace(
    trainer: dict[str, Any], key: str, workspace: Workspace, tmp_path_factory: pytest.TempPathFactory
) -> None:
    (workspace.root / "link").symlink_to(tmp_path_factory.mktemp("outside"))
    with pytest.raises(ConfigError, match=r"outside the workspace .*--trust") as caught:
        job_requests.submit(workspace, config(**trainer), seeds=[1], description=describe(workspace), start=False)
    assert caught.value.problem.key == key
    trust.trust(workspace)
    job_requests.submit(workspace, config(**trainer), seeds=[1], description=describe(workspace), start=False)


def test_data_is_downloaded_in_a_trusted_folder_alone(workspace: Workspace) -> None:
    given = {**config(), "data": {"class_path": "Dataset", "init_args": {"hub": "ylecun/mnist"}}}
    with pytest.raises(ConfigError, match=r"downloads from the Hub only in a folder that you trust.*--trust") as caught:
        job_requests.submit(workspace, given, seeds=[1], description=describe(workspace))
    assert caught.value.problem.key == "data.init_args.hub"
