"""The runs of a notebook, listed once."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking.notebook_runs import NotebookRuns
from scalebook.training.tracking.run_reader import RunReader, RunRecord
from tests.app.recorded import record
from tests.shared_files import Prepared


def test_the_cells_of_a_notebook_are_answered_by_one_reading(
    tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace = prepared.into(Workspace(tmp_path))
    for cell, digit in (("a", "1"), ("b", "1"), ("a", "2")):
        record(workspace, cell=cell, config_hash=digit * 12)
    record(workspace, notebook="other.md")
    store = RunReader(workspace.tracking_uri())
    asked: list[str] = []

    def counted(name: str) -> Callable[..., list[RunRecord]]:
        read = getattr(store, name)

        def counting(*args: Any, **keys: Any) -> list[RunRecord]:
            asked.append(f"{name} {keys['notebook']}")
            answer: list[RunRecord] = read(*args, **keys)
            return answer

        return counting

    questions: list[dict[str, Any]] = [{"cell": cell} for cell in "abc"]
    questions += [{"config_hash": "1" * 12}, {"cell": "a", "limit": 1}]
    plain = [store.runs(notebook="first-steps.md", **question) for question in questions]
    for name in ("runs", "listed"):
        monkeypatch.setattr(store, name, counted(name))
    once = NotebookRuns(store, "first-steps.md")
    answers = [once.runs(notebook="first-steps.md", **question) for question in questions]
    assert [[run.id for run in runs] for runs in answers] == [[run.id for run in runs] for runs in plain]
    assert [len(records) for records in plain] == [2, 1, 0, 2, 1]
    assert asked == ["listed first-steps.md"]
    assert [record.notebook for record in once.runs(notebook="other.md")] == ["other.md"]
    assert asked == ["listed first-steps.md", "runs other.md"]
