"""What is known and asked of jobs elsewhere, by files alone: no Ray, and no cluster daemon."""

import os
import socket
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.processes import ProcessId
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import SETTINGS, Workspace
from scalebook.training.cli.main import main
from scalebook.training.cluster import ray_core
from scalebook.training.cluster.cluster_spool import REMOTE, ClusterSpool, KnownNodes, RemoteState, write_state
from scalebook.training.cluster.ray_executor import RayExecutor
from scalebook.training.cluster.rendezvous import Rendezvouses
from scalebook.training.engine.served_run import Secret
from scalebook.training.jobs import executor
from scalebook.training.jobs.begin_request import RayHandle, is_part, part_names, run_of
from scalebook.training.jobs.devices import Allocation, NodeDevices
from scalebook.training.jobs.executor import configured_executor
from scalebook.training.jobs.job_folder import JobStart
from scalebook.training.jobs.job_nodes import part_folders
from tests.training.benches import Bench, bench

__all__ = ["bench"]


def test_a_job_elsewhere_is_what_its_cluster_daemon_last_said(bench: Bench) -> None:
    job, executor, spool = bench.job(), RayExecutor(bench.workspace), ClusterSpool(bench.workspace).create()
    handle = RayHandle(ProcessId(7, 1, "boot"), "b", "agent", str(job.path))
    assert job.claim(JobStart(handle, 1.0, [0], machine="b"))
    assert (job.started(), job.state()) == (JobStart(handle, 1.0, [0], machine="b"), "failed")
    write_state(job.path, RemoteState(handle, alive=True, cpu_s=2.0, memory_mb=3.0))
    assert (job.state(), executor.usage(handle), executor.describe(handle)) == ("running", (2.0, 3.0), "pid 7 on b")
    executor.stop(handle, "kill")
    assert not executor.clear(handle)
    assert sorted(spool.pending_requests()) == [(job.id, "clear"), (job.id, "kill")]
    other = replace(handle, agent="a later one")
    assert (executor.alive(other), executor.clear(other), executor.usage(other)) == (False, True, None)
    write_state(job.path, RemoteState(handle, cleared=True, lost="lost with b"))
    assert (job.state(), executor.clear(handle), executor.describe(handle)) == (
        "failed",
        True,
        "pid 7 on b, lost with b",
    )


