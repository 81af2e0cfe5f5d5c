import os
import pickle
from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.workspace import Workspace
from scalebook.training.notebook import edit, store

PAGE = "\ufeff# Title\r\n\r\nNote without an end"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "page.md"
    path.write_bytes(PAGE.encode())
    return path


def test_saving_what_was_read_changes_no_byte(path: Path) -> None:
    stored = store.read(path)
    assert store.save(stored, stored.notebook).stamp == stored.stamp
    assert path.read_bytes() == PAGE.encode()
    assert os.listdir(path.parent) == ["page.md"]


def test_an_edit_made_meanwhile_is_never_overwritten(path: Path) -> None:
    stored = store.read(path)
    times = path.stat()
    path.write_bytes(PAGE.replace("Note", "Text").encode())  # as long as before, and with the same time
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    mine = edit.replace_note(stored.notebook, 0, "Mine.")
    with pytest.raises(store.EditedMeanwhile) as caught:
        store.save(stored, mine)
    assert "Text" in path.read_text(encoding="utf-8")
    assert "Text" in caught.value.on_disk.notebook.text
    assert caught.value.mine == mine
    assert pickle.loads(pickle.dumps(caught.value)).mine == mine  # noqa: S301 (our own bytes)
    saved = store.save(caught.value.on_disk, mine)
    assert path.read_text(encoding="utf-8") == "\ufeffMine."
    assert store.save(saved, stored.notebook).notebook.text == PAGE


def test_the_same_edit_made_twice_is_no_conflict(path: Path) -> None:
    stored = store.read(path)
    mine = edit.replace_note(stored.notebook, 0, "Mine.")
    store.save(stored, mine)
    assert store.save(stored, mine).notebook.text == mine.text


def test_mode_and_link_stay(path: Path) -> None:
    path.chmod(0o640)
    link = path.with_name("link.md")
    link.symlink_to(path)
    stored = store.read(link)
    store.save(stored, edit.replace_note(stored.notebook, 0, "Mine."))
    assert link.is_symlink()
    assert path.stat().st_mode & 0o777 == 0o640
    assert path.read_text(encoding="utf-8") == "\ufeffMine."


def test_a_file_that_is_gone_is_written_again(path: Path) -> None:
    stored = store.read(path)
    path.unlink()
    store.save(stored, stored.notebook)
    assert path.read_bytes() == PAGE.encode()


def test_what_is_no_notebook(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="does not exist"):
        store.read(tmp_path / "none.md")
    with pytest.raises(ConfigError, match="is a folder"):
        store.read(tmp_path)
    (tmp_path / "latin.md").write_bytes(b"gr\xfc\xdfe")
    with pytest.raises(ConfigError, match="not UTF-8 at byte 2"):
        store.read(tmp_path / "latin.md")


def test_a_new_notebook_is_called_like_its_title(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    first = store.create(workspace, "Staleness: does it hurt?")
    second = store.create(workspace, "Staleness: does it hurt?")
    assert [first.path.name, second.path.name] == ["staleness-does-it-hurt.md", "staleness-does-it-hurt-2.md"]
    assert first.notebook.title == "Staleness: does it hurt?"
    assert first.notebook.cells == ()
    assert first.path.read_bytes() == b'---\ntitle: "Staleness: does it hurt?"\n---\n'


def test_a_title_of_any_length_has_a_file(tmp_path: Path) -> None:
    for letter in ("x", "ß", "界"):
        found = store.create(Workspace(tmp_path), letter * 300)
        assert found.notebook.title == letter * 300
        assert len(found.path.name.encode()) <= 203
