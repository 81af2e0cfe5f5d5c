"""Who holds which cores and GPUs of this machine, and how its memory and its GPUs stand."""

from dataclasses import dataclass

import psutil

from scalebook.training.jobs.devices import gpu_readings, this_machine
from scalebook.training.jobs.queue import open_jobs
from scalebook.training.workspace import Workspace


@dataclass(frozen=True)
class HeldBy:
    """A run, and the numbers of the devices that it was lent."""

    run_id: str
    name: str
    cores: list[int]
    gpus: list[int]


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
class DeviceState:
    """This machine. `free`: lent to nobody of this workspace."""

    cores: int
    free_cores: list[int]
    free_gpus: list[int]
    held: list[HeldBy]
    gpus: list[GpuState]
    memory_mb: float
    memory_used_mb: float


def device_state(workspace: Workspace) -> DeviceState:
    """Who holds which devices at this moment. Looks at every job that has not ended."""
    machine, memory = this_machine(), psutil.virtual_memory()
    index = {gpu.uuid: i for i, gpu in enumerate(machine.gpus)}
    held = []
    for job in reversed(open_jobs(workspace)):
        if job.state() not in ("running", "stopping"):
            continue
        if (started := job.started()) is not None and not started.machine:
            gpus = [index[uuid] for uuid in started.gpus if uuid in index]
            held.append(HeldBy(job.id, job.request().title, sorted(started.cores), gpus))
    readings = {reading.uuid: reading for reading in gpu_readings([gpu.uuid for gpu in machine.gpus])}
    gpu_states = []
    for i, gpu in enumerate(machine.gpus):
        now = readings.get(gpu.uuid)
        figures = (now.memory_mb, now.busy, now.temperature_c) if now else (None, None, None)
        gpu_states.append(GpuState(i, gpu.name, gpu.memory_mb, *figures))
    lent = {core for holder in held for core in holder.cores}
    lent_gpus = {gpu for holder in held for gpu in holder.gpus}
    return DeviceState(
        cores=len(machine.cores),
        free_cores=[core for core in machine.cores if core not in lent],
        free_gpus=[i for i in range(len(machine.gpus)) if i not in lent_gpus],
        held=held,
        gpus=gpu_states,
        memory_mb=memory.total / 1e6,
        memory_used_mb=(memory.total - memory.available) / 1e6,
    )
