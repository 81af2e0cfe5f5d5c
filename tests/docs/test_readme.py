"""What README and the documents name is there: files, pages, pictures, benchmarks, make targets, tests."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from tests.docs.blocks import DOCS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]
TEXTS = {page: page.read_text(encoding="utf-8") for page in PAGES}
TEXT = "\n".join(TEXTS.values())
NAV = yaml.load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"), Loader=yaml.BaseLoader)["nav"]
FENCE = re.compile(r"^ *(`{3,})[^\n]*\n.*?^ *\1[ \t]*$", re.M | re.S)
LINK = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)")
IN_REPOSITORY = re.compile(r"`((?:benchmarks|notebooks|tests|training|app|pages|docs)/[\w./-]+\.\w+)`")


def in_nav(part: object = NAV) -> set[str]:
    """The pages of the site; those that its hooks make are among them."""
    if isinstance(part, str):
        return {part}
    entries = part if isinstance(part, list) else list(part.values())  # type: ignore[attr-defined]
    return {page for entry in entries for page in in_nav(entry)}


@pytest.mark.parametrize("page", PAGES, ids=[page.relative_to(ROOT).as_posix() for page in PAGES])
def test_what_a_page_links_to_exists(page: Path) -> None:
    """A file, or a page of the site."""
    site = {(DOCS / name).resolve() for name in in_nav()}
    targets = {(page.parent / target).resolve() for target in LINK.findall(FENCE.sub("", TEXTS[page]))}
    assert [str(target) for target in targets if not target.is_file() and target not in site] == []


def test_files_that_are_named_exist() -> None:
    named = set(IN_REPOSITORY.findall(TEXT))
    assert sorted(found for found in named if not (ROOT / found).is_file()) == []


def test_every_page_is_in_the_site_once() -> None:
    written = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")}
    listed = re.findall(r"[- ](\w[\w/-]*\.md)", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    assert written <= set(listed)
    assert set(listed) == in_nav()
    assert len(listed) == len(set(listed))


def test_every_picture_is_shown() -> None:
    """What nobody shows is not kept."""
    pictures = {path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.png")}
    assert {picture for picture in pictures if picture not in TEXT} == set()


def test_the_readme_is_read_in_some_minutes() -> None:
    assert len(TEXTS[ROOT / "README.md"].splitlines()) <= 200


@pytest.mark.parametrize("module", sorted(set(re.findall(r"python -m ((?:benchmarks|tests)(?:\.\w+)*)", TEXT))))
def test_a_module_to_run_exists(module: str) -> None:
    path = ROOT / module.replace(".", "/")
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"(?:`|    )make ([a-z0-9-]+)", TEXT))))
def test_a_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_citation_is_valid_and_of_this_version() -> None:
    """By the schema of Citation File Format 1.2.0: what it must have, and of what it has the kinds."""
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert {"cff-version", "message", "title", "authors"} <= cited.keys()
    known = {"abstract", "cff-version", "message", "title", "authors", "version", "license", "type", "keywords"}
    assert cited.keys() <= known
    assert (cited["cff-version"], cited["type"]) == ("1.2.0", "software")
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    assert all(set(author) == {"name"} and author["name"] for author in cited["authors"])
    assert all(isinstance(word, str) for word in cited["keywords"])
