"""The folder of a question: what it keeps, and for whom."""

import os
from pathlib import Path

import pytest

from scalebook.training.asking.ask_folder import STARTING, AskFailure, AskFolder, AskProgress
from scalebook.training.base import processes
from scalebook.training.base.errors import ConfigError, Problem
from scalebook.training.base.workspace import Workspace


@pytest.fixture
def folder(tmp_path: Path) -> AskFolder:
    return AskFolder.of(Workspace(tmp_path), "lab.md", "more")


def test_progress_is_read_as_it_was_written(folder: AskFolder) -> None:
    folder.path.mkdir(parents=True)
    progress = AskProgress(1.0, 2.5, "trying", 3.0, ["Not compared: async × 2."], "all of it")
    folder.write(progress)
    assert folder.progress() == progress


def test_a_process_that_starts_begins_with_the_time_that_was_spent(
    folder: AskFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And shows no failure of the one before."""

    class Started:
        pid = os.getpid()

    monkeypatch.setattr(processes, "start_detached", lambda *_: Started())
    folder.path.mkdir(parents=True)
    folder.write(AskProgress(1.0, 60.0, "the words before", 5.0, ["left out"], "plan"))
    folder.fail(Problem("missing", "metric", "is missing", "Write one."))
    assert folder.failure() == AskFailure("metric", "is missing", "Write one.")
    folder.start(Path("lab.md"))
    progress = folder.progress()
    assert progress is not None
    assert (progress.spent_s, progress.words, progress.left_s, progress.plan) == (60.0, STARTING, None, "plan")
    assert folder.failure() is None


def test_one_process_works_on_it_at_a_time(folder: AskFolder) -> None:
    with folder.alone():
        assert folder.works()
        with pytest.raises(ConfigError, match="is being answered by another process"), folder.alone():
            pass
    assert not folder.works()


def test_it_follows_its_notebook(folder: AskFolder) -> None:
    folder.move("second.md")  # there is nothing yet
    folder.path.mkdir(parents=True)
    folder.write(AskProgress(1.0, 60.0, ""))
    folder.move("second.md")
    moved = AskFolder.of(folder.workspace, "second.md", "more")
    assert moved.progress() == AskProgress(1.0, 60.0, "")
    moved.forget()
    assert not moved.path.exists()
