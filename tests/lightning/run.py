"""Runs Lightning's tests of its Trainer with AsyncPS: python -m tests.lightning.run CHECKOUT --way one|two."""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.lightning.results import MORE, RESULTS, path_of, read
from tests.lightning.table import table

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = (
    "trainer", "loops", "callbacks", "core", "checkpointing", "models", "loggers", "tuner", "utilities", "profilers",
    "overrides", "deprecated_api", "plugins", "strategies/test_common.py", "strategies/test_single_device.py",
    "strategies/test_custom_strategy.py",
)  # fmt: skip

ENDED: Final = (0, 1, 5)  # of pytest: all passed, some failed, there were none


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="Lightning's repository; its tests are in tests/tests_pytorch")
    parser.add_argument("--way", choices=["one", "two", "plain", "fork"], default="one")
    parser.add_argument("--only", type=Path, help="a file with a test's id a line")
    parser.add_argument("--folders", nargs="+", default=FOLDERS, help="of tests/tests_pytorch")
    parser.add_argument("--minutes", type=float, default=1e6, help=f"then it ends with status {MORE}, to go on later")
    parser.add_argument("--timeout", type=int, default=40, help="seconds for one test")
    parser.add_argument("--results", type=Path, default=RESULTS)
    given = parser.parse_args(arguments)
    tests = given.checkout.resolve() / "tests" / "tests_pytorch"
    if not (tests / "conftest.py").exists():
        parser.error(f"{tests}: no conftest.py. Give the path of a checkout of Lightning's repository.")
    given.results.mkdir(parents=True, exist_ok=True)
    results = path_of(given.way, given.results)
    until = time.monotonic() + 60 * given.minutes
    left = [path for folder in given.folders for path in _files(tests / folder)]
    while left:
        if time.monotonic() > until:
            return MORE
        before = len(read(results))
        status = _run(tests, left[:25], given, results, until - time.monotonic())
        if status in ENDED or len(read(results)) == before:
            left = left[25:]
    print(table(given.results))
    return 0


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("test_*.py"))


def _run(tests: Path, files: list[Path], given: argparse.Namespace, results: Path, budget_s: float) -> int | None:
    """One pytest over some files, its exit status; it goes on after the tests that have a result."""
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "tests.lightning.plugin", "-p", "no:cacheprovider",
        "-c", str(tests.parents[1] / "pyproject.toml"), f"--rootdir={tests}", f"--timeout={given.timeout}",
        "--timeout-method=signal", "--continue-on-collection-errors",
        "--no-header", "--tb=no", "-o", "addopts=--strict-markers",
        *[str(path.relative_to(tests)) for path in files],
    ]  # fmt: skip
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}:{tests.parent}",
        "WAY": given.way,
        "RESULTS": str(results),
        "BUDGET_S": str(budget_s),
        "OMP_NUM_THREADS": "1",
    }
    if given.only is not None:
        environment["ONLY"] = str(given.only.resolve())
    with (given.results / f"{given.way}.log").open("a", encoding="utf-8") as log:
        process = subprocess.Popen(command, cwd=tests, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            _watch(process, results, 2 * given.timeout + 60)
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode


def _watch(process: subprocess.Popen[bytes], results: Path, silence_s: float) -> None:
    """Wait for its end, or until it has written nothing for long: a test hangs where no signal reaches it."""
    seen, until = -1, time.monotonic() + silence_s
    while process.poll() is None and time.monotonic() < until:
        size = results.stat().st_size if results.exists() else 0
        if size != seen:
            seen, until = size, time.monotonic() + silence_s
        time.sleep(0.5)


if __name__ == "__main__":
    sys.exit(main())
