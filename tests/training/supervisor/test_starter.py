"""The warm process and who looks after it."""

import os
import select
from pathlib import Path

from scalebook.training.jobs.devices import inventory
from scalebook.training.jobs.process import alive
from scalebook.training.jobs.schedule import Start
from scalebook.training.supervisor.job_watch import JobLimits
from scalebook.training.supervisor.starter import Starter
from scalebook.training.supervisor.warm import Order, Report
from scalebook.training.supervisor.warming import WarmProcess
from tests.training.benches import STAND_IN, Bench, until_state, wait_for


def test_a_fork_reports_its_end_and_a_closed_socket_ends_the_warm_process(bench: Bench) -> None:
    warm = WarmProcess(bench.workspace.hidden / "warm.log", STAND_IN, ())
    job = bench.job(end="exit")
    try:
        assert warm.order(Order(str(job.path), str(bench.workspace.root), inventory().cores[:1], []))
        reports: list[Report] = []
        while len(reports) < 2:
            assert select.select([warm.connection], [], [], 20)[0], "no report in 20 s"
            reports += warm.reports()
        started = job.started()
        assert started is not None
        assert [(report.event, report.threads, report.pid, report.code) for report in reports] == [
            ("ready", 1, 0, 0),
            ("ended", 0, started.process.pid, 7),
        ]
        warm.connection.close()
        wait_for(lambda: not alive(warm.process), "its end")
    finally:
        warm.close()
    assert not os.path.exists(f"/proc/{warm.process.pid}")


def test_a_changed_source_file_replaces_the_warm_process(bench: Bench, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "module.py").write_text("a = 1\n", encoding="utf-8")
    starter = Starter(bench.workspace, JobLimits(), STAND_IN, (), package)
    try:
        wait_for(lambda: starter.listen(0.02) or starter.prepare(fresh=True), "the warm process")
        first = starter._warm
        assert first is not None
        assert starter.prepare(fresh=True)
        assert starter._warm is first
        (package / "module.py").write_text("a = 22\n", encoding="utf-8")
        assert starter.prepare(fresh=False)
        assert not starter.prepare(fresh=True)
        assert not alive(first.process)
        assert starter.state == "loading"
        wait_for(lambda: starter.listen(0.02) or starter.prepare(fresh=True), "the next warm process")
        job = bench.job()
        starter.order(job, Start(job.request(), inventory().cores[:1], []))
        assert [lease.id for lease in starter.leases()] == [job.id]
        assert until_state(job, "finished", "failed") == "finished"
    finally:
        starter.close()


def test_a_job_is_not_kept_waiting_for_a_warm_process_that_cannot_be(bench: Bench) -> None:
    job = bench.job()
    bench.supervise(runner="tests.training.jobs.nowhere:run", retry_s=0.1)
    result = wait_for(job.result, "a result")
    assert (result.status, result.failure) == ("failed", "unknown")
    assert result.cause.startswith("the process that starts runs ended: ModuleNotFoundError")
