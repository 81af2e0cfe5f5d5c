import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from scalebook.training.base.files import records
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.trust import JOB, sign
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs import waiting_jobs
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, JobStart, Progress, Result
from scalebook.training.jobs.leases import DurationEstimates
from scalebook.training.jobs.supervisor_handle import SupervisorLock
from scalebook.training.supervisor.job_watch import JobLimits
from scalebook.training.supervisor.supervisor_loop import SupervisorLoop
from tests.training.benches import Bench
from tests.training.jobs.machines import Cores

ASKED = JobRequest("asked", 0.0, "e", "", 1, 2, config_hash="abc")


def test_a_job_is_expected_to_last_as_long_as_the_longest_of_its_kind(bench: Bench) -> None:
    lasting = DurationEstimates()
    cases: list[tuple[float, Literal["finished", "stopped"], dict[str, Any]]] = [
        (10.0, "finished", {}),
        (30.0, "finished", {}),
        (20.0, "finished", {}),
        (90.0, "stopped", {}),
        (91.0, "finished", {"workers": 4}),
        (92.0, "finished", {"resumed_from": "another"}),
        (93.0, "finished", {"config_hash": ""}),
    ]
    for seconds, status, changes in cases:
        job = bench.job()
        job.write(replace(ASKED, id=job.id, **changes))
        job.write(JobStart(LocalHandle.of_this_process(), 1000.0))
        job.write(Result(status, 1000.0 + seconds))
        lasting.add(job)
    other, none = replace(ASKED, id="other", config_hash="def"), replace(ASKED, id="none", config_hash="")
    assert lasting.of([ASKED, other, none]) == {"asked": 30.0}


def job(workspace: Workspace, name: str, workers: int, config_hash: str = "") -> JobFolder:
    found = JobFolder(workspace.jobs / (name * 32))
    found.path.mkdir()
    records.put(found.config, b"{}")
    found.write(JobRequest(found.id, time.time(), "e", "", 1, workers, config_hash=config_hash, name=name))
    sign(found.path, found.id, JOB)
    return found


def test_a_brief_job_starts_on_the_core_that_a_wide_one_waits_with(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By what the folders tell: how long the run has left, and how long the brief one's like have taken."""
    workspace = Workspace(tmp_path).create()
    monkeypatch.setattr(waiting_jobs, "configured_executor", lambda workspace: Cores(0, 1))
    done, runs, wide = job(workspace, "d", 1, "known"), job(workspace, "a", 1), job(workspace, "c", 2)
    long, brief = job(workspace, "e", 1), job(workspace, "b", 1, "known")
    done.write(JobStart(LocalHandle(replace(ProcessId.of(), start=0)), 1000.0))  # of a process that is gone
    done.write(Result("finished", 1010.0))
    runs.write(JobStart(LocalHandle.of_this_process(), time.time(), [0]))
    runs.write(Progress(time.time(), "training", left_s=30.0))
    turns = SupervisorLoop(SupervisorLock(workspace), JobLimits(poll_s=0.0), Cores(0, 1), "none", ())
    ordered: list[str] = []
    monkeypatch.setattr(turns.starter, "prepare", lambda fresh: True)
    monkeypatch.setattr(turns.starter, "order", lambda job, start: ordered.append(job.id))
    turns.run_once()
    reasons = waiting_jobs.waiting_reasons(workspace)
    turns.close()
    assert ordered == [brief.id]
    assert reasons[wide.id] == "waits for 2 cores; 1 of 2 free, run a has the other, about 30 s left"
    assert reasons[long.id] == "behind 1 run"
    assert not reasons[brief.id].startswith("behind")
