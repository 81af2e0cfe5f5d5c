"""Runs Lightning's tests of its Trainer with a strategy of ours: python -m tests.lightning.run CHECKOUT --way WAY."""

import argparse
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, get_args

from tests.lightning.results import MORE, RESULTS, path_of, read
from tests.lightning.substitute import BAR_OFF, BASELINES, Way
from tests.lightning.table import table

ROOT: Final = Path(__file__).resolve().parents[2]
FOLDERS: Final = (
    "trainer", "loops", "callbacks", "core", "checkpointing", "models", "loggers", "tuner", "utilities", "profilers",
    "overrides", "deprecated_api", "plugins", "strategies/test_common.py", "strategies/test_single_device.py",
    "strategies/test_custom_strategy.py",
)  # fmt: skip

BAD: Final = ("failed", "names", "counts", "timed out", "died")  # compared with the baseline
ENDED: Final = (0, 1, 5)  # of pytest: all passed, some failed, there were none


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkout", type=Path, help="Lightning's repository; its tests are in tests/tests_pytorch")
    parser.add_argument("--way", choices=get_args(Way), default="one")
    parser.add_argument("--only", type=Path, help="a file with a test's id a line")
    parser.add_argument("--folders", nargs="+", default=FOLDERS, help="of tests/tests_pytorch")
    parser.add_argument("--minutes", type=float, default=1e6, help=f"then it ends with status {MORE}, to go on later")
    parser.add_argument("--timeout", type=int, default=40, help="seconds for one test")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--bar-off", action="store_true", help="Trainers without a progress bar, which reads metrics")
    given = parser.parse_args(arguments)
    if given.bar_off:
        os.environ[BAR_OFF] = "1"
    tests = given.checkout.resolve() / "tests" / "tests_pytorch"
    if not (tests / "conftest.py").exists():
        parser.error(f"{tests}: no conftest.py. Give the path of a checkout of Lightning's repository.")
    given.results.mkdir(parents=True, exist_ok=True)
    until = time.monotonic() + 60 * given.minutes
    if not _all(tests, given, given.way, given.only, until):
        return MORE
    failed = [one.test for one in read(path_of(given.way, given.results)).values() if one.used and one.outcome in BAD]
    if given.way in BASELINES and failed:
        only = given.results / f"{given.way}.failed"
        only.write_text("\n".join(failed), encoding="utf-8")
        if not _all(tests, given, BASELINES[given.way], only, until):
            return MORE
    print(table(given.results))
    return 0


def _all(tests: Path, given: argparse.Namespace, way: Way, only: Path | None, until: float) -> bool:
    """Run one way, several files at a time; whether nothing is left."""
    results = path_of(way, given.results)
    left = [path for folder in given.folders for path in _files(tests / folder)]
    if only is not None:
        wanted = {test.split("::")[0] for test in only.read_text(encoding="utf-8").splitlines()}
        left = [path for path in left if str(path.relative_to(tests)) in wanted]
    while left:
        if time.monotonic() > until:
            return False
        before = len(read(results))
        status = _run(tests, left[:25], given, way, only, until - time.monotonic())
        if status in ENDED or len(read(results)) == before:
            left = left[25:]
    return True


def _files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.rglob("test_*.py"))


def _run(
    tests: Path, files: list[Path], given: argparse.Namespace, way: Way, only: Path | None, budget_s: float
) -> int | None:
    """One pytest over some files, its exit status; it goes on after the tests that have a result."""
    results = path_of(way, given.results)
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
        "WAY": way,
        "RESULTS": str(results),
        "BUDGET_S": str(budget_s),
        "OMP_NUM_THREADS": "1",
    }
    if only is not None:
        environment["ONLY"] = str(only.resolve())
    with (given.results / f"{way}.log").open("a", encoding="utf-8") as log:
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
