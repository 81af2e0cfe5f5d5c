"""The end of a worker on another node: the same interface as over shared memory (`engine/worker/worker_end.py`)."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from mmap import mmap
from time import monotonic
from typing import Final, NamedTuple

import torch
from torch.nn import Module
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.engine.coordination.measures import (
    Counts,
    PushMeasures,
    StalenessHistogram,
    Timings,
    WorkerTimes,
)
from scalebook.training.engine.coordination.run import Membership
from scalebook.training.engine.memory.region import COMMUNICATE, GRADIENTS, ROW, Control
from scalebook.training.engine.net.channel import Channel, ChannelLost, ProxyAddress
from scalebook.training.engine.net.handshake import Hello, Refused, Secret
from scalebook.training.engine.net.mailbox import RemoteMailbox
from scalebook.training.engine.net.push_stream import PUSHES, PushStream, has_push_stream
from scalebook.training.engine.net.raw_tensors import bytes_of
from scalebook.training.engine.net.remote_host import RemoteHost
from scalebook.training.engine.net.remote_shared_state import RemoteCursor, RemoteExchange, RemoteRows, RemoteSignals
from scalebook.training.engine.net.remote_tables import RemoteTableReads, refuse_first
from scalebook.training.engine.net.version_mirror import coded_pulls, mirrored, plan_digest, refuse_far, settings_digest
from scalebook.training.engine.net.worker_calls import most_text
from scalebook.training.engine.rules.duration_summary import DurationSummary
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.store.rebuilt_optimizer import parameters_of
from scalebook.training.engine.store.table_optimizer import mark_tables
from scalebook.training.engine.worker.join import make_client
from scalebook.training.engine.worker.joined_worker import Joined
from scalebook.training.engine.worker.worker_end import Figures, JoinedEnd, MemoryNeed, Part
from scalebook.training.engine.worker_clock import Waits

_PARTS: Final[tuple[Part, ...]] = ("compute", "data")


class RemoteMembership(Membership):
    """The membership of a remote worker; its proxy takes part in its place."""

    def __init__(self, control: Control, worker: int, deadline_s: float, channel: Channel) -> None:
        super().__init__(control, worker, deadline_s)
        self._channel = channel

    @override
    def rendezvous(self, name: str) -> Waits[None]:
        self._channel.call("rendezvous", name)
        yield from ()

    @override
    def wait_for_others(self) -> Waits[None]:
        self._channel.call("wait_for_others")
        yield from ()


@dataclass(frozen=True, kw_only=True)
class RemoteJoined(Joined):
    """A remote worker whose clients work on a mirror, while its proxy does the same beside the shards."""

    channel: Channel
    hosts: list[RemoteHost] = field(repr=False)
    tables: list[RemoteTableReads] = field(repr=False)
    stream: PushStream | None = field(default=None, repr=False)

    @override
    def start_waits(self) -> Waits[None]:
        yield from super().start_waits()
        for reads in self.tables:
            reads.has_begun = True

    @override
    def begin_waits(self) -> Waits[None]:
        self.channel.call("begin")
        yield from super().begin_waits()

    @override
    def rest_waits(self) -> Waits[None]:
        yield from super().rest_waits()
        self._sync_residuals()
        self.channel.call("rest")

    @override
    def finish_waits(self) -> Waits[None]:
        yield from super().finish_waits()
        self._sync_residuals()
        self.channel.call("finish")

    def _sync_residuals(self) -> None:
        for host in self.hosts:
            host.transfer.sync_residuals()

    @override
    def detach(self) -> None:
        """Fetches whole tables, as of the version pulled last, before everything is private again."""
        for reads in self.tables:
            reads.fetch()
            reads.give_back()
        super().detach()
        if self.stream is not None:
            self.stream.drain()
        self.channel.call("detach")


class RemoteEnd:
    """A `WorkerEnd`, made in the worker's process and used by one thread at a time.

    When the channel is lost for good (`ChannelLost`, `Refused`) this worker is dead to the run. A process that replaces
    it is given a larger generation.
    """

    def __init__(
        self,
        reach: ProxyAddress,
        run: str,
        settings: Settings,
        worker: int,
        workers: int,
        deadline_s: float,
        lost: Callable[[str], None] = lambda why: None,
        begins: Callable[[int], None] = lambda generation: None,
    ) -> None:
        """`deadline_s`: how long the other side may take to start; every other wait is bounded there. `lost`, `begins`:
        as in `Channel`."""
        refuse_far(settings)
        self.settings, self.worker, self.workers = settings, worker, workers
        self._deadline_s = deadline_s
        self._spent: dict[Part, float] = dict.fromkeys(_PARTS, 0.0)
        self._samples = self._memory = 0
        self._control: Control | None = None
        hello = Hello(run, settings_digest(settings), worker, 0)
        self.channel = Channel(reach, hello, most_text(workers), self._notes, lost, begins)
        self.channel.open(deadline_s)
        self._stream = PushStream(self.channel.second(PUSHES)) if has_push_stream(settings) else None
        self.cursor = RemoteCursor(self.channel, workers, self._stream)
        self.signals = RemoteSignals(self.channel)
        self.meetings, self.rows = RemoteExchange(self.channel, workers), RemoteRows(self.channel, worker, workers)
        if self._stream is not None:
            self._stream.open(deadline_s)

    def _notes(self) -> list[float]:
        """Seconds, samples, gradients and memory of this process so far, which are sent with each call."""
        communicated, gradients = 0.0, 0
        if self._control is not None:
            communicated = self._control.seconds[self.worker * ROW + COMMUNICATE]
            gradients = self._control.counter(self.worker, GRADIENTS)
        return [*[self._spent[part] for part in _PARTS], communicated, self._samples, gradients, self._memory]

    def close(self) -> None:
        """Disconnect. Before `JoinedEnd.detach` this counts as a death."""
        if self._stream is not None:
            self._stream.close()
        self.channel.close()

    # --- becoming a worker ---------------------------------------------------------------------------------------

    def rendezvous(self, name: str) -> None:
        self.channel.call("rendezvous", name)

    def join(
        self,
        optimizers: Sequence[Optimizer],
        announce: Callable[[MemoryNeed], None] = lambda need: None,
        model: Module | None = None,
    ) -> JoinedEnd:
        if model is not None:
            mark_tables(model)
        refuse_first(self.worker, optimizers)
        mirror = mirrored(self.settings, self.workers, self.worker, optimizers, self._deadline_s)
        first = [parameters_of(optimizer) for optimizer in optimizers]
        for partition, parameters in zip(mirror.partitions, first, strict=True):
            for shard in partition.shards:
                shard.initialise([parameters[place].detach() for place in shard.plan.parameters], with_tables=False)
        shards = [shard for partition in mirror.partitions for shard in partition.shards]
        flats = [shard.flats[0][: shard.plan.version.nbytes] for shard in shards]  # parameters alone
        late, progress = self.channel.call(
            "join",
            plan_digest(mirror.plans, self.settings),
            body=[bytes_of(flat) for flat in flats] if self.worker == 0 else (),
            meanwhile=lambda *need: announce(MemoryNeed(*need)),
        )
        clients, hosts, tables = [], list[RemoteHost](), list[RemoteTableReads]()
        for partition, optimizer, parameters, (seq, steps, since) in zip(
            mirror.partitions, optimizers, first, progress, strict=True
        ):
            partition.counters.begun[self.worker] = seq
            for worker in range(self.workers):
                partition.counters.steps[worker], partition.counters.since[worker] = steps[worker], since[worker]
            pulls = coded_pulls(partition.plan, self.settings, self.worker, parameters)
            host = RemoteHost(partition, self.channel, self.worker, pulls, self._stream)
            hosts.append(host)
            clients.append(make_client(partition, host, self.worker, parameters, optimizer, mirror.lending, late))
            clients[-1].reads = reads = RemoteTableReads(self.channel, self.worker, clients[-1])
            host.versions.fetch_written = reads.fetch_written
            tables.append(reads)
        self._control = mirror.run.control
        membership = RemoteMembership(mirror.run.control, self.worker, self._deadline_s, self.channel)
        joined = RemoteJoined(
            mirror.run,
            membership,
            clients,
            late,
            channel=self.channel,
            hosts=hosts,
            tables=tables,
            stream=self._stream,
        )
        joined.pull()
        if model is not None:
            joined.read_rows(model)
        for reads in tables:
            reads.keep_away()
        return joined

    # --- the run -------------------------------------------------------------------------------------------------

    def living(self) -> list[int]:
        return list(self.channel.call("living"))

    def sign_of_life(self) -> None:
        self.channel.call("sign_of_life")

    def is_over(self) -> bool:
        return bool(self.channel.call("is_over"))

    def now(self) -> float:
        return monotonic()

    def add_time(self, part: Part, seconds: float) -> None:
        self._spent[part] += seconds

    def add_samples(self, samples: int) -> None:
        self._samples += samples

    def note_memory(self, size: int) -> None:
        self._memory = size

    # --- figures -------------------------------------------------------------------------------------------------

    @property
    def figures(self) -> Figures:
        return self

    def counts(self) -> Counts:
        return Counts(*self.channel.call("counts"))

    def worker_times(self) -> list[WorkerTimes]:
        return [WorkerTimes(*row) for row in self.channel.call("worker_times")]

    def consensus(self) -> None:
        """None: peers are on one machine."""

    def staleness(self) -> StalenessHistogram:
        return StalenessHistogram(torch.tensor(self.channel.call("staleness"), dtype=torch.int64))

    def pushes(self) -> list[PushMeasures]:
        return [PushMeasures(*row) for row in self.channel.call("pushes")]

    def timings(self) -> Timings:
        workers, server = self.channel.call("timings")
        return Timings(
            [None if one is None else DurationSummary(*one) for one in workers],
            None if server is None else DurationSummary(*server),
        )


LOST_CODE: Final = 75
"""Exit code of a process that lost the server (EX_TEMPFAIL of sysexits.h); it leaves the reason in `WorkerNotes`."""
COME_AGAIN_S: Final = 30.0
"""How long a restarted worker may take to connect."""
_NOTE: Final = 1024  # bytes


class Run(NamedTuple):
    """What all nodes must know. `name`: the same on all nodes, another for each launch. `host`, `port`: of the server.
    `machines`: how many other nodes there are. `workers`: of all nodes."""

    name: str
    secret: Secret
    tls: bool
    host: str
    port: int
    machines: int
    workers: int
    settings: Settings


class WorkerNotes:
    """One short text for each worker, in shared memory."""

    def __init__(self, count: int) -> None:
        self._memory = mmap(-1, _NOTE * count)

    def write(self, number: int, text: str) -> None:
        self._memory[number * _NOTE : (number + 1) * _NOTE] = text.encode()[: _NOTE - 1].ljust(_NOTE, b"\0")

    def pop(self, number: int) -> str:
        """Read a text and clear it."""
        text = self._memory[number * _NOTE : (number + 1) * _NOTE].rstrip(b"\0").decode(errors="replace")
        self.write(number, "")
        return text


class ServerConnection(RemoteMailbox):
    """A node's connection to the server, made by the node's monitor before the fork. `machine`: its number, from 1.
    `first`, `count`: its workers. ValueError for settings that cannot run over several nodes."""

    def __init__(self, run: Run, machine: int, first: int, count: int) -> None:
        refuse_far(run.settings)
        super().__init__(run.name, ProxyAddress(run.host, run.port, run.secret, run.tls, machine - 1))
        self._run, self._first = run, first
        self._notes = WorkerNotes(count)
        self._lives = memoryview(mmap(-1, 8 * count)).cast("q")  # generations of the workers here, 0 before the first
        self._in = memoryview(mmap(-1, count))  # 1: this worker has been let in
        self._updates = memoryview(mmap(-1, 8 * count)).cast("q")  # that each worker here has seen

    # --- in a worker -------------------------------------------------------------------------------------------------

    def worker(self, worker: int, deadline_s: float) -> RemoteEnd:
        """Become worker `worker`, once the server's monitor has met this node, so that no run begins that would be
        refused.

        Raises `Refused`, or `ChannelLost` if the server is unreachable for `deadline_s` at first. If the server is lost
        later, this process ends at once with `LOST_CODE`.
        """
        self.met.wait(deadline_s)
        run, place = self._run, worker - self._first
        is_first_life = self._lives[place] == 0

        def begins(generation: int) -> None:
            self._lives[place] = generation

        reach = self._reach._replace(destination=run.machines + worker)
        within_s = deadline_s if is_first_life else COME_AGAIN_S
        try:
            end = RemoteEnd(reach, run.name, run.settings, worker, run.workers, within_s, self._lost(worker), begins)
            self._in[place] = 1
            return end
        except (Refused, ChannelLost) as error:
            if not is_first_life:
                self._lost(worker)(str(error))
            raise

    def note_updates(self, worker: int, updates: int) -> None:
        """Store the run's number of updates, as this worker sees it."""
        self._updates[worker - self._first] = updates

    def _lost(self, worker: int) -> Callable[[str], None]:
        def lost(why: str) -> None:
            self._notes.write(worker - self._first, why)
            os._exit(LOST_CODE)

        return lost

    # --- in the monitor ----------------------------------------------------------------------------------------------

    def why(self, worker: int) -> str:
        """Why a worker ended that lost the server; returned once, empty for other workers."""
        return self._notes.pop(worker - self._first)

    def updates(self) -> int:
        """Updates that workers here know of; the server may have made more."""
        return max(self._updates)

    def has_come_in(self) -> bool:
        """Whether a worker here has taken part."""
        return any(self._in)

    def tell_death(self, worker: int, why: str) -> None:
        """Report the death of a worker here, so that the server does not wait for heartbeats. Raises `ChannelLost`."""
        self._call("died", worker, self._lives[worker - self._first], why)
