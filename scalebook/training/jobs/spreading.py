"""A job with more workers than any machine has devices: on as few machines as have them, if it stays the same run."""

from collections.abc import Sequence
from dataclasses import replace

from scalebook.training.jobs.devices import Machine
from scalebook.training.jobs.folder import JobRequest


def holds(machine: Machine, request: JobRequest) -> bool:
    """Whether there are cores for each of its workers there, and as many GPUs as it asks for."""
    return len(machine.cores) >= request.workers * request.threads and machine.together >= request.gpus


def placed(request: JobRequest, machines: Sequence[Machine]) -> JobRequest:
    """With workers and machines as they are to be; unchanged where one machine has enough, or spreading does not
    help."""
    if not request.spreads or request.nodes > 1 or any(holds(machine, request) for machine in machines):
        return request
    for nodes in range(2, len(machines) + 1):
        share = replace(request, workers=request.workers // nodes, nodes=nodes, devices=0)
        if request.workers % nodes == 0 and sum(holds(machine, share) for machine in machines) >= nodes:
            return share
    return request


def why_not(request: JobRequest, machines: Sequence[Machine]) -> str:
    """Why the workers of a job that was not spread share devices, as the end of a sentence; "" where they do not."""
    if request.nodes > 1 or request.workers == 1 or any(holds(machine, request) for machine in machines):
        return ""
    if len(machines) == 1:
        return ""
    share = f"its {request.workers} workers share them"
    if not request.spreads:
        return f"{share}, since only DDP is spread by itself: write trainer.num_nodes"
    return f"{share}, since the machines have no room for equal parts of them"
