"""A worker that has joined: its clients together, from the start of training to its end."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor
from torch.nn import Module

from scalebook.training.engine.coordination.run import Membership, SharedRun
from scalebook.training.engine.memory.region import FINISHED, NO_DATA, RESTING
from scalebook.training.engine.worker.client import Client
from scalebook.training.engine.worker.sparse_rows import RowReaders, sources_of
from scalebook.training.engine.worker.worker_end import Residuals, Snapshot
from scalebook.training.engine.worker_clock import Waits


@dataclass(frozen=True)
class Joined:
    """One worker's clients, one for each optimizer, in order.

    A method that may wait exists twice: as a call, and as its waits, for a process with several workers
    (`worker_clock.py`).
    """

    run: SharedRun
    membership: Membership
    clients: list[Client]
    late: bool = False
    readers: list[RowReaders] = field(default_factory=list)

    @property
    def versions(self) -> list[int]:
        """The version of each optimizer in this worker's replica."""
        return [client.version for client in self.clients]

    def name_parameters(self, named: Iterable[tuple[str, Tensor]]) -> None:
        """Set the names that messages use; parameters that are not in `named` keep their numbers."""
        names = {id(parameter): name for name, parameter in named}
        for client in self.clients:
            client.name_parameters(names)

    def start(self) -> None:
        """Once, before `begin`: what has been written into the parameters since `join` becomes part of the first
        version.

        Worker 0's writes count, and other workers must have written the same (`WrittenError`). All wait for each other.
        A late worker gets the newest version instead.
        """
        self.run.control.clock.play(self.start_waits())

    def start_waits(self) -> Waits[None]:
        """The waits of `start`."""
        for client in self.clients:
            client.check_groups()
        if self.membership.worker == 0 and not self.late:
            for client in self.clients:
                client.adopt(client.replica.written(thorough=True))
                client.publish_state()
                client.host.versions.publish()
        yield from self.membership.rendezvous("weights loaded before training")
        for client in self.clients:
            client.host.versions.fetch_held()
            if self.membership.worker > 0 and not self.late:
                different = client.replica.written(thorough=True)
                if different:
                    raise client.refused(different, "before training, with values that differ from worker 0's")
            client.replica.discard()
            client.notes.load_version(client.bases, anew=True)
        if self.run.control.settings.local.peers:  # worker 0 writes the mean to where the first version is
            yield from self.membership.rendezvous("first parameters compared")
        for client in self.clients:
            client.started()
        self.show_state()

    def show_state(self) -> None:
        """Show the run's state in the optimizers, read-only; after `start` or `restore`."""
        for client in self.clients:
            client.state.show()

    def check_foreign_writes(self, moment: str, thorough: bool = True) -> None:
        """Before a snapshot or a pull: check for writes into the parameters (`Client.check_foreign_writes`)."""
        for client in self.clients:
            client.check_foreign_writes(moment, thorough)

    def watch_closely(self) -> None:
        """See `JoinedEnd`."""
        for client in self.clients:
            client.replica.watch_closely()

    def begin(self) -> None:
        """Before the first gradient, and after a rest: wait until the rule lets this worker begin, then pull."""
        self.run.control.clock.play(self.begin_waits())

    def begin_waits(self) -> Waits[None]:
        """The waits of `begin`."""
        control, worker = self.run.control, self.membership.worker
        self.check_foreign_writes("before its first step, or while it waited for data")
        if control.counter(worker, RESTING):
            for client in self.clients:
                client.host.partition.counters.clocks[worker] = -1
            control.set_counter(worker, RESTING, 0)
        for client in self.clients:
            yield from client.begin_waits()

    def pull(self, moment: str = "between two pulls") -> None:
        """Make the replicas the newest version; `moment` as in `check_foreign_writes`."""
        self.check_foreign_writes(moment)
        for client in self.clients:
            client.pull(moment)

    def rest(self) -> None:
        """This worker has nothing to compute at present: rules do not count on it until `begin`."""
        self.run.control.clock.play(self.rest_waits())

    def rest_waits(self) -> Waits[None]:
        """The waits of `rest`."""
        yield from self._leave(RESTING, NO_DATA)

    def push_rest(self) -> bool:
        """Push the part of a sum that is left; False if the budget of updates does not allow it."""
        return self.run.control.clock.play(self.push_rest_waits())

    def push_rest_waits(self) -> Waits[bool]:
        """The waits of `push_rest`."""
        is_allowed = True
        for client in self.clients:
            is_allowed &= yield from client.push_rest_waits()
        return is_allowed

    def finish(self) -> None:
        """This worker will not push any more, apart from the rest of a sum."""
        self.run.control.clock.play(self.finish_waits())

    def finish_waits(self) -> Waits[None]:
        """The waits of `finish`."""
        yield from self.push_rest_waits()
        yield from self._leave(FINISHED)

    def wait_for_others(self) -> None:
        """After `finish`: wait until all living workers have finished and all their pushes have been applied."""
        self.run.control.clock.play(self.wait_for_others_waits())

    def wait_for_others_waits(self) -> Waits[None]:
        """The waits of `wait_for_others`."""
        yield from self.membership.wait_for_others()
        for client in self.clients:
            yield from client.host.flush()

    def _leave(self, counter: int, value: int = 1) -> Waits[None]:
        has_left = False
        while not has_left:
            for client in self.clients:
                yield from client.complete()
            has_left = all(client.leave() for client in self.clients)
        for client in self.clients:
            yield from client.after_leaving()
            yield from client.host.flush(self.membership.worker)
            for shard in client.host.partition.shards:
                shard.release(self.membership.worker)
        self.run.control.set_counter(self.membership.worker, counter, value)
        self.run.control.event.wake()
        for client in self.clients:
            client.host.close_round()

    def snapshot(self, renew: bool = True) -> Snapshot:
        """The state at this moment; the replica has its parameters, in private memory until the next push or pull.

        With `renew` False the replica stays as it is, including writes, since nobody trains yet.
        """
        taken = [client.snapshot(renew) for client in self.clients]
        local = [state for client in self.clients if (state := client.local_state()) is not None]
        return Snapshot([version for version, _ in taken], [state for _, state in taken], local)

    def residuals(self) -> Residuals:
        """By optimizer, worker and shard; empty without error feedback."""
        every, coded = range(self.run.control.workers), [client.host.partition.coded for client in self.clients]
        residuals = [[pushes.residuals(worker) for worker in every] if pushes is not None else [] for pushes in coded]
        return residuals if any(shards for workers in residuals for shards in workers) else []

    def restore(
        self,
        versions: Sequence[int],
        states: Sequence[Mapping[str, Any]],
        residuals: Residuals = (),
        steps: Sequence[int] = (),
    ) -> None:
        """Resume from these versions and optimizer state dicts; by one worker, before the run's first update."""
        for client, made in zip(self.clients, steps, strict=False):
            for worker in range(self.run.control.workers):
                client.host.partition.counters.steps[worker] = made
        for client, workers in zip(self.clients, residuals, strict=False):
            for worker, shard_residuals in enumerate(workers[: self.run.control.workers]):
                if client.host.partition.coded is not None:
                    client.host.partition.coded.restore(worker, shard_residuals)
        for client, version, state in zip(self.clients, versions, states, strict=True):
            partition = client.host.partition
            partition.counters.admission[0], partition.counters.admission[1] = version << 32, version
            for shard in partition.shards:
                shard.restore(version, state["state"], state.get("param_groups"))
            client.host.versions.publish()

    def detach(self) -> None:
        """Give every parameter memory of its own again; the clients cannot be used afterwards."""
        for readers in self.readers:
            readers.restore_modules()
        for client in self.clients:
            client.state.hide_state()
            client.replica.detach()
            client.host.close()

    def read_rows(self, model: Module) -> None:
        """Let the model's sparse embeddings fetch the rows that they need, until `detach`."""
        sources = {}
        for client in self.clients:
            reads = client.reads
            sources.update(sources_of(client.replica.parameters, reads.rows, reads))
        self.readers.append(RowReaders(model, sources))
