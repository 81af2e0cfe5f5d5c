import json
import math
from pathlib import Path

import pytest

from scalebook.training.tracking import names, worker_figures
from scalebook.training.tracking.worker_figures import CURVES, WorkerFigures, WorkerFile, parsed

RATE = names.SAMPLES_PER_SECOND


def axes(updates: int) -> dict[str, float]:
    return {names.UPDATES: updates, names.SAMPLES: 8.0 * updates, names.SECONDS: updates / 10, names.BYTES: 0.0}


def test_what_is_written_is_read_as_curves_and_last_values(tmp_path: Path) -> None:
    file = WorkerFile(tmp_path)
    for updates, rate in ((10, 80.0), (20, 160.123456789)):
        file.add(axes(updates), {names.per_worker(RATE, worker): rate + worker for worker in range(2)})
    found = parsed(file.path.read_bytes())
    assert found.last == {"worker_0/perf/samples_per_second": 160.1235, "worker_1/perf/samples_per_second": 161.1235}
    curve = found.curve("a run", names.per_worker(RATE, 1))
    assert (curve.run_id, curve.updates, curve.samples) == ("a run", [10, 20], [80, 160])
    assert (curve.seconds, curve.values, curve.bytes) == ([1, 2], [81, 161.1235], [])
    assert found.curve("a run", "worker_9/perf/wait_share").values == []


def test_of_many_workers_the_totals_alone_have_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = WorkerFile(tmp_path)
    everyone = {names.per_worker(RATE, worker): 1.0 for worker in range(300)}
    file.add(axes(1), everyone)
    assert len(parsed(file.path.read_bytes()).last) == CURVES
    monkeypatch.setattr(worker_figures, "LIVE", 5_000)
    for updates in range(2, 500):
        file.add(axes(updates), everyone)
    assert file.path.stat().st_size < 10_000
    file.add(axes(500), everyone, last=True)
    assert len(parsed(file.path.read_bytes()).last) == 300


@pytest.mark.parametrize(
    "line",
    [
        b"{", b"[1]", b"null", b"\xff\xfe", b"[" * 100_000, b'{"metrics": 3}', b"1" * 5000,
        json.dumps({"updates": 1, "samples": 1, "metrics": {"worker_0/perf/wait_share": 1}}).encode(),
        *(
            json.dumps({"updates": 1, "samples": 1, "seconds": 1, "metrics": {name: value}}).encode()
            for name, value in (
                ("worker_0/perf/wait_share", math.nan), ("worker_0/perf/wait_share", "1"),
                ("worker_0/perf/wait_share", True), ("worker_0/perf/wait_share", 10**400), ("val/loss", 1),
                ("worker_x/perf/wait_share", 1), ("worker_0/best/wait_share", 1), ("worker_" + "9" * 50 + "/ps/x", 1),
                ("worker_0/perf/<script>", 1), ("worker_\u0663/perf/wait_share", 1),
            )
        ),
    ],
)  # fmt: skip
def test_what_is_no_figure_of_a_worker_is_left_out(line: bytes) -> None:
    good = json.dumps({**axes(1), "metrics": {"worker_0/perf/wait_share": 0.5}}).encode()
    assert parsed(b"\n".join([line, good, line])).last == {"worker_0/perf/wait_share": 0.5}


def test_a_file_larger_than_ours_are_is_not_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    good = json.dumps({**axes(1), "metrics": {"worker_0/perf/wait_share": 0.5}}).encode() + b"\n"
    monkeypatch.setattr(worker_figures, "LARGEST", 10 * len(good))
    assert parsed(11 * good) == WorkerFigures()
    monkeypatch.setattr(worker_figures, "MOST_POINTS", 3)
    assert len(parsed(10 * good).points["worker_0/perf/wait_share"]) == 3
