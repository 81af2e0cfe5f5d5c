"""Who holds what, here and on the machines of a cluster."""

from pathlib import Path

from scalebook.app.runs.services.devices import ElsewhereState, HeldBy, device_state
from scalebook.training.jobs.devices import Lent, Machine, this_machine
from scalebook.training.jobs.executors.beginning import RayHandle
from scalebook.training.jobs.executors.cluster.desk import Desk, KnownMachines, RemoteState, tell
from scalebook.training.jobs.folder import Started
from scalebook.training.jobs.gpus import Gpu
from scalebook.training.jobs.process import ProcessId
from scalebook.training.workspace import SETTINGS, Workspace
from tests.training.benches import Bench, bench

__all__ = ["bench"]


def test_machines_of_a_cluster_are_told_by_name_with_who_holds_them(bench: Bench) -> None:
    root = Path(bench.workspace.root)
    assert device_state(bench.workspace).elsewhere == []
    (root / SETTINGS).write_text('[cluster]\naddress = "auto"', encoding="utf-8")
    workspace, job = Workspace(root), bench.job(name="far away")
    desk = Desk(workspace).create()
    b = Machine([0, 1, 2], [Gpu("GPU-a", "A", 1), Gpu("GPU-b", "A", 1)], "b")
    desk.note(KnownMachines(ProcessId.of(), [b, Machine([0, 1], name="d")], {"c": "does not answer"}))
    handle = RayHandle(ProcessId(7, 1, "boot"), "b", "agent", str(job.path))
    assert job.claim(Started(handle, 1.0, [1], ["GPU-b"], machine="b", others=[Lent("d", [0])]))
    tell(job.path, RemoteState(handle, alive=True))
    state = device_state(workspace)
    assert (state.held, state.free_cores) == ([], this_machine().cores)
    assert state.elsewhere == [
        ElsewhereState("b", [HeldBy(job.id, "far away", [1], [1])], [0, 2], [0]),
        ElsewhereState("d", [HeldBy(job.id, "far away", [0], [])], [1], []),
        ElsewhereState("c", [], [], [], "does not answer"),
    ]
    (desk.folder / "machines.json").unlink()
    assert device_state(workspace).elsewhere == []
