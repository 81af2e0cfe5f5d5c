import os
from pathlib import Path

import pytest

from scalebook.app.shared import notebooks
from scalebook.training.base.workspace import Workspace
from scalebook.training.notebook.parse import parse

BOMB = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{after}: &{after} [{','.join([f'*{before}'] * 9)}]\n"
    for before, after in zip("abcdefgh", "bcdefghi", strict=True)
)
BAD: dict[str, tuple[bytes, str]] = {
    "bomb": (f"---\n{BOMB}---\n# Bomb\n".encode(), "front matter, line 6: title: has more than 10,000 values"),
    "deep": (b"---\ntitle: " + b"[" * 5000 + b"\n---\n", "nested deeper than 32 levels"),
    "digits": (b"---\ntitle: " + b"9" * 4000 + b"\n---\n", "whole number of 4,000 digits"),
    "latin": ("# Größe\n".encode("latin-1"), "is not UTF-8 at byte 4"),
    "wide": ("# Title\n".encode("utf-16"), "is UTF-16. Save it as UTF-8."),
    "large": (b"x " * 2_500_000, "has more than 4,000,000 bytes"),
    "long": (b"- a\n" * 30_000, "has 30,000 lines, but at most 25,000"),
}


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    (tmp_path / "zz-good.md").write_text("---\ntitle: Good\n---\nText\n", encoding="utf-8")
    for name, (content, _) in BAD.items():
        (tmp_path / f"{name}.md").write_bytes(content)
    (tmp_path / "folder.md").mkdir()
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "link.md").symlink_to("nowhere.md")
    (tmp_path / "loop.md").symlink_to("loop.md")
    (tmp_path / os.fsdecode(b"\xff.md")).write_text("# Named in another encoding\n", encoding="utf-8")
    return Workspace(tmp_path)


def test_every_bad_notebook_says_why_and_the_good_one_is_picked(workspace: Workspace) -> None:
    found = {one.name: one for one in notebooks.choices(workspace)}
    assert len(found) == len(BAD) + 6
    for name, (_, why) in BAD.items():
        assert why in found[name].problem, found[name]
        assert found[name].label == f"⚠ {found[name].title}"
        assert "\n" not in found[name].problem
    assert "is a folder" in found["folder"].problem
    assert "is a pipe or a device" in found["pipe"].problem
    assert "No such file" in found["link"].problem
    assert "Too many levels of symbolic links" in found["loop"].problem
    assert "is not UTF-8. Rename it." in found["?"].problem
    good = notebooks.pick(workspace, None)
    assert good is not None
    assert (good.name, good.label, good.problem) == ("zz-good", "Good", "")


def test_what_can_be_shown_of_a_bad_notebook_is_shown(workspace: Workspace) -> None:
    for name in ("bomb", "deep", "digits"):
        choice = notebooks.pick(workspace, name)
        assert choice is not None
        stored, why = notebooks.load(choice)
        assert stored is not None
        assert "front matter" in why
    for name in ("latin", "large", "long", "pipe", "folder", "link", "loop"):
        choice = notebooks.pick(workspace, name)
        assert choice is not None
        stored, why = notebooks.load(choice)
        assert stored is None
        assert why


def test_a_notebook_that_may_be_read_again_is_read_again(workspace: Workspace) -> None:
    path = workspace.root / "latin.md"
    assert "is not UTF-8" in next(one for one in notebooks.choices(workspace) if one.name == "latin").problem
    path.write_text("# Mended\n", encoding="utf-8")
    assert next(one for one in notebooks.choices(workspace) if one.name == "latin").label == "Mended"


def test_a_notebook_that_does_not_begin_with_its_title_gets_it_above_the_cells() -> None:
    assert notebooks.heading(parse("---\ntitle: Mine\n---\n# Mine\n", "file")) == ""
    assert notebooks.heading(parse("---\ntitle: Mine\n---\n## Part\n", "file")) == "Mine"
    assert notebooks.heading(parse("", "file")) == "file"
