from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader, RunRecord
from tests.training.tracking.recorded import record

if TYPE_CHECKING:
    from mlflow import MlflowClient


def test_a_run_reads_back(client: "MlflowClient", reader: RunReader) -> None:
    run_id = record(client, notebook="a.md", cell="one", values=[2.0, 1.0], start=5000)
    run = reader.run(run_id)
    assert (run.name, run.notebook, run.cell, run.status, run.outcome) == (
        "one seed 1", "a.md", "one", "FINISHED", "finished",
    )  # fmt: skip
    assert (run.started, run.ended) == (5.0, 6.0)
    assert run.metrics["val/loss"] == 1.0


def test_an_unknown_run_is_a_key_error(reader: RunReader) -> None:
    with pytest.raises(KeyError):
        reader.run("0" * 32)


def test_our_tag_says_more_than_mlflows_status(client: "MlflowClient", reader: RunReader) -> None:
    stopped = record(client, notebook="b.md", tags={names.TAG_STATUS: "stopped"}, status="KILLED")
    waiting = record(client, notebook="b.md", status="SCHEDULED")
    running = record(client, notebook="b.md", status="RUNNING")
    failed = record(client, notebook="b.md", status="FAILED")
    outcomes = [reader.run(run_id).outcome for run_id in (stopped, waiting, running, failed)]
    assert outcomes == ["stopped", "waiting", "running", "failed"]


def test_runs_are_found_by_notebook_and_cell_the_newest_first(client: "MlflowClient", reader: RunReader) -> None:
    old = record(client, notebook="it's.md", cell="x", start=1000)
    new = record(client, notebook="it's.md", cell="x", start=2000)
    other = record(client, notebook="it's.md", cell="y", start=3000)
    assert [run.id for run in reader.runs(notebook="it's.md", cell="x")] == [new, old]
    assert [run.id for run in reader.runs(notebook="it's.md")] == [other, new, old]
    assert [run.id for run in reader.runs(notebook="it's.md", limit=1)] == [other]
    assert reader.runs(notebook="none.md") == []


def said(run: RunRecord) -> str:
    """All of it, alike also where a metric is no number."""
    return repr(replace(run, tags=dict(sorted(run.tags.items())), metrics=dict(sorted(run.metrics.items()))))


def test_a_list_of_runs_says_what_mlflow_says(client: "MlflowClient", reader: RunReader) -> None:
    from mlflow.entities import Metric

    first = record(client, notebook="l.md", cell="x", start=9_001_000_000_000, tags={"mlflow.note.content": "said"})
    record(client, notebook="l.md", cell="x", start=9_002_000_000_000, status="RUNNING")
    gone = record(client, notebook="l.md", cell="y", start=9_003_000_000_000)
    odd = [("ps/dropped", float("inf")), ("worker_1/perf/data_share", 0.5), ("workers", 2.0)]
    client.log_batch(first, metrics=[Metric(name, value, 0, 1) for name, value in odd])
    client.log_metric(first, "val/auc", float("nan"))
    client.delete_run(gone)
    told = reader.runs(limit=1000)
    plain = [
        replace(run, params={}, metrics={name: value for name, value in run.metrics.items() if name[:7] != "worker_"})
        for run in told
    ]
    assert sorted(map(said, reader.listed(1000))) == sorted(map(said, plain))
    assert [run.started for run in reader.listed(2)] == [9_002_000_000.0, 9_001_000_000.0]
    assert {"ps/dropped", "workers", "val/auc"} <= set(reader.listed(2)[1].metrics)
    assert reader.listed(0) == []


def test_a_list_of_one_notebook_leaves_out_the_others_and_trials(client: "MlflowClient", reader: RunReader) -> None:
    own = [record(client, notebook="it's one.md", cell="x", values=[1.0], start=1000 * i) for i in range(1, 4)]
    trial = record(client, notebook="it's one.md", cell="x", start=9000, tags={names.TAG_TRIAL: "0"})
    record(client, notebook="IT'S ONE.md", start=9500)
    assert [run.id for run in reader.listed(10, notebook="it's one.md")] == [trial, *reversed(own)]
    assert [run.id for run in reader.listed(2, notebook="it's one.md", trials=False)] == [own[2], own[1]]
    assert reader.listed(10, notebook="none.md") == []
    assert trial not in [run.id for run in reader.listed(100, trials=False)]
    assert {key for run in reader.listed(10, notebook="it's one.md") for key in run.metrics} >= {"val/loss"}


