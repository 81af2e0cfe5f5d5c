"""How a worker joins: plan, shared memory, first parameters, client."""

from dataclasses import dataclass

from torch.optim import Optimizer

from training.ps.client import Client, Replica
from training.ps.hosts.inline import InlineHost
from training.ps.membership import Membership
from training.ps.optimizers import parameters_of
from training.ps.region import DIGEST, Control, Memory
from training.ps.rules import Rule
from training.ps.shard import Shard, plan_shard


class SharedRun:
    """What the processes of one run have in common. Made once, before the fork, by the process that forks."""

    def __init__(self, workers: int) -> None:
        self.control = Control(workers)
        self.memory = Memory()

    def member(self, worker: int, deadline_s: float) -> Membership:
        """The membership of one worker; `deadline_s` (seconds) bounds each of its waits, those for the lock too."""
        return Membership(self.control, worker, deadline_s)

    def close(self) -> None:
        """Give up the memory's handle; in the process that made it, when the run has ended."""
        self.memory.close()


@dataclass(frozen=True)
class Joined:
    """One worker's parts, ready for training."""

    client: Client
    shard: Shard


def join(run: SharedRun, membership: Membership, optimizer: Optimizer, rule: Rule) -> Joined:
    """Become a worker: called once in every worker, in parallel, with the same model, optimizer and rule.

    The first parameters are those of worker 0. From here on the parameters of `optimizer` live in the client's
    replica, and `optimizer` itself only lends its param groups.
    """
    control, worker = run.control, membership.worker
    plan = plan_shard(optimizer)
    control.set_word(worker, DIGEST, plan.digest())
    if worker == 0:
        run.memory.allocate(plan.nbytes)
    membership.rendezvous("memory")
    different = [other for other, digest in enumerate(control.column(DIGEST)) if digest != plan.digest()]
    if different:
        raise ValueError(
            f"model: workers {[worker, *different]} have made different parameters or optimizers. "
            "Make the model the same in every worker, whatever its rank."
        )
    shard = Shard(plan, run.memory.map(), optimizer, control)
    replica = Replica(parameters_of(optimizer), plan.parameters)
    client = Client(InlineHost(shard, control, worker, rule, membership.deadline_s), replica, optimizer)
    if worker == 0:
        shard.initialise(replica.flat)
    membership.rendezvous("first parameters")
    client.pull()
    return Joined(client, shard)
