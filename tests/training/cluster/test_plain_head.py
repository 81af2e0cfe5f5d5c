"""A head of plain `ray start`, as KubeRay and `ray symmetric-run` bring it up: jobs run on it by its address."""

import secrets
import shutil
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from scalebook.training.base.safe_path import HOME, environment, python
from tests.ports import kernels_choice
from tests.training.benches import Bench, wait_for
from tests.training.cluster.test_ray_executor import leave, on_cluster
from tests.training.jobs.contract import Launching

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


@pytest.fixture
def address(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    home = tmp_path_factory.mktemp("home")
    token = home / "token"
    token.touch(mode=0o600)
    token.write_text(secrets.token_hex(32), encoding="ascii")
    monkeypatch.setenv("XDG_STATE_HOME", str(home))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    monkeypatch.setenv("RAY_worker_niceness", "0")
    found = f"127.0.0.1:{kernels_choice()}"
    folder = Path("/tmp") / f"scalebook-plain-{secrets.token_hex(4)}"  # its sockets' paths may have 107 characters
    words = python("-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats")
    words += [f"--port={found.partition(':')[2]}", f"--temp-dir={folder}", "--num-cpus=1", "--include-dashboard=false"]
    words += ["--object-store-memory=80000000"]
    with (home / "ray.log").open("wb") as log:
        head = subprocess.Popen(words, cwd=HOME, env=environment(), stdout=log, stderr=log, start_new_session=True)
    try:
        wait_for((folder / "ray_current_cluster").is_file, "the head", 90)
        yield found
    finally:
        family = [psutil.Process(head.pid), *psutil.Process(head.pid).children(recursive=True)]
        head.send_signal(signal.SIGTERM)
        _, left = psutil.wait_procs(family, timeout=15)
        for process in left:
            process.kill()
        head.wait(15)
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("named", ["address", "RAY_ADDRESS"])
def test_a_job_runs_there(address: str, named: str, bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    if named == "RAY_ADDRESS":
        monkeypatch.setenv(named, address)
    executor = on_cluster(bench.workspace, "copied", address="auto" if named == "RAY_ADDRESS" else address, machines=1)
    launching = Launching(executor, bench.workspace)
    try:
        job = bench.job(seconds=0.2)
        launching.start(job)
        assert launching.until_told(job) == 0
        assert job.state() == "finished"
    finally:
        launching.close()
        leave(bench.workspace)
