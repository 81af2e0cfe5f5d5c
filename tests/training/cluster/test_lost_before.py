"""A machine that is lost after a job was ordered of it and before the job began: the order is taken back."""

import signal
import time

import pytest

from scalebook.training.cluster.ray_executor import RayExecutor
from scalebook.training.jobs.begin_request import PARTS
from scalebook.training.jobs.job_nodes import part_folders
from tests.training.benches import Bench, until_state, wait_for
from tests.training.cluster.conftest import Cluster, Place
from tests.training.cluster.test_ray_executor import home
from tests.training.cluster.test_several import is_gone, spread

__all__ = ["home", "spread"]
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(400)]
NOTICED_S = 40.0
"""Ray's 15 s, or our 20 s, what the begin takes, and as much again for a busy machine."""


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "frozen"])
def test_the_order_is_taken_back_and_the_job_begins_on_others(
    how: signal.Signals, spread: Bench, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> None:
    third, executor = Place(tmp_path_factory.mktemp("c")), RayExecutor(spread.workspace)
    third.command("start", "--join", cluster.address, "--host", "127.0.0.4", "--name", "c", "--cores", "2",
                  "--token", str(cluster.a.token))  # fmt: skip
    node = third.node().process
    try:
        spread.supervise()
        holder = spread.job(workers=2, seconds=300)
        until_state(holder, "running")
        wait_for(lambda: len(executor.machines()) == 3, "the third machine", 180)
        everything = [node, *node.descendants()]
        for process in everything:
            process.send(signal.SIGSTOP)
        job = spread.job(workers=2, nodes=2, seconds=300)
        wait_for(lambda: list(spread.workspace.hidden.glob(f"{PARTS}/{job.id}@*")), "the order")
        since = time.monotonic()
        for process in everything:
            process.send(how)
        holder.ask_to_stop("enough")
        wait_for(lambda: job.claimed() or job.result(), "the begin on the others", 100)
        took = time.monotonic() - since
        started = job.started()
        assert started is not None
        assert {lent.machine for lent in started.lent} == {"a", "b"}
        assert took < NOTICED_S
        for process in everything:
            process.send(signal.SIGCONT)
        (part,) = part_folders(job).values()
        there = wait_for(part.started, "the other part")
        both = [one.handle.process.pid for one in (started, there)]
        job.ask_to_stop("enough")
        assert until_state(job, "stopped", "failed") == "stopped"
        wait_for(lambda: all(map(is_gone, both)), "the end of both")
    finally:
        for process in (node, *node.descendants()):
            process.send(signal.SIGCONT)
        third.command("stop", code=1 if how == signal.SIGKILL else 0)
        wait_for(lambda: len(executor.machines()) == 2, "the cluster daemon to know", 120)
