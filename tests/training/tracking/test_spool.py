"""What a run on another machine tells MLflow reaches the store once, whatever is told twice."""

from pathlib import Path
from typing import Any

import pytest
from mlflow import MlflowClient
from mlflow.entities import Metric, RunTag

from scalebook.training.base.workspace import Workspace
from scalebook.training.cluster import mlflow_relay
from scalebook.training.cluster.mlflow_relay import replay, told_so_far
from scalebook.training.tracking.run_start import client_after_fork, experiment_id, mark_running, open_store
from scalebook.training.tracking.spool import FILES, LINES, SPOOL, Spool
from tests.shared_files import Prepared


@pytest.fixture
def client(tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> MlflowClient:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = Workspace(tmp_path / "w").create()
    prepared.into(workspace)
    return open_store(workspace)


@pytest.fixture
def run(client: MlflowClient, tmp_path: Path) -> str:
    made: str = client.create_run(experiment_id(client, Workspace(tmp_path / "w"), "here")).info.run_id
    return made


def test_all_that_is_told_reaches_the_store_and_once(
    client: MlflowClient, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, log = tmp_path / "mlflow", tmp_path / "log.txt"
    monkeypatch.setenv(SPOOL, str(folder))
    teller: Any = client_after_fork("sqlite:///elsewhere")
    assert isinstance(teller, Spool)
    client.update_run(run, status="SCHEDULED")
    mark_running(teller, run, 4.0)
    for step in range(12):
        teller.log_batch(run, metrics=[Metric("loss", step / 2, 1000 + step, step)], synchronous=True)
    log.write_text("first")
    teller.log_artifact(run, str(log))
    log.write_text("changed since")
    teller.set_tag(run, "why", "because")
    teller.set_tag("0" * 32, "why", "of another run")
    teller.log_batch(run, tags=[RunTag("how", "well"), RunTag("where", "there")], synchronous=True)
    teller.log_batch("0" * 32, tags=[RunTag("how", "of another run")], synchronous=True)
    assert replay(folder, run, client)
    info = client.get_run(run).info
    assert (info.status, info.start_time) == ("RUNNING", 4000), "as its own machine says, whenever it is told here"
    teller.set_terminated(run, "FINISHED", 5000)
    whole = (folder / LINES).read_bytes()
    assert replay(folder, run, client)
    (folder / mlflow_relay.APPLIED).unlink()  # somebody who had no time to note it comes again
    assert replay(folder, run, client)
    assert told_so_far(folder) == len(whole)
    told = client.get_run(run)
    assert (told.info.status, told.info.end_time, told.data.tags["why"]) == ("FINISHED", 5000, "because")
    assert (told.data.tags["how"], told.data.tags["where"]) == ("well", "there")
    points = [(point.step, point.value, point.timestamp) for point in client.get_metric_history(run, "loss")]
    assert sorted(points) == [(step, step / 2, 1000 + step) for step in range(12)]
    (artifact,) = client.list_artifacts(run)
    assert Path(client.download_artifacts(run, artifact.path)).read_text() == "first"


def test_half_a_line_and_a_file_that_has_not_come_wait(client: MlflowClient, run: str, tmp_path: Path) -> None:
    folder, log = tmp_path / "mlflow", tmp_path / "log.txt"
    teller = Spool(folder)
    teller.set_tag(run, "a", "1")
    log.write_text("x")
    teller.log_artifact(run, str(log))
    lines = (folder / LINES).read_bytes()
    (folder / LINES).write_bytes(lines[:-5])
    assert not replay(folder, run, client)
    first = lines.index(b"\n") + 1
    assert (told_so_far(folder), client.get_run(run).data.tags["a"]) == (first, "1")
    (folder / LINES).write_bytes(lines)
    (kept,) = (folder / FILES).iterdir()
    kept.rename(folder / "late")
    assert not replay(folder, run, client)
    assert told_so_far(folder) == first
    (folder / "late").rename(kept)
    assert replay(folder, run, client)
    assert told_so_far(folder) == len(lines)