def test_parameters_are_named_once_and_read_one_by_one(client: "MlflowClient", reader: RunReader) -> None:
    ids = [record(client, notebook="p.md") for _ in range(3)]
    for number, run_id in enumerate(ids):
        client.log_param(run_id, "lr", str(number / 10))
        client.log_param(run_id, f"own.width {number}", "é")
    assert {"lr", "own.width 0", "own.width 2"} <= set(reader.parameter_names())
    assert reader.parameter_names() == sorted(set(reader.parameter_names()))
    assert reader.parameter("lr") == {run_id: str(number / 10) for number, run_id in enumerate(ids)}
    assert reader.parameter("own.width 1") == {ids[1]: "é"}
    assert reader.parameter("' OR 1=1 --") == {}


def test_a_curve_has_four_axes(client: "MlflowClient", reader: RunReader) -> None:
    from mlflow.entities import Metric

    run_id = record(client, values=[3.0, 2.0, 1.0])
    client.log_batch(run_id, metrics=[Metric("val/loss", 0.5, 0, 35)])  # a point without samples and seconds
    curve = reader.curve(run_id, "val/loss")
    assert curve.values == [3.0, 2.0, 1.0]
    assert curve.axis("updates") == [10.0, 20.0, 30.0]
    assert curve.axis("samples") == [320.0, 640.0, 960.0]
    assert curve.axis("seconds") == [1.0, 2.0, 3.0]
    assert curve.on("bytes") == ([], []), "a run of before they were recorded"
    client.log_batch(run_id, metrics=[Metric("bytes", 1000.0, 0, 20)])
    assert reader.curve(run_id, "val/loss").on("bytes") == ([], []), "one is not known, and is not taken for 0"
    client.log_batch(run_id, metrics=[Metric("bytes", 1500.0, 0, 30)])
    assert reader.curve(run_id, "val/loss").on("bytes")[0] == [0.0, 1000.0, 1500.0], "0 is not recorded"
    client.log_batch(run_id, metrics=[Metric("bytes", 50.0 * step, 0, step) for step in (10, 20, 30, 40)])
    assert reader.curve(run_id, "val/loss").on("bytes") == ([500.0, 1000.0, 1500.0], curve.values)
    assert reader.curve(run_id, "val/accuracy").values == []


def test_a_curve_has_the_points_that_mlflow_has(client: "MlflowClient", reader: RunReader) -> None:
    """Several at one step, out of order, infinite and none at all; the reader asks the database itself."""
    from mlflow.entities import Metric

    run_id = record(client, values=[3.0, 2.0, 1.0])
    odd = [(2.5, 9, 20), (float("nan"), 4, 30), (float("inf"), 3, 10), (0.5, 2, 10)]
    client.log_batch(run_id, metrics=[Metric("val/loss", value, at, step) for value, at, step in odd])
    client.log_batch(run_id, metrics=[Metric("samples", 900.0, 1, 30), Metric("perf/samples_per_second", 64.0, 0, 20)])
    of_mlflow = {point.step: point.value for point in client.get_metric_history(run_id, "val/loss")}
    loss, rate, none = reader.curves(run_id, ["val/loss", "perf/updates_per_second", "val/accuracy"])
    assert loss.values == pytest.approx([of_mlflow[step] for step in (10, 20, 30)], nan_ok=True)
    assert (loss.values[1], loss.samples) == (2.5, [320.0, 640.0, 900.0]), "samples as recorded last before the value"
    assert (rate.values, rate.updates) == ([2.0], [20.0]), "32 samples an update"
    assert none.values == []


ODD = [
    "plain", "it's", 'a "b"', "both ' and \"", "back\\slash\\", "tick`s`", "semi; colon -- x", "per%cent_", "new\nline",
    "\x07bell", "日本", "", "' OR '1'='1", "# /* */",
]  # fmt: skip


def test_runs_are_found_by_any_name(client: "MlflowClient", reader: RunReader) -> None:
    made = {name: record(client, notebook=f"odd {name}.md", cell=name) for name in ODD}
    for name, run_id in made.items():
        assert [run.id for run in reader.runs(notebook=f"odd {name}.md")] == [run_id], name
        assert [run.id for run in reader.runs(notebook=f"odd {name}.md", cell=name)] == [run_id], name
