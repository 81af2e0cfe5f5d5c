"""Forked processes run each test once, say what became of it, and end what they share when nobody asks for it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.side_by_side import PROCESS

ROOT = Path(__file__).parents[1]
SHARED = f"""
import os, pathlib, pytest

@pytest.fixture(scope="module", autouse=True)
def note():
    with pathlib.Path("{{folder}}", f"of-{{{{os.environ['{PROCESS}']}}}}").open("a") as file:
        yield
        print("ended", __name__, file=file)
"""


def run(folder: Path, *words: str, **files: str) -> tuple[int, str]:
    """Exit code and output of pytest in two processes on files of these names."""
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(SHARED.format(folder=folder) + text)
    command = [sys.executable, "-m", "pytest", "-p", "tests.side_by_side", "--processes", "2", "-p", "no:cacheprovider"]
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    done = subprocess.run(
        [*command, "--rootdir", str(folder), *words, str(folder)],
        cwd=ROOT, env=bare, check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    return done.returncode, done.stdout


def test_each_test_runs_once_and_modules_end_in_their_process(tmp_path: Path) -> None:
    waits = "import time\ndef test_slow(tmp_path):\n    print('seen')\n    time.sleep(0.5)\n    assert 0\n"
    fine = "@pytest.mark.parametrize('x', range(3))\ndef test_it(x, tmp_path, capfd):\n    assert x < 3\n"
    skipped = "def test_it():\n    pytest.skip('why')\n"
    code, printed = run(tmp_path, "-q", "-ra", a=waits, b=fine, c=skipped, d=fine)
    assert code == 1
    assert "1 failed, 6 passed, 1 skipped" in printed
    assert "Captured stdout call" in printed
    assert printed.count("SKIPPED [1]") == 1
    assert printed.count("seen") == 2  # in the source and in what was printed
    ended = [path.read_text().splitlines() for path in sorted(tmp_path.glob("of-*"))]
    assert sorted(line for lines in ended for line in lines) == [f"ended test_{name}" for name in "abcd"]


def test_one_that_dies_has_failed_and_the_rest_of_its_file_runs(tmp_path: Path) -> None:
    dies = "def test_before():\n    pass\ndef test_it():\n    os._exit(0)\ndef test_after():\n    pass\n"
    code, printed = run(tmp_path, "-q", a=dies, b="def test_it():\n    pass\n")
    assert code == 1
    assert "the process of this test ended with exit code 0" in printed
    assert "test_a.py::test_it\n" in printed
    assert "1 failed, 3 passed" in printed


@pytest.mark.parametrize("broken", ["def test_it(:\n", "import nobody\n"], ids=["syntax", "import"])
def test_what_cannot_be_collected_fails(broken: str, tmp_path: Path) -> None:
    code, printed = run(tmp_path, "-q", a=broken, b="def test_it():\n    pass\n")
    assert code == 2
    assert "1 error" in printed


def test_after_so_many_failures_all_end(tmp_path: Path) -> None:
    many = "@pytest.mark.parametrize('x', range(20))\ndef test_it(x):\n    import time; time.sleep(0.05); assert 0\n"
    code, printed = run(tmp_path, "-q", "--maxfail", "2", a=many, b=many)
    assert code == 1
    assert "stopping after 2 failures" in printed
    assert len(list(tmp_path.glob("of-*"))) == 2
    assert [path.read_text().count("ended") for path in tmp_path.glob("of-*")] == [1, 1]
