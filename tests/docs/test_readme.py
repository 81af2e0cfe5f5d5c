"""What README and the documents name is there: files, pages, pictures, benchmarks, make targets, tests."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from scalebook.training.cli import ask, search
from scalebook.training.notebook import store
from tests.docs.blocks import DOCS, PLACEHOLDER

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "CONTRIBUTING", "CHANGELOG", "SECURITY", "tests/README")),
    *sorted(DOCS.rglob("*.md")),
]
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


@pytest.mark.parametrize(("page", "most"), [("README.md", 600), ("CONTRIBUTING.md", 900)])
def test_a_page_is_read_in_three_minutes(page: str, most: int) -> None:
    assert len(TEXTS[ROOT / page].split()) <= most


def test_the_documentation_stays_short() -> None:
    """Bars of tables and marks of lists are no words."""
    assert (
        sum(len(re.findall(r"\S*\w\S*", text)) for page, text in TEXTS.items() if page.is_relative_to(DOCS)) <= 38_000
    )


def test_the_code_of_the_readme_runs_as_pasted(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", TEXTS[ROOT / "README.md"], re.S)
    path = tmp_path / "pasted.py"
    path.write_text(code, encoding="utf-8")
    run = [sys.executable, str(path)]
    done = subprocess.run(run, cwd=tmp_path, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout.splitlines()[-1:]) == (0, ["128"]), done.stderr[-2000:]


def test_the_commands_of_the_readme_name_what_is_there(capsys: pytest.CaptureFixture[str]) -> None:
    """From the clone. Searches are checked, not run; the number of runs is that of the table."""
    rows = re.findall(r"`scalebook search run (\S+) --cell (\S+)` \| (\d+) \|", TEXTS[ROOT / "README.md"])
    assert len(rows) == 3
    for file, cell, runs in rows:
        assert search.main(["check", str(ROOT / file), "--cell", cell]) == 0
        assert f"start {runs} runs" in capsys.readouterr().out
    (words,) = re.findall(r"scalebook (ask .*)", TEXTS[ROOT / "README.md"])
    options = ask.parser().parse_args(words.split()[1:])
    assert store.read(ROOT / options.file).notebook.experiment(options.cell) is not None


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
    assert cited.keys() <= known | {"repository-code"}
    assert (cited["cff-version"], cited["type"]) == ("1.2.0", "software")
    assert (cited["version"], cited["license"]) == (project["version"], project["license"])
    assert all(set(author) == {"name"} and author["name"] for author in cited["authors"])
    assert all(isinstance(word, str) for word in cited["keywords"])
    assert (cited["authors"], cited["keywords"]) == (project["authors"], project["keywords"])
    assert cited.get("repository-code") == project.get("urls", {}).get("Repository")
    assert "repo_url" not in (ROOT / "mkdocs.yml").read_text(encoding="utf-8")  # docs/hooks.py sets it


PUBLISHED = ("README.md", "CITATION.cff", "SECURITY.md", "pyproject.toml", "mkdocs.yml", "docs/tutorial/first-run.md")


@pytest.mark.parametrize("name", PUBLISHED)
def test_no_placeholder_is_published(name: str) -> None:
    assert PLACEHOLDER.findall((ROOT / name).read_text(encoding="utf-8")) == []


def test_the_changelog_has_the_usual_headings() -> None:
    """The newest versions: what is new, what is different, and what works again."""
    unreleased, released, *_ = TEXTS[ROOT / "CHANGELOG.md"].split("\n## ")[1:]
    assert re.findall("^### (.*)$", unreleased, re.M) == ["Added", "Changed", "Fixed", "Removed"]
    assert {"Added", "Changed", "Fixed", "Removed"} == {*re.findall(r"^### (\w+)", released, re.M)}
