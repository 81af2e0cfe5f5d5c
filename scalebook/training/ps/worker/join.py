"""How a worker joins: plans, shared memory, first parameters, clients."""

import ctypes
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from torch import Tensor
from torch.optim import Optimizer

from scalebook.training.ps.applying.hosts import make_host
from scalebook.training.ps.applying.plan import SectionPlan, digest
from scalebook.training.ps.applying.section import Section, make_sections, plan_sections
from scalebook.training.ps.coordination.membership import Membership
from scalebook.training.ps.coordination.run import SharedRun
from scalebook.training.ps.memory.lending import Lending
from scalebook.training.ps.memory.region import ALLOCATED, DIGEST, FINISHED, RESTING, STARTED, Control
from scalebook.training.ps.optimizer.rebuilding import parameters_of
from scalebook.training.ps.worker.client import Client
from scalebook.training.ps.worker.replica import Replica


class Need(NamedTuple):
    """Bytes of memory that a run takes while it trains, beside activations: of the parameters, and of all together."""

    parameters: int
    shared: int  # versions, optimizer state, gradients that travel
    gradients: int  # of every worker

    @property
    def total(self) -> int:
        """Both together."""
        return self.shared + self.gradients


@dataclass(frozen=True)
class Snapshot:
    """The state of the run at one moment: the updates that each optimizer's shards all have, and its state dict.

    The parameters of that moment are in the worker's replica. Shards that are updated while the snapshot is taken may
    be ahead of others by the pushes under way.
    """

    versions: list[int]
    optimizers: list[dict[str, Any]]


@dataclass(frozen=True)
class Joined:
    """One worker's parts, ready for training; one client for each optimizer, in order."""

    run: SharedRun
    membership: Membership
    clients: list[Client]
    late: bool = False

    def name_parameters(self, named: Iterable[tuple[str, Tensor]]) -> None:
        """What messages call them; those that are not among `named` by their numbers."""
        names = {id(parameter): name for name, parameter in named}
        for client in self.clients:
            unnamed = zip(client.names, client.replica.parameters, strict=True)
            client.names = [names.get(id(parameter), name) for name, parameter in unnamed]

    def start(self) -> None:
        """Once, before `begin`: what has been written into the parameters since `join` is part of the first version.

        Worker 0's counts, and others that have written must have written the same (`WrittenError`). All wait for each
        other. A worker that comes late has the newest version instead.
        """
        for client in self.clients:
            client.grow()
        if self.membership.worker == 0 and not self.late:
            for client in self.clients:
                client.adopt(client.replica.written(thorough=True))
                if state := client.own_state():  # loaded by whoever loaded weights, or the constructor's own
                    for shard in client.host.section.shards:
                        shard.restore(shard.version, state)
        self.membership.rendezvous("weights loaded before training")
        for client in self.clients:
            if self.membership.worker > 0 and not self.late:
                different = client.replica.written(thorough=True)
                if different:
                    raise client.refused(different, "before training, and not what worker 0 has there")
            client.replica.discard()
        self.show_state()

    def show_state(self) -> None:
        """Let the optimizers show the run's state, to be read: from `start` on, or after `restore`."""
        for client in self.clients:
            client.show_state()

    def settle(self, moment: str, thorough: bool = True) -> None:
        """Before a snapshot or a pull: what somebody has written into the parameters (`Client.settle`)."""
        for client in self.clients:
            client.settle(moment, thorough)

    def begin(self) -> None:
        """Before the first gradient, and after a rest: wait until the rule lets this worker begin, then pull."""
        control, worker = self.run.control, self.membership.worker
        self.settle("before its first step, or while it waited for data")
        if control.counter(worker, RESTING):
            for client in self.clients:
                client.host.section.counters.clocks[worker] = -1
            control.set_counter(worker, RESTING, 0)
        for client in self.clients:
            client.begin()

    def pull(self, moment: str = "between two pulls") -> None:
        """Make the replicas as new as can be; `moment` as in `settle`."""
        self.settle(moment)
        for client in self.clients:
            client.pull(moment)

    def rest(self) -> None:
        """This worker has nothing to compute at present: rules no longer count on it, until `begin`."""
        self._leave(RESTING)

    def push_rest(self) -> bool:
        """Push what has been summed and not pushed; False where the budget of updates does not allow it."""
        handed_in = [client.push_rest() for client in self.clients]
        return all(handed_in)

    def finish(self) -> None:
        """This worker will not push any more, but for what is left of a sum."""
        self.push_rest()
        self._leave(FINISHED)

    def wait_for_others(self) -> None:
        """After `finish`: wait until all living workers have finished and all that they pushed has been applied."""
        self.membership.wait_for_others()
        for client in self.clients:
            client.host.complete()

    def _leave(self, counter: int) -> None:
        for client in self.clients:
            client.host.settle(self.membership.worker)
        self.run.control.set_counter(self.membership.worker, counter, 1)
        self.run.control.event.wake()
        for client in self.clients:
            client.host.help()

    def snapshot(self, renew: bool = True) -> Snapshot:
        """The state of this moment; the replica has its parameters, in private memory until the next push or pull.

        Not `renew`: the replica stays as it is, with what has been written into it, since nobody trains yet.
        """
        taken = [client.snapshot(renew) for client in self.clients]
        return Snapshot([version for version, _ in taken], [state for _, state in taken])

    def restore(self, versions: Sequence[int], states: Sequence[dict[str, Any]]) -> None:
        """Go on from these versions and optimizer state dicts; by one worker, before the run's first update."""
        for client, version, state in zip(self.clients, versions, states, strict=True):
            client.grow()  # a callback may have added the groups that the checkpoint has
            section = client.host.section
            section.counters.admission[0], section.counters.admission[1] = version << 32, version
            for shard in section.shards:
                shard.restore(version, state["state"])

    def detach(self) -> None:
        """Give every parameter memory of its own again; the clients are of no use afterwards."""
        for client in self.clients:
            client.hide_state()
            client.replica.detach()


