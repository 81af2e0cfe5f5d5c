"""Checks the GPUs that a run asks for against those that exist.

A job with more workers than any node has devices is spread over as few nodes as have enough, if that leaves the run the
same.
"""

from collections.abc import Sequence
from dataclasses import replace

from scalebook.training.base import ConfigError, Problem, Workspace
from scalebook.training.experiments import STRATEGY_NAMES, DDPSettings, Experiment
from scalebook.training.jobs.devices import NodeDevices
from scalebook.training.jobs.executor import configured_executor
from scalebook.training.jobs.gpus import gpu_words, gpus_here
from scalebook.training.jobs.job_folder import JobRequest


def machines_of(workspace: Workspace) -> list[NodeDevices]:
    """The machines on which the workspace's jobs can run; none if they are not known at present."""
    try:
        return configured_executor(workspace).machines()
    except ConfigError:  # whoever submits a job says it
        return []


def computes_on_gpus(experiment: Experiment, machines: Sequence[NodeDevices]) -> bool:
    return experiment.accelerator != "cpu" and any(machine.gpus for machine in machines)


def gpu_problems(experiment: Experiment, machines: Sequence[NodeDevices]) -> list[Problem]:
    """Errors: the run asks for a GPU and there is none, or its workers cannot share GPUs and there are too few."""
    strategy = experiment.strategy
    if experiment.accelerator != "cpu" and machines and not any(machine.gpus for machine in machines):
        return [] if experiment.accelerator == "auto" else [_none(machines)]
    shares = strategy.joins_engine and strategy.least is None
    if shares or not computes_on_gpus(experiment, machines):
        return []
    request = placed(
        JobRequest(
            "", 0.0, "", "", 0, strategy.processes, nodes=strategy.nodes, accelerator="gpu",
            spreads=isinstance(strategy, DDPSettings) and strategy.nodes == 1 and strategy.workers > 1,
        ),
        machines,
    )  # fmt: skip
    most = max(machine.together for machine in machines)
    if request.workers <= most:
        return []
    name = STRATEGY_NAMES.get(strategy.name, strategy.name)
    where = "no node has more than" if any(machine.name for machine in machines) else "this machine has"
    why = f"is {request.workers}, and each worker of {name} needs its own GPU, but {where} {most}"
    other = "" if strategy.joins_engine else ", or use the strategy AsyncPS, whose workers share GPUs"
    return [Problem("too-few-gpus", "trainer.devices", why, f"Use {most}, or set trainer.accelerator: cpu{other}.")]


def about_gpus(machines: Sequence[NodeDevices]) -> str:
    """`This machine has 8 GPUs (NVIDIA H100, 80 GB each).`; without GPUs, why none is used, if something can be
    done."""
    if any(machine.name for machine in machines):
        parts = [f"{machine.name} has {gpu_words(machine.gpus)}" for machine in machines if machine.gpus]
        return f"{'; '.join(parts)}." if parts else ""
    detected = gpus_here()
    notes = f" {' '.join(detected.notes)}" if detected.notes else ""
    if detected.gpus:
        return f"This machine has {gpu_words(detected.gpus)}.{notes}"
    return f"No GPU is used, because this machine {detected.why}. {detected.fix}" if detected.fix else ""


def _none(machines: Sequence[NodeDevices]) -> Problem:
    key, otherwise = "trainer.accelerator", "Use auto or cpu."
    if any(machine.name for machine in machines):
        return Problem("no-gpu", key, "asks for a GPU, but no node has one", otherwise)
    detected = gpus_here()
    fix = f"{detected.fix} Or use auto or cpu." if detected.fix else otherwise
    return Problem("no-gpu", key, f"asks for a GPU, but this machine {detected.why}", fix)


def holds(machine: NodeDevices, request: JobRequest) -> bool:
    """Whether the machine has cores for each of the job's workers, and as many GPUs as it asks for."""
    return len(machine.cores) >= request.workers * request.threads and machine.together >= request.gpus


def placed(request: JobRequest, machines: Sequence[NodeDevices]) -> JobRequest:
    """The request with the nodes, and workers on each, that the job gets; unchanged if one node has enough, or
    spreading does not help."""
    if not request.spreads or request.nodes > 1 or any(holds(machine, request) for machine in machines):
        return request
    for nodes in range(2, len(machines) + 1):
        share = replace(request, workers=request.workers // nodes, nodes=nodes, devices=0)
        if request.workers % nodes == 0 and sum(holds(machine, share) for machine in machines) >= nodes:
            return share
    return request


def why_not(request: JobRequest, machines: Sequence[NodeDevices]) -> str:
    """Why the workers of a job that was not spread share devices, as the end of a sentence; "" if they do not share."""
    if request.nodes > 1 or request.workers == 1 or any(holds(machine, request) for machine in machines):
        return ""
    if len(machines) == 1:
        return ""
    share = f"the {request.workers} workers of this run will share devices"
    if not request.spreads:
        return (
            f"{share}, because only DDP is spread over nodes automatically (for other strategies, set "
            "trainer.num_nodes)"
        )
    return f"{share}, because the nodes have no room for equal numbers of workers"
