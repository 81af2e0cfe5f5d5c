"""Two edits of one notebook, put together or left to a person."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scalebook.training.base.errors import ConfigError
from scalebook.training.notebook import edit
from scalebook.training.notebook.merge import _pieces, both_kept, merged
from scalebook.training.notebook.parse import parse
from tests.examples import examples
from tests.training.notebook.strategies import notebooks, rough_texts

PAGE = """---
title: T
---
# Question

Does it help?

```yaml experiment=one
config: {model: A}
```

What came of it.

```yaml experiment=two
config: {model: B}
```

The end.
"""


def together(mine: str, theirs: str, base: str = PAGE) -> str | None:
    """Whichever of the two comes first."""
    both = merged(parse(base), parse(mine), parse(theirs))
    other = merged(parse(base), parse(theirs), parse(mine))
    assert (both is None) == (other is None)
    return None if both is None else both.text


def swap(*pairs: tuple[str, str], text: str = PAGE) -> str:
    for old, new in pairs:
        assert old in text
        text = text.replace(old, new)
    return text


FIRST, LAST = ("Does it help?", "Does it hurt?"), ("The end.", "The very end.")
A, B = ("model: A", "model: AA"), ("model: B", "model: BB")


@pytest.mark.parametrize(("mine", "theirs"), [(FIRST, LAST), (FIRST, A), (A, B), (("title: T", "title: U"), A)])
def test_edits_of_different_cells_are_both_there(mine: tuple[str, str], theirs: tuple[str, str]) -> None:
    assert together(swap(mine), swap(theirs)) == swap(mine, theirs)


def test_edits_of_different_paragraphs_of_a_note_are_both_there() -> None:
    assert together(swap(("# Question", "# The question")), swap(FIRST)) == swap(
        FIRST, ("# Question", "# The question")
    )


@pytest.mark.parametrize("of", [FIRST, A, ("title: T", "title: U")])
def test_edits_of_the_same_are_left_to_a_person(of: tuple[str, str]) -> None:
    assert together(swap(of), swap((of[0], f"{of[1]} indeed"))) is None


def test_the_same_edit_is_made_once() -> None:
    assert together(swap(FIRST), swap(FIRST)) == swap(FIRST)
    assert together(swap(FIRST, A), swap(FIRST, B)) == swap(FIRST, A, B)


def test_two_notes_added_at_the_end_are_both_there() -> None:
    nb = parse(PAGE)
    mine, theirs = (edit.insert_note(nb, len(nb.cells), f"{text}\n").text for text in ("Mine.", "Theirs."))
    assert together(mine, theirs) is not None
    both = merged(nb, parse(mine), parse(theirs))
    assert both is not None
    assert both.text.rstrip().endswith("The end.\n\nTheirs.\n\nMine.")


def test_a_cell_added_behind_one_that_was_edited() -> None:
    added = f"{PAGE}\n```yaml comparison=both\nruns: [one, two]\n```\n"
    assert together(added, swap(LAST)) == swap(LAST, text=added)


def test_a_cell_that_one_moved_or_edited_and_the_other_deleted_is_left_to_a_person() -> None:
    nb = parse(PAGE)
    without, moved = edit.remove(nb, 1).text, edit.move(nb, 1, 3).text
    assert "model: A" not in without
    assert together(without, swap(A)) is None
    assert together(without, moved) is None
    assert together(moved, swap(A)) is None
    assert together(without, swap(B)) == swap(B, text=without)


def test_two_cells_of_one_name_are_left_to_a_person() -> None:
    nb = parse(PAGE)
    mine = edit.put_experiment(nb, "new", {"model": "X"}, position=0).text
    theirs = edit.put_experiment(nb, "new", {"model": "Y"}).text
    assert together(mine, theirs) is None


def test_a_fence_that_would_swallow_the_other_edit_is_left_to_a_person() -> None:
    opened = parse(swap(("The end.", "The end.\n\n```\ncode")))
    added = parse(f"{PAGE}\n```yaml comparison=both\nruns: [one, two]\n```\n")
    assert merged(parse(PAGE), added, opened) is None


@given(notebooks(), notebooks())
@examples(200)
def test_one_edit_alone_stays_byte_for_byte(base: str, edited: str) -> None:
    begun, now = parse(base), parse(edited)
    for found in (merged(begun, now, begun), merged(begun, begun, now)):
        assert found is None or found.text.split() == edited.split()


@given(rough_texts, rough_texts, rough_texts)
@examples(200)
def test_whatever_was_added_is_there(base: str, mine: str, theirs: str) -> None:
    try:
        begun, ours, others = parse(base), parse(mine), parse(theirs)
    except ConfigError:
        return
    found = merged(begun, ours, others)
    if found is not None:
        before, kept = (set(text.replace("\ufeff", " ").split()) for text in (base, found.text))  # a mark is no word
        added = set(f"{mine} {theirs}".replace("\ufeff", " ").split()) - before
        assert added <= kept


@given(notebooks(), st.data())
@examples(100)
def test_a_note_before_and_a_note_behind(text: str, data: st.DataObject) -> None:
    nb = parse(text)
    places = st.integers(0, len(nb.cells))
    try:
        mine = edit.insert_note(nb, data.draw(places), "Of mine.\n")
        theirs = edit.insert_note(nb, data.draw(places), "Of theirs.\n")
    except ConfigError:
        return
    found = merged(nb, mine, theirs)
    if found is None:  # of cells that are alike it may be told wrongly which of them are new
        texts = [piece.text for piece in _pieces(nb)]
        assert len(set(texts)) < len(texts)
        return
    assert found.text.count("Of mine.") == found.text.count("Of theirs.") == 1


def kept(mine: str, theirs: str, base: str = PAGE) -> str:
    both = both_kept(parse(base), parse(mine), parse(theirs))
    assert both is not None
    return both.text


def test_two_versions_of_a_paragraph_are_kept_below_each_other() -> None:
    both = kept(swap(FIRST), swap(("Does it help?", "Does it matter?")))
    assert both == swap(("Does it help?", "Does it matter?\n\n---\n\nDoes it hurt?"))


def test_two_versions_of_a_cell_are_kept_and_mine_gets_a_free_name() -> None:
    both = parse(kept(swap(A), swap(("model: A", "model: X"), ("experiment=two", "experiment=one-2"))))
    configs = {cell.name: cell.config["model"] for cell in both.experiments()}
    assert configs == {"one": "X", "one-3": "AA", "one-2": "B"}


def test_two_new_cells_of_one_name_are_both_kept() -> None:
    mine, theirs = (PAGE + f"\n```yaml experiment=new\nconfig: {{model: {model}}}\n```\n" for model in "MT")
    assert merged(parse(PAGE), parse(mine), parse(theirs)) is None
    configs = {cell.name: cell.config["model"] for cell in parse(kept(mine, theirs)).experiments()}
    assert configs == {"one": "A", "two": "B", "new": "T", "new-2": "M"}


def test_what_one_has_deleted_and_the_other_changed_is_kept_once() -> None:
    deleted = PAGE.replace("```yaml experiment=one\nconfig: {model: A}\n```\n\n", "")
    assert kept(deleted, swap(A)) == swap(A)
    assert parse(kept(swap(A), deleted)).experiment("one") is not None


def test_two_titles_cannot_both_be_kept() -> None:
    mine, theirs = swap(("title: T", "title: U")), swap(("title: T", "title: V"))
    assert both_kept(parse(PAGE), parse(mine), parse(theirs)) is None


@given(rough_texts, rough_texts, rough_texts)
@examples(200)
def test_all_that_either_has_added_is_kept(base: str, mine: str, theirs: str) -> None:
    try:
        found = both_kept(parse(base), parse(mine), parse(theirs))
    except ConfigError:
        return
    if found is not None:
        before, now = (set(text.replace("\ufeff", " ").split()) for text in (base, found.text))
        added = set(f"{mine} {theirs}".replace("\ufeff", " ").split()) - before
        assert {word for word in added if "=" not in word} <= now  # my cell may have another name
