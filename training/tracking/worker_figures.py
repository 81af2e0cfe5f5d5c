"""Metrics of single workers: `workers.jsonl`, in the job's folder while it runs, among the run's artifacts afterwards.

As MLflow metrics they would bury the run's own: 16 workers have 170. Worker 0 writes a line for each point:
`{"updates": 90, "samples": 2880, "seconds": 0.41, "metrics": {"worker_1/perf/samples_per_second": 160.0}}`. The last
line has each worker's totals. The earlier lines, for curves, have the first CURVES workers, and stop at LIVE bytes.
Runs recorded by earlier versions have these names as metrics.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import MetricCurve

CURVES: Final = 64
LIVE: Final = 2**22
LARGEST: Final = 2**24
"""The largest file that is read, bytes; of a longer one nothing is."""
MOST_POINTS: Final = 400_000
"""The most values kept of a file: as many as LARGEST bytes of our own hold."""
NAME: Final = re.compile(r"worker_(\d{1,6})/(perf|ps|system)/[a-z0-9_]{1,40}", re.ASCII)
AXES: Final = (names.UPDATES, names.SAMPLES, names.SECONDS)


def of_worker(metric: str) -> int | None:
    """The worker whose metric this is; None for the run's own."""
    match = NAME.fullmatch(metric)
    return int(match[1]) if match else None


class WorkerFile:
    """Writes the file; for one process. OSError if the disk is full."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / names.WORKERS_JSONL
        self._size = 0

    def add(self, axes: Mapping[str, float], metrics: Mapping[str, float], last: bool = False) -> None:
        """Append a line. `last`: the totals, which are always written."""
        if not last:
            if self._size > LIVE:
                return
            metrics = {name: value for name, value in metrics.items() if (of_worker(name) or 0) < CURVES}
        if not metrics:
            return
        short = {name: float(f"{value:.7g}") for name, value in metrics.items()}
        line = json.dumps({**axes, "metrics": short}, allow_nan=False) + "\n"
        self._size += len(line)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line)


@dataclass(frozen=True)
class WorkerFigures:
    """The content of the file."""

    last: dict[str, float] = field(default_factory=dict)
    """The last values, by metric."""
    points: dict[str, list[tuple[float, float, float, float]]] = field(default_factory=dict)
    """By metric, points (updates, samples, seconds, value)."""

    def curve(self, run_id: str, metric: str) -> MetricCurve:
        columns = [list(column) for column in zip(*self.points.get(metric, []), strict=True)] or [[], [], [], []]
        updates, samples, seconds, values = columns
        return MetricCurve(run_id, metric, updates=updates, samples=samples, seconds=seconds, values=values)


def parsed(content: bytes) -> WorkerFigures:
    """Parse such a file, which may be anybody's: whatever is not a worker's metric is left out."""
    figures, room = WorkerFigures(), MOST_POINTS
    for line in content[:LARGEST].splitlines() if len(content) <= LARGEST else ():
        for name, point in _points(line):
            room -= 1
            if room < 0:
                return figures
            figures.points.setdefault(name, []).append(point)
            figures.last[name] = point[-1]
    return figures


def _points(line: bytes) -> Iterator[tuple[str, tuple[float, float, float, float]]]:
    try:
        raw = json.loads(line)
    except (ValueError, RecursionError):  # half a line, of a machine that stopped
        return
    metrics = raw.get("metrics") if isinstance(raw, dict) else None
    if not isinstance(metrics, dict):
        return
    updates, samples, seconds = (_number(raw.get(axis)) for axis in AXES)
    if updates is None or samples is None or seconds is None:
        return
    for name, raw_value in metrics.items():
        value = _number(raw_value)
        if value is not None and NAME.fullmatch(name):
            yield name, (updates, samples, seconds, value)


def _number(raw: Any) -> float | None:
    """None for what is no finite number."""
    if isinstance(raw, bool) or not isinstance(raw, int | float):
        return None
    try:
        value = float(raw)
    except OverflowError:
        return None
    return value if math.isfinite(value) else None
