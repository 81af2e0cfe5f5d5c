"""A few mutants of a fixed seed; `make fuzz` tries 3,000."""

import subprocess
import sys

import pytest

from scalebook.training.base.workspace import Workspace
from scalebook.training.cli.main import main
from tests.fuzz import seeds
from tests.fuzz.targets import TARGETS, tried

A_TARGET = 6
PLAIN = {"page.md": seeds.NOTEBOOK, "fit.yaml": seeds.CONFIG, "search.yaml": seeds.SEARCH}


@pytest.mark.parametrize("target", TARGETS)
def test_no_mutant_makes_a_traceback_a_hang_or_a_change(target: str, workspace: Workspace) -> None:
    found = [tried(target, number, 1, workspace) for number in range(A_TARGET)]
    assert [one for one in found if one is not None] == []


def test_what_the_mutants_are_made_from_is_right(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, text in PLAIN.items():
        (workspace.root / name).write_text(text, encoding="utf-8")
    monkeypatch.chdir(workspace.root)
    assert main(["notebook", "check", "page.md"]) == 0
    assert main(["fit", "-c", "fit.yaml", "--print_config"]) == 0
    assert main(["search", "check", "-c", "search.yaml"]) == 0


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"model: \xff", "is not UTF-8 at byte 7"),
        ("model: x".encode("utf-16"), "is UTF-16"),
        (b"model: \x00", "unacceptable character"),
        (b"seed_everything: " + b"9" * 5000, "holds a whole number of 5,000 digits"),
    ],
    ids=["latin", "utf-16", "null", "digits"],
)
def test_as_a_command_it_is_one_line(content: bytes, said: str, workspace: Workspace) -> None:
    path = workspace.root / "fit.yaml"
    path.write_bytes(content)
    command = [sys.executable, "-m", "scalebook", "fit", "-c", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert said in line
