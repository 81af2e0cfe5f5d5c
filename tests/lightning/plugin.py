"""A pytest plugin (`-p tests.lightning.plugin`): substitutes the strategy and writes a line of JSON for each test.

By environment: `WAY`, `RESULTS` (the file; what is in it already is not run again), `BUDGET_S` (then it ends in order).
"""

import inspect
import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.lightning.results import MORE, Result, read
from tests.lightning.substitute import CLASSES, Substitute, Way

ROOT = Path(__file__).resolve().parents[2]
REFUSED = (
    "than AsyncPS", "does not work with a parameter server", "cannot be shared by",
    "but each worker has only a part of them.", "FSDP2 cannot make", "The `ModelParallelStrategy` does not support",
    "Using a compiled model is incompatible with the current strategy: `ModelParallel`",
)  # fmt: skip
"""In docs/reference/refusals.md."""
COUNTING = (
    "test_multiple_dataloaders_reset", "test_metric_are_properly_reduced",
    "test_on_epoch_logging_with_sum_and_on_batch_start",
)  # fmt: skip
"""Of these tests the numbers are those of a worker that validates trainer.limit_val_batches batches by itself."""


class Recorder:
    """One pytest run."""

    def __init__(self, way: Way, results: Path, budget_s: float) -> None:
        self._substitute, self._results, self._classes = Substitute(way), results, CLASSES[way]
        self._shares = way == "shard"
        self._until = time.monotonic() + budget_s
        self._began, self._used = 0.0, 0

    def pytest_collection_modifyitems(self, session: pytest.Session, items: list[pytest.Item]) -> None:
        done = set(read(self._results))
        listed = self._results.with_suffix(".all")
        known = set(listed.read_text(encoding="utf-8").splitlines()) if listed.exists() else set()
        new = [item.nodeid for item in items if item.nodeid not in known]
        with listed.open("a", encoding="utf-8") as file:
            file.writelines(f"{test}\n" for test in new)
        only = os.environ.get("ONLY")
        wanted = None if only is None else set(Path(only).read_text(encoding="utf-8").splitlines())
        items[:] = [item for item in items if item.nodeid not in done and (wanted is None or item.nodeid in wanted)]

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self._began, self._used = time.monotonic(), self._substitute.count
        self._write(Result(nodeid, "died", "its process ended", 0, 0.0))

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
        outcome = yield
        report = outcome.get_result()  # type: ignore[attr-defined]  # pluggy's Result
        if report.when == "call" or report.outcome != "passed":
            seconds = round(time.monotonic() - self._began, 2)
            kind, why = _judge(report, call.excinfo)
            if kind == "failed" and call.excinfo is not None and self._names_a_class(item, call.excinfo):
                kind = "names"
            if kind == "failed" and self._shares and item.name.partition("[")[0] in COUNTING:
                kind = "counts"
            self._write(Result(item.nodeid, kind, why, self._substitute.count - self._used, seconds))

    def _names_a_class(self, item: pytest.Item, error: pytest.ExceptionInfo[BaseException]) -> bool:
        """Whether the test, or the helper in its file in which it failed, asks for a class in whose place ours is."""
        codes = [one.frame.code.raw for one in error.traceback if Path(one.path) == item.path]
        text = "".join(inspect.getsource(code) for code in codes)
        return isinstance(item, pytest.Function) and any(
            name in text + inspect.getsource(item.function) for name in self._classes
        )

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        if time.monotonic() > self._until:
            pytest.exit("the budget is used up", returncode=MORE)

    def pytest_unconfigure(self) -> None:
        self._substitute.end()

    def _write(self, result: Result) -> None:
        with self._results.open("a", encoding="utf-8") as file:
            file.write(json.dumps(result._asdict()) + "\n")


def _judge(report: pytest.TestReport, error: "pytest.ExceptionInfo[BaseException] | None") -> tuple[str, str]:
    if report.outcome == "passed" or hasattr(report, "wasxfail"):
        return "passed", ""
    if report.outcome == "skipped":
        return "skipped", str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr)
    assert error is not None
    words = " ".join(f"{error.typename}: {error.value}".split())
    place = next((one for one in reversed(error.traceback) if str(one.path).startswith(str(ROOT / "training"))), None)
    where = "" if place is None else f" [{Path(place.path).name}:{place.lineno + 1}]"
    kind = "timed out" if "Timeout (>" in words else "refused" if any(mark in words for mark in REFUSED) else "failed"
    return kind, words[:500] + where


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "flaky: of pytest-rerunfailures, which is not needed to run a test once")
    way: Any = os.environ["WAY"]
    config.pluginmanager.register(
        Recorder(way, Path(os.environ["RESULTS"]), float(os.environ.get("BUDGET_S", "1e9"))), "scalebook-recorder"
    )
