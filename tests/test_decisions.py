"""The records of decisions and the lab book: their form, and that each finds the other."""

import re
from pathlib import Path

import pytest

DOCS = Path(__file__).resolve().parents[1] / "docs"
RECORDS = sorted((DOCS / "decisions").glob("[0-9]*.md"))
PAGES = sorted(path for path in (DOCS / "lab").glob("*.md") if path.name != "index.md")
HEADINGS = ["Context", "Decision", "Consequences", "What was tried"]
A_PAGE = 60
"""Lines, of 120 characters at most."""


def linked(path: Path) -> set[Path]:
    """The files that it links to."""
    targets = re.findall(r"\]\((?!https?:)([^)#\s]+)", path.read_text(encoding="utf-8"))
    return {(path.parent / target).resolve() for target in targets}


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_a_record_has_four_parts_and_is_a_page(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.startswith(f"# {path.name[:4]}. ")
    assert re.findall(r"^## (.+)$", text, re.MULTILINE) == HEADINGS
    parts = re.split(r"^## .+$", text, flags=re.MULTILINE)[1:]
    assert all(part.strip() for part in parts)
    lines = text.splitlines()
    assert len(lines) <= A_PAGE
    assert max(map(len, lines)) <= 120


def test_records_are_numbered_without_gaps() -> None:
    assert [int(path.name[:4]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


@pytest.mark.parametrize(("index", "listed"), [("decisions", RECORDS), ("lab", PAGES)])
def test_an_index_lists_all(index: str, listed: list[Path]) -> None:
    assert listed
    assert set(listed) <= linked(DOCS / index / "index.md")


@pytest.mark.parametrize("path", [*DOCS.glob("decisions/*.md"), *DOCS.glob("lab/*.md")], ids=lambda path: path.stem)
def test_what_is_linked_exists(path: Path) -> None:
    assert [target for target in linked(path) if not target.is_file()] == []


def test_a_record_and_the_pages_of_its_figures_link_to_each_other() -> None:
    for record in RECORDS:
        for page in linked(record) & set(PAGES):
            assert record in linked(page), f"{page.name} does not name {record.name}"
    for page in PAGES:
        assert linked(page) & set(RECORDS), f"no decision rests on {page.name}"
