import os
from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.app.compare.data import ComparisonDraft
from scalebook.app.search_setup.data import SavedSetup
from scalebook.app.shared import drafts
from scalebook.app.shared.drafts import Draft, LeftDraft, NoteDraft, SavedDraft
from scalebook.training.base.workspace import Workspace
from scalebook.training.notebook.cells import ComparisonCell
from scalebook.training.notebook.parse import parse
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
    assert drafts.load(workspace, kind, "first", mine.which) == LeftDraft(mine, 1000.0)
    assert [one.draft for one in drafts.of_notebook(workspace, kind, "first")] == [mine, other]
    drafts.move(workspace, kind, "first", "third")
    assert drafts.of_notebook(workspace, kind, "first") == []
    assert len(drafts.of_notebook(workspace, kind, "third")) == 2
    drafts.discard(workspace, kind, "third", mine.which)
    assert [one.draft for one in drafts.of_notebook(workspace, kind, "third")] == [replace(other, notebook="third")]
    drafts._path(workspace, kind, "third", other.which).write_text("torn", encoding="utf-8")
    assert drafts.of_notebook(workspace, kind, "third") == []


TEXT = "One.\n\n```yaml experiment=a\nconfig: {}\n```\n\nTwo.\n"


def test_a_draft_belongs_to_its_note_wherever_that_is_and_to_the_end_where_it_is_gone() -> None:
    notebook = parse(TEXT)
    begun = {
        "same place": NoteDraft("n", 0, "One.\n\n", "a"),
        "moved": NoteDraft("n", 0, "Two.\n", "b"),
        "gone": NoteDraft("n", 0, "Three.\n", "c"),
        "new": NoteDraft("n", 1, "", "d"),
        "new at the end": NoteDraft("n", 9, "", "e"),
    }
    left = [LeftDraft(one, 0.0) for one in begun.values()]
    found = {index: [one.draft.text for one in drafts.notes_at(left, notebook, index)] for index in range(4)}
    assert found == {0: ["a"], 1: ["d"], 2: ["b"], 3: ["c", "e"]}


def test_a_new_note_stays_between_its_cells_when_others_come_or_go() -> None:
    b = "```yaml experiment=b\nconfig: {}\n```\n\n"
    begun = [NoteDraft("n", i, "", str(i), *drafts.around_note(parse(TEXT), i)) for i in range(4)]
    left = [LeftDraft(draft, 0.0) for draft in begun]

    def found(text: str) -> list[list[str]]:
        notebook = parse(text)
        places = range(len(notebook.cells) + 1)
        return [[note.draft.text for note in drafts.notes_at(left, notebook, place)] for place in places]

    assert found(TEXT) == [["0"], ["1"], ["2"], ["3"]]
    assert found(b + TEXT) == [[], ["0"], ["1"], ["2"], ["3"]]
    assert found(TEXT.replace("Two.", f"{b}Two.")) == [["0"], ["1"], ["2"], [], ["3"]]
    assert found(TEXT.replace("One.", "Another.")) == [["0"], ["1"], ["2"], ["3"]]
    assert found("") == [["0", "1", "2", "3"]]
