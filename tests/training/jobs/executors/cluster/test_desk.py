"""What is known and asked of jobs elsewhere, by files alone: no Ray, and no courier."""

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.training.errors import ConfigError
from scalebook.training.jobs.devices import Machine
from scalebook.training.jobs.executors import known
from scalebook.training.jobs.executors.beginning import RayHandle
from scalebook.training.jobs.executors.cluster import ray_core
from scalebook.training.jobs.executors.cluster.desk import Desk, KnownMachines, RemoteState, tell
from scalebook.training.jobs.executors.cluster.executor import RayExecutor
from scalebook.training.jobs.executors.known import chosen
from scalebook.training.jobs.folder import Started
from scalebook.training.jobs.process import ProcessId
from scalebook.training.trust import trust
from scalebook.training.workspace import SETTINGS, Workspace
from tests.training.benches import Bench, bench

__all__ = ["bench"]


def test_a_job_elsewhere_is_what_its_courier_last_said(bench: Bench) -> None:
    job, executor, desk = bench.job(), RayExecutor(bench.workspace), Desk(bench.workspace).create()
    handle = RayHandle(ProcessId(7, 1, "boot"), "b", "agent", str(job.path))
    assert job.claim(Started(handle, 1.0, [0], machine="b"))
    assert (job.started(), job.state()) == (Started(handle, 1.0, [0], machine="b"), "failed")
    tell(job.path, RemoteState(handle, alive=True, cpu_s=2.0, memory_mb=3.0))
    assert (job.state(), executor.taken(handle), executor.shown(handle)) == ("running", (2.0, 3.0), "pid 7 on b")
    executor.stop(handle, "kill")
    assert not executor.clear(handle)
    assert sorted(desk.asked()) == [(job.id, "clear"), (job.id, "kill")]
    other = replace(handle, agent="a later one")
    assert (executor.alive(other), executor.clear(other), executor.taken(other)) == (False, True, None)
    tell(job.path, RemoteState(handle, cleared=True, lost="lost with b"))
    assert (job.state(), executor.clear(handle), executor.shown(handle)) == ("failed", True, "pid 7 on b, lost with b")


def test_machines_are_those_that_a_living_courier_names(bench: Bench) -> None:
    executor, desk = RayExecutor(bench.workspace), Desk(bench.workspace).create()
    assert (executor.machines(), executor.without()) == ([], "waits for a machine; the cluster is being asked")
    desk.note(KnownMachines(ProcessId.of(), [Machine([0, 1], name="b")], {"c": "does not answer"}))
    assert executor.machines() == [Machine([0, 1], name="b")]
    desk.note(KnownMachines(ProcessId.of(), [], {"c": "does not answer"}))
    assert executor.without() == "waits for a machine of the cluster; c does not answer"
    desk.note(KnownMachines(replace(ProcessId.of(), start=1), [Machine([0], name="b")]))
    assert executor.machines() == []


def test_a_cluster_needs_ray_and_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "w").mkdir()
    workspace = Workspace(tmp_path / "w")
    assert chosen(workspace) is known.LOCAL
    (tmp_path / "w" / SETTINGS).write_text("[", encoding="utf-8")
    assert chosen(Workspace(tmp_path / "w")) is known.LOCAL
    (tmp_path / "w" / SETTINGS).write_text('[cluster]\naddress = "auto"', encoding="utf-8")
    workspace = Workspace(tmp_path / "w")
    monkeypatch.setattr(ray_core, "installed", lambda: False)
    with pytest.raises(ConfigError, match=r"cluster.address: needs Ray, which is not installed. Run pip install"):
        chosen(workspace)
    monkeypatch.setattr(ray_core, "installed", lambda: True)
    with pytest.raises(ConfigError, match="from a folder that you have not trusted"):
        chosen(workspace)
    trust(workspace)
    assert isinstance(chosen(workspace), RayExecutor)
    (tmp_path / "w" / SETTINGS).write_text('[cluster]\naddress = "elsewhere:6379"', encoding="utf-8")
    with pytest.raises(ConfigError, match="from a folder that you have not trusted"):
        chosen(Workspace(tmp_path / "w"))  # trust is of the address, too
    assert "ray" not in sys.modules