def test_a_job_on_two_machines_is_stopped_and_cleared_on_both(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    job, executor, spool = bench.job(nodes=2), RayExecutor(bench.workspace), ClusterSpool(bench.workspace).create()
    (name,) = part_names(job.id, ["a", "b"])
    assert (run_of(name), run_of(job.id), is_part(name), is_part(job.id)) == (job.id, job.id, True, False)
    assert part_names(job.id, ["c", "b"]) != [name]
    part = spool.folder_of(name)
    part.mkdir(parents=True)
    mine, theirs = (
        RayHandle(ProcessId(pid, 1, "boot"), machine, "agent", str(folder), parts=names)
        for pid, machine, folder, names in ((7, "a", job.path, [name]), (8, "b", part, []))
    )
    assert job.claim(JobStart(mine, 1.0, [0], machine="a", others=[Allocation("b", [1])]))
    started = job.started()
    assert started is not None
    assert [lent.machine for lent in started.lent] == ["a", "b"]
    assert part_folders(job)["b"].path == part
    job.log.write_text("first\n", encoding="utf-8")
    (part / "log.txt").write_text("one\ntwo\n", encoding="utf-8")
    monkeypatch.setenv("SCALEBOOK_WORKSPACE", str(bench.workspace.root))
    assert main(["jobs", "log", job.id]) == 0
    assert capsys.readouterr().out == "first\nb| one\nb| two\n"
    for folder, handle in ((job.path, mine), (part, theirs)):
        write_state(folder, RemoteState(handle, alive=True, cpu_s=2.0, memory_mb=3.0))
    assert executor.usage(mine) == (4.0, 6.0)
    executor.stop(mine, "terminate")
    assert spool.pending_requests() == [(job.id, "terminate")]
    executor.stop(mine, "kill")
    assert sorted(spool.pending_requests()) == [(job.id, "kill"), (job.id, "terminate"), (name, "kill")]
    write_state(job.path, RemoteState(mine, cleared=True))
    assert not executor.clear(mine)
    write_state(part, RemoteState(theirs, lost="lost with b"))
    assert (executor.clear(mine), (name, "clear") in spool.pending_requests(), executor.failure_reason(mine)) == (
        False,
        True,
        "",
    )
    os.utime(part / REMOTE, (1, 1))
    assert executor.failure_reason(mine) == "its part on b ended before training began: lost with b"
    write_state(part, RemoteState(theirs, cleared=True))
    assert executor.clear(mine)


def test_a_run_has_one_port_and_one_key_that_nothing_shows(tmp_path: Path) -> None:
    kept = Rendezvouses()
    where = kept.of("run", "127.0.0.1")
    assert kept.of("run", "127.0.0.1") == where != kept.of("another", "127.0.0.1")
    assert where.key not in repr(where)
    with socket.create_server(("127.0.0.1", where.port)):  # the run's own: free for it, and for nobody by chance
        pass
    told = where.environment(1, tmp_path / "key")
    assert where.key not in told.values()
    assert (told["NODE_RANK"], told["MASTER_PORT"]) == ("1", str(where.port))
    assert repr(Secret.read(tmp_path / "key")) == "Secret()"  # which refuses one that others may read
    kept.release("run")
    assert kept.of("run", "127.0.0.1").key != where.key
    for run in ("run", "another"):
        kept.release(run)


def test_machines_are_those_that_a_living_cluster_daemon_names(bench: Bench) -> None:
    executor, spool = RayExecutor(bench.workspace), ClusterSpool(bench.workspace).create()
    assert (executor.machines(), executor.without()) == ([], "waits for a node; the cluster is being queried")
    spool.note(KnownNodes(ProcessId.of(), [NodeDevices([0, 1], name="b")], {"c": "does not answer"}))
    assert executor.machines() == [NodeDevices([0, 1], name="b")]
    spool.note(KnownNodes(ProcessId.of(), [], {"c": "does not answer"}))
    assert executor.without() == "waits for a node of the cluster; c does not answer"
    spool.note(KnownNodes(replace(ProcessId.of(), start=1), [NodeDevices([0], name="b")]))
    assert executor.machines() == []


def test_a_cluster_needs_ray_and_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "w").mkdir()
    workspace = Workspace(tmp_path / "w")
    assert configured_executor(workspace) is executor.LOCAL
    (tmp_path / "w" / SETTINGS).write_text("[", encoding="utf-8")
    assert configured_executor(Workspace(tmp_path / "w")) is executor.LOCAL
    (tmp_path / "w" / SETTINGS).write_text('[cluster]\naddress = "auto"', encoding="utf-8")
    workspace = Workspace(tmp_path / "w")
    monkeypatch.setattr(ray_core, "installed", lambda: False)
    with pytest.raises(ConfigError, match="but you do not trust this folder"):
        configured_executor(workspace)
    trust(workspace)
    with pytest.raises(ConfigError, match=r"cluster.address: needs Ray, which is not installed. Run pip install"):
        configured_executor(workspace)
    monkeypatch.setattr(ray_core, "installed", lambda: True)
    assert isinstance(configured_executor(workspace), RayExecutor)
    (tmp_path / "w" / SETTINGS).write_text('[cluster]\naddress = "elsewhere"', encoding="utf-8")
    trust(Workspace(tmp_path / "w"))
    with pytest.raises(ConfigError, match="is 'elsewhere', which is not the address of a cluster"):
        configured_executor(Workspace(tmp_path / "w"))
    (tmp_path / "w" / SETTINGS).write_text('[cluster]\naddress = "elsewhere:6379"', encoding="utf-8")
    with pytest.raises(ConfigError, match="but you do not trust this folder"):
        configured_executor(Workspace(tmp_path / "w"))  # trust is of the address, too
    assert "ray" not in sys.modules
