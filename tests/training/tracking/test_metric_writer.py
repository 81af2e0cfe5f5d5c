"""The writer against a store that works, that is slow, and that fails for a while."""

import gc
import multiprocessing
import os
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mlflow.exceptions import MlflowException

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.failures import TimedOut
from scalebook.training.base.workspace import Workspace
from scalebook.training.tracking import logger
from scalebook.training.tracking.logger import MetricWriter
from scalebook.training.tracking.run_start import client_after_fork, experiment_id, make_store, mark_running, open_store
from tests.training.benches import wait_for

pytestmark = pytest.mark.long


class Store:
    """In place of an MLflow client: keeps what it is given, slowly or not at all when told so."""

    def __init__(self) -> None:
        self.points: list[tuple[str, float, int]] = []
        self.batches: list[int] = []
        self.status = ""
        self.failures = 0
        self.delay_s = 0.0
        self._tracking_client = SimpleNamespace(store=None)  # no database

    def update_run(self, run_id: str, status: str) -> None:
        self.status = status

    def log_batch(self, run_id: str, metrics: list[Any], synchronous: bool) -> None:
        time.sleep(self.delay_s)
        if self.failures > 0:
            self.failures -= 1
            raise ConnectionError("store is away")
        self.batches.append(len(metrics))
        self.points += [(one.key, one.value, one.step) for one in metrics]


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch) -> Iterator[Store]:
    made = Store()
    monkeypatch.setattr(logger, "client_after_fork", lambda _: made)
    monkeypatch.setattr(logger, "RETRY_S", 0.05)
    yield made
    wait_for(lambda: "mlflow-writer" not in {thread.name for thread in threading.enumerate()}, "the writer's end")


def test_every_point_arrives_in_order_and_in_few_batches(store: Store) -> None:
    made = MetricWriter("uri", "run")
    for step in range(3000):
        made.add({"loss": float(step), "other": 1.0}, step)
    made.close()
    assert [value for key, value, _ in store.points if key == "loss"] == list(range(3000))
    assert len(store.points) == 6000
    assert max(store.batches) <= 1000
    assert len(store.batches) < 12
    assert store.status == "RUNNING"


def test_the_first_point_does_not_wait(store: Store) -> None:
    made = MetricWriter("uri", "run")
    made.add({"loss": 1.0}, 1)
    until = time.monotonic() + 5
    while not store.points and time.monotonic() < until:
        time.sleep(0.01)
    assert store.points == [("loss", 1.0, 1)]
    made.close()


def test_a_store_that_fails_for_a_while_loses_nothing(store: Store) -> None:
    store.failures = 3
    made = MetricWriter("uri", "run")
    for step in range(10):
        made.add({"loss": float(step)}, step)
    made.close()
    assert [step for _, _, step in store.points] == list(range(10))


def test_a_store_that_stays_away_is_an_error_at_the_end(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logger, "DEADLINE_S", 0.4)
    store.failures = 10**6
    made = MetricWriter("uri", "run")
    made.add({"loss": 1.0}, 1)
    with pytest.raises(TimedOut, match=r"did not accept the last 1 points .*store is away"):
        made.close()


def test_memory_is_bounded_by_making_the_run_wait(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logger, "CAPACITY", 50)
    monkeypatch.setattr(logger, "BATCH", 10)
    store.delay_s = 0.01
    made = MetricWriter("uri", "run")
    for step in range(200):
        made.add({"loss": float(step)}, step)
        assert len(made._points) <= 50
    made.close()
    assert len(store.points) == 200
    store.delay_s, store.failures = 0.0, 10**6
    monkeypatch.setattr(logger, "DEADLINE_S", 0.3)
    stuck = MetricWriter("uri", "run")
    for step in range(50):
        stuck.add({"loss": float(step)}, step)
    with pytest.raises(TimedOut, match="has accepted no metrics"):
        stuck.add({"loss": 50.0}, 50)
    with pytest.raises(TimedOut):
        stuck.close()


def test_a_name_that_mlflow_does_not_take_is_refused_at_once(store: Store) -> None:
    with pytest.raises(ConfigError) as refused:
        MetricWriter("", "run").add({"val_loss": 1.0, "AUC (macro)": 0.5}, 1)
    assert (refused.value.problem.key, refused.value.problem.fix) == ("AUC (macro)", "Log it under another name.")


def test_with_nothing_to_write_nothing_starts(store: Store) -> None:
    MetricWriter("uri", "run").close()
    assert store.status == ""


