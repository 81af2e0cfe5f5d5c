import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scalebook.app.runs import data as runs
from scalebook.app.runs import records as run_records
from scalebook.app.runs import run_query
from scalebook.app.runs.data import DeviceHolder, NodeState, device_state, simulated_copy
from scalebook.app.runs.run_query import RunQuery
from scalebook.app.runs.widgets import progress_words
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.cluster.cluster_spool import ClusterSpool, KnownNodes, RemoteState, write_state
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.validation import validate
from scalebook.training.jobs.begin_request import RayHandle
from scalebook.training.jobs.devices import Allocation, NodeDevices, this_machine
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.gpus import Gpu
from scalebook.training.jobs.job_folder import JobFolder, JobStart, Progress, Result
from scalebook.training.notebook.cells import ExperimentCell
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader, RunRecord
from tests.app.recorded import ASYNC, config, record
from tests.shared_files import Prepared
from tests.training.benches import Bench, bench


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory, prepared: Prepared) -> Workspace:
    """Four runs: finished, failed, stopped, waiting, in this order."""
    found = prepared.into(Workspace(tmp_path_factory.mktemp("workspace")))
    record(found, cell="a", seed=1)
    record(found, cell="a", seed=2, state="failed")
    record(found, cell="b", seed=1, state="stopped")
    record(found, cell="b", seed=2, state="waiting")
    return found


def listed(workspace: Workspace, state: str = "", text: str = "") -> list[RunRecord]:
    reader = RunReader(workspace.tracking_uri())
    return run_query.select_runs(reader.listed(100), RunQuery(text, {"state": [state] if state else []}))


def test_a_run_is_what_its_folder_says(workspace: Workspace) -> None:
    records = listed(workspace)
    found = {one.title: one for one in runs.views(workspace, records, lambda: {records[0].id: "waits for 2 cores"})}
    assert {title: one.state for title, one in found.items()} == {
        "a · seed 1": "finished", "a · seed 2": "failed", "b · seed 1": "stopped", "b · seed 2": "waiting",
    }  # fmt: skip
    failed = found["a · seed 2"]
    assert (failed.failure, failed.cause) == ("worker lost", "worker 1 died: pid 4711, SIGKILL")
    assert failed.advice == "Find the cause in the log, then run again."
    assert found["b · seed 2"].reason == "waits for 2 cores"
    assert found["b · seed 2"].seconds is None
    assert found["a · seed 1"].strategy == "parameter server × 2, async"


def test_a_run_that_was_stopped_before_it_began_took_no_time(workspace: Workspace) -> None:
    found = runs.views(workspace, listed(workspace, state="stopped"))
    assert [(one.began, one.seconds) for one in found] == [(None, None)]


def test_a_run_took_the_time_of_its_process(tmp_path: Path) -> None:
    job = JobFolder(tmp_path)
    job.write(JobStart(LocalHandle.of_this_process(), 100.0))
    bare = RunRecord("0123456789", "by hand", "0", "FINISHED", 90.0, 131.0)
    ended = runs.RunView(bare, "finished", result=Result("finished", 130.0), job=job)
    assert (ended.began, ended.seconds) == (100.0, 30.0)
    assert runs.RunView(bare, "finished").seconds == 41.0  # of another workspace: MLflow's own


def test_a_living_run_has_one_set_of_figures() -> None:
    """Its own progress, read once, and not MLflow's, which is of another moment."""
    bare = RunRecord(
        "0123456789", "", "0", "RUNNING", 0.0, None, metrics={names.UPDATES: 90.0, "val/loss": 2.0, "x": 1.0}
    )
    told = Progress(1.0, "training", 120, 960, 4.0, fraction=0.5, metrics={"val/loss": 1.5})
    living = runs.RunView(bare, "running", told)
    assert living.metrics["x"] == 1.0
    assert (living.metrics[names.UPDATES], living.metrics["val/loss"], living.last_word) == (120, 1.5, "latest")
    assert (living.metrics[names.UPDATES_PER_SECOND], living.metrics[names.SAMPLES_PER_SECOND]) == (30.0, 240.0)
    assert progress_words(living) == "training, 50% · epoch 1 · 120 updates · 30.0 updates/s"
    ended = runs.RunView(bare, "finished")
    assert (ended.metrics, ended.last_word) == (bare.metrics, "final")


def test_charts_keep_their_places() -> None:
    first = runs.in_place([], ["train/loss"], 6)
    then = runs.in_place(first, ["val/loss", "val/accuracy", "train/loss"], 6)
    assert then == ["train/loss", "val/loss", "val/accuracy"]
    assert runs.in_place(then, ["val/loss", "train/loss", "a"], 2) == ["train/loss", "val/loss"]
    assert runs.in_place(["gone"], ["val/loss"], 6) == ["val/loss"]


def test_a_run_of_another_workspace_is_what_the_store_says(workspace: Workspace, tmp_path: Path) -> None:
    records = listed(workspace, state="stopped")
    assert [one.state for one in runs.views(Workspace(tmp_path), records)] == ["stopped"]


def test_filters(workspace: Workspace) -> None:
    assert [run.cell for run in listed(workspace)] == ["b", "b", "a", "a"]
    assert [run.status for run in listed(workspace, state="failed")] == ["FAILED"]
    assert {run.cell for run in listed(workspace, text="B SEED")} == {"b"}
    assert listed(workspace, text="it's not there") == []


