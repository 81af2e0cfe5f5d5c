"""Who holds which cores and GPUs of this machine, and how its memory and its GPUs stand."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import psutil

from scalebook.training.errors import ConfigError
from scalebook.training.jobs.devices import Lent, this_machine
from scalebook.training.jobs.executors.cluster.executor import RayExecutor
from scalebook.training.jobs.gpu_problems import about_gpus
from scalebook.training.jobs.gpus import gpu_readings, gpus_here
from scalebook.training.jobs.parts import lent_to
from scalebook.training.jobs.queue import open_jobs
from scalebook.training.workspace import Workspace


@dataclass(frozen=True)
class HeldBy:
    """A run, and the numbers of the devices that it was lent."""

    run_id: str
    name: str
    cores: list[int]
    gpus: list[int]
    share: float = 1.0
    """Of the memory of these."""


@dataclass(frozen=True)
class GpuState:
    """A GPU; what it does not tell is None."""

    index: int
    name: str
    memory_mb: float
    used_mb: float | None
    busy: float | None
    temperature_c: float | None


@dataclass(frozen=True)
class ElsewhereState:
    """Another machine, of the workspace's cluster. `words`: why nothing can be lent of it just now."""

    name: str
    held: list[HeldBy]
    free_cores: list[int]
    free_gpus: list[int]
    words: str = ""


@dataclass(frozen=True)
class DeviceState:
    """This machine. `free`: lent to nobody of this workspace."""

    cores: int
    free_cores: list[int]
    free_gpus: list[int]
    held: list[HeldBy]
    gpus: list[GpuState]
    memory_mb: float
    memory_used_mb: float
    elsewhere: list[ElsewhereState] = field(default_factory=list)
    about_gpus: str = ""
    """Why none is used, where one might be there; what is odd about those that are."""


def device_state(workspace: Workspace) -> DeviceState:
    """Who holds which devices at this moment. Looks at every job that has not ended."""
    machine, memory = this_machine(), psutil.virtual_memory()
    index = {gpu.uuid: i for i, gpu in enumerate(machine.gpus)}
    held, away = [], dict[str, list[tuple[str, str, Lent]]]()
    for job in reversed(open_jobs(workspace)):
        if job.state() not in ("running", "stopping"):
            continue
        for lent in [] if (started := job.started()) is None else lent_to(job, started):
            if lent.machine:
                away.setdefault(lent.machine, []).append((job.id, job.request().title, lent))
                continue
            gpus = [index[uuid] for uuid in lent.gpus if uuid in index]
            request = job.request()
            held.append(HeldBy(job.id, request.title, sorted(lent.cores), gpus, request.gpu_share))
    readings = {reading.uuid: reading for reading in gpu_readings([gpu.uuid for gpu in machine.gpus])}
    gpu_states = []
    for i, gpu in enumerate(machine.gpus):
        now = readings.get(gpu.uuid)
        figures = (now.memory_mb, now.busy, now.temperature_c) if now else (None, None, None)
        gpu_states.append(GpuState(i, gpu.name, gpu.memory_mb, *figures))
    lent_cores = {core for holder in held for core in holder.cores}
    lent_gpus = {gpu for holder in held for gpu in holder.gpus}
    return DeviceState(
        cores=len(machine.cores),
        free_cores=[core for core in machine.cores if core not in lent_cores],
        free_gpus=[i for i in range(len(machine.gpus)) if i not in lent_gpus],
        held=held,
        gpus=gpu_states,
        memory_mb=memory.total / 1e6,
        memory_used_mb=(memory.total - memory.available) / 1e6,
        elsewhere=_elsewhere(workspace, away) if _is_clustered(workspace) else [],
        about_gpus=" ".join(gpus_here().notes) if machine.gpus else about_gpus([machine]),
    )


def _is_clustered(workspace: Workspace) -> bool:
    try:
        return bool(workspace.settings.cluster)
    except ConfigError:  # told where the settings are used
        return False


def _elsewhere(workspace: Workspace, held: Mapping[str, list[tuple[str, str, Lent]]]) -> list[ElsewhereState]:
    """The machines of the cluster, as they were last heard of."""
    told = RayExecutor(workspace).known()
    states = []
    for machine in told.ready:
        uuids = [gpu.uuid for gpu in machine.gpus]
        holders = [
            HeldBy(run, name, sorted(lent.cores), [uuids.index(uuid) for uuid in lent.gpus if uuid in uuids])
            for run, name, lent in held.get(machine.name, [])
        ]
        lent, lent_gpus = ({n for one in holders for n in getattr(one, kind)} for kind in ("cores", "gpus"))
        free = [core for core in machine.cores if core not in lent]
        states.append(ElsewhereState(machine.name, holders, free, [i for i in range(len(uuids)) if i not in lent_gpus]))
    return [*states, *(ElsewhereState(name, [], [], [], words) for name, words in sorted(told.others.items()))]
