from scalebook.training.notebook.result_row import AXES, ExperimentRow, axes_with_data, lost_workers, row
from scalebook.training.tracking import names
from scalebook.training.tracking.curves import mean_curve
from scalebook.training.tracking.run_reader import MetricCurve, RunRecord


def made(name: str, moved: list[float]) -> ExperimentRow:
    record = RunRecord(name, name, "1", "FINISHED", 0.0, 1.0)
    curve = MetricCurve(name, "val/loss", [1.0, 2.0], [32.0, 64.0], [0.1, 0.2], [3.0, 1.0], moved)
    return row(name, [record], {name: curve}, 2.0, 1, "finished", lower=True)


def test_bytes_are_an_axis_where_they_were_counted() -> None:
    counted, alone, older = made("async", [100.0, 180.0]), made("one process", [0.0, 0.0]), made("older", [])
    reached = counted.to_target["bytes"].estimate
    assert reached is not None
    assert reached.mean == 180.0
    assert list(older.to_target) == ["updates", "samples", "seconds"]
    assert axes_with_data([alone, counted, older]) == list(AXES) == ["updates", "samples", "seconds", "bytes"]
    assert axes_with_data([alone, older]) == ["updates", "samples", "seconds"], "a column of zeros says nothing"


def test_seeds_average_over_bytes() -> None:
    seeds = [MetricCurve(str(n), "loss", [1, 2], [1, 2], [1, 2], [4.0, 2.0], [0.0, 100.0 * n]) for n in (1, 2)]
    found = mean_curve(seeds, "bytes")
    assert found is not None
    assert (found.x, found.mean) == ([0.0, 100.0], [4.0, 2.5])
    seeds[0].bytes.clear()
    assert mean_curve(seeds, "bytes") is None


def test_runs_that_lost_a_worker_are_named() -> None:
    clean = RunRecord("a", "a", "1", "FINISHED", 0.0, 1.0, {names.TAG_SEED: "1"})
    tags = {names.TAG_SEED: "2", names.TAG_WORKERS_LOST: "worker 1 died"}
    lost = RunRecord("b", "b", "1", "FINISHED", 0.0, 1.0, tags)
    assert lost_workers([clean]) == ""
    assert lost_workers([clean, lost]).startswith("1 of 2 runs lost a worker and continued, so the training differs")
    assert "(seed 2: worker 1 died)" in lost_workers([clean, lost])
    assert "seed 2: worker 1 died; and 2 more). Run those seeds again." in lost_workers([lost] * 5)
