"""A job has the environment of whoever submitted it, and nobody else gets to know it."""

import json
import os
import re
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from scalebook.training.base.processes import Children, ProcessId
from scalebook.training.base.safe_path import HOME, environment
from scalebook.training.jobs.begin_request import ANSWER, YES, RemoteJobContext
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.job_environment import (
    FILE,
    READ_AT_START,
    keep_environment,
    kept_environment,
    read_too_early,
    submitted,
)
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.launcher import LocalLauncher, ProcessEnded
from scalebook.training.jobs.leases import Lease
from scalebook.training.jobs.supervisor_handle import status
from tests.training.benches import STAND_IN, Bench, until_state, wait_for

SECRET = "hunter2 ünd \n more"
VARIABLES = ["ROWS", "SUPERVISORS", "SECRET", "BYTES", "OPENBLAS_NUM_THREADS", "MASTER_ADDR", "PYTHONSAFEPATH"]


def job_with(bench: Bench, patch: pytest.MonkeyPatch, variables: dict[str, str], **behaviour: Any) -> JobFolder:
    """A job that is submitted with these variables, and prints what it has of `VARIABLES`."""
    with patch.context() as shell:
        for name, value in variables.items():
            shell.setenv(name, value)
        job = bench.job(variables=VARIABLES, **behaviour)
        keep_environment(job.path, job.id)
    return job


def seen(job: JobFolder) -> dict[str, str | None]:
    assert until_state(job, "finished", "failed") == "finished", job.tail()
    (line,) = re.findall("^variables (.*)$", job.tail(), re.MULTILINE)
    found: dict[str, str | None] = json.loads(line)
    return found