def join(
    run: SharedRun,
    membership: Membership,
    optimizers: Sequence[Optimizer],
    announce: Callable[[Need], None] = lambda need: None,
) -> Joined:
    """Become a worker: called once in every worker, in parallel, with the same model and optimizers.

    The first parameters are those of worker 0. From here on the parameters of the optimizers are the clients' replicas,
    and the optimizers themselves only lend their param groups. A worker started again joins the run under way.
    `announce` is told by worker 0 what the run needs, before it takes it, and may raise.
    """
    control, worker, late = run.control, membership.worker, membership.joins_late
    plans = plan_sections(run, optimizers)
    control.set_counter(worker, DIGEST, digest(plans, run.settings))
    if worker == 0 and not late:
        announce(_need(plans, control.workers))
        run.memory.allocate(plans[-1].end)
        control.head[ALLOCATED] = 1
    membership.rendezvous("memory")  # a late one too: the others may still wait at the next rendezvous
    if not control.head[ALLOCATED]:
        raise RuntimeError("worker 0 died before it had made the parameters, so there is nothing to train.")
    if not late:
        _compare(control, worker)
    sections = make_sections(run, plans, optimizers, worker, membership.deadline_s)
    own_steps = run.settings.rule.push_every > 1 or run.settings.rule.pull_every > 1
    lending = Lending.of(run.memory)
    clients = []
    for section in sections:
        parameters = parameters_of(section.optimizer)
        if worker == 0 and not late:
            _initialise(section, [p.detach() for p in parameters])
        replica = Replica(section, parameters, own_steps, lending)
        clients.append(Client(control, worker, make_host(section), replica, section.optimizer))
    if worker == 0 and not late:
        control.head[STARTED] = 1
        if run.settings.trace is not None:
            run.write_trace_head()
    membership.rendezvous("first parameters")
    joined = Joined(run, membership, clients, late)
    for client in clients:
        client.host.settle(worker)  # a server may still need what the last push of its former life was computed from
    joined.pull()
    _give_back()
    return joined


def _give_back() -> None:
    """To the system, what this process has freed: the model's first parameters, the trials of `discover`. GNU's malloc
    keeps it, and a training with larger blocks may never use it."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


def _need(plans: Sequence[SectionPlan], workers: int) -> Need:
    size = sum(shard.version.nbytes for plan in plans for shard in plan.shards)
    return Need(size, plans[-1].end, workers * size)


def _initialise(section: Section, parameters: Sequence[Tensor]) -> None:
    for shard in section.shards:
        shard.initialise([parameters[place] for place in shard.plan.parameters])


def _compare(control: Control, worker: int) -> None:
    mine = control.counter(worker, DIGEST)
    different = [other for other in control.living() if control.counter(other, DIGEST) != mine]
    if different:
        raise ValueError(
            f"model: workers {[worker, *different]} have made different parameters or optimizers. "
            "Make the model the same in every worker, whatever its rank."
        )
