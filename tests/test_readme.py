"""What the README names is there: files, pictures, benchmarks, make targets; and the tests that a document names."""

import re
from pathlib import Path

import pytest

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
