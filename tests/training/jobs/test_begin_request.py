"""A job that nobody hears of any more."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from scalebook.training.base.safe_path import environment
from tests.training.benches import wait_for

JOB = """
import subprocess, sys, time
from scalebook.training.jobs.begin_request import end_with
from scalebook.training.base.processes import ProcessId
end_with(ProcessId.of(int(sys.argv[1])))
print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("what", ["kill", "stop"])
def test_a_job_ends_with_its_agent_and_what_it_has_started_too(what: str, tmp_path: Path) -> None:
    """A frozen one is not gone."""
    agent = psutil.Popen(["sleep", "600"])
    said = tmp_path / "said"
    with said.open("w") as log:
        job = psutil.Popen(
            [sys.executable, "-P", "-c", JOB, str(agent.pid)], stdout=log, stderr=subprocess.STDOUT,
            start_new_session=True, env=environment(),
        )  # fmt: skip
    try:
        child = psutil.Process(int(wait_for(lambda: said.read_text().split(), "its child")[0]))
        agent.suspend()
        with pytest.raises(psutil.TimeoutExpired):
            job.wait(2.5)
        if what == "kill":
            agent.kill()
            agent.wait(10)
            assert job.wait(10) == -9
            wait_for(lambda: not child.is_running() or child.status() == psutil.STATUS_ZOMBIE, "its child's end")
            assert "this run can no longer report" in said.read_text()
        else:
            agent.resume()
            assert job.is_running()
    finally:
        for process in (agent, job):
            if process.is_running():
                process.kill()
                process.wait(10)
        if job.returncode is not None and what == "stop":
            os.kill(child.pid, 9)
