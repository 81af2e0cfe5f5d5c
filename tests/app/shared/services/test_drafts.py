import os
from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.app.compare.services.comparison_drafts import ComparisonDraft
from scalebook.app.search.services.search_setup import SavedSetup
from scalebook.app.shared.services import drafts
from scalebook.app.shared.services.drafts import Draft, Left, SavedDraft
from scalebook.app.shared.services.note_drafts import NoteDraft
from scalebook.training.notebook.cells import ComparisonCell
from scalebook.training.workspace import Workspace
from tests.app.recorded import config

OF_EACH_KIND: list[tuple[Draft, Draft]] = [
    (SavedDraft("first", "", "mine", 3, config()), SavedDraft("first", "mlp", "", 1, {})),
    (NoteDraft("first", 0, "One.\n\n", "One and a h"), NoteDraft("first", 3, "", "New")),
    (SavedSetup("first", "", "mlp", "rates", 1, {"space": {}}), SavedSetup("first", "", "cnn", "", 2, {})),
    (
        ComparisonDraft("first", "", "", ComparisonCell("a", "", ["mlp"], "val/loss")),
        ComparisonDraft("first", "a", "", ComparisonCell("a", "", ["mlp"], "val/loss"), at=1),
    ),
]


@pytest.mark.parametrize(("mine", "other"), OF_EACH_KIND, ids=lambda one: f"{one.KIND} {one.which.strip()}")
def test_a_draft_is_kept_by_notebook_and_by_what_it_is_of(tmp_path: Path, mine: Draft, other: Draft) -> None:
    workspace, kind = Workspace(tmp_path), type(mine)
    assert drafts.load(workspace, kind, "first", mine.which) is None
    for draft in (mine, other, replace(mine, notebook="second")):
        drafts.save(workspace, draft)
    path = drafts._path(workspace, kind, "first", mine.which)
    os.utime(path, (1000.0, 1000.0))
    assert drafts.load(workspace, kind, "first", mine.which) == Left(mine, 1000.0)
    assert [one.draft for one in drafts.of_notebook(workspace, kind, "first")] == [mine, other]
    drafts.move(workspace, kind, "first", "third")
    assert drafts.of_notebook(workspace, kind, "first") == []
    assert len(drafts.of_notebook(workspace, kind, "third")) == 2
    drafts.discard(workspace, kind, "third", mine.which)
    assert [one.draft for one in drafts.of_notebook(workspace, kind, "third")] == [replace(other, notebook="third")]
    drafts._path(workspace, kind, "third", other.which).write_text("torn", encoding="utf-8")
    assert drafts.of_notebook(workspace, kind, "third") == []
