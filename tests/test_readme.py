"""What the README names is there: files, pictures, benchmarks, make targets."""

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
