"""Machines that come late: into the cluster in mid-run, and into a job at the moment in which it ends."""

import os
import signal
from pathlib import Path

import pytest

from scalebook.training.cluster.cluster_spool import has_failed_to_start
from scalebook.training.jobs.job_nodes import part_folders
from tests.training.benches import Bench, until_state, wait_for
from tests.training.cluster.conftest import Cluster, Place
from tests.training.cluster.test_joining import machines
from tests.training.cluster.test_ray_executor import home
from tests.training.cluster.test_several import is_gone, pids, spread

__all__ = ["home", "spread"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def test_a_machine_that_joins_the_cluster_in_mid_run_is_lent_to_who_waits_and_then_to_who_may_grow(
    spread: Bench, cluster: Cluster, tmp_path: Path
) -> None:
    job = spread.job(workers=2, nodes=3, least=2, seconds=200)
    spread.supervise()
    wait_for(lambda: len(pids(job)) == 2, "both parts")
    waits = spread.job(workers=2, seconds=0.5)
    c = Place(tmp_path / "c")
    c.home.mkdir()
    join = ("start", "--join", cluster.address, "--host", "127.0.0.4", "--name", "c", "--cores", "2")
    c.command(*join, "--token", str(cluster.a.token))
    try:
        wait_for(lambda: waits.state() == "finished", "the job that waits", 120)
        started = waits.started()
        assert started is not None
        assert started.machine == "c"
        wait_for(lambda: len(pids(job)) == 3, "the third part", 60)
        assert machines(job) == ["a", "b", "c"]
        every = pids(job)
        job.ask_to_stop("enough")
        assert until_state(job, "stopped", "failed") == "stopped"
        wait_for(lambda: all(map(is_gone, every)), "the end of all")
    finally:
        c.command("stop")


@pytest.mark.parametrize("end", ["stopped", "failed"])
def test_a_part_that_is_ordered_when_its_job_ends_comes_to_nothing_or_ends_too(end: str, spread: Bench) -> None:
    holder = spread.job(workers=2, seconds=4.0)
    spread.supervise()
    until_state(holder, "running")
    job = spread.job(workers=2, nodes=2, least=1, seconds=200)
    until_state(job, "running")
    (first,) = pids(job)
    wait_for((job.path / "joined.json").exists, "the order", 60)
    if end == "stopped":
        job.ask_to_stop("enough")
    else:
        os.kill(first, signal.SIGKILL)
    assert until_state(job, "stopped", "failed") == end
    (part,) = part_folders(job).values()
    wait_for(lambda: has_failed_to_start(part.path) or part.result() is not None, "the part's end", 60)
    after = spread.job(workers=2, nodes=2, seconds=0.1)
    assert until_state(after, "finished", "failed") == "finished"  # all that the job held is free
    started = part.started()
    assert started is None or is_gone(started.handle.process.pid)
