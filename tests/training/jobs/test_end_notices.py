import time
from dataclasses import replace
from pathlib import Path

from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs import end_notices
from scalebook.training.jobs.end_notices import Ending
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.job_folder import JobRequest, JobStart, Result, TrialOf
from tests.training.benches import Bench

ENDING = Ending("run", "a", "pixelcnn seed 1", "failed", 1000.0, 90.0, "first.md", "out of memory.")


def test_an_ending_in_words() -> None:
    assert ENDING.text == "Scalebook: pixelcnn seed 1 failed after 1 min 30 s: out of memory."
    assert replace(ENDING, state="finished").text == "Scalebook: pixelcnn seed 1 finished after 1 min 30 s."
    search = Ending("search", "b", "rates", "finished", 1000.0, 90.0, failed=3)
    assert search.text == "Scalebook: rates finished after 1 min 30 s; 3 of its trials failed."
    assert replace(ENDING, state="stopped", seconds=None).text == "Scalebook: pixelcnn seed 1 stopped."


def test_each_reader_sees_what_ended_since_it_looked(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path).create()
    assert end_notices.since(workspace, None) == ([], 0)
    end_notices.add(workspace, ENDING)
    _, late = end_notices.since(workspace, None)
    found, early = end_notices.since(workspace, 0)
    assert (found, early) == ([ENDING], late)
    assert end_notices.since(workspace, late) == ([], late)
    second = replace(ENDING, id="b")
    end_notices.add(workspace, second)
    with end_notices.file_of(workspace).open("a") as file:
        file.write('{"kind": "run"')  # half a line, which is read when it is whole
    found, after = end_notices.since(workspace, late)
    assert found == [second]
    assert end_notices.since(workspace, after) == ([], after)
    end_notices.file_of(workspace).write_bytes(b" " * (end_notices.LARGEST + 1))
    end_notices.add(workspace, ENDING)
    assert end_notices.since(workspace, after)[0] == [ENDING]  # begun anew


def test_runs_that_had_begun_are_told_of_and_no_trials(bench: Bench) -> None:
    job = bench.job(name="a")
    assert end_notices.of_job(job) is None
    job.write(Result("stopped", time.time()))
    assert end_notices.of_job(job) is None  # it never began
    job.write(JobStart(LocalHandle.of_this_process(), 100.0))
    job.write(Result("finished", 160.0))
    assert end_notices.of_job(job) == Ending("run", job.id, "a", "finished", 160.0, 60.0)
    asked = JobRequest("c" * 32, 0.0, "e", "", 1, 1, trial=TrialOf("s", 0))
    trial = bench.add(asked, {})
    trial.write(JobStart(LocalHandle.of_this_process(), 100.0))
    trial.write(Result("finished", 160.0))
    assert end_notices.of_job(trial) is None
