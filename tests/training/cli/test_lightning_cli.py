"""The commands as a person types them."""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scalebook import __version__
from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.main import COMMANDS, main
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.job_requests import all_jobs
from scalebook.training.tracking import names
from scalebook.training.zoo.data import Digits
from tests.training.runs import ASYNC, config, reader

pytestmark = pytest.mark.long


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "x.yaml"
    path.write_text(yaml.dump(config()), encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("words", "line"),
    [
        ("--model.hiden 3", "model.init_args.hiden: is not an argument. Did you mean `hidden`?"),
        ("--trainer.max_epoch 3", "trainer.max_epoch: is not an argument. Did you mean `max_epochs`?"),
        ("--trainer.strategy dpp", "trainer.strategy: unknown strategy 'dpp'. Did you mean `ddp`?"),
        ("--data Digit", "data: unknown data set 'Digit'. Did you mean `Digits`?"),
        ("-c missing.yaml", "missing.yaml: "),
        ("--trainer.callbacks Nope", "trainer.callbacks: "),
    ],
)
def test_a_mistake_is_one_line_and_code_2_before_anything_starts(
    words: str, line: str, file: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "-c", str(file), *words.split()]) == 2
    said = capsys.readouterr().err.strip()
    assert said.startswith(f"scalebook: error: {line}")
    assert len([one for one in said.splitlines() if one.startswith("scalebook:")]) == 1
    assert all_jobs(workspace) == []
    assert reader(workspace).runs() == []


@pytest.mark.skipif(bool(this_machine().gpus), reason="there is a GPU")
def test_a_gpu_that_is_not_there(file: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fit", "-c", str(file), "--trainer.accelerator", "gpu"]) == 2
    assert "trainer.accelerator: asks for a GPU, but this machine has none" in capsys.readouterr().err
    assert reader(workspace).runs() == []


def test_overrides_and_several_files_end_in_the_recorded_config(
    file: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    more = file.with_name("more.yaml")
    more.write_text("trainer: {max_epochs: 2}\nseed_everything: 4\n", encoding="utf-8")
    assert main(["fit", "-c", str(file), "-c", str(more), "--data.batch_size=32", "--optimizer.lr", "0.5"]) == 0
    (job,) = all_jobs(workspace)
    ran = yaml.load(job.config.read_text())
    assert (ran["seed_everything"], ran["trainer"]["max_epochs"], ran["data"]["init_args"]["batch_size"]) == (4, 2, 32)
    record = reader(workspace).run(job.id)
    assert record.metrics[names.UPDATES] == 8
    assert (record.tags[names.TAG_SEED], record.tags[names.TAG_LR_ASKED]) == ("4", "0.5")
    assert (record.notebook, record.status) == (None, "FINISHED")
    assert "scalebook: finished" in capsys.readouterr().out

    assert main(["fit", "-c", str(job.config)]) == 0  # the config that ran runs again, to the same loss
    again = reader(workspace).run(all_jobs(workspace)[0].id)
    assert again.metrics[names.TRAIN_LOSS] == record.metrics[names.TRAIN_LOSS]

    assert main(["validate", "--run", job.id[:8]]) == 0
    shown = capsys.readouterr().out
    assert f"{record.metrics[names.final(names.VAL_LOSS)]:.12f}"[:10] in shown

    monkeypatch.setattr(Digits, "test_dataloader", Digits.val_dataloader, raising=False)  # it has no part for testing
    assert main(["test", "--run", job.id[:8]]) == 0
    assert "test/loss" in capsys.readouterr().out, "printed, under its own name"
    assert len(all_jobs(workspace)) == 2, "and recorded by no run"
    assert reader(workspace).run(job.id).metrics == record.metrics


def test_print_config_shows_all_and_runs_nothing(
    file: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["fit", "-c", str(file), "--print_config"]) == 0
    shown = yaml.load(capsys.readouterr().out)
    assert shown["model"] == {
        "class_path": "scalebook.training.zoo.models.MLPClassifier",
        "init_args": {
            "hidden": 16,
            **{key: shown["model"]["init_args"][key] for key in ("layers", "activation", "dropout")},
        },
    }
    assert (shown["seed_everything"], shown["threads"]) == (1, 1)
    assert all_jobs(workspace) == []


@pytest.mark.parametrize("command", ["validate", "test", "predict"])
def test_evaluating_needs_a_checkpoint(
    command: str, file: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "-c", str(file)]) == 2
    assert capsys.readouterr().err.startswith("scalebook: error: ckpt_path: is missing. Add --run ID")


def test_a_setting_without_effect_warns(file: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    given: dict[str, Any] = config(ASYNC)
    given["trainer"]["devices"] = 1
    file.write_text(yaml.dump(given), encoding="utf-8")
    assert main(["fit", "-c", str(file), "--print_config"]) == 0
    assert capsys.readouterr().err.startswith("scalebook: warning: trainer.devices: has no effect")


def test_help_and_unknown_commands(workspace: Workspace, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(command in shown for command in COMMANDS)
    assert main([]) == 2
    assert main(["fit", "--help"]) == 0
    assert "MLPClassifier" in capsys.readouterr().out
    assert main(["fitt"]) == 2
    assert capsys.readouterr().err == "scalebook: error: fitt: is not a command. Did you mean `fit`?\n"


def test_the_release_is_told_and_everywhere_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    top = Path(__file__).parents[3]
    assert main(["--version"]) == 0
    said = capsys.readouterr().out.split()
    assert said == ["scalebook", __version__]
    assert f'version = "{__version__}"' in (top / "pyproject.toml").read_text(encoding="utf-8")
    assert f"version: {__version__}\n" in (top / "CITATION.cff").read_text(encoding="utf-8")


@pytest.mark.thorough
def test_as_a_process_with_two_workers(file: Path, workspace: Workspace) -> None:
    """What `scalebook` runs, in a shell without a terminal."""
    command = [sys.executable, "-m", "scalebook", "fit", "-c", str(file)]
    wrong = subprocess.run([*command, "--threads", "0"], capture_output=True, text=True, timeout=60, check=False)
    assert wrong.returncode == 2
    assert wrong.stderr.startswith("scalebook: error: threads: 0 is out of bounds. Use a whole number")
    assert len(wrong.stderr.splitlines()) == 1
    done = subprocess.run(
        [sys.executable, "-m", "scalebook", "fit", "-c", str(file), "--trainer.strategy=ddp", "--trainer.devices=2"],
        capture_output=True,
        text=True,
        timeout=110,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "\r" not in done.stdout  # no progress bar
    (job,) = all_jobs(workspace)
    assert reader(workspace).run(job.id).metrics[names.UPDATES] == 8


@pytest.mark.filterwarnings("ignore")  # the profiler warns of short runs
def test_the_pytorch_profiler_by_its_name(file: Path, workspace: Workspace) -> None:
    assert main(["fit", "-c", str(file), "--trainer.profiler", "pytorch"]) == 0


@pytest.mark.usefixtures("forked_descriptions")
def test_what_the_model_forbids_is_said_before_anything_starts(
    file: Path, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is made in a process of its own for that, once."""
    optimizer = '{"class_path": "torch.optim.SparseAdam", "init_args": {"lr": 0.1}}'
    assert main(["fit", "-c", str(file), "--optimizer", optimizer]) == 2
    assert "optimizer: is SparseAdam, " in capsys.readouterr().err
    assert all_jobs(workspace) == []
