"""Pictures are taken on an idle machine only, have one width, and are all there."""

import re
import struct
from pathlib import Path

import pytest

from docs.generate import screenshots

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
TO_BE_TAKEN: set[str] = set()
"""Pictures of an earlier width, which need an idle machine to be taken again."""


def test_a_busy_machine_is_refused_with_what_to_do() -> None:
    screenshots.refuse_busy(screenshots.MOST_BUSY)
    with pytest.raises(SystemExit, match=r"other processes use 1\.4 cores.*End those processes.*--only forms"):
        screenshots.refuse_busy(1.4)


def test_only_what_no_other_process_can_change_is_taken_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    taken: list[str] = []
    monkeypatch.setattr(screenshots, "busy_cores", lambda: 2.0)
    monkeypatch.setattr(screenshots, "_of", lambda folder, notebook, take, out: taken.append(notebook))
    for name in screenshots.GROUPS:
        monkeypatch.setattr("sys.argv", ["screenshots", "--only", name])
        if name == "forms":
            screenshots.main()
        else:
            with pytest.raises(SystemExit):
                screenshots.main()
    assert taken == ["first-steps.md"]


def test_pictures_that_pages_name_are_there_with_the_width_that_is_taken() -> None:
    text = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *DOCS.rglob("*.md")])
    named = set(re.findall(r"screenshots/([\w-]+)\.png", text))
    there = {path.stem for path in (DOCS / "screenshots").glob("*.png")}
    assert named - there == set()
    widths = {name: width(DOCS / "screenshots" / f"{name}.png") for name in there - TO_BE_TAKEN}
    assert set(widths.values()) == {screenshots.WIDTH * screenshots.SCALE}, widths


def width(path: Path) -> int:
    return int(struct.unpack(">I", path.read_bytes()[16:20])[0])


def test_the_first_picture_is_a_search_map() -> None:
    for path in (ROOT / "README.md", DOCS / "index.md"):
        first = re.search(r"!\[[^]]*\]\(([^)]+)\)", path.read_text(encoding="utf-8"))
        assert first is not None
        assert first[1].endswith("figures/classifier-map.png")
