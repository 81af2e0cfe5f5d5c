"""Jobs on machines of a Ray cluster, asked about without Ray: by what the courier writes, and leaves to be asked."""

from pathlib import Path
from typing import ClassVar

from scalebook.training.jobs.devices import Machine
from scalebook.training.jobs.executors.beginning import RayHandle
from scalebook.training.jobs.executors.cluster.desk import Desk, KnownMachines, RemoteState, ask, state_of
from scalebook.training.jobs.executors.executor import Executor, Level, Taken
from scalebook.training.jobs.process import ProcessId, alive
from scalebook.training.workspace import Workspace


class RayExecutor(Executor[RayHandle]):
    """`workspace`: whose machines are asked for; any job of any workspace is known by its handle."""

    name: ClassVar[str] = "ray"

    def __init__(self, workspace: Workspace | None = None) -> None:
        self.workspace = workspace

    def machines(self) -> list[Machine]:
        """Those on which jobs can be started now."""
        assert self.workspace is not None, "of no workspace"
        told = Desk(self.workspace).machines()
        return told.ready if told is not None and alive(told.courier) else []

    def known(self) -> KnownMachines:
        """All machines of the cluster, those too of which nothing can be lent just now, with why."""
        assert self.workspace is not None, "of no workspace"
        told = Desk(self.workspace).machines()
        if told is None or not alive(told.courier):
            names = [] if told is None else [*(machine.name for machine in told.ready), *told.others]
            return KnownMachines(ProcessId.of(), others=dict.fromkeys(names, "not asked just now"))
        return told

    def without(self) -> str:
        """Why there is no machine."""
        assert self.workspace is not None, "of no workspace"
        told = Desk(self.workspace).machines()
        if told is None or not alive(told.courier):
            return "waits for a machine; the cluster is being asked"
        words = "; ".join(f"{name} {how}" for name, how in told.others.items())
        return f"waits for a machine of the cluster; {told.problem or words or 'none is there'}"

    def alive(self, handle: RayHandle) -> bool:
        state = self._state(handle)
        return state is not None and state.alive

    def stop(self, handle: RayHandle, level: Level) -> None:
        if self.alive(handle):
            ask(handle, level)

    def clear(self, handle: RayHandle) -> bool:
        """What is asked is done on the other machine, and all that it has written since is brought."""
        state = self._state(handle)
        if state is None or state.cleared:
            return True
        ask(handle, "clear")
        return False

    def taken(self, handle: RayHandle) -> Taken | None:
        state = self._state(handle)
        return Taken(state.cpu_s, state.memory_mb) if state is not None and state.alive and state.cpu_s else None

    def shown(self, handle: RayHandle) -> str:
        state = self._state(handle)
        lost = f", {state.lost}" if state is not None and state.lost else ""
        return f"pid {handle.process.pid} on {handle.machine}{lost}"

    def _state(self, handle: RayHandle) -> RemoteState | None:
        """What is known of exactly this start of the job."""
        state = state_of(Path(handle.folder))
        return state if state is not None and state.handle == handle else None
