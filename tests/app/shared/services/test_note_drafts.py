import os
from pathlib import Path

from scalebook.app.shared.services import note_drafts
from scalebook.app.shared.services.note_drafts import LeftNote, NoteDraft
from scalebook.training.notebook.parse import parse
from scalebook.training.workspace import Workspace

TEXT = "One.\n\n```yaml experiment=a\nconfig: {}\n```\n\nTwo.\n"


def test_a_draft_is_kept_by_notebook_and_note(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    mine = NoteDraft("first", 0, "One.\n\n", "One and a h")
    note_drafts.save(workspace, mine)
    note_drafts.save(workspace, NoteDraft("first", 3, "", "New"))
    note_drafts.save(workspace, NoteDraft("second", 0, "One.\n\n", "Another notebook's"))
    path = next(one for one in workspace.cache.iterdir() if "One and a h" in one.read_text(encoding="utf-8"))
    os.utime(path, (1000.0, 1000.0))
    assert note_drafts.load(workspace, NoteDraft("first", 7, "One.\n\n", "")) == LeftNote(mine, 1000.0)
    assert note_drafts.load(workspace, NoteDraft("first", 0, "Two.\n", "")) is None
    assert [one.draft.text for one in note_drafts.of_notebook(workspace, "first")] == ["One and a h", "New"]
    note_drafts.discard(workspace, mine)
    assert [one.draft.text for one in note_drafts.of_notebook(workspace, "first")] == ["New"]
    path.write_text("torn", encoding="utf-8")
    assert len(note_drafts.of_notebook(workspace, "first")) == 1


def test_a_draft_belongs_to_its_note_wherever_that_is_and_to_the_end_where_it_is_gone() -> None:
    notebook = parse(TEXT)
    drafts = {
        "same place": NoteDraft("n", 0, "One.\n\n", "a"),
        "moved": NoteDraft("n", 0, "Two.\n", "b"),
        "gone": NoteDraft("n", 0, "Three.\n", "c"),
        "new": NoteDraft("n", 1, "", "d"),
        "new at the end": NoteDraft("n", 9, "", "e"),
    }
    left = [LeftNote(one, 0.0) for one in drafts.values()]
    found = {index: [one.draft.text for one in note_drafts.belonging(left, notebook, index)] for index in range(4)}
    assert found == {0: ["a"], 1: ["d"], 2: ["b"], 3: ["c", "e"]}


def test_a_new_note_stays_between_its_cells_when_others_come_or_go() -> None:
    b = "```yaml experiment=b\nconfig: {}\n```\n\n"
    drafts = [NoteDraft("n", i, "", str(i), *note_drafts.around(parse(TEXT), i)) for i in range(4)]
    left = [LeftNote(draft, 0.0) for draft in drafts]

    def found(text: str) -> list[list[str]]:
        notebook = parse(text)
        places = range(len(notebook.cells) + 1)
        return [[note.draft.text for note in note_drafts.belonging(left, notebook, place)] for place in places]

    assert found(TEXT) == [["0"], ["1"], ["2"], ["3"]]
    assert found(b + TEXT) == [[], ["0"], ["1"], ["2"], ["3"]]
    assert found(TEXT.replace("Two.", f"{b}Two.")) == [["0"], ["1"], ["2"], [], ["3"]]
    assert found(TEXT.replace("One.", "Another.")) == [["0"], ["1"], ["2"], ["3"]]
    assert found("") == [["0", "1", "2", "3"]]
