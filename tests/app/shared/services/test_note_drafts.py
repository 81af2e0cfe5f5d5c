from scalebook.app.shared.services import note_drafts
from scalebook.app.shared.services.drafts import Left
from scalebook.app.shared.services.note_drafts import NoteDraft
from scalebook.training.notebook.parse import parse

TEXT = "One.\n\n```yaml experiment=a\nconfig: {}\n```\n\nTwo.\n"


def test_a_draft_belongs_to_its_note_wherever_that_is_and_to_the_end_where_it_is_gone() -> None:
    notebook = parse(TEXT)
    drafts = {
        "same place": NoteDraft("n", 0, "One.\n\n", "a"),
        "moved": NoteDraft("n", 0, "Two.\n", "b"),
        "gone": NoteDraft("n", 0, "Three.\n", "c"),
        "new": NoteDraft("n", 1, "", "d"),
        "new at the end": NoteDraft("n", 9, "", "e"),
    }
    left = [Left(one, 0.0) for one in drafts.values()]
    found = {index: [one.draft.text for one in note_drafts.belonging(left, notebook, index)] for index in range(4)}
    assert found == {0: ["a"], 1: ["d"], 2: ["b"], 3: ["c", "e"]}


def test_a_new_note_stays_between_its_cells_when_others_come_or_go() -> None:
    b = "```yaml experiment=b\nconfig: {}\n```\n\n"
    drafts = [NoteDraft("n", i, "", str(i), *note_drafts.around(parse(TEXT), i)) for i in range(4)]
    left = [Left(draft, 0.0) for draft in drafts]

    def found(text: str) -> list[list[str]]:
        notebook = parse(text)
        places = range(len(notebook.cells) + 1)
        return [[note.draft.text for note in note_drafts.belonging(left, notebook, place)] for place in places]

    assert found(TEXT) == [["0"], ["1"], ["2"], ["3"]]
    assert found(b + TEXT) == [[], ["0"], ["1"], ["2"], ["3"]]
    assert found(TEXT.replace("Two.", f"{b}Two.")) == [["0"], ["1"], ["2"], [], ["3"]]
    assert found(TEXT.replace("One.", "Another.")) == [["0"], ["1"], ["2"], ["3"]]
    assert found("") == [["0", "1", "2", "3"]]
