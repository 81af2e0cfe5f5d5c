"""What the README names is there: files, pictures, benchmarks, make targets; and the tests that a document names."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[1]
TEXT = "\n".join((ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "CONTRIBUTING.md"))


@pytest.mark.parametrize("target", sorted(set(re.findall(r"\]\(([^)#:]+)\)", TEXT))))
def test_a_linked_file_exists(target: str) -> None:
    assert (ROOT / target).is_file()


@pytest.mark.parametrize("module", sorted(set(re.findall(r"python -m ([a-z_.]+)", TEXT))))
def test_a_module_to_run_exists(module: str) -> None:
    path = ROOT / module.replace(".", "/")
    assert path.with_suffix(".py").is_file() or (path / "__main__.py").is_file()


@pytest.mark.parametrize("target", sorted(set(re.findall(r"(?:`|    )make ([a-z0-9-]+)", TEXT))))
def test_a_make_target_exists(target: str) -> None:
    assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)


def test_the_tests_that_hold_the_browsers_promises_exist() -> None:
    text = (ROOT / "docs" / "browser.md").read_text(encoding="utf-8")
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", text)
    assert len(named) > 60
    sources = {file: (ROOT / "tests" / file).read_text(encoding="utf-8") for file, _ in named}
    assert [f"{file}::{test}" for file, test in named if test and f"def {test}(" not in sources[file]] == []
    assert set(map(str, range(1, 35))) <= set(re.findall(r"^\| (\d+) \|", text, re.MULTILINE))


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