def test_into_a_real_store(workspace: Workspace) -> None:
    client = open_store(workspace)
    run_id = client.create_run(experiment_id(client, workspace, "test")).info.run_id
    made = MetricWriter(workspace.tracking_uri(), run_id)
    for step in range(20):
        made.add({"loss": 1 / (step + 1)}, step)
    made.close()
    assert [point.value for point in client.get_metric_history(run_id, "loss")] == [
        1 / (step + 1) for step in range(20)
    ]
    assert client.get_run(run_id).info.status == "RUNNING"


def test_a_run_that_waited_began_when_it_was_started_and_not_when_it_was_made(workspace: Workspace) -> None:
    client = open_store(workspace)
    made = client.create_run(experiment_id(client, workspace, "test"), start_time=1000).info.run_id
    client.update_run(made, status="SCHEDULED")
    before = int(time.time() * 1000)
    written = MetricWriter(workspace.tracking_uri(), made)
    written.add({"loss": 1.0}, 0)
    written.close()
    info = client.get_run(made).info
    assert before <= info.start_time <= int(time.time() * 1000)
    assert info.status == "RUNNING"
    mark_running(client, made, 9e9)
    assert client.get_run(made).info.start_time == info.start_time, "it began once"


def test_a_deleted_run_is_not_begun(workspace: Workspace) -> None:
    client = open_store(workspace)
    made = client.create_run(experiment_id(client, workspace, "test"), start_time=1000).info.run_id
    client.delete_run(made)
    with pytest.raises(MlflowException, match="active"):
        mark_running(client, made, 5.0)
    assert client.get_run(made).info.start_time == 1000


def test_a_store_that_is_made_before_the_fork_leaves_no_connection_and_a_fork_has_its_own(
    workspace: Workspace,
) -> None:
    address = workspace.tracking_uri()
    store = open_store(workspace)
    experiment = experiment_id(store, workspace, "kept")
    store._tracking_client.store.engine.dispose()  # a fork would have its parent's connections open
    file = str(workspace.hidden / "mlflow.db")
    context = multiprocessing.get_context("fork")

    def before_the_fork() -> None:
        tasks = len(os.listdir("/proc/self/task"))
        make_store(address)
        gc.collect()
        assert file not in _open_files()
        assert len(os.listdir("/proc/self/task")) == tasks
        kept = client_after_fork(address)._tracking_client.store
        (reading, writing) = context.Pipe(duplex=False)

        def fork() -> None:
            store = client_after_fork(address)._tracking_client.store
            writing.send((store is kept, store.get_experiment(experiment).name))

        _ended_well(context.Process(target=fork))
        assert reading.recv() == (True, "kept")

    _ended_well(context.Process(target=before_the_fork))


def test_connections_of_this_process_stay_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only a parent's are replaced: what is dropped is not closed, which Python 3.13 reports. Also in a new store."""
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    workspace = Workspace(tmp_path)
    kept = open_store(workspace)._tracking_client.store.engine.pool
    assert kept.checkedin() == 1
    for _ in range(2):
        assert client_after_fork(workspace.tracking_uri())._tracking_client.store.engine.pool is kept


def test_a_fork_neither_uses_nor_closes_connections_of_its_parent(workspace: Workspace) -> None:
    store = open_store(workspace)._tracking_client.store
    experiment = experiment_id(open_store(workspace), workspace, "kept")
    file = str(workspace.hidden / "mlflow.db")

    def fork() -> None:
        gc.collect()
        assert file in _open_files()
        assert store.engine.pool.checkedin() == 0
        assert open_store(workspace).get_experiment(experiment).name == "kept"
        assert store.engine.pool.checkedin() == 1

    parents, count = store.engine.pool, store.engine.pool.checkedin()
    assert count > 0
    _ended_well(multiprocessing.get_context("fork").Process(target=fork))
    assert (store.engine.pool, parents.checkedin()) == (parents, count)
    assert open_store(workspace).get_experiment(experiment).name == "kept"


@pytest.mark.parametrize(
    "address", ["http://127.0.0.1:1", "sqlite:///{folder}/none.db", "{folder}/files", "postgresql://u@127.0.0.1:1/no"]
)
def test_no_other_store_is_asked_for_before_it_is_needed(address: str, tmp_path: Path) -> None:
    make_store(address.format(folder=tmp_path))
    assert list(tmp_path.iterdir()) == []


def _open_files() -> set[str]:
    found = set()
    for name in os.listdir("/proc/self/fd"):
        with suppress(OSError):  # the descriptor that lists the folder
            found.add(os.readlink(f"/proc/self/fd/{name}"))
    return found


def _ended_well(process: BaseProcess) -> None:
    process.start()
    process.join(60)
    assert process.exitcode == 0
