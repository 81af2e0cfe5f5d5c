"""The contract of executors over Ray's daemons: of two machines, the one on which nothing of the workspace lies."""

import re
import signal
from collections.abc import Iterator

import pytest

from scalebook.training.base.processes import Children
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.cluster.cluster_spool import ClusterSpool
from scalebook.training.cluster.ray_executor import RayExecutor
from scalebook.training.cluster.ray_launcher import RayLauncher
from tests.training.benches import STAND_IN, Bench, wait_for
from tests.training.cluster.conftest import Cluster
from tests.training.jobs.contract import ExecutorContract, Launching

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def on_cluster(
    workspace: Workspace, files: str, runner: str | None = STAND_IN, address: str = "auto", machines: int = 2
) -> RayExecutor:
    """The workspace's executor, when all machines can be lent. `runner`: None for real runs."""
    (workspace.root / SETTINGS).write_text(f'[cluster]\naddress = "{address}"\nfiles = "{files}"\n', encoding="utf-8")
    trust(workspace)
    workspace.__dict__.pop("settings", None)
    executor = RayExecutor(workspace)
    launcher = RayLauncher(workspace, Children(), runner, () if runner else None)
    launcher.prepare(fresh=True)
    wait_for(lambda: launcher.events(0.1) or len(executor.machines()) == machines, "all machines", 120)
    launcher.close()
    return executor


def leave(workspace: Workspace) -> None:
    """Have the cluster daemon go home, and its agents with it."""
    spool = ClusterSpool(workspace)
    (spool.folder / "wanted").unlink(missing_ok=True)
    told = spool.machines()
    if told is not None:
        wait_for(lambda: not told.daemon.alive(), "the cluster daemon to leave", 90)


@pytest.fixture
def home(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """This process is on machine a."""
    monkeypatch.setenv("XDG_STATE_HOME", str(cluster.a.home))


class Contract(ExecutorContract):
    files: str

    @pytest.fixture
    def executor(self, home: None, bench: Bench) -> Iterator[RayExecutor]:
        yield on_cluster(bench.workspace, self.files)
        leave(bench.workspace)


class TestCopied(Contract):
    files = "copied"

    def folder_there(self, bench: Bench) -> str:
        return r"\S+/scalebook/cluster/work/[0-9a-f-]+/code/[0-9a-f]{16}"

    def test_a_cluster_daemon_that_is_killed_is_replaced_and_nothing_is_lost_or_doubled(
        self, executor: RayExecutor, launching: Launching, bench: Bench
    ) -> None:
        job = bench.job(seconds=4.0, devices=True)
        started = launching.start(job)
        told = ClusterSpool(bench.workspace).machines()
        assert told is not None
        assert told.daemon.send(signal.SIGKILL)
        wait_for(lambda: not told.daemon.alive(), "its end")
        assert (job.state(), executor.machines()) == ("running", [])
        assert launching.until_told(job) == 0
        again = ClusterSpool(bench.workspace).machines()
        assert again is not None
        assert again.daemon != told.daemon
        assert (job.state(), job.started()) == ("finished", started)
        assert len(re.findall("^affinity", job.log.read_text(encoding="utf-8"), re.MULTILINE)) == 1

    def test_data_that_do_not_travel_are_asked_for_and_used_where_they_lie(
        self, executor: RayExecutor, launching: Launching, bench: Bench
    ) -> None:
        (bench.workspace.root / "pictures").mkdir()
        (bench.workspace.root / "pictures" / "one.txt").write_text("seven")
        there, nowhere = str((bench.workspace.root / "pictures").resolve()), "/nowhere/at all"
        assert all(machine.lacks({"data.root": there}) for machine in executor.machines())  # nobody was asked
        ClusterSpool(bench.workspace).need([there, nowhere])
        wait_for(lambda: all(machine.has == [there] for machine in executor.machines()), "the machines' answers")
        job = bench.job(data={"root": "pictures"}, reads="pictures/one.txt")
        launching.start(job)
        assert launching.until_told(job) == 0
        assert "read 'seven'" in job.log.read_text(encoding="utf-8")


@pytest.mark.thorough
class TestShared(Contract):
    files = "auto"