def test_reasons_are_asked_for_only_when_a_run_waits(workspace: Workspace) -> None:
    def never() -> dict[str, str]:
        raise AssertionError("no run waits")

    records = listed(workspace, state="finished")
    assert len(runs.views(workspace, records, never)) == 1


def test_siblings_are_the_newest_of_each_seed(workspace: Workspace) -> None:
    reader = RunReader(workspace.tracking_uri())
    found = runs.siblings(reader, listed(workspace, text="a seed 1")[0])
    assert [one.tags[names.TAG_SEED] for one in found] == ["1", "2"]


def test_curves_worth_a_chart_and_shares_of_time(workspace: Workspace) -> None:
    one = RunReader(workspace.tracking_uri()).run(listed(workspace, state="finished")[0].id)
    assert runs.curve_metrics(one) == [names.VAL_BITS_PER_DIM, names.TRAIN_LOSS]
    expected = {"compute": 0.72, "wait": 0.08, "communicate": 0.15, "data": 0.03}
    assert runs.shares(one) == runs.shares(one, worker=1) == expected
    assert runs.shares(one, worker=5) == {}
    assert runs.rates(one) == ["worker_0/perf/samples_per_second", "worker_1/perf/samples_per_second"]


def test_a_loss_that_the_model_logs_itself_has_one_chart() -> None:
    metrics = {"train_loss": 0.5, names.TRAIN_LOSS: 0.5, "val_loss": 0.4, names.UPDATES: 9.0}
    one = RunRecord("0123456789", "a run", "0", "FINISHED", 0.0, 1.0, metrics=metrics)
    assert runs.curve_metrics(one) == ["val_loss", "train_loss"]
    bare = replace(one, metrics={name: value for name, value in metrics.items() if name != "train_loss"})
    assert runs.curve_metrics(bare) == ["val_loss", names.TRAIN_LOSS]


def test_artifacts_are_read_back_and_absent_ones_are_none(workspace: Workspace) -> None:
    reader = RunReader(workspace.tracking_uri())
    one = listed(workspace, state="finished")[0]
    assert run_records.samples_picture(reader, one.id) is None
    assert "scalebook.training.zoo.models.PixelCNN" in run_records.config_text(reader, one.id)


def test_a_run_without_a_cell_is_called_as_mlflow_calls_it() -> None:
    bare = RunRecord("0123456789", "by hand", "0", "FINISHED", 0.0, 1.0)
    assert runs.RunView(bare, "finished").title == "by hand"
    assert runs.RunView(bare, "failed").cause == runs.NOT_LIVING


@pytest.mark.parametrize(
    ("told", "number"),
    [
        ("1", 1),
        ("7", 7),
        ("²", 1),
        ("१२", 1),
        ("1e9", 1),
        ("-1", 1),
        ("0", 1),
        ("", 1),
        ("9" * 5000, 1),
        ("999999", 900),
    ],
)
def test_a_page_is_a_number_whatever_the_address_says(told: str, number: int) -> None:
    assert runs.page_number(told) == number


@pytest.mark.parametrize("strategy", [ASYNC, "AsyncPS"])
def test_more_workers_than_there_are_begin_from_an_experiment(description: Description, strategy: Any) -> None:
    """As virtual ones, in a config that is right; the experiment stays as it is."""
    body = config(workers=8, strategy=strategy)
    cell = ExperimentCell("", "a", 3, copy.deepcopy(body))
    draft = simulated_copy("first-steps", cell, 8)
    assert (draft.notebook, draft.cell, draft.repeats) == ("first-steps", "", 3)
    load = Experiment.read(draft.config, description)
    assert (load.strategy.is_simulated, load.strategy.workers, load.strategy.processes) == (True, 32, 1)
    assert [
        problem for problem in validate(Experiment.read(draft.config, description)) if problem.severity == "error"
    ] == []
    assert cell.config == body


__all__ = ["bench"]


def test_machines_of_a_cluster_are_told_by_name_with_who_holds_them(bench: Bench) -> None:
    root = Path(bench.workspace.root)
    assert device_state(bench.workspace).elsewhere == []
    (root / SETTINGS).write_text('[cluster]\naddress = "auto"', encoding="utf-8")
    workspace, job = Workspace(root), bench.job(name="far away")
    spool = ClusterSpool(workspace).create()
    b = NodeDevices([0, 1, 2], [Gpu("GPU-a", "A", 1), Gpu("GPU-b", "A", 1)], "b")
    spool.note(KnownNodes(ProcessId.of(), [b, NodeDevices([0, 1], name="d")], {"c": "does not answer"}))
    handle = RayHandle(ProcessId(7, 1, "boot"), "b", "agent", str(job.path))
    assert job.claim(JobStart(handle, 1.0, [1], ["GPU-b"], machine="b", others=[Allocation("d", [0])]))
    write_state(job.path, RemoteState(handle, alive=True))
    state = device_state(workspace)
    assert (state.held, state.free_cores) == ([], this_machine().cores)
    assert state.elsewhere == [
        NodeState("b", [DeviceHolder(job.id, "far away", [1], [1])], [0, 2], [0]),
        NodeState("d", [DeviceHolder(job.id, "far away", [0], [])], [1], []),
        NodeState("c", [], [], [], "does not answer"),
    ]
    (spool.folder / "machines.json").unlink()
    assert device_state(workspace).elsewhere == []
