"""Jobs that lie in a folder and were not submitted by this user."""

import time
import uuid

from scalebook.training.base.trust import FOUND, trust
from scalebook.training.jobs import job_requests
from scalebook.training.jobs.job_folder import JobFolder, JobRequest, Result
from scalebook.training.jobs.supervisor_handle import running
from scalebook.training.jobs.waiting_jobs import waiting_reasons
from tests.training.benches import Bench, until_state, wait_for


def found(bench: Bench) -> JobFolder:
    request = JobRequest(uuid.uuid4().hex, time.time(), "test", bench.workspace.tracking_uri(), 1, 1, name="a stranger")
    return bench.add(request, {}, submitted=False)


def test_they_wait_until_the_folder_is_trusted(bench: Bench) -> None:
    """One that was submitted, later, goes before; its end shows that the supervisor has looked at both."""
    theirs, ours = found(bench), bench.job()
    bench.supervise()
    assert until_state(ours, "finished", "failed") == "finished"
    assert theirs.state() == "waiting"
    assert waiting_reasons(bench.workspace) == {theirs.id: FOUND}
    trust(bench.workspace)
    assert until_state(theirs, "finished", "failed") == "finished"


def test_the_supervisor_does_not_stay_for_them(bench: Bench) -> None:
    theirs = found(bench)
    bench.supervise(linger_s=0.2)
    wait_for(lambda: running(bench.workspace) is None, "the supervisor to leave")
    assert f"job {theirs.id} waits: found in this folder" in bench.log()
    assert theirs.state() == "waiting"


def test_nobody_is_told_of_their_end(bench: Bench) -> None:
    """The store that they name may be anywhere."""
    stopped, ended = found(bench), found(bench)
    ended.write(Result("finished", time.time()))
    ended.unrecorded.touch()
    bench.supervise(linger_s=0.5)
    job_requests.stop(stopped)
    wait_for(lambda: stopped.state() == "stopped" and stopped.result() is not None, "it to be stopped")
    wait_for(lambda: running(bench.workspace) is None, "the supervisor to leave")
    assert ended.unrecorded.exists()
    assert stopped.unrecorded.exists()
