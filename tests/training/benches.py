"""A workspace with a supervisor of its own, whose jobs run the proxy; nothing of it is left after a test."""

import json
import os
import signal
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from scalebook.training.base.processes import ProcessId
from scalebook.training.base.trust import JOB, sign
from scalebook.training.base.workspace import Workspace
from scalebook.training.jobs import supervisor_handle
from scalebook.training.jobs.job_folder import JobFolder, JobRequest
from scalebook.training.jobs.launcher import RUNNER
from scalebook.training.supervisor.search_drivers import DRIVER
from tests.shared_files import Prepared

DEADLINE_S = 60.0
STAND_IN = "tests.training.jobs.standin:run"


def wait_for(condition: Callable[[], Any], what: str, deadline_s: float = DEADLINE_S) -> Any:
    """The first true value of `condition`; fails after the deadline."""
    until = time.monotonic() + deadline_s
    while time.monotonic() < until:
        if found := condition():
            return found
        time.sleep(0.02)
    pytest.fail(f"waited {deadline_s:g} s in vain for {what}")


class Bench:
    """A workspace, the means to fill its queue without MLflow, and its supervisor."""

    def __init__(self, root: Path) -> None:
        self.workspace = Workspace(root).create()
        self.made = 0
        self.supervisors: list[ProcessId] = []

    def job(
        self,
        *,
        workers: int = 1,
        nodes: int = 1,
        least: int = 0,
        priority: int = 0,
        name: str = "",
        run_id: str = "",
        **behaviour: Any,
    ) -> JobFolder:
        """A waiting job that will behave as told (see `standin.run`), with an MLflow run where `run_id` names one."""
        self.made += 1
        request = JobRequest(
            id=run_id or uuid.uuid4().hex,
            created=time.time(),
            mlflow_experiment="test",
            tracking_uri=self.workspace.tracking_uri(),
            seed=1,
            workers=workers,
            nodes=nodes,
            least=least,
            priority=priority,
            name=name or f"run {self.made}",
        )
        return self.add(request, behaviour)

    def add(self, request: JobRequest, config: dict[str, Any], *, submitted: bool = True) -> JobFolder:
        """A folder with this request and config; JSON is YAML. Not `submitted`: found in the folder."""
        beside = JobFolder(self.workspace.jobs / f".{request.id}")
        beside.path.mkdir()
        beside.config.write_text(json.dumps(config), encoding="utf-8")
        beside.write(request)
        if submitted:
            sign(beside.path, request.id, JOB)
        return JobFolder(beside.path.rename(self.workspace.jobs / request.id))

    def supervise(self, *, runner: str = STAND_IN, driver: str = DRIVER, **limits: float) -> ProcessId:
        """Ensure the supervisor, with short limits unless told otherwise."""
        told = {"grace_s": 0.4, "linger_s": 30.0, "retry_s": 0.3, "poll_s": 0.05, **limits}
        options = [] if runner == RUNNER else ["--runner", runner, "--preload", ""]
        options += ["--driver", driver]
        for key, value in told.items():
            options += [f"--{key.replace('_', '-')}", str(value)]
        found = supervisor_handle.ensure(self.workspace, options)
        if found not in self.supervisors:
            self.supervisors.append(found)
        return found

    def warm(self) -> ProcessId:
        """The fork server of the living supervisor."""
        now = supervisor_handle.running(self.workspace)
        assert now is not None
        children = [
            child
            for child in psutil.Process(now.pid).children()
            if "scalebook.training.jobs.fork_server" in child.cmdline()
        ]
        assert len(children) == 1, children
        return ProcessId.of(children[0].pid)

    def log(self) -> str:
        return (self.workspace.hidden / "supervisor.log").read_text(encoding="utf-8")

    def clean(self) -> None:
        """End what the test left."""
        clear(self.workspace, self.supervisors)


def clear(workspace: Workspace, supervisors: Iterable[ProcessId] = ()) -> None:
    """End the supervisor, then every job that it left; fails if it does not go when asked."""
    now = supervisor_handle.running(workspace)
    leaving = {*supervisors, *([now] if now is not None else [])}
    for process in leaving:
        process.send(signal.SIGTERM)
    for process in leaving:
        wait_for(partial(_gone, process), f"supervisor {process.pid} to leave")
    for path in workspace.jobs.glob("[!.]*"):
        if (started := JobFolder(path).started()) is not None and not started.inline:
            for process in started.handle.process.session():
                process.send(signal.SIGKILL)


def _gone(process: ProcessId) -> bool:
    return not process.alive()


@pytest.fixture
def bench(tmp_path: Path, prepared: Prepared, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    made = Bench(tmp_path)
    prepared.into(made.workspace)
    yield made
    made.clean()


def until_state(job: JobFolder, *states: str) -> str:
    wait_for(lambda: job.state() in states, f"{job.request().title} to be {' or '.join(states)}")
    return job.state()


def cores() -> int:
    return len(os.sched_getaffinity(0))
