"""`scalebook cluster` where no Ray is, and what it does not take. With Ray: tests/training/jobs/executors/cluster."""

import subprocess
import sys
from pathlib import Path

import pytest

from scalebook.training.__main__ import main
from scalebook.training.jobs.executors.cluster import ray_core
from scalebook.training.safe_path import environment

pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))


@pytest.mark.parametrize("words", [["start"], ["start", "--join", "a:6379"]])
def test_without_the_extra_it_says_what_to_install(
    words: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_core, "installed", lambda: False)
    assert main(["cluster", *words]) == 2
    assert capsys.readouterr().err == (
        "scalebook: error: scalebook cluster: needs Ray, which is not installed. "
        "Run pip install 'scalebook[cluster]', here and on each machine of the cluster.\n"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["start", "--cores", "0"], "--cores: is 0. Write how many"),
        (["start", "--join", "a"], "--join: is 'a', no address."),
        (["start", "--join", "a:6379", "--port", "6380"], "--port: is the head's, and --join names it."),
        (["start", "--token", "x"], "--token: goes with --join."),
        (["start", "--join", "a:6379"], "token: is not there: without it no machine joins."),
    ],
)
def test_mistakes_are_named(
    words: list[str], says: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(ray_core, "installed", lambda: True)
    assert main(["cluster", *words]) == 2
    assert says in capsys.readouterr().err


def test_where_nothing_runs_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert (main(["cluster", "status"]), main(["cluster", "stop"])) == (1, 1)
    assert capsys.readouterr().out.count("started here by `scalebook cluster start`") == 2


def test_nothing_imports_ray(tmp_path: Path) -> None:
    """Not the commands, not the supervisor, not the pages' services; without the extra there is none to import."""
    modules = (
        "scalebook.training.commands.cluster", "scalebook.training.supervisor.supervise",
        "scalebook.training.jobs.waiting", "scalebook.app.runs.services.devices", "scalebook.training.runner",
    )  # fmt: skip
    code = f"import sys, {', '.join(modules)}; print(sorted(n for n in sys.modules if n.split('.')[0] == 'ray'))"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=environment(), capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout == "[]\n"
