"""Workers on a device whose copies end late and out of order: nothing is read, written over or lost meanwhile.

All gradients are one whole number in all places, with plain SGD at rate 1: a version has one number in all places, and
the last one is minus the sum of what was let in.
"""

import random
from collections.abc import Callable, Iterator, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD

from scalebook.training.engine import Client, Joined, Settings, SharedRun, join, serve
from scalebook.training.engine.memory.device import Cuda
from scalebook.training.engine.rules.codecs import Bf16, Codec, Fp16, Fp32, Int8, PowerSgd, Qsgd, RandomK, Sign, TopK
from scalebook.training.engine.rules.damping import DropAbove
from scalebook.training.engine.rules.local_steps import Downpour, LocalSGD
from scalebook.training.engine.rules.settings import Clip
from scalebook.training.engine.rules.update_rules import Bounded, Softsync, Sync
from scalebook.training.engine.store.coded_traffic import Carrier, CodedPulls
from scalebook.training.engine.store.shard import Shard
from scalebook.training.engine.store.store_layout import plan_partition
from tests.training.engine.driven import DEADLINE_S, Driven, driven
from tests.training.engine.emulated_gpu import Gpus
from tests.training.engine.emulated_gpu import gpus as gpus
from tests.training.engine.forking import LostProcess, Reaction, run_workers
from tests.training.engine.late_device import LateDevice

SHAPES = [(40, 3), (7,), (4, 4), (1,), (300,)]
WORKERS = 3
STEPS = 60

FREE = {
    "async": Settings(),
    "3 shards": Settings(shards=3),
    "every second pull": Settings(local=Downpour(1, 2), shards=2),
    "sums of two": Settings(local=Downpour(2, 1), shards=2),
    "stale ones are dropped": Settings(damping=DropAbove(1), shards=2),
    "servers": Settings(host="process", shards=3),
    "servers, overlap": Settings(shards=2, host="overlap"),
    "servers, stale ones are dropped": Settings(host="process", shards=2, damping=DropAbove(1)),
    "clipped": Settings(clip=Clip("value", 2.0)),
    "codec": Settings(push_codec=Bf16(), shards=2),
    "codec of fp16, servers": Settings(push_codec=Fp16(zstd=1), shards=2, host="process"),
    "codec that keeps what it leaves out": Settings(push_codec=Bf16(error_feedback=True), shards=2),
    "codec of blocks": Settings(push_codec=Int8(), shards=2),
    "pulls as frames": Settings(pull_codec=Bf16()),
    "pulls as frames, by shard": Settings(pull_codec=Bf16(), shards=3),
}
"""No worker waits for another, so one thread may drive all of them."""
TOGETHER = {
    "sync": Settings(Sync(), shards=2),
    "sync, servers": Settings(Sync(), host="process", shards=2),
    "softsync": Settings(Softsync(2), shards=3),
    "bounded": Settings(Bounded(1), shards=2),
    "local steps": Settings(Sync(), local=LocalSGD(every=2), shards=2),
}


def see(joined: Joined) -> list[float]:
    """The number that the parameters of each shard have, all of them from one version."""
    client, numbers = joined.clients[0], []
    for shard in client.host.partition.shards:
        values = torch.cat([client.replica.parameters[place].detach().flatten() for place in shard.plan.parameters])
        assert float(values.min()) == float(values.max()), "torn, or read too early"
        numbers.append(float(values[0]))
    return numbers


def push(joined: Joined, device: LateDevice, value: float, valid: bool = True) -> bool:
    """Compute and push a gradient from what it sees by then; whether that was let in."""
    parameters = joined.clients[0].replica.parameters
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, torch.nan)
    gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]

    def backward() -> None:
        see(joined)
        for gradient in gradients:
            gradient.fill_(value)

    device.compute(backward)
    if joined.run.settings.local.steps:  # on the device as well, which this one does not follow
        device.synchronise()
    return joined.clients[0].push(valid).applied


@contextmanager
def late(settings: Settings, seed: int, is_eager: bool = True) -> Iterator[tuple[Driven, list[LateDevice]]]:
    devices = [LateDevice(seed + worker, is_eager=is_eager) for worker in range(WORKERS)]
    start = [torch.zeros(shape) for shape in SHAPES]
    with driven(WORKERS, settings, start, lambda p: SGD(p, lr=1.0), devices.__getitem__) as run:
        yield run, devices


def seen_at_the_end(run: Driven, devices: list[LateDevice]) -> set[float]:
    run.newest()
    devices[0].synchronise()
    return set(see(run.joined[0]))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", FREE)
