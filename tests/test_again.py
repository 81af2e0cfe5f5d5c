"""A failed test is run once more by itself, and nothing that failed is passed over."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import again

ROOT = Path(__file__).parents[1]


def outcome(folder: Path, *words: str) -> Path:
    """Of pytest on the tests in the folder, as the Makefile calls it."""
    path = folder / "outcome" / "part.json"
    options = [
        "-q",
        "-p",
        "tests.again",
        "-p",
        "no:cacheprovider",
        "--outcome",
        str(path),
        "--rootdir",
        str(folder),
    ]
    command = [sys.executable, "-m", "pytest", *options, *words, str(folder)]
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    subprocess.run(command, cwd=ROOT, env=bare, check=False, capture_output=True, timeout=100)
    return path


@pytest.mark.parametrize("words", [[], ["-p", "tests.forks", "--forks", "2"]], ids=["one", "forks"])
def test_the_names_of_failed_tests_are_kept_also_those_whose_fixture_failed(words: list[str], tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text(
        "import pytest\n"
        "@pytest.fixture\ndef broken():\n    yield\n    raise OSError\n"
        "@pytest.mark.parametrize('x', ['[', 'b c'])\ndef test_it(x):\n    assert x == '['\n"
        "def test_after(broken):\n    assert False\n"
    )
    (tmp_path / "test_b.py").write_text("def test_fine():\n    pass\n")
    told = json.loads(outcome(tmp_path, *words).read_text())
    assert told["exit"] == 1
    assert sorted(told["failed"]) == ["test_a.py::test_after", "test_a.py::test_it[b c]"]


def left(tmp_path: Path, exit_code: int, *failed: str) -> str:
    path = tmp_path / f"{len(list(tmp_path.iterdir()))}.json"
    path.write_text(json.dumps({"exit": exit_code, "failed": failed}))
    return str(path)


def test_one_that_passes_alone_is_named_and_one_that_fails_again_fails(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    by_chance, broken = tmp_path / "test_by_chance.py", tmp_path / "test_broken.py"
    by_chance.write_text("def test_it():\n    pass\n")
    broken.write_text("def test_it():\n    assert False\n")
    chance, always = f"{by_chance}::test_it", f"{broken}::test_it"
    assert again.main([f"{left(tmp_path, 1, chance)}=1", f"{left(tmp_path, 0)}=1"]) == 0
    named = f"failed beside others, passed alone: 1. Seen here twice, it is a bug to mend.\n    {chance}\n"
    assert capfd.readouterr().out.endswith(named)
    assert again.main([f"{left(tmp_path, 0)}=2", f"{left(tmp_path, 1, always)}=2"]) == 1
    printed = capfd.readouterr().out
    assert "passed alone" not in printed
    assert printed.endswith(f"\nfailed:\n    {always}\n")


def test_nothing_is_said_where_nothing_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert again.main([f"{left(tmp_path, 0)}=5", f"{left(tmp_path, 0)}=2"]) == 0
    assert capsys.readouterr().out == ""


@pytest.mark.parametrize(
    ("exit_code", "failed", "said"),
    [
        (1, ["a", "b"], "2 tests failed, more than the 1"),
        (2, [], "pytest ended with exit code 2"),
        (2, ["a"], "pytest ended with exit code 2"),
        (1, [], "pytest ended with exit code 1"),
        (5, [], "pytest ended with exit code 5"),
    ],
)
def test_what_cannot_be_mended_so_fails(
    exit_code: int, failed: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert again.main([f"{left(tmp_path, 0)}=5", f"{left(tmp_path, exit_code, *failed)}=1"]) == 1
    assert said in capsys.readouterr().out


def test_a_part_that_never_ended_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert again.main([f"{tmp_path / 'none.json'}=5"]) == 1
    assert "did not come to its end" in capsys.readouterr().out
