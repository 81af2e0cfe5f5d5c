"""`scalebook cluster` where no Ray is, and what it does not take. With Ray: tests/training/cluster."""

import importlib
import multiprocessing
import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from multiprocessing.connection import Connection
from pathlib import Path
from types import ModuleType

import pytest

from scalebook.training.cli.main import main
from scalebook.training.cluster import ray_core


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
        "Run pip install 'scalebook[cluster]', here and on each node of the cluster.\n"
    )


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["start", "--cores", "0"], "--cores: is 0. Set it to"),
        (["start", "--join", "a"], "--join: is 'a', which is not an address."),
        (
            ["start", "--join", "a:6379", "--port", "6380"],
            "--port: has no effect with --join, because the address after --join includes the head's port.",
        ),
        (["start", "--token", "x"], "--token: is only for --join."),
        (["start", "--join", "a:6379"], "token: is missing, and no node can join without it."),
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
    assert capsys.readouterr().out.count("`scalebook cluster start` has started no Ray processes here") == 2


MODULES = (
    "scalebook.training.cli.cluster", "scalebook.training.supervisor.supervisor_loop",
    "scalebook.training.jobs.waiting_jobs", "scalebook.app.runs.data", "scalebook.training.cli.runner",
)  # fmt: skip


def test_nothing_imports_ray() -> None:
    """Not the commands, not the supervisor, not the pages' services; without the extra there is none to import."""
    context = multiprocessing.get_context("fork")  # which has imported what a new process imports in 5 s
    receiving, sending = context.Pipe(duplex=False)
    process = context.Process(target=_import_anew, args=(sending,))
    process.start()
    assert receiving.poll(60)
    anew, asked = receiving.recv()
    process.join()
    assert set(MODULES) < set(anew)
    assert asked == []


def _import_anew(answer: Connection) -> None:
    """All that is ours, from nothing: which modules that were, and what was asked of a package `ray`."""
    asked: list[str] = []

    class Watch(MetaPathFinder):
        def find_spec(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None) -> None:
            if fullname.partition(".")[0] == "ray":
                asked.append(fullname)

    for name in [name for name in sys.modules if name.partition(".")[0] in ("scalebook", "ray")]:
        del sys.modules[name]
    sys.meta_path.insert(0, Watch())
    for name in MODULES:
        importlib.import_module(name)
    answer.send(([name for name in sys.modules if name.startswith("scalebook.")], asked))