def test_nothing_is_read_early_or_written_over(case: str, seed: int) -> None:
    """Pushes, pulls and snapshots in any order; every version has one number in all places, and no gradient is lost."""
    settings, choose, total = FREE[case], random.Random(seed), 0.0
    with late(settings, 10 * seed) as (run, devices):
        for _ in range(STEPS):
            worker, value = choose.randrange(WORKERS), float(choose.randint(1, 3))
            kind = choose.choices(["push", "pull", "snapshot", "void"], [8, 2, 2, 1])[0]
            if kind == "pull":
                run.joined[worker].pull()
            elif kind == "snapshot":
                run.joined[worker].snapshot()
            elif kind == "void":
                push(run.joined[worker], devices[worker], torch.nan, valid=False)
            elif push(run.joined[worker], devices[worker], value):
                total += min(value, 2.0) if settings.clip else value
        for joined in run.joined:
            joined.pull()
            joined.push_rest()
        assert seen_at_the_end(run, devices) == {-total}


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("case", TOGETHER)
def test_workers_together(case: str, seed: int) -> None:
    """A thread each, since they wait for each other."""
    settings, pushes = TOGETHER[case], 12
    with late(settings, 10 * seed) as (run, devices):

        def work(worker: int) -> None:
            for _ in range(pushes):
                push(run.joined[worker], devices[worker], 3.0)
            run.joined[worker].finish()

        with ThreadPoolExecutor(WORKERS) as pool:
            list(pool.map(work, range(WORKERS)))
        averaged = WORKERS if settings.rule.synchronous else 2 if settings.rule.gathers else 1
        assert seen_at_the_end(run, devices) == {-3.0 * pushes * WORKERS / averaged}


CODED: dict[str, tuple[Codec, float]] = {
    "fp32": (Fp32(), 1.0),
    "bf16": (Bf16(), 0.5),
    "bf16, zstd": (Bf16(zstd=1), 0.5),
    "bf16, error feedback": (Bf16(error_feedback=True), 1.0),
    "fp16": (Fp16(), 0.5),
    "fp16, error feedback": (Fp16(error_feedback=True), 1.0),
    "int8": (Int8(error_feedback=False), 1.0),
    "sign": (Sign(), 1.0),
    "qsgd": (Qsgd(), 1.0),
    "topk": (TopK(share=0.1), 1.0),
    "randomk": (RandomK(share=0.1), 1.0),
    "powersgd": (PowerSgd(), 1.0),
}
"""And which share of the gradients' bytes is copied from the device."""


@pytest.mark.parametrize("case", CODED)
def test_what_a_codec_makes_of_gradients_is_the_same_from_a_device(case: str) -> None:
    """To the last bit, also of what is not finite, or too large for 16 bits: that is copied once more as it is."""
    codec, share = CODED[case]
    settings, start = Settings(push_codec=codec, shards=2), [torch.zeros(shape) for shape in SHAPES]
    device = LateDevice(0, is_eager=False)
    ends: list[list[Tensor]] = []
    for used in (None, device):
        torch.manual_seed(0)
        with driven(1, settings, start, lambda p: SGD(p, lr=1.0), lambda worker: used) as run:  # noqa: B023
            for number in range(4):
                gradients = [torch.randn(shape) for shape in SHAPES]
                if number == 2:
                    gradients[0][0, 0] = 1e6
                if number == 3:
                    gradients[4][7] = torch.inf
                before = device.down
                assert run.push(0, gradients)
                if used is device and number == 0:
                    whole = sum(gradient.nbytes for gradient in gradients)
                    assert (device.down - before) / whole == pytest.approx(share, rel=0.4)
            run.newest()
            device.synchronise()
            ends.append([parameter.detach().clone() for parameter in run.replicas[0]])
    for one, other in zip(*ends, strict=True):
        assert torch.equal(one.nan_to_num(), other.nan_to_num())
        assert torch.equal(one.isnan(), other.isnan())


