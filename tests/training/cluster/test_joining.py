"""Machines that join a job that runs, and leave it: two raylets, the supervisor, real daemons; and a real run."""

import json
import os
import re
import signal
import time
from typing import Any

import pytest

from scalebook.training.cluster.cluster_spool import state_of
from scalebook.training.jobs import job_requests
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.job_nodes import part_folders
from scalebook.training.jobs.leases import Lease
from scalebook.training.jobs.waiting_jobs import waiting_reasons
from tests.training.benches import Bench, until_state, wait_for
from tests.training.cluster.conftest import Cluster
from tests.training.cluster.test_ray_executor import home
from tests.training.cluster.test_several import ended, is_gone, pids, real, spread, submitted

__all__ = ["home", "real", "spread"]
TRAINS_S = 4.0
"""CPU seconds that a part has used when it trains."""
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def machines(job: JobFolder) -> list[str]:
    """Of which it holds something now."""
    started = job.started()
    assert started is not None
    lease = Lease.of(job, started)
    return [lease.machine, *(lent.machine for lent in lease.others)]


def words(bench: Bench, job: JobFolder) -> str:
    return waiting_reasons(bench.workspace).get(job.id, "")


def meeting(job: JobFolder) -> dict[str, Any]:
    found = re.search(r"^meeting (.*)$", job.log.read_text(encoding="utf-8"), re.MULTILINE)
    assert found is not None
    told: dict[str, Any] = json.loads(found[1])
    return told


def test_a_machine_joins_when_another_job_has_ended_and_none_waits(spread: Bench) -> None:
    first = spread.job(workers=2, seconds=4.0, name="first")
    spread.supervise()
    until_state(first, "running")
    job = spread.job(workers=2, nodes=2, least=1, seconds=60, meeting=True)
    until_state(job, "running")
    second = spread.job(workers=2, seconds=2.0, name="second")
    assert machines(job) == ["b"]
    wait_for(lambda: words(spread, job).startswith("1 of 2 nodes; waits for more: 2 cores; 0 of 2 free on a"), "why")
    until_state(second, "running", "finished")
    assert machines(job) == ["b"]
    wait_for(lambda: len(pids(job)) == 2, "the other machine")
    assert second.state() == "finished"
    assert (machines(job), words(spread, job)) == (["b", "a"], "2 of 2 nodes")
    (part,) = part_folders(job).values()
    wait_for(lambda: part.log.exists() and "MASTER_PORT" in part.log.read_text(encoding="utf-8"), "its log")
    wait_for(lambda: "MASTER_PORT" in job.log.read_text(encoding="utf-8"), "the job's log")
    here, there = meeting(job), meeting(part)
    assert (here.pop("NODE_RANK"), there.pop("NODE_RANK")) == ("0", "1")
    for one in (here, there):
        del one["SCALEBOOK_KEY_FILE"]
    assert here == there
    job.ask_to_stop("enough")
    both = pids(job)
    assert until_state(job, "stopped", "failed") == "stopped"
    wait_for(lambda: all(map(is_gone, both)), "the end of both")


def test_the_place_of_a_part_that_is_killed_is_taken_again_and_others_that_wait_come_first(spread: Bench) -> None:
    job = spread.job(workers=2, nodes=2, least=1, seconds=120)
    spread.supervise()
    _, there = wait_for(lambda: pids(job), "both parts")
    waits = spread.job(workers=2, seconds=1.0)
    os.kill(there, signal.SIGKILL)
    assert until_state(waits, "finished", "failed") == "finished"
    wait_for(lambda: list(part_folders(job)) == ["b", "b (2)"], "the second part there")
    again = part_folders(job)["b (2)"]
    until_state(again, "running")
    assert (again.request().part, machines(job), job.state()) == (1, ["a", "b"], "running")
    job.ask_to_stop("enough")
    assert until_state(job, "stopped", "failed") == "stopped"
    started = again.started()
    assert started is not None
    wait_for(lambda: is_gone(started.handle.process.pid), "its end")


def test_a_part_that_fails_by_itself_is_tried_three_times_and_the_job_goes_on(spread: Bench) -> None:
    job = spread.job(workers=2, nodes=2, least=1, seconds=120, end="exit", part_seconds=0.0)
    spread.supervise()
    wait_for(lambda: words(spread, job).endswith("waits for more: the run's part on b has ended"), "why")
    wait_for(lambda: len(part_folders(job)) == 3, "three parts")
    time.sleep(9.0)
    assert (len(part_folders(job)), machines(job), job.state()) == (3, ["a"], "running")


@pytest.mark.timeout(540)
def test_a_real_run_begins_with_one_machine_and_the_other_joins_dies_and_comes_back(
    real: Bench, cluster: Cluster
) -> None:
    holder = submitted(real, "ddp", devices=2, max_epochs=100_000)
    wait_for(lambda: holder.state() == "running", "the first job", 200)
    given = {"class_path": "AsyncPS", "init_args": {"workers": {"min": 2, "max": 4}}}
    job = submitted(real, given, devices=2, num_nodes=2, max_epochs=100_000)
    updates(job, 20)
    assert machines(job) == ["b"]
    assert words(real, job).startswith("1 of 2 nodes; waits for more: 2 cores; 0 of 2 free on a")
    job_requests.stop(holder)
    assert ended(holder) == "stopped"
    wait_for(lambda: said(job, "The run now has 4 of at most 4 workers"), "the other machine", 120)
    assert (machines(job), words(real, job)) == (["b", "a"], "2 of 2 nodes")
    updates(job, 20)
    (part,) = part_folders(job).values()
    started = part.started()
    assert started is not None
    os.kill(started.handle.process.pid, signal.SIGKILL)
    wait_for(lambda: "a (2)" in part_folders(job), "its place to be taken", 60)
    again = part_folders(job)["a (2)"]
    wait_for(lambda: (state := state_of(again.path)) is not None and state.cpu_s > TRAINS_S, "it to train", 120)
    updates(job, 20)
    job_requests.stop(job)
    assert ended(job) == "stopped"
    result = wait_for(again.result, "how its second part ended")
    assert result.status in ("stopped", "finished")  # it would have failed, had none of its workers been taken in
    assert "SIGTERM" not in str(job.result())


def said(job: JobFolder, what: str) -> int:
    return job.log.read_text(encoding="utf-8").count(what)


def updates(job: JobFolder, more: int) -> None:
    """Until it has made so many more."""
    before = at.updates if (at := job.progress()) is not None else 0
    wait_for(lambda: (at := job.progress()) is not None and at.updates > before + more, f"{more} updates", 180)
