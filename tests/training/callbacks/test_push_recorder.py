import json
import math
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest
import torch
from lightning.pytorch.strategies import SingleDeviceStrategy
from PIL import Image

from scalebook.training.base.files import records
from scalebook.training.callbacks import push_recorder
from scalebook.training.callbacks.measure import Measure
from scalebook.training.callbacks.push_recorder import PushRecorder, draw_staleness
from scalebook.training.callbacks.step_clocks import DataClock
from scalebook.training.engine.coordination.measures import (
    Counts,
    MovedBytes,
    PushMeasures,
    StalenessHistogram,
    Timings,
    WorkerTimes,
)
from scalebook.training.engine.rules.duration_summary import took
from scalebook.training.lightning.run_figures import RunFigures
from scalebook.training.tracking import names
from scalebook.training.tracking.worker_figures import WorkerFile, parsed
from tests.training.callbacks.small import Kept, OneWeight, loader, trainer


class Told(SingleDeviceStrategy):
    """One process that says it were two workers."""

    def __init__(self) -> None:
        super().__init__()
        self.figures = ToldFigures()


class ToldFigures(RunFigures):
    """Pushes grow by one with every batch."""

    def __init__(self) -> None:
        self.batches = 0

    def now(self) -> float:
        return perf_counter()

    def living(self) -> list[int]:
        """The second comes when the third batch is done."""
        return [0, 1] if self.batches > 2 else [0]

    def counts(self) -> Counts:
        return Counts(2 * self.batches, 6 * self.batches)

    def worker_times(self) -> list[WorkerTimes]:
        return [
            WorkerTimes(3.0, 1.0, 0.0, 0.0, self.batches, 3),
            WorkerTimes(1.0, 0.0, 1.0, 2.0, self.batches, 3, memory_bytes=5_000_000),
        ]

    def staleness(self) -> StalenessHistogram | None:
        return StalenessHistogram(torch.tensor([[self.batches, 0, 0], [0, self.batches, 0]]))

    def pushes(self) -> list[PushMeasures]:
        one = PushMeasures(0, 0, 0, self.batches, 1, 0, 0.25, math.nan)
        return [one, PushMeasures(1, 0, 0, self.batches, 2, 1, 0.75, 1.5)]

    def timings(self) -> Timings:
        return Timings([took([(0.25, 3)], 0.75, 0.1875), None], took([(0.5, 4)], 2.0, 1.0))

    def buffers_apart(self) -> float | None:
        return 0.25

    def moved_bytes(self) -> MovedBytes:
        return MovedBytes(100.0 * self.batches, 50.0 * self.batches)

    def add_time(self, part: str, seconds: float) -> None:
        """As told."""

    def add_samples(self, samples: int) -> None:
        self.batches += 1

    def note_memory(self, size: int) -> None:
        """As told."""


def test_the_record_lives_while_the_run_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(push_recorder, "EVERY_S", 0.0)
    strategy, kept, clock = Told(), Kept(), DataClock()
    seen: list[Any] = []

    class Look(PushRecorder):
        def on_train_batch_end(self, *args: Any) -> None:
            super().on_train_batch_end(*args)
            seen.append(json.loads((tmp_path / names.PUSHES_JSON).read_text())["counts"])

    fit = trainer(
        Measure(clock, workers=WorkerFile(tmp_path)), Look(tmp_path), strategy=strategy, logger=kept, profiler=clock,
        max_epochs=1,
    )  # fmt: skip
    fit.fit(OneWeight(), loader())
    assert seen == [[[i, 0, 0], [0, i, 0]] for i in (1, 2, 3, 4)]
    found = json.loads((tmp_path / names.PUSHES_JSON).read_text())
    assert found["counts"] == json.loads((tmp_path / names.STALENESS_JSON).read_text())["counts"]
    assert found["workers"][1] == {
        "compute": 1.0, "wait": 0.0, "communicate": 1.0, "data": 2.0, "updates": 4, "gradients": 0,
        "samples": 3, "pushed_bytes": 0, "pulled_bytes": 0, "memory_bytes": 5_000_000,
    }  # fmt: skip
    assert found["shards"][0] == {
        "worker": 0, "section": 0, "shard": 0, "applied": 4, "dropped": 1, "duplicates": 0, "age_s": 0.25,
        "drift": None, "pushed_bytes": 0, "pulled_bytes": 0,
    }  # fmt: skip
    comings = [(one["worker"], one["joined"]) for one in found["comings"]]
    assert comings == [(0, True), (1, True)]
    assert found["comings"][1]["at"] > found["comings"][0]["at"]
    timings = records.load(tmp_path / names.TIMINGS_JSON, Timings)
    assert timings == strategy.figures.timings()
    with Image.open(tmp_path / names.STALENESS_PICTURE) as picture:
        assert picture.size == (1375, 637)
    last = kept.points[-1][1]
    assert (last[names.DROPPED], last[names.DUPLICATES]) == (3, 1)
    assert last[names.BUFFERS_APART] == 0.25
    workers = parsed((tmp_path / names.WORKERS_JSONL).read_bytes())
    assert workers.last["worker_1/perf/data_share"] == 0.5
    assert workers.last["worker_1/ps/staleness_mean"] == 1
    assert workers.last["worker_0/ps/dropped"] == 1
    assert workers.last["worker_1/system/peak_memory_megabytes"] == 5
    assert len(workers.points["worker_0/ps/dropped"]) == 1, "by worker only once, at the end"
    assert len(workers.points["worker_0/perf/samples_per_second"]) > 1
    assert not any(name.startswith("worker_") for _, points in kept.points for name in points), "no metrics of MLflow's"
    assert names.DRIFT not in last, "worker 0 has none"
    live = [points for _, points in kept.points[:-1] if names.DROPPED in points]
    assert live


def test_strategies_that_count_nothing_leave_nothing(tmp_path: Path) -> None:
    trainer(PushRecorder(tmp_path), max_epochs=1).fit(OneWeight(), loader())
    assert list(tmp_path.glob("*.json")) == []


def test_a_run_that_fails_leaves_its_record(tmp_path: Path) -> None:
    class Fails(OneWeight):
        def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
            if batch_idx == 2:
                raise RuntimeError("no more")
            return super().training_step(batch, batch_idx)

    with pytest.raises(RuntimeError, match="no more"):
        trainer(Measure(DataClock()), PushRecorder(tmp_path), strategy=Told()).fit(Fails(), loader())
    assert json.loads((tmp_path / names.PUSHES_JSON).read_text())["counts"][0][0] == 2


def test_the_histogram_is_drawn(tmp_path: Path) -> None:
    counts = torch.tensor([[5, 3, 0, 0], [1, 9, 1, 0]])
    draw_staleness(StalenessHistogram(counts), tmp_path / "x.png")
    with Image.open(tmp_path / "x.png") as picture:
        assert picture.size == (1375, 637)
        assert len(picture.convert("RGB").getcolors(10**6) or []) > 2