def test_a_shard_is_on_its_way_while_the_next_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is decoded over it before it has come."""
    begun: list[tuple[int, int]] = []
    take = CodedPulls.advance

    def noted(pulls: CodedPulls, number: int, newest: Sequence[Tensor], without: Set[int]) -> int:
        begun.append((number, devices[0].up))
        return take(pulls, number, newest, without)

    with late(Settings(pull_codec=Bf16(), shards=3), seed=0, is_eager=False) as (run, devices):
        joined = run.joined[0]
        push(run.joined[1], devices[1], 1.0)
        before = devices[0].up
        monkeypatch.setattr(CodedPulls, "advance", noted)
        joined.pull()
        assert [(number, up - before) for number, up in begun] == [(0, 0), (1, 1), (2, 2)]
        for _ in range(3):
            push(run.joined[1], devices[1], 1.0)
            joined.pull()
        devices[0].synchronise()
        assert set(see(joined)) == {-4.0}


def test_a_shard_is_applied_while_the_next_one_s_gradient_is_on_its_way(monkeypatch: pytest.MonkeyPatch) -> None:
    under_way: list[int] = []
    apply = Shard.apply

    def noted(shard: Shard, *args: Any, **kwargs: Any) -> None:
        under_way.append(devices[1].under_way)
        apply(shard, *args, **kwargs)

    with late(Settings(shards=3), seed=0, is_eager=False) as (run, devices):
        monkeypatch.setattr(Shard, "apply", noted)
        push(run.joined[1], devices[1], 1.0)
        assert len(under_way) == 3
        assert under_way[0] > under_way[1] > under_way[2] == 0


def _hand_in(client: Client) -> None:
    gradients: list[Tensor | None] = [torch.zeros(shape) for shape in SHAPES]
    client.host.partition.control.clock.play(client.push_gradients(gradients, client.pushed_groups, valid=True))


WHILE_IT_COMES: dict[str, Callable[[Client], object]] = {
    "another version is held": Client.pin_newest,
    "a snapshot is taken": lambda client: client.snapshot(renew=False),
    "it is taken again": lambda client: client.replica.load_versions(client.bases, whole=True),
    "an update goes over its own base": _hand_in,
    "something is written into it": lambda client: client.adopt([0]),
}


@pytest.mark.parametrize("what", WHILE_IT_COMES)
def test_what_ends_the_life_of_a_version_waits_until_it_has_come(what: str) -> None:
    """By itself, whoever has waited before."""
    with late(Settings(), seed=0, is_eager=False) as (run, devices):
        client = run.joined[0].clients[0]
        client.pull()
        client.replica.load_versions(client.bases, whole=True)  # under way from here on
        push(run.joined[1], devices[1], 1.0)
        WHILE_IT_COMES[what](client)
        for _ in range(4):
            push(run.joined[1], devices[1], 1.0)
            push(run.joined[2], devices[2], 1.0)
        devices[0].synchronise()


def test_a_slot_is_used_again_when_the_last_gradient_is_there() -> None:
    """Of a push that was dropped, say, nobody has waited for that."""
    device, parameters = LateDevice(0, is_eager=False), [Parameter(torch.zeros(shape)) for shape in SHAPES]
    carrier = Carrier(plan_partition(SGD(parameters, lr=1.0), Settings(shards=2), 1), device, parameters)
    for value in (1.0, 2.0):
        carrier.start_copy([torch.full(shape, value) for shape in SHAPES], None, [1, 0])
    for number in (0, 1):
        carrier.await_copy(number)
    copied = carrier.copied(parameters)
    assert {float(x) for one in copied if one is not None for x in one.flatten()} == {2.0}


@pytest.mark.each_value
@pytest.mark.parametrize("dies_at", [20, 33, 47, 60])
@pytest.mark.parametrize(
    "settings", [Settings(shards=3), Settings(host="process", shards=3)], ids=["inline", "servers"]
)
def test_a_death_in_mid_copy_loses_nothing(settings: Settings, dies_at: int) -> None:
    """A gradient of worker w is 64 ** w in all places, so the sums tell how many of each there are."""
    pushes, run = 30, SharedRun(WORKERS, settings)

    def body(worker: int) -> list[float]:
        torch.manual_seed(0)
        parameters = [Parameter(torch.zeros(shape)) for shape in SHAPES]
        device = LateDevice(worker, dies_at if worker == 1 else None)
        joined = join(run, run.member(worker, DEADLINE_S), [SGD(parameters, lr=1.0)], device=device)
        joined.begin()
        for _ in range(pushes):
            push(joined, device, 64.0**worker)
        joined.finish()
        joined.wait_for_others()
        joined.pull()
        device.synchronise()
        return see(joined)

    def server(number: int) -> None:
        serve(run, number, DEADLINE_S, [SGD([Parameter(torch.zeros(shape)) for shape in SHAPES], lr=1.0)])

    def lost(one: LostProcess) -> Reaction:
        run.mark_dead(one.number)
        return Reaction.GO_ON

    finals = run_workers(WORKERS, body, servers=run.servers, serve=server if run.servers else None, lost=lost)
    run.close()
    assert finals[1] is None, "nobody died"
    assert finals[0] == finals[2]
    of_dead = []
    for number in finals[0]:
        counts = [int(-number) // 64**worker % 64 for worker in range(WORKERS)]
        assert (counts[0], counts[2]) == (pushes, pushes)
        of_dead.append(counts[1])
    assert max(of_dead) - min(of_dead) <= 1  # of its last push some shards may have their part


def test_a_mark_is_behind_the_copies_of_every_gpu(gpus: Gpus) -> None:
    device = Cuda([torch.device("cuda", index) for index in (2, 5)])
    mark = device.record()
    gpus.synchronised.clear()
    device.wait(mark)
    assert gpus.synchronised == [2, 5]
