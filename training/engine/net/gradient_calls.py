"""Calls of a remote worker about parameters and gradients; read `worker_calls.py` first, which lists them all."""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from scalebook.training.engine.coordination.admission import Verdict
from scalebook.training.engine.coordination.run import SharedRun
from scalebook.training.engine.hyper import Groups, decode
from scalebook.training.engine.memory.region import METER, PULLED, ROW, WAIT
from scalebook.training.engine.net.call_protocol import CallSpec, Reply, Room, count, numbers
from scalebook.training.engine.net.push_stream import has_push_stream
from scalebook.training.engine.net.raw_tensors import bytes_of
from scalebook.training.engine.net.remote_host import OLD
from scalebook.training.engine.net.table_calls import RowRoom, TableCalls
from scalebook.training.engine.net.version_mirror import coded_pulls, plan_digest
from scalebook.training.engine.net.wire import ProtocolError
from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.store.coded_traffic import CodedPulls, CodedPushes
from scalebook.training.engine.store.gradient_transfer import EncodedPush
from scalebook.training.engine.store.hosts import Host
from scalebook.training.engine.store.optimizer_partition import plan_partitions
from scalebook.training.engine.store.rebuilt_optimizer import parameters_of
from scalebook.training.engine.store.shard import Newest
from scalebook.training.engine.worker.client import Client
from scalebook.training.engine.worker.joined_worker import Joined
from scalebook.training.engine.worker.shared_end import SharedEnd
from scalebook.training.engine.worker.worker_end import MemoryNeed

Tell = Callable[..., None]


class InFlightVersions:
    """The last two versions of one optimizer that were sent to this worker, with timestamps. With `overlap` its next
    push may be computed from either."""

    def __init__(self) -> None:
        self._two: deque[tuple[list[Newest], float]] = deque(maxlen=2)

    def record_pin(self, client: Client) -> None:
        """Pin the newest versions and record that they are sent now."""
        client.pin_newest()
        self._two.append((client.bases, client.pulled))

    def go_back(self, client: Client, bases: list[Any]) -> Sequence[int]:
        """Make the versions with these numbers, by shard, the base of the client's next push, if they are among the
        last two. Returns the numbers of the versions that the worker has."""
        for held, pulled in self._two:
            if [base.version for base in held] == bases:
                client.bases, client.pulled = held, pulled
        return [base.version for base in self._two[-1][0]] if self._two else bases


