import os
from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.workspace import Workspace
from scalebook.training.notebook import history, lifecycle, store
from scalebook.training.notebook.lifecycle import retitled
from scalebook.training.notebook.parse import parse
from scalebook.training.notebook.store import EditedMeanwhile, Stored


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    """A notebook with two states."""
    (tmp_path / "first.md").write_text("# One\n", encoding="utf-8")
    return store.save(store.read(tmp_path / "first.md"), parse("# Two\n"))


def test_a_file_takes_its_states_along(stored: Stored) -> None:
    moved = lifecycle.move_file(stored, "Größe 2")
    assert [path.name for path in moved.path.parent.glob("*.md")] == ["Größe 2.md"]
    before = history.previous_state(moved.path, b"# Two\n")
    assert before is not None
    assert before.content() == b"# One\n"
    assert history.past_states(stored.path) == []
    assert lifecycle.move_file(moved, "Größe 2") == moved


@pytest.mark.parametrize("stem", ["", ".hidden", "a/b", "../up", "a\nb", "x" * 201])
def test_what_cannot_be_a_name_is_refused(stored: Stored, stem: str) -> None:
    with pytest.raises(ConfigError, match="file name"):
        lifecycle.move_file(stored, stem)
    assert stored.path.exists()


def test_a_name_that_is_taken_or_that_a_deleted_one_had_is_refused(stored: Stored) -> None:
    beside = lifecycle.duplicate(stored)
    assert (beside.path.name, beside.notebook.title) == ("first-2.md", "Two (copy)")
    with pytest.raises(ConfigError, match="taken"):
        lifecycle.move_file(stored, "first-2")
    lifecycle.delete(beside)
    with pytest.raises(ConfigError, match="taken"):
        lifecycle.move_file(stored, "first-2")
    assert lifecycle.duplicate(stored).path.name == "first-3.md"
    lifecycle.delete(stored)
    assert store.create(Workspace(stored.path.parent), "First").path.name == "first-4.md"


def test_a_deleted_one_comes_back_as_it_was_with_its_states(stored: Stored) -> None:
    workspace = Workspace(stored.path.parent)
    other = lifecycle.duplicate(stored)
    lifecycle.delete(other)
    os.utime(history.folder(other.path), (1000.0, 1000.0))
    lifecycle.delete(stored)
    assert not stored.path.exists()
    gone = lifecycle.deleted(workspace)
    assert [notebook.title for notebook in gone] == ["Two", "Two (copy)"]
    assert lifecycle.bring_back(gone[0]) == stored
    assert history.previous_state(stored.path, b"# Two\n") is not None
    assert [notebook.path for notebook in lifecycle.deleted(workspace)] == [other.path]
    with pytest.raises(ConfigError, match="already exists"):
        lifecycle.bring_back(gone[0])


def test_what_somebody_has_edited_meanwhile_is_neither_moved_nor_deleted(stored: Stored) -> None:
    stored.path.write_text("# Theirs\n", encoding="utf-8")
    with pytest.raises(EditedMeanwhile):
        lifecycle.move_file(stored, "second")
    with pytest.raises(EditedMeanwhile):
        lifecycle.delete(stored)
    assert stored.path.read_text(encoding="utf-8") == "# Theirs\n"


CELL = "```yaml experiment=a\nconfig: {}\n```\n"


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("---\ntitle: Old # why\nlang: en\n---\n# Old\n", '---\ntitle: "It: new" # why\nlang: en\n---\n# Old\n'),
        ("---\nlang: en\n---\n\nText.\n", '---\nlang: en\ntitle: "It: new"\n---\n\nText.\n'),
        ("Text.\r\n", '---\r\ntitle: "It: new"\r\n---\r\nText.\r\n'),
        ("\ufeffText.\n", '\ufeff---\ntitle: "It: new"\n---\nText.\n'),
        (f"{CELL}\nText.\n\n# Old\n\nMore.\n", f"{CELL}\nText.\n\n# It: new\n\nMore.\n"),
        ("Old\n===\n", '---\ntitle: "It: new"\n---\nOld\n===\n'),
        ("", '---\ntitle: "It: new"\n---\n'),
        ("---\n# a comment\n---\nText.\n", '---\ntitle: "It: new"\n# a comment\n---\nText.\n'),
    ],
)
def test_the_title_changes_where_it_stands_and_nothing_else(before: str, after: str) -> None:
    changed = retitled(parse(before, "file"), "It: new")
    assert (changed.text, changed.title) == (after, "It: new")


def test_the_same_title_changes_nothing() -> None:
    nb = parse("# Old\n")
    assert retitled(nb, "Old") is nb


def test_front_matter_that_cannot_be_read_is_left_alone() -> None:
    with pytest.raises(ConfigError, match="front matter"):
        retitled(parse("---\ntitle: [\n---\nText.\n"), "New")
