"""A supervisor that is stopped, or hangs, is named to whoever waits for it, and left alone."""

import io
import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from scalebook.training.base.processes import ProcessId
from scalebook.training.cli import notebook_run
from scalebook.training.cli.main import main
from scalebook.training.cli.run_lines import RunLines
from scalebook.training.jobs.supervisor_handle import LOCK, SILENT_S, SupervisorKeeper, SupervisorLock, silence
from scalebook.training.jobs.waiting_jobs import NO_SUPERVISOR, waiting_reasons
from tests.training.benches import Bench, wait_for

NAMED_WITHIN_S = 10.0


@pytest.fixture
def halted(bench: Bench) -> Iterator[ProcessId]:
    """The supervisor of a workspace, whom somebody has stopped."""
    supervisor = bench.supervise()
    assert silence(bench.workspace) == ""
    supervisor.send(signal.SIGSTOP)
    wait_for(supervisor.stopped, "it to stop")
    yield supervisor
    supervisor.send(signal.SIGCONT)


def test_who_runs_a_notebook_is_told_within_seconds_and_goes_on_with_it(bench: Bench) -> None:
    job, out, ended = bench.job(seconds=2.5), io.StringIO(), threading.Event()
    supervisor = bench.supervise()

    def watch() -> None:
        assert notebook_run._watch(bench.workspace, [job], RunLines(out, [job], {}))
        ended.set()

    supervisor.send(signal.SIGSTOP)
    watching = threading.Thread(target=watch)
    watching.start()
    began = time.monotonic()
    try:
        named = f"scalebook: the supervisor (process {supervisor.pid}) is suspended"
        words = f"{named}. To resume it, use `kill -CONT {supervisor.pid}`"
        wait_for(lambda: words in out.getvalue(), "the supervisor to be named")
        assert time.monotonic() - began < NAMED_WITHIN_S
        assert supervisor.alive(), "named, not killed"
    finally:
        supervisor.send(signal.SIGCONT)
        watching.join(60)
    assert ended.is_set()
    assert "the supervisor goes on" in out.getvalue()
    assert out.getvalue().count("scalebook: the supervisor (") == 1, "once"
    assert job.state() == "finished"


def test_every_command_that_needs_it_names_it(
    bench: Bench, halted: ProcessId, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(bench.workspace.root))
    job, words = bench.job(), f"the supervisor (process {halted.pid}) is suspended"
    assert waiting_reasons(bench.workspace)[job.id].startswith(words)
    assert main(["jobs", "list"]) == 0
    assert words in capsys.readouterr().out
    for command in (["jobs", "stop", job.id], ["jobs", "stop", "--all"], ["jobs", "log", "-f", job.id]):
        assert main(command) == 0
        assert words in capsys.readouterr().err, command
    halted.send(signal.SIGCONT)
    wait_for(lambda: not silence(bench.workspace), "it to go on")


def test_one_that_hangs_is_named_and_one_that_is_gone_is_not(bench: Bench) -> None:
    """A process that holds the lock and comes to no turn."""
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        lock = SupervisorLock(bench.workspace)
        os.write(write, b"1" if lock.acquire() else b"0")
        time.sleep(60)
        os._exit(0)
    try:
        assert os.read(read, 1) == b"1"
        job = bench.job()
        assert silence(bench.workspace) == ""
        before = time.monotonic_ns() - round((SILENT_S + 5) * 1e9)
        os.utime(bench.workspace.hidden / LOCK, ns=(before, before))
        said = silence(bench.workspace)
        assert said.startswith(
            f"the supervisor (process {pid}) has done nothing for 12 s. To replace it, use `kill -KILL {pid}`"
        )
        assert waiting_reasons(bench.workspace)[job.id].split(" s.")[0] == said.split(" s.")[0]
        keeper = SupervisorKeeper(bench.workspace)
        keeper.has_changed()
        assert [keeper.news().split(" s.")[0], keeper.news()] == [said.split(" s.")[0], ""]
        now = time.time_ns()  # as an earlier version leaves it
        os.utime(bench.workspace.hidden / LOCK, ns=(now, now))
        assert silence(bench.workspace) == ""
    finally:
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
    assert (silence(bench.workspace), waiting_reasons(bench.workspace)[job.id]) == ("", NO_SUPERVISOR)