class GradientCalls:
    """Carried out by an ordinary client of the engine. Gradients arrive in memory allocated once, when the worker
    joins; versions are sent from shared memory."""

    def __init__(self, end: SharedEnd, run: SharedRun, optimizers: Sequence[Optimizer], tell: Tell) -> None:
        self._end, self._run, self._optimizers, self._tell = end, run, optimizers, tell
        self._plans = plan_partitions(run, optimizers)
        self._first = [[torch.empty(s.version.nbytes, dtype=torch.uint8) for s in p.shards] for p in self._plans]
        self._gradients: list[list[Tensor]] = []  # by partition, one for each parameter
        self._rows: list[dict[int, RowRoom]] = []  # by partition and place of a table
        self._frames: list[list[Tensor]] = []  # by partition, room for one of each shard
        self._pulls: list[CodedPulls | None] = []  # by partition: what the worker knows
        self._knows: set[int] = set()  # partitions of which it knows something
        self._joined: Joined | None = None
        self._has_push_stream = has_push_stream(run.settings)
        self._given = [InFlightVersions() for _ in self._plans]
        self._hyper: dict[int, tuple[str, Groups]] = {}
        self.has_detached = False

    def offers(self) -> dict[str, CallSpec]:
        """The calls by name."""
        return {
            "join": CallSpec((int,), self._join, self._join_room),
            "begin": CallSpec((), partial(self._do, Joined.begin)),
            "rest": CallSpec((), partial(self._do, Joined.rest)),
            "finish": CallSpec((), partial(self._do, Joined.finish)),
            "wait_for_others": CallSpec((), partial(self._do, Joined.wait_for_others)),
            "detach": CallSpec((), self._detach),
            "pull": CallSpec((int, list), self._pull),
            "fetch_full": CallSpec((int,), self._fetch_full),
            "publish_initial": CallSpec((int, list, list), self._publish_initial, self._publish_initial_room),
            "await_turn": CallSpec((int,), self._await_turn_call),
            "residuals": CallSpec((int,), self._residuals),
            "sync_residuals": CallSpec((int,), self._sync_residuals, self._sync_residuals_room),
            **TableCalls(self._client).offers(),
            "push": CallSpec((int, int, list, bool, bool, list, str), self._push, self._push_room),
        }

    @property
    def _own(self) -> Joined:
        if self._joined is None:
            raise ProtocolError("channel: the worker has not joined")
        return self._joined

    def _do(self, what: Callable[[Joined], None]) -> None:
        what(self._own)

    def _client(self, number: int) -> Client:
        if not 0 <= number < len(self._own.clients):
            raise ProtocolError("channel: no such optimizer")
        return self._own.clients[number]

    # --- joining -----------------------------------------------------------------------------------------------------

    def _join_room(self, _digest: int) -> Room:
        """Memory for the first parameters, which worker 0 sends."""
        return [bytes_of(flat) for flats in self._first for flat in flats] if self._end.worker == 0 else ()

    def _join(self, digest: int) -> Any:
        if digest != plan_digest(self._plans, self._run.settings):
            raise ArgumentError(
                "model-not-supported",
                "model",
                f"worker {self._end.worker} has created different parameters or optimizers from those on this node",
                "Create the same model in every worker, whatever its rank or node.",
            )
        if self._end.worker == 0:
            for plan, flats, optimizer in zip(self._plans, self._first, self._optimizers, strict=True):
                parameters = parameters_of(optimizer)
                for shard, flat in zip(plan.shards, flats, strict=True):
                    for place, value in zip(shard.parameters, shard.version.views(flat), strict=True):
                        parameters[place].data.copy_(value)
        self._joined = self._end.join_for(self._optimizers, self._announce)
        for plan, client in zip(self._plans, self._joined.clients, strict=True):
            coded, nbytes = client.host.partition.coded, plan.gradients.nbytes
            self._gradients.append(
                plan.gradients.views(torch.empty(nbytes, dtype=torch.uint8)) if coded is None else []
            )
            self._rows.append({table.place: RowRoom(table) for table in plan.tables})
            self._frames.append([] if coded is None else [torch.empty(m, dtype=torch.uint8) for m in coded.most()])
            own = coded_pulls(plan, self._run.settings, self._end.worker, client.replica.parameters)
            self._pulls.append(own)
        self._first = [[] for _ in self._plans]
        counters = [client.host.partition.counters for client in self._joined.clients]
        progress = [
            [client.seq, counts.steps.tolist(), counts.since.tolist()]
            for client, counts in zip(self._joined.clients, counters, strict=True)
        ]
        return [self._joined.late, progress]

    def _announce(self, need: MemoryNeed) -> None:
        self._tell(*need)

    def _detach(self) -> None:
        self._own.detach()
        self.has_detached = True

    # --- versions ----------------------------------------------------------------------------------------------------

    def _pull(self, number: int, held: list[Any]) -> Reply:
        client = self._client(number)
        return Reply(*self._newer(client, numbers(held, count=len(client.host.partition.shards))))

    def _newer(self, client: Client, held: Sequence[int]) -> tuple[tuple[list[int], list[int]], Room]:
        """Pin the newest versions. Returns their numbers (`OLD` where the worker has it), and the bytes of the others.
        Where the worker knows some version, all come as frames, whose sizes follow the numbers."""
        self._given[client.host.partition.number].record_pin(client)
        partition = client.host.partition
        pulls = self._pulls[partition.number]
        if pulls is not None and any(had != OLD for had in held):
            return self._coded(client, pulls)
        if pulls is not None and partition.number not in self._knows:
            self._knows.add(partition.number)
            pulls.know(client.bases, partition.shards)
        versions: list[int] = []
        body: list[memoryview] = []
        for shard, base, had in zip(client.host.partition.shards, client.bases, held, strict=True):
            is_newer = base.version > had
            versions.append(base.version if is_newer else OLD)
            if is_newer:
                body.append(bytes_of(shard.flats[base.buffer]))
                shard.counters.meters[self._end.worker * METER + PULLED] += sum(
                    f.nbytes for f in shard.plan.version.fields
                )
        return (versions, []), body

    def _coded(self, client: Client, pulls: CodedPulls) -> tuple[tuple[list[int], list[int]], Room]:
        frames = []
        for number, (shard, base) in enumerate(zip(client.host.partition.shards, client.bases, strict=True)):
            frames.append(pulls.encode(number, shard.views[base.buffer], client.replica.frozen))
            pulls.learn(number, frames[-1])
            shard.counters.meters[self._end.worker * METER + PULLED] += frames[-1].numel()
        sizes = [frame.numel() for frame in frames]
        return ([base.version for base in client.bases], sizes), [bytes_of(frame) for frame in frames]

    def _fetch_full(self, number: int) -> Reply:
        """Versions and states of one moment. States are copied, since the update after the next overwrites them."""
        client = self._client(number)
        shards = client.host.partition.shards
        with ExitStack() as locks:
            for shard in shards:
                locks.enter_context(shard.applying)
            self._given[number].record_pin(client)
            states = [shard.content(base)[1].clone() for shard, base in zip(shards, client.bases, strict=True)]
        versions = [shard.flats[base.buffer] for shard, base in zip(shards, client.bases, strict=True)]
        body = [bytes_of(part) for pair in zip(versions, states, strict=True) for part in pair]
        return Reply([base.version for base in client.bases], body)

    def _publish_initial_room(self, number: int, _versions: list[Any], _steps: list[Any]) -> Room:
        if self._end.worker != 0 or self._end.signals.stop:
            raise ProtocolError("channel: only worker 0 sends the first version")
        shards = self._client(number).host.partition.shards
        return [bytes_of(part) for shard in shards for part in shard.content(shard.newest())]

    def _publish_initial(self, number: int, versions: list[Any], steps: list[Any]) -> None:
        counters = self._client(number).host.partition.counters
        shards = self._client(number).host.partition.shards
        for worker, made in enumerate(numbers(steps, count=self._end.workers)):
            counters.steps[worker] = made
        for shard, version in zip(shards, numbers(versions, count=len(shards)), strict=True):
            newest = shard.newest()
            shard.publish(version, newest.buffer, newest.state)
        counters.admission[0], counters.admission[1] = min(versions) << 32, min(versions)

    # --- gradients ---------------------------------------------------------------------------------------------------

    def _await_turn_call(self, number: int) -> float:
        before = self._waited()
        self._await_turn(self._client(number).host)
        return self._waited() - before

    def _await_turn(self, host: Host) -> None:
        self._run.control.clock.play(host.await_turn(self._end.worker))

    def _push_room(
        self, number: int, _seq: int, _bases: list[Any], valid: bool, _wants: bool, present: list[Any], _groups: str
    ) -> Room:
        if self._client(number).host.partition.coded is not None and valid:
            rooms = self._frames[number]
            pairs = zip(rooms, numbers(present, count=len(rooms)), strict=True)
            return [bytes_of(room[: count(size, room.numel() + 1)]) for room, size in pairs]
        places = len(self._plans[number].gradients.fields)
        gradients: Sequence[Tensor | None] = self._gradients[number] or [None] * places
        offered = zip(gradients, numbers(present, count=places), strict=True)
        if not valid and any(present):
            raise ProtocolError("channel: malformed gradients")
        rows, room = self._rows[number], list[memoryview]()
        for place, (gradient, here) in enumerate(offered):
            if place in rows:
                room += rows[place].room(here)
            elif here and gradient is not None:
                room.append(bytes_of(gradient))
        return room

    def _push(
        self, number: int, seq: int, bases: list[Any], valid: bool, wants: bool, present: list[Any], groups: str
    ) -> Reply:
        client, before = self._client(number), self._waited()
        held = self._given[number].go_back(client, bases) if self._has_push_stream else bases
        if seq != client.seq + 1 or bases != [base.version for base in client.bases]:
            raise ProtocolError(
                "channel: received a push out of order, or one computed from other versions than the worker has"
            )
        encoded = self._encoded(client, valid, present)
        play = self._run.control.clock.play
        outcome = play(client.push_encoded(encoded, self._groups(number, groups), valid))
        come: tuple[list[int], list[int]] = [OLD] * len(bases), []
        body: Room = ()
        if wants or self._has_push_stream:
            self._await_turn(client.host)
        verdict = Verdict.END if client.host.partition.admission.has_dropped(client.version) else outcome.verdict
        if wants:
            come, body = self._newer(client, held)
        waited = self._waited() - before
        return Reply([verdict.value, outcome.staleness, client.host.is_over(), waited, come], body)

    def _encoded(self, client: Client, valid: bool, present: list[Any]) -> EncodedPush:
        """The push as it has arrived: frames, or raw gradients; None for each gradient of a push that is not valid."""
        partition = client.host.partition
        places = len(self._plans[partition.number].gradients.fields)
        if partition.coded is None or not valid:
            rooms: Sequence[Tensor | None] = self._gradients[partition.number] or [None] * places
            gradients = [room if here else None for room, here in zip(rooms, present, strict=True)]
            for place, room in self._rows[partition.number].items():
                gradients[place] = room.gradient(present[place])
            return EncodedPush(gradients, None, client.host.transfer.sizes(gradients))
        frames = [room[:size] for room, size in zip(self._frames[partition.number], present, strict=True)]
        return EncodedPush([None] * places, frames, present)

    # --- what a codec leaves out -------------------------------------------------------------------------------------

    def _residuals(self, number: int) -> Reply:
        coded = self._coded_of(number)
        return Reply(None, [bytes_of(one) for one in coded.counting(self._end.worker)])

    def _sync_residuals_room(self, number: int) -> Room:
        return [bytes_of(one) for one in self._coded_of(number).room(self._end.worker)]

    def _sync_residuals(self, number: int) -> None:
        self._coded_of(number).store_residual(self._end.worker, self._client(number).seq)

    def _coded_of(self, number: int) -> CodedPushes:
        coded = self._client(number).host.partition.coded
        if coded is None:
            raise ProtocolError("channel: this run's codec keeps no residuals")
        return coded

    def _groups(self, number: int, text: str) -> Groups:
        """The param groups; parsed only when the text has changed."""
        if number not in self._hyper or self._hyper[number][0] != text:
            self._hyper[number] = text, [{**group, "params": ()} for group in decode(text.encode())]
        return self._hyper[number][1]

    def _waited(self) -> float:
        return float(self._run.control.seconds[self._end.worker * ROW + WAIT])
