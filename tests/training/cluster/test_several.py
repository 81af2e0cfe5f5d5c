"""Jobs of the queue over two machines: two raylets, the supervisor, real daemons; and real runs of both strategies."""

import json
import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch

from scalebook.training.cluster.ray_executor import RayExecutor
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.job_nodes import part_folders
from scalebook.training.jobs.launcher import RUNNER
from scalebook.training.jobs.waiting_jobs import waiting_reasons
from scalebook.training.tracking import names
from tests.training.benches import Bench, until_state, wait_for
from tests.training.cluster.conftest import Cluster, Place
from tests.training.cluster.test_ray_executor import home, leave, on_cluster
from tests.training.runs import config, reader

__all__ = ["home"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def spread(home: None, bench: Bench) -> Iterator[Bench]:
    """A workspace whose jobs run on both machines, with a supervisor for proxies."""
    on_cluster(bench.workspace, "copied")
    yield bench
    bench.clean()
    leave(bench.workspace)


def parts(job: JobFolder) -> list[JobFolder]:
    return [JobFolder(path) for path in sorted((job.path.parents[1] / "parts").glob(f"{job.id}@*"))]


def pids(job: JobFolder) -> list[int]:
    """Of the main processes of all its parts, when all have begun."""
    records = [one.started() for one in (job, *parts(job))]
    return [started.handle.process.pid for started in records if started is not None] if all(records) else []


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_it_has_a_process_on_each_with_one_place_to_meet_and_one_key(spread: Bench, cluster: Cluster) -> None:
    job = spread.job(nodes=2, seconds=1.0, devices=True, meeting=True)
    other = spread.job(nodes=2, workers=2, seconds=0.1)
    spread.supervise()
    until_state(job, "running")
    started = job.started()
    assert started is not None
    assert [lent.machine for lent in started.lent] == ["a", "b"]
    wait_for(lambda: waiting_reasons(spread.workspace)[other.id].startswith("waits for 2 cores on each of 2 "), "why")
    assert until_state(job, "finished", "failed") == "finished"
    (part,) = parts(job)
    wait_for(lambda: part.log.exists() and "MASTER_PORT" in part.log.read_text(encoding="utf-8"), "its log")
    told = [
        json.loads(found[1])
        for one in (job, part)
        if (found := re.search(r"^meeting (.*)$", one.log.read_text(encoding="utf-8"), re.MULTILINE))
    ]
    assert [one["NODE_RANK"] for one in told] == ["0", "1"]
    assert [one["MASTER_ADDR"] for one in told] == ["127.0.0.2"] * 2
    assert told[0]["MASTER_PORT"] == told[1]["MASTER_PORT"]
    assert told[0]["key"] == told[1]["key"]
    assert {one["mode"] for one in told} == {"0o600"}
    assert until_state(other, "finished", "failed") == "finished"
    files = [Path(one["SCALEBOOK_KEY_FILE"]) for one in told]
    wait_for(lambda: not any(file.exists() for file in files), "the key to be removed")


def test_what_other_parts_leave_is_ended_with_the_job(spread: Bench) -> None:
    job = spread.job(nodes=2, seconds=60, child=True)
    spread.supervise()
    here, there = wait_for(lambda: pids(job), "both parts")
    job.ask_to_stop("enough")
    assert until_state(job, "stopped", "failed") == "stopped"
    wait_for(lambda: is_gone(here) and is_gone(there), "the end of the part that nobody told")
    stubborn = spread.job(nodes=2, seconds=60, deaf=True, stubborn=True)
    both = wait_for(lambda: pids(stubborn), "both parts")
    stubborn.ask_to_stop("enough")
    result = wait_for(stubborn.result, "how it ended")
    assert result.cause == "enough; it did not stop by itself and got SIGTERM and SIGKILL"
    wait_for(lambda: all(map(is_gone, both)), "the end of both")


def test_a_part_that_ends_before_training_ends_the_job(spread: Bench) -> None:
    job = spread.job(nodes=2, seconds=120, frozen=True)
    spread.supervise()
    _, there = wait_for(lambda: pids(job), "both parts")
    os.kill(there, signal.SIGKILL)
    result = wait_for(job.result, "how it ended")
    assert (result.failure, result.cause) == (
        "worker lost", "its part on b ended before training began: ended with code -9"
    )  # fmt: skip


def test_more_machines_than_there_are_is_said(spread: Bench) -> None:
    job = spread.job(nodes=3, seconds=0.1)
    spread.supervise()
    wait_for(lambda: waiting_reasons(spread.workspace)[job.id].startswith("waits for 3 machines"), "why")
    assert waiting_reasons(spread.workspace)[job.id] == "waits for 3 nodes at once, but there are only 2: a, b"


# --- real runs -------------------------------------------------------------------------------------------------------


@pytest.fixture
def real(home: None, bench: Bench, request: pytest.FixtureRequest) -> Iterator[Bench]:
    """Where the workspace is seen on both machines, unless a test wants it "copied"."""
    on_cluster(bench.workspace, getattr(request, "param", "auto"), None)
    bench.supervise(runner=RUNNER, grace_s=20.0, linger_s=300.0)  # describing a workspace takes long on a busy machine
    yield bench
    bench.clean()
    leave(bench.workspace)


def submitted(bench: Bench, strategy: Any, **trainer: Any) -> JobFolder:
    given = config(strategy, **trainer)
    (job,) = job_requests.submit(
        bench.workspace, Experiment.read(given, describe(bench.workspace)), seeds=[1], start=False
    )
    return job


def ended(job: JobFolder) -> str:
    return str(wait_for(job.result, "its end", 180).status)


def outcome(bench: Bench, job: JobFolder) -> tuple[dict[str, Any], dict[str, Any]]:
    """Losses as MLflow has them, and weights, of a run that has finished."""
    told = reader(bench.workspace)
    wait_for(lambda: names.TAG_DEVICES in told.run(job.id).tags, "MLflow to be told, last of its devices")
    record = told.run(job.id)
    losses = {name: value for name, value in record.metrics.items() if re.match("(train|val)/", name)}
    weights = torch.load(job.path / "checkpoints" / "last.ckpt", weights_only=True)["state_dict"]
    return losses, {name: tensor.tolist() for name, tensor in weights.items()}


SYNC = {"class_path": "AsyncPS", "init_args": {"rule": "sync"}}


@pytest.mark.parametrize(
    ("strategy", "alone", "several"),
    [
        ("ddp", {"devices": 2}, {"devices": 1, "num_nodes": 2}),
        (SYNC, {"devices": 2}, {"devices": 1, "num_nodes": 2}),
        ("ddp", {"devices": 2, "num_nodes": 2}, {"devices": 4}),
    ],
    ids=["ddp", "AsyncPS", "spread"],
)
def test_two_machines_are_one_to_the_last_bit(
    strategy: Any, alone: dict[str, int], several: dict[str, int], real: Bench
) -> None:
    """As the queue places them; the second says what it did in a log of its own."""
    one, two = submitted(real, strategy, **alone), submitted(real, strategy, **several)
    assert (ended(one), ended(two)) == ("finished", "finished"), [one.tail(), two.tail()]
    losses, weights = outcome(real, one)
    assert losses
    assert outcome(real, two) == (losses, weights)
    started, (part,) = two.started(), parts(two)
    assert started is not None
    assert [lent.machine for lent in started.lent] == ["a", "b"]
    result = wait_for(part.result, "how the part ended")
    assert result.status == "finished"
    assert "finished" in part_folders(two)["b"].tail()
    assert not (part.path / "checkpoints").exists()
    run = reader(real.workspace).run(two.id)
    assert re.fullmatch(r"a: core \d.*; b: core \d.*", run.tags[names.TAG_DEVICES])


def training(job: JobFolder) -> list[int]:
    """Of its parts, in the middle of training."""
    wait_for(lambda: (at := job.progress()) is not None and at.updates > 20, "20 updates", 180)
    return pids(job)


@pytest.mark.parametrize(("strategy", "real"), [("ddp", "auto"), (SYNC, "copied")], indirect=["real"])
def test_a_stop_ends_all_parts_by_themselves(strategy: Any, real: Bench) -> None:
    job = submitted(real, strategy, devices=1, num_nodes=2, max_epochs=100_000)
    training(job)
    job_requests.stop(job)
    assert ended(job) == "stopped"
    result = wait_for(parts(job)[0].result, "how the part ended")
    assert result.status in ("stopped", "finished")
    assert job.result() is not None
    assert "SIGTERM" not in str(job.result())


def test_a_machine_that_is_killed_is_named_and_the_others_are_free_again(
    real: Bench, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """A third one, since nobody brings it back."""
    third, executor = Place(tmp_path_factory.mktemp("c")), RayExecutor(real.workspace)
    third.command("start", "--join", cluster.address, "--host", "127.0.0.4", "--name", "c", "--cores", "2",
                  "--token", str(cluster.a.token))  # fmt: skip
    try:
        wait_for(lambda: len(executor.machines()) == 3, "the third machine", 180)
        job = submitted(real, "ddp", devices=1, num_nodes=3, max_epochs=100_000)
        here, there, _ = training(job)
        node = third.node().process
        for process in (node, *node.descendants()):
            process.send(signal.SIGKILL)
        assert ended(job) == "failed"
        result = job.result()
        assert result is not None
        assert "node 2" in result.cause
        wait_for(lambda: is_gone(here) and is_gone(there), "the end of the others")
        wait_for(lambda: len(executor.machines()) == 2, "the cluster daemon to know", 120)
    finally:
        third.command("stop", code=1)


def test_a_part_that_is_killed_ends_ddp_with_its_name_and_costs_asyncps_its_workers(real: Bench) -> None:
    job = submitted(real, "ddp", devices=1, num_nodes=2, max_epochs=100_000)
    os.kill(training(job)[1], signal.SIGKILL)
    assert ended(job) == "failed"
    result = job.result()
    assert result is not None
    assert result.failure == "worker lost"
    assert "node 1" in result.cause
    job = submitted(real, {"class_path": "AsyncPS"}, devices=1, num_nodes=2, max_epochs=100_000)
    here, there = training(job)
    os.kill(there, signal.SIGKILL)
    wait_for(lambda: "Training continues" in job.tail() or "given up" in job.tail(), "word of it", 60)
    before = job.progress()
    assert before is not None
    wait_for(lambda: (at := job.progress()) is not None and at.updates > before.updates + 20, "more updates")
    job_requests.stop(job)
    assert ended(job) == "stopped"
    wait_for(lambda: is_gone(here), "its end")
