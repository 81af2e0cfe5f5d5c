"""The picture of the rooms is that of the sources."""

import re
from pathlib import Path

import pytest

from docs.generate.rooms import draw, reduced, rooms

PICTURE = Path(__file__).parents[2] / "docs" / "figures" / "rooms.svg"


def described(picture: Path) -> list[tuple[str, str]]:
    (text,) = re.findall(r"<dc:description>(.*?)</dc:description>", picture.read_text(encoding="utf-8"), re.S)
    return [(one.split(" imports ")[0], one.split(" imports ")[1]) for one in text.split("; ")]


def test_an_arrow_that_follows_from_others_is_left_out() -> None:
    assert reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == [("a", "b"), ("b", "c")]


def test_the_picture_in_the_documentation_is_of_the_imports_of_today() -> None:
    """Else: python -m docs.generate.rooms docs/figures/rooms.svg"""
    assert described(PICTURE) == reduced(rooms()[1])


@pytest.mark.thorough
def test_a_picture_has_every_room(tmp_path: Path) -> None:
    draw(tmp_path / "rooms.svg")
    lines, known = rooms()
    assert described(tmp_path / "rooms.svg") == reduced(known)
    assert {"engine", "lightning", "jobs", "app", "pages"} <= lines.keys()
