"""A section made again, for an optimizer that has been given more parameters while it trains."""

from collections.abc import Mapping
from typing import Any

from scalebook.training.ps.applying.hosts import Host, make_host
from scalebook.training.ps.applying.plan import plan_section
from scalebook.training.ps.applying.section import Section, register
from scalebook.training.ps.memory.lending import Lending
from scalebook.training.ps.memory.region import Memory
from scalebook.training.ps.optimizer.rebuilding import parameters_of
from scalebook.training.ps.worker.replica import Replica


def grown(old: Section, worker: int, version: int, state: Mapping[int, Any]) -> tuple[Host, Replica]:
    """Host and replica of all parameters that the optimizer has now, which are as they are in this process.

    In memory of this process's own: only for a worker that is alone and applies its pushes itself. Everything counted
    goes on; `state` is the optimizer's, by the place of the parameter.
    """
    optimizer, control = old.optimizer, old.control
    parameters, memory = parameters_of(optimizer), Memory()
    plan = plan_section(optimizer, control.settings, control.workers)
    memory.allocate(plan.end)
    mapped = memory.map()
    section = Section(old.number, plan, mapped, control, optimizer, worker, old.deadline_s, device=old.device)
    register([section], mapped)
    for shard in section.shards:
        shard.initialise([parameters[place].detach() for place in shard.plan.parameters])
        shard.restore(version, state)
    replica = Replica(section, parameters, own=False, lending=Lending.of(memory))
    memory.close()
    host = make_host(section)
    host.carry(parameters)
    return host, replica
