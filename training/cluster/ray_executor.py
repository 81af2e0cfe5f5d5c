"""The executor for jobs on nodes of a Ray cluster. It needs no Ray: it reads what the cluster daemon writes, and leaves
requests for it."""

import time
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar, Final

from scalebook.training.base import ProcessId, Workspace
from scalebook.training.cluster.cluster_spool import REMOTE, ClusterSpool, KnownNodes, RemoteState, ask, state_of
from scalebook.training.cluster.ray_core import require_ray
from scalebook.training.jobs import Executor, JobUsage, Level, NodeDevices, PartEnd, begin_request

LEAVES_S: Final = 5.0
"""How long other parts may take to end by themselves after the job, s."""
BEGINS_S: Final = 30.0
"""How long a joining part may take to start, s."""
NOTICE_S: Final = 15.0
"""How long the others may take to notice that a part has ended, s."""


class RayExecutor(Executor[begin_request.RayHandle]):
    """`workspace`: whose nodes `machines` lists; jobs of any workspace are recognised by their handle."""

    name: ClassVar[str] = "ray"

    def __init__(self, workspace: Workspace | None = None) -> None:
        self.workspace = workspace

    def machines(self) -> list[NodeDevices]:
        """The nodes on which jobs can start now."""
        assert self.workspace is not None, "of no workspace"
        cluster = ClusterSpool(self.workspace).machines()
        return cluster.ready if cluster is not None and cluster.daemon.alive() else []

    def need(self, paths: Iterable[str]) -> None:
        assert self.workspace is not None, "of no workspace"
        ClusterSpool(self.workspace).create().need(paths)

    def known(self) -> KnownNodes:
        """All nodes of the cluster; also those that jobs cannot use at present, with the reason."""
        assert self.workspace is not None, "of no workspace"
        cluster = ClusterSpool(self.workspace).machines()
        if cluster is None or not cluster.daemon.alive():
            names = [] if cluster is None else [*(machine.name for machine in cluster.ready), *cluster.others]
            return KnownNodes(ProcessId.of(), others=dict.fromkeys(names, "not being queried at the moment"))
        return cluster

    def without(self) -> str:
        """Why there is no node, for people."""
        assert self.workspace is not None, "of no workspace"
        cluster = ClusterSpool(self.workspace).machines()
        if cluster is None or not cluster.daemon.alive():
            return "waits for a node; the cluster is being queried"
        words = "; ".join(f"{name} {how}" for name, how in cluster.others.items())
        return f"waits for a node of the cluster; {cluster.problem or words or 'it has no nodes'}"

    def alive(self, handle: begin_request.RayHandle) -> bool:
        state = self._state(handle)
        return state is not None and state.alive

    def stop(self, handle: begin_request.RayHandle, level: Level) -> None:
        if self.alive(handle):
            ask(Path(handle.folder), level)
        if level == "kill":
            for part in self._parts(handle):
                ask(part, level)

    def clear(self, handle: begin_request.RayHandle) -> bool:
        """Ask the nodes to clear up, and fetch what was written there meanwhile."""
        state = self._state(handle)
        is_gone = state is None or state.cleared
        if not is_gone:
            ask(Path(handle.folder), "clear")
        return all([is_gone, *(_cleared(part, Path(handle.folder)) for part in self._parts(handle))])

    def usage(self, handle: begin_request.RayHandle) -> JobUsage | None:
        states = [self._state(handle), *map(state_of, self._parts(handle))]
        live = [state for state in states if state is not None and state.alive]
        cpu_s, memory_mb = (sum(getattr(state, field) for state in live) for field in ("cpu_s", "memory_mb"))
        return JobUsage(cpu_s, memory_mb) if cpu_s and self.alive(handle) else None

    def failure_reason(self, handle: begin_request.RayHandle) -> str:
        ended = [part for part in self._parts(handle) if (state := state_of(part)) is not None and not state.alive]
        lost = [state for part in ended if _since_told(part) > NOTICE_S and (state := state_of(part)) is not None]
        return _end_of(lost[0]) if lost else ""

    def ended_parts(self, handle: begin_request.RayHandle) -> dict[str, PartEnd]:
        ends = {}
        for part in self._parts(handle):
            state = state_of(part)
            if state is not None and not state.alive:
                failed = state.handle is not None and state.code is not None and state.code > 0
                ends[part.name] = PartEnd(_told_at(part), state.cleared, failed)
        return ends

    def tidy(self, handle: begin_request.RayHandle) -> None:
        for part in self._parts(handle):
            state = state_of(part)
            if state is not None and not state.alive and not state.cleared:
                ask(part, "clear")
        for run_part in begin_request.read_joined_parts(Path(handle.folder)):
            part = begin_request.folder_of(Path(handle.folder).parents[1], run_part.name)
            if state_of(part) is None and time.time() - run_part.ordered > BEGINS_S:
                ask(part, "withdraw")

    def describe(self, handle: begin_request.RayHandle) -> str:
        state = self._state(handle)
        lost = f", {state.lost}" if state is not None and state.lost else ""
        return f"pid {handle.process.pid} on {handle.machine}{lost}"

    def _parts(self, handle: begin_request.RayHandle) -> list[Path]:
        """The folders of the parts on other nodes."""
        run = Path(handle.folder)
        return [
            begin_request.folder_of(run.parents[1], name)
            for name in (*handle.parts, *(part.name for part in begin_request.read_joined_parts(run)))
        ]

    def _state(self, handle: begin_request.RayHandle) -> RemoteState | None:
        """The state of exactly this start of the job."""
        state = state_of(Path(handle.folder))
        return state if state is not None and state.handle == handle else None


def _cleared(part: Path, run: Path) -> bool:
    """Whether a part of an ended job is cleared away; it may end by itself first, and is then ended."""
    state = state_of(part)
    if not part.exists() or (state is not None and state.cleared):
        return True
    if state is not None and state.alive:
        if _since_told(run) > LEAVES_S:
            ask(part, "kill")
    elif state is not None:
        ask(part, "clear")
    return False


def _since_told(folder: Path) -> float:
    """Seconds since the cluster daemon last wrote its state."""
    return time.time() - _told_at(folder)


def _told_at(folder: Path) -> float:
    """Unix time, s; now if nothing was written."""
    try:
        return (folder / REMOTE).stat().st_mtime
    except OSError:
        return time.time()


def _end_of(state: RemoteState) -> str:
    where = f"its part on {state.handle.machine}" if state.handle is not None else "a part of it"
    how = state.lost or state.problem or f"ended with code {state.code}"
    return f"{where} ended before training began: {how}"


def of_workspace(workspace: Workspace, key: str) -> RayExecutor:
    """The executor of a workspace that names a cluster at `key`. ConfigError if Ray is not installed."""
    require_ray(key)
    return RayExecutor(workspace)
