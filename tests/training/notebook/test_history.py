import stat
from pathlib import Path

import pytest

from scalebook.training.notebook import edit, history, store
from scalebook.training.notebook.store import Stored


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    path = tmp_path / "page.md"
    path.write_text("Zero.\n", encoding="utf-8")
    return store.read(path)


def changed(stored: Stored, *words: str) -> Stored:
    for word in words:
        stored = store.save(stored, edit.replace_note(stored.notebook, 0, f"{word}\n"))
    return stored


def texts(stored: Stored) -> list[str]:
    """All that are kept, the newest first."""
    return [one.content().decode() for one in history.past_states(stored.path)]


def undone(stored: Stored) -> Stored:
    back = history.previous_state(stored.path, stored.notebook.text.encode())
    assert back is not None
    return store.restore(stored, back)


def test_every_state_is_kept_with_the_one_before_the_first_edit(stored: Stored) -> None:
    assert history.past_states(stored.path) == []
    assert history.previous_state(stored.path, b"Zero.\n") is None
    stored = changed(stored, "One.", "Two.", "Two.")
    assert texts(stored) == ["Two.\n", "One.\n", "Zero.\n"]
    assert [one.number for one in history.past_states(stored.path)] == [3, 2, 1]


def test_one_undo_after_another_goes_back_step_by_step_and_loses_nothing(stored: Stored) -> None:
    stored = changed(stored, "One.", "Two.")
    stored = undone(stored)
    assert stored.path.read_text(encoding="utf-8") == "One.\n"
    stored = undone(stored)
    assert stored.path.read_text(encoding="utf-8") == "Zero.\n"
    assert history.previous_state(stored.path, b"Zero.\n") is None
    assert texts(stored) == ["Zero.\n", "Two.\n", "One.\n", "Zero.\n"]
    stored = changed(stored, "Three.")
    stored = undone(stored)
    assert stored.path.read_text(encoding="utf-8") == "Zero.\n"
    assert history.previous_state(stored.path, b"Zero.\n") is None


def test_what_another_editor_wrote_is_kept_too(stored: Stored) -> None:
    stored = changed(stored, "One.")
    stored.path.write_text("Theirs.\n", encoding="utf-8")
    theirs = store.read(stored.path)
    back = history.previous_state(theirs.path, b"Theirs.\n")
    assert back is not None
    assert back.content() == b"One.\n"
    stored = changed(theirs, "Two.")
    assert texts(stored) == ["Two.\n", "Theirs.\n", "One.\n", "Zero.\n"]


def test_the_oldest_go_and_numbers_go_on(stored: Stored) -> None:
    stored = changed(stored, *(f"{number}." for number in range(1, history.MOST_STATES + 5)))
    found = history.past_states(stored.path)
    assert len(found) == history.MOST_STATES
    assert [one.number for one in found] == [*range(history.MOST_STATES + 5, 5, -1)]
    for _ in range(history.MOST_STATES - 2):
        stored = undone(stored)
    assert stored.path.read_text(encoding="utf-8") == "6.\n"
    assert history.previous_state(stored.path, b"6.\n") is None


def test_nobody_else_may_look_and_nothing_half_written_stays(stored: Stored) -> None:
    stored = changed(stored, "One.")
    here = history.folder(stored.path)
    assert [stat.S_IMODE(one.stat().st_mode) for one in (here.parent.parent, here.parent, here)] == [0o700] * 3
    assert {stat.S_IMODE(one.stat().st_mode) for one in here.iterdir()} == {0o600}
    assert sorted(one.name for one in here.iterdir()) == ["000001.md", "000002.md"]
    (here / "notes.txt").write_text("no state", encoding="utf-8")
    assert texts(stored) == ["One.\n", "Zero.\n"]


def test_a_version_that_was_given_up_is_kept(stored: Stored) -> None:
    mine = edit.replace_note(stored.notebook, 0, "Mine.\n")
    store.give_up(stored, mine)
    assert stored.path.read_text(encoding="utf-8") == "Zero.\n"
    assert texts(stored) == ["Mine.\n", "Zero.\n"]


def test_a_copy_beside_it_takes_a_free_name(stored: Stored) -> None:
    (stored.path.parent / "page-2.md").write_text("Taken.\n", encoding="utf-8")
    path = store.save_beside(stored, edit.replace_note(stored.notebook, 0, "Mine.\n"))
    assert path.name == "page-3.md"
    assert path.read_text(encoding="utf-8") == "Mine.\n"
