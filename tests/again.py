"""What failed beside others runs once more by itself, in sight: `make test` does, after everything else.

    python -m pytest -p tests.again --outcome FILE ...   # a part of the tests leaves there how it ended
    python -m tests.again FILE=5 OTHER=2                 # parts, and how many of each may have failed

A test that passes by itself is named at the very end, and `make test` passes; it is a test that a busy machine fails
by chance, or one that another disturbs. One that fails again, more of them than that, or a part that left no outcome
or ended in any other way than with failed tests (broken off, nothing collected, an error of pytest's), is a failure.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

FAILED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
"""Ends after which the names of failed tests are all there is to say."""


class Outcome:
    """A plugin that writes how the tests ended."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed: dict[str, None] = {}
        path.unlink(missing_ok=True)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failed[report.nodeid] = None

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        told = {"exit": int(exitstatus), "failed": list(self.failed)}
        self.path.write_text(json.dumps(told), encoding="utf-8")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcome", type=Path, help="where to write the exit code and the names of failed tests")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("--outcome")
    if path is not None:
        config.pluginmanager.register(Outcome(path))


def to_run_again(path: Path, most: int) -> list[str] | None:
    """Names of the failed tests of one part; None where it ended in a way that running those again cannot mend."""
    try:
        told: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        print(f"{path}: this part of the tests did not come to its end.")
        return None
    failed: list[str] = told["failed"]
    if told["exit"] not in FAILED or bool(failed) != bool(told["exit"]):
        print(f"{path}: pytest ended with exit code {told['exit']}.")
        return None
    if len(failed) > most:
        print(f"{path}: {len(failed)} tests failed, more than the {most} that are run again.")
        return None
    return failed


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 if all passed, beside others or alone."""
    parts = [to_run_again(Path(path), int(most)) for path, _, most in (one.partition("=") for one in argv)]
    failed = [name for part in parts if part is not None for name in part]
    passed = [name for name in failed if _passes(name)] if None not in parts else []
    if passed:
        print(f"\nfailed beside others, passed alone: {len(passed)}. Seen here twice, it is a bug to mend.")
        print("\n".join(f"    {name}" for name in passed))
    still = [name for name in failed if name not in passed]
    if still:
        print("\nfailed:")
        print("\n".join(f"    {name}" for name in still))
    return 0 if None not in parts and not still else 1


def _passes(name: str) -> bool:
    print(f"\nonce more, by itself: {name}", flush=True)
    return subprocess.run([sys.executable, "-m", "pytest", "-q", name], check=False).returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
