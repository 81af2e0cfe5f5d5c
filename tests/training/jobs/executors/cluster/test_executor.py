"""The contract of executors over Ray's daemons: of two machines, the one on which nothing of the workspace lies."""

from collections.abc import Iterator

import pytest

from scalebook.training.jobs.executors.cluster.desk import Desk
from scalebook.training.jobs.executors.cluster.executor import RayExecutor
from scalebook.training.jobs.executors.cluster.launcher import RayLauncher
from scalebook.training.jobs.process import Children, alive
from scalebook.training.trust import trust
from scalebook.training.workspace import SETTINGS, Workspace
from tests.training.benches import STAND_IN, Bench, wait_for
from tests.training.jobs.executors.cluster.conftest import Cluster
from tests.training.jobs.executors.contract import ExecutorContract

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def on_cluster(workspace: Workspace, files: str) -> RayExecutor:
    """The workspace's executor, when both machines can be lent."""
    (workspace.root / SETTINGS).write_text(f'[cluster]\naddress = "auto"\nfiles = "{files}"\n', encoding="utf-8")
    trust(workspace)
    workspace.__dict__.pop("settings", None)
    executor = RayExecutor(workspace)
    launcher = RayLauncher(workspace, Children(), STAND_IN, ())
    launcher.prepare(fresh=True)
    wait_for(lambda: launcher.events(0.1) or len(executor.machines()) == 2, "both machines", 120)
    launcher.close()
    return executor


def leave(workspace: Workspace) -> None:
    """Have the courier go home, and its agents with it."""
    desk = Desk(workspace)
    (desk.folder / "wanted").unlink(missing_ok=True)
    told = desk.machines()
    if told is not None:
        wait_for(lambda: not alive(told.courier), "the courier to leave", 90)


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


@pytest.mark.thorough
class TestShared(Contract):
    files = "auto"
