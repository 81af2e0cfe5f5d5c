"""A supervisor that does nothing is named on every page."""

import os
import time

from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs.supervisor_handle import LOCK, SupervisorLock
from tests.app.pages.conftest import Open, words


def test_one_that_does_not_move_is_named_until_it_does(open_page: Open, workspace: Workspace) -> None:
    lock = SupervisorLock(workspace)
    assert lock.acquire()
    before = time.monotonic_ns() - 60 * 10**9
    os.utime(workspace.hidden / LOCK, ns=(before, before))
    said = f"Nothing starts or stops, because the supervisor (process {os.getpid()}) has done nothing for"
    for page in ("", "runs"):
        assert said in words(open_page(page))
    lock.beat()
    assert "Nothing is started" not in words(open_page())
    lock.release()
