"""A start of a job on several machines that is given up: all its parts with it, and nothing that has begun."""

import pytest

from scalebook.training.base.processes import ProcessId
from scalebook.training.cluster.cluster_spool import (
    ClusterSpool,
    JobOrder,
    RemoteState,
    has_failed_to_start,
    state_of,
    write_state,
)
from scalebook.training.cluster.node_connection import give_up, record_failed_start
from scalebook.training.jobs.begin_request import RayHandle, part_names
from scalebook.training.jobs.executor import CLAIMED_ELSEWHERE
from scalebook.training.jobs.job_folder import JobFolder
from tests.training.benches import Bench, bench

__all__ = ["bench"]


@pytest.fixture
def spool(bench: Bench) -> ClusterSpool:
    return ClusterSpool(bench.workspace).create()


def handle(folder: JobFolder, agent: str = "agent") -> RayHandle:
    return RayHandle(ProcessId(7, 1, "boot"), "b", agent, str(folder.path))


def test_the_job_and_its_parts_wait_again_and_no_order_is_left(bench: Bench, spool: ClusterSpool) -> None:
    job = bench.job(nodes=2)
    (part,) = part_names(job.id, ["a", "b"])
    spool.folder_of(part).mkdir(parents=True)
    for name in (job.id, part, "another"):
        spool.order(JobOrder(name, "b", [0], []))
    record_failed_start(spool, job.id, [part])
    assert [order.job for order in spool.ordered()] == ["another"]
    for folder in (job.path, spool.folder_of(part)):
        assert has_failed_to_start(folder)
        assert state_of(folder) == RemoteState(code=CLAIMED_ELSEWHERE, cleared=True)


def test_what_has_begun_is_not_taken_back(bench: Bench, spool: ClusterSpool) -> None:
    job = bench.job()
    begun = RemoteState(handle(job), alive=True)
    write_state(job.path, begun)
    record_failed_start(spool, job.id)
    assert state_of(job.path) == begun
    assert not has_failed_to_start(job.path)


def test_a_job_whose_machine_is_lost_says_so_and_keeps_the_end_that_has_come(bench: Bench) -> None:
    job = bench.job()
    state = RemoteState(handle(job), alive=True, cpu_s=3.0)
    (job.path / ".result").write_text("whole")
    give_up(job, state, "lost with b")
    assert state_of(job.path) == RemoteState(handle(job), cleared=True, lost="lost with b", cpu_s=3.0)
    assert (job.path / "result.json").read_text() == "whole"