def test_two_shells_and_one_supervisor(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as shell:
        shell.setenv("SUPERVISORS", "1")
        shell.setenv("ROWS", "1")
        bench.supervise()
    wait_for(lambda: status(bench.workspace) is not None, "the supervisor")
    first = job_with(bench, monkeypatch, {"ROWS": "64", "SECRET": SECRET, "MASTER_ADDR": "10.0.0.1"})
    second = job_with(bench, monkeypatch, {"ROWS": "256", "BYTES": os.fsdecode(b"\xff\xfe")})
    third = job_with(bench, monkeypatch, {})
    one, two, three = map(seen, (first, second, third))
    assert [each["ROWS"] for each in (one, two, three)] == ["64", "256", None]
    assert [each["SUPERVISORS"] for each in (one, two, three)] == [None] * 3
    assert one["SECRET"] == SECRET
    assert (two["SECRET"], two["BYTES"]) == (None, os.fsdecode(b"\xff\xfe"))
    assert one["MASTER_ADDR"] is None, "the queue decides which workers meet"
    assert (one["OPENBLAS_NUM_THREADS"], one["PYTHONSAFEPATH"]) == ("1", "1")
    assert not any((job.path / FILE).exists() for job in (first, second, third))
    for path in bench.workspace.root.rglob("*"):
        if path.is_file() and path != first.log:  # which printed it, as the job was told to
            assert b"hunter2" not in path.read_bytes(), path
    assert "a new Python process" not in first.tail()


def test_an_earlier_job_has_that_of_the_supervisor(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as shell:
        shell.setenv("SUPERVISORS", "1")
        bench.supervise()
    assert seen(bench.job(variables=VARIABLES))["SUPERVISORS"] == "1"


def test_variables_that_python_reads_while_it_starts(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.supervise()
    jobs = [job_with(bench, monkeypatch, {"PYTHONHASHSEED": "7", "ROWS": "64"}) for _ in range(2)]
    rows = [seen(job)["ROWS"] for job in jobs]
    hashes = {re.findall("^hashes (.*)$", job.tail(), re.MULTILINE)[0] for job in jobs}
    command = [sys.executable, "-c", "print(hash('hash'))"]
    asked = {"PYTHONHASHSEED": "7", "PATH": os.environ["PATH"]}
    expected = subprocess.run(command, env=asked, capture_output=True, text=True, timeout=60, check=True).stdout.strip()
    assert (rows, hashes) == (["64", "64"], {f"{expected} safe True"})
    for job in jobs:
        assert (
            "starting a new Python process, because PYTHONHASHSEED must be set before the process starts" in job.tail()
        )
        assert (started := job.started()) is not None
        assert f"process {started.handle.process.pid}," in job.tail()


def test_a_new_process_is_still_known_as_the_jobs_and_can_be_stopped(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.supervise()
    job = job_with(bench, monkeypatch, {"PYTHONHASHSEED": "7"}, seconds=120, devices=True)
    wait_for(lambda: job.progress() is not None, "its progress")
    assert job.state() == "running"
    assert "session True" in job.tail()
    job.ask_to_stop("stopped by a test")
    assert until_state(job, "stopped", "failed") == "stopped"


def test_a_file_that_another_user_made_or_changed_counts_for_nothing(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.supervise()
    job = job_with(bench, monkeypatch, {"ROWS": "64"}, priority=-1)
    other = bench.job(variables=VARIABLES)
    content = json.loads((job.path / FILE).read_text(encoding="utf-8"))
    (other.path / FILE).write_text(json.dumps(content), encoding="utf-8")  # signed, for another job
    assert kept_environment(other.path) is None
    assert seen(other)["ROWS"] is None
    hostile: list[Any] = [
        {**content, "variables": {"LD_PRELOAD": "/tmp/x.so"}},
        {},
        [],
        {"variables": 1, "signature": "x"},
    ]
    for broken in hostile:
        copy = bench.job(variables=VARIABLES, priority=-100, run_id="")
        (copy.path / FILE).write_text(json.dumps(broken), encoding="utf-8")
        assert kept_environment(copy.path) is None


def test_what_is_kept_for_a_job_that_never_starts_is_deleted(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    job = job_with(bench, monkeypatch, {"SECRET": SECRET})
    assert stat.S_IMODE((job.path / FILE).stat().st_mode) == 0o600
    job.ask_to_stop("stopped by a test")
    bench.supervise()
    assert until_state(job, "stopped") == "stopped"
    wait_for(lambda: not (job.path / FILE).exists(), "the file to be deleted")


def test_relative_folders_of_pythonpath_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """They would lead into the workspace, which may be a stranger's."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(["", ".", "src", "/opt/mine"]))
    paths = submitted()["PYTHONPATH"].split(os.pathsep)
    assert paths[0] == "/opt/mine"
    assert set(paths[1:]) <= {str(HOME)}
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    assert submitted()["PYTHONPATH"] == os.pathsep.join(paths)


@pytest.mark.parametrize(
    ("name", "fresh"),
    [
        *((name, True) for name in ("LD_LIBRARY_PATH", "PYTHONPATH", "MALLOC_ARENA_MAX", "TORCH_LOGS", "LC_ALL")),
        *((name, True) for name in ("MKL_DYNAMIC", "KMP_AFFINITY", "CUDA_LAUNCH_BLOCKING", "PYTORCH_CUDA_ALLOC_CONF")),
        *((name, False) for name in ("ROWS", "PATH", "HOME", "OMP_NUM_THREADS", "CUDA_VISIBLE_DEVICES", "HF_HOME")),
    ],
)
def test_when_a_fork_is_not_enough(name: str, fresh: bool) -> None:
    same = {"LD_PRELOAD": "a.so", "ROWS": "64"}
    expected = [name] if fresh else []
    one, two = {**same, name: "1"}, {**same, name: "2"}
    assert read_too_early(one, same, same) == read_too_early(same, one, one) == expected
    assert read_too_early(one, two, two) == expected
    assert read_too_early(one, same, two) == expected, "a library has set it here, to something else"


def test_a_submitter_that_has_imported_lightning_gets_a_fork() -> None:
    """As `scalebook ask` does: imports set variables, in the fork server too."""
    script = (
        "import os; from scalebook.training.jobs.job_environment import read_too_early; started = dict(os.environ); "
        "import lightning.pytorch; now = dict(os.environ); "
        "print(read_too_early(now, started, started), read_too_early(now, started, now))"
    )
    kept = {name: value for name, value in environment().items() if name in ("PATH", "PYTHONPATH", "HOME")}
    done = subprocess.run(
        [sys.executable, "-c", script], env=kept, capture_output=True, text=True, timeout=120, check=True
    )
    before, after = done.stdout.strip().split("] ")
    assert "PYTORCH_NVML_BASED_CUDA_CHECK" in before
    assert after == "[]"


@pytest.mark.thorough
def test_what_torch_reads_when_it_is_imported_is_known(tmp_path: Path) -> None:
    script = tmp_path / "reads.py"
    script.write_text(
        "import json, os, sys\n"
        "seen = set()\n"
        "class Recorded(type(os.environ)):\n"
        "    def __getitem__(self, name):\n"
        "        seen.add(str(name))\n"
        "        return super().__getitem__(name)\n"
        "os.environ.__class__ = Recorded\n"
        "import torch, numpy, lightning.pytorch\n"
        "print(json.dumps(sorted(seen)))\n",
        encoding="utf-8",
    )
    kept = {name: value for name, value in environment().items() if name in ("PATH", "PYTHONPATH", "HOME")}
    done = subprocess.run(
        [sys.executable, str(script)], env=kept, capture_output=True, text=True, timeout=300, check=True
    )
    names = json.loads(done.stdout.splitlines()[-1])
    torch_s = [name for name in names if name.startswith(("TORCH", "PYTORCH"))]
    assert len(torch_s) > 20, "it records"
    assert [name for name in torch_s if not READ_AT_START.match(name)] == []
    numpys = [name for name in names if name.startswith(("NPY", "NUMPY", "OPENBLAS", "OMP", "MKL"))]
    assert [name for name in numpys if not READ_AT_START.match(name)] == []


@pytest.mark.parametrize("more", [{}, {"PYTHONHASHSEED": "7"}])
def test_a_job_on_another_node_has_the_variables_that_came_with_it(
    bench: Bench, more: dict[str, str], tmp_path: Path
) -> None:
    """Of a fork, and of the new process that it goes on as; without Ray, by what an agent does."""
    asks = tmp_path / "asks"
    asks.mkdir()
    (asks / ANSWER).write_text(YES, encoding="ascii")
    job = bench.job(variables=VARIABLES)
    own = {"ROWS": "64", "MASTER_ADDR": "10.0.0.1", **more}
    away = RemoteJobContext("b", "1", str(job.path), str(asks), ProcessId.of(), environment=own)
    launcher = LocalLauncher(bench.workspace, Children(), STAND_IN, ())
    try:
        wait_for(lambda: launcher.events(0.02) is not None and launcher.prepare(fresh=False), "the fork server")
        assert launcher.start(job, Lease(job.id, "", this_machine().cores[:1]), away)
        assert wait_for(lambda: launcher.events(0.02), "its end") == [ProcessEnded(job.id, 0)], job.tail()
    finally:
        launcher.close()
    found = seen(job)
    assert (found["ROWS"], found["MASTER_ADDR"]) == ("64", "10.0.0.1"), "where the nodes meet"
    assert ("a new Python process" in job.tail()) == bool(more)
