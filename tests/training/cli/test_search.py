"""`scalebook search`: what is said, and with which exit code."""

import sys
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.cli import search
from scalebook.training.search.search_folder import all_searches
from tests.training.searching import BASE, SPACE, Range

pytestmark = pytest.mark.long

BODY: dict[str, Any] = {"space": SPACE, "objective": "val/loss", "trials": 3, "sampler": "random"}


@pytest.fixture
def here(searches: Range, monkeypatch: pytest.MonkeyPatch) -> Path:
    root = searches.bench.workspace.root
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(root))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: False)
    return root


def notebook(root: Path, **body: Any) -> Path:
    path = root / "a-notebook.md"
    base = yaml.dump({"config": BASE})
    search = yaml.dump({"experiment": "base", **BODY, **body})
    path.write_text(f"# Title\n\n```yaml experiment=base\n{base}```\n\n```yaml search=first\n{search}```\n", "utf-8")
    return path


def test_a_cell_from_check_to_show(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(notebook(here))
    assert search.main(["check", file]) == 0
    assert capsys.readouterr().out == "first: OK. The search would start 3 runs, 2 at a time.\n"
    assert search.main(["run", file, "--trials", "2"]) == 0
    told = capsys.readouterr().out
    assert "2 trials over batch_size x learning_rate" in told
    assert "first: 2 finished" in told
    assert "the best of 2:" in told
    assert told.endswith("first finished: 2 trials\n")
    assert search.main(["list"]) == 0
    assert "finished  2/2" in capsys.readouterr().out
    assert search.main(["show", "first"]) == 0
    assert "the best of 2:" in capsys.readouterr().out
    assert search.main(["resume", "first", "--trials", "3"]) == 0
    assert "first: 3 finished" in capsys.readouterr().out


def test_a_file_with_its_failures(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = here / "rates.yaml"
    space = {"learning_rate": {"grid": [0.1, 10.0]}}
    path.write_text(yaml.dump({**BODY, "config": BASE, "space": space, "sampler": "grid"}), encoding="utf-8")
    assert search.main(["run", "-c", str(path)]) == 0
    told = capsys.readouterr().out
    assert "rates: 1 finished, 1 infeasible" in told
    assert "1 diverged, e.g. trial" in told
    assert "rates finished: 2 trials (all points), 1 of them failed; the last cause: train/loss became nan" in told
    assert search.main(["list"]) == 0
    assert "finished, 1 of 2 failed  2/2" in capsys.readouterr().out


@pytest.mark.thorough
def test_a_search_of_which_nothing_finished_has_failed(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = here / "rates.yaml"
    space = {"learning_rate": {"grid": [10.0, 20.0]}}
    path.write_text(yaml.dump({**BODY, "config": BASE, "space": space, "sampler": "grid"}), encoding="utf-8")
    assert search.main(["run", "-c", str(path)]) == 1
    told = capsys.readouterr().out
    assert "rates failed: none of 2 trials finished; the last cause: train/loss became nan after 3 updates." in told


@pytest.mark.thorough
def test_an_objective_that_nothing_logs_ends_it_after_the_first_trial(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = here / "rates.yaml"
    path.write_text(yaml.dump({**BODY, "config": BASE, "objective": "val/los", "trials": 50}), encoding="utf-8")
    assert search.main(["run", "-c", str(path)]) == 1
    told = capsys.readouterr().out
    assert "rates failed: its runs have not logged val/los; while validating they logged val/loss" in told
    (folder,) = all_searches(Workspace(here))
    assert 1 <= (folder.progress() or pytest.fail("no progress")).done <= 4


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "needs a search"),
        (["a-notebook.md", "--cell", "frist"], "is not a search of this notebook. Did you mean `first`?"),
        (["a-notebook.md", "-c", "x.yaml"], "needs a search"),
        (["a-notebook.md", "--trials", "0"], "trials"),
    ],
)
def test_mistakes_are_said_before_anything_starts(
    here: Path, words: list[str], problem: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    notebook(here)
    monkeypatch.chdir(here)
    with pytest.raises(ConfigError) as error:
        search.main(["run", *words])
    assert problem in str(error.value)
    assert list((here / ".scalebook" / "studies").iterdir()) == []
