"""Every kind of mistake has a code, by which programs and tests know it."""

import ast
import copy
import re
from collections.abc import Iterator
from pathlib import Path

from scalebook.training.base.errors import ConfigError, Problem

ROOT = Path(__file__).parents[3]


def codes() -> Iterator[tuple[str, str]]:
    """Each code in the sources, and where it is."""
    for path in [*(ROOT / "training").rglob("*.py"), *(ROOT / "app").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            name = getattr(getattr(node, "func", None), "id", "")
            if isinstance(node, ast.Call) and name in ("Problem", "ArgumentError", "ConfigError"):
                place = 3 if name == "ConfigError" else 0
                code = node.args[place] if len(node.args) > place else None
                if isinstance(code, ast.Constant):
                    yield str(code.value), f"{path.name}:{node.lineno}"


def test_a_code_is_a_short_word() -> None:
    listed = list(codes())
    assert len(listed) > 200
    assert [one for one in listed if not re.fullmatch(r"[a-z]+(-[a-z]+){0,2}", one[0])] == []
    assert len({code for code, _ in listed}) < 60, "a code is a kind of mistake, not a single one"


def test_a_problem_moves_with_its_code() -> None:
    problem = Problem("missing", "data", "is missing", "Name one.", "warning")
    assert problem.moved_to("config.data", "single: ") == Problem(
        "missing", "config.data", "single: is missing", "Name one.", "warning"
    )


def test_an_error_keeps_the_problem() -> None:
    problem = Problem("unknown-key", "modl", "is not a key of a config", "Did you mean `model`?")
    error = ConfigError.of(problem)
    assert error.problem == problem == copy.copy(error).problem
    assert str(error) == "modl: is not a key of a config. Did you mean `model`?"
    assert ConfigError("file", "cannot be read", "Restore it.").problem.code == "invalid"
