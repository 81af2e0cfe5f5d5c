"""The fork server and who looks after it."""

import os
from multiprocessing.connection import wait
from pathlib import Path

from scalebook.training.base.processes import Children
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.fork_server import Order, Report
from scalebook.training.jobs.launcher import ForkServerProcess, LocalLauncher, ProcessEnded
from scalebook.training.jobs.leases import Lease
from tests.training.benches import STAND_IN, Bench, until_state, wait_for


def test_a_fork_reports_its_end_and_a_closed_socket_ends_the_warm_process(bench: Bench) -> None:
    warm = ForkServerProcess(bench.workspace.hidden / "warm.log", STAND_IN, ())
    job = bench.job(end="exit")
    try:
        assert warm.order(Order(str(job.path), str(bench.workspace.root), this_machine().cores[:1], []))
        reports: list[Report] = []
        while len(reports) < 2:
            assert wait([warm.connection], 20), "no report in 20 s"
            reports += warm.reports()
        started = job.started()
        assert started is not None
        assert [(report.event, report.threads, report.pid, report.code) for report in reports] == [
            ("ready", 1, 0, 0),
            ("ended", 0, started.handle.process.pid, 7),
        ]
        warm.connection.close()
        wait_for(lambda: not warm.process.alive(), "its end")
    finally:
        warm.close()
    assert not os.path.exists(f"/proc/{warm.process.pid}")


def test_what_jobs_have_in_common_is_prepared_once_behind_the_first_and_may_fail(bench: Bench) -> None:
    log = bench.workspace.hidden / "warm.log"
    warm = ForkServerProcess(log, "tests.training.jobs.prepared:run", ())
    jobs = [bench.job() for _ in range(3)]
    noted = jobs[0].path.parent / "prepared"
    try:
        for job in jobs:
            assert warm.order(Order(str(job.path), str(bench.workspace.root), this_machine().cores[:1], []))
            wait_for((job.path / "forked-from").exists, "the job")
            wait_for(lambda: noted.exists() and "what is prepared fails" in log.read_text("utf-8"), "the preparation")
        assert noted.read_text("utf-8") == f"{jobs[0].id}\n"
        kept = [(job.path / "forked-from").read_text("utf-8") for job in jobs]
        assert kept == ["[]", repr([jobs[0].path]), repr([jobs[0].path])]
    finally:
        warm.close()


def test_a_process_with_a_thousand_open_files_hears_of_its_jobs(bench: Bench) -> None:
    held = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    launcher = LocalLauncher(bench.workspace, Children(), STAND_IN, ())
    try:
        launcher.prepare(fresh=False)
        wait_for(lambda: launcher.events(0.02) is not None and launcher.prepare(fresh=False), "the launcher")
    finally:
        launcher.close()
        for descriptor in held:
            os.close(descriptor)


def test_a_changed_source_file_replaces_the_warm_process(bench: Bench, tmp_path: Path) -> None:
    package = tmp_path / "package"
    package.mkdir()
    (package / "module.py").write_text("a = 1\n", encoding="utf-8")
    launcher = LocalLauncher(bench.workspace, Children(), STAND_IN, (), package)
    try:
        wait_for(lambda: launcher.events(0.02) or launcher.prepare(fresh=True), "the warm process")
        first = launcher._warm
        assert first is not None
        assert launcher.prepare(fresh=True)
        assert launcher._warm is first
        (package / "module.py").write_text("a = 22\n", encoding="utf-8")
        assert launcher.prepare(fresh=False)
        assert not launcher.prepare(fresh=True)
        assert not first.process.alive()
        assert launcher.state == "loading"
        wait_for(lambda: launcher.events(0.02) or launcher.prepare(fresh=True), "the next warm process")
        job = bench.job(end="exit")
        assert launcher.start(job, Lease(job.id, "", this_machine().cores[:1]))
        assert wait_for(lambda: launcher.events(0.02), "its end") == [ProcessEnded(job.id, 7)]
        assert until_state(job, "finished", "failed") == "failed"
    finally:
        launcher.close()
