"""Some 200 mistakes made on purpose, each of which some test must find: whether a lighter test still sees what it saw.

    python -m tests.mutants                       # all of them, two at a time; `make mutants`
    python -m tests.mutants --only search         # an area, or a part of a file's name; one or several
    python -m tests.mutants --tree ../elsewhere   # the tests and the code of another checkout

Each mutant changes one place in a copy of the tree and runs a few tests there. One that survives shows a test that
cannot fail. A selection that fails without a mutant, or a place that is not there any more, is a mistake too.
"""

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal, NamedTuple

from tests.mutants import ALL
from tests.mutants.made import Mutant

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = shutil.ignore_patterns(".git", ".venv", ".nox", ".*_cache", ".hypothesis", ".scalebook", "__pycache__")
COMMIT, THOROUGH = "not drill and not thorough", "thorough and not drill"
"""What `make test` runs, and what `make thorough` runs besides, for a mutant that the first does not see."""
NOTHING_RAN = 5
"""Pytest's exit code where a lane has none of the tests."""
NOTHING_LEARNT = 2
DEADLINE_S = 300.0
"""For the tests of one mutant; one that makes them hang is found."""
WITHOUT_S = 3600.0
"""For all their tests, where nothing was changed."""

Verdict = Literal["killed", "survived", "wrong"]


class Outcome(NamedTuple):
    """`wrong`: nothing was learnt, for the reason in `why`; of the others it is the last line of the tests. `later`:
    the tests of `make test` do not see the mutant."""

    verdict: Verdict
    why: str
    seconds: float
    later: bool = False


def tests_of(tree: Path, selection: Sequence[str], within_s: float, marks: str) -> tuple[int | None, str]:
    """Run the tests in a copied tree: pytest's exit code, None beyond the deadline, and its last line."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "no:cacheprovider",
            "--tb=no",
            "-m",
            marks,
            *selection,
        ],
        cwd=tree,
        env={**os.environ, "PYTHONPATH": str(tree), "OMP_NUM_THREADS": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    try:
        printed, _ = process.communicate(timeout=within_s)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
        return None, f"no end within {within_s:g} s"
    return process.returncode, (printed.strip().splitlines() or [""])[-1]


def copied(tree: Path, beside: str) -> Path:
    made = Path(beside) / "tree"
    shutil.copytree(tree, made, ignore=LEFT_OUT)
    return made


def tried(tree: Path, mutant: Mutant) -> Outcome:
    """What the tests say to this mutant."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="mutant-") as beside:
        copy = copied(tree, beside)
        path = copy / mutant.file
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        if (there := text.count(mutant.old)) != 1:
            return Outcome("wrong", f"its place is there {there} times", 0.0)
        path.write_text(text.replace(mutant.old, mutant.new), encoding="utf-8")
        code, last = tests_of(copy, mutant.tests, DEADLINE_S, COMMIT)
        if later := code in (0, NOTHING_RAN):
            code, last = _by_thorough(copy, mutant, text, code)
    verdict: Verdict = {0: "survived", 1: "killed", None: "killed"}.get(code, "wrong")  # type: ignore[assignment]
    return Outcome(verdict, last, time.monotonic() - began, later)


def _by_thorough(copy: Path, mutant: Mutant, text: str, before: int) -> tuple[int | None, str]:
    """What the tests of `make thorough` say, which pass on the `text` without the mistake."""
    path = copy / mutant.file
    mutated = path.read_text(encoding="utf-8")
    path.write_text(text, encoding="utf-8")
    code, last = tests_of(copy, mutant.tests, WITHOUT_S, THOROUGH)
    if code == NOTHING_RAN:
        return before, last
    if code != 0:
        return NOTHING_LEARNT, f"without the mistake: {last}"
    path.write_text(mutated, encoding="utf-8")
    return tests_of(copy, mutant.tests, DEADLINE_S, THOROUGH)


def without(tree: Path, mutants: Sequence[Mutant]) -> str:
    """The last line of the tests of `make test` where nothing was changed and one fails; "" where they pass."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as beside:
        every = sorted({one for mutant in mutants for one in mutant.tests})
        code, last = tests_of(copied(tree, beside), every, WITHOUT_S, COMMIT)
    return "" if code in (0, NOTHING_RAN) else last


def main() -> int:
    parser = argparse.ArgumentParser(description="Run the tests on code with mistakes made on purpose.")
    parser.add_argument("--only", nargs="+", default=[""], help="areas, or parts of files' names")
    parser.add_argument("--jobs", type=int, default=2, help="how many at a time (default: %(default)s)")
    parser.add_argument("--tree", type=Path, default=ROOT, help="the checkout to change (default: this one)")
    told = parser.parse_args()
    mutants = [one for one in ALL if any(only == one.area or only in one.file for only in told.only)]
    if failing := without(told.tree, mutants):
        print(f"the tests fail without a mutant: {failing}")
        return 1
    killed = 0
    with ThreadPoolExecutor(told.jobs) as pool:
        outcomes = pool.map(lambda one: tried(told.tree, one), mutants)
        for mutant, outcome in zip(mutants, outcomes, strict=True):
            killed += outcome.verdict == "killed"
            line = f"{outcome.verdict:8} {outcome.seconds:4.0f} s  {mutant.area:10} {mutant.file}: {mutant.breaks}"
            line += ", which `make test` does not see" if outcome.later and outcome.verdict == "killed" else ""
            print(line, flush=True)
            if outcome.verdict != "killed":
                print(f"{'':18}{mutant.old!r} -> {mutant.new!r}: {outcome.why}", flush=True)
    print(f"{killed} of {len(mutants)} killed")
    return 0 if killed == len(mutants) else 1


if __name__ == "__main__":
    sys.exit(main())
