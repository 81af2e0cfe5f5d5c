"""A run of several processes, traced, and the same run again in one."""

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from allpairspy import AllPairs
from torch import Tensor
from torch.nn import Linear, Module, Sequential, Tanh
from torch.nn.functional import mse_loss
from torch.optim import Adam, Optimizer

from scalebook.training.engine import Clip, Settings, SharedRun, join, serve
from scalebook.training.engine.rules.clock_settings import ClockSettings, Distribution, Link
from scalebook.training.engine.rules.codecs import Bf16, Qsgd, TopK
from scalebook.training.engine.rules.damping import DelayCompensation, DropAbove, Inverse
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.engine.sim import ModelMultiplexer, SimulatedClock, SimulatedWorkers
from scalebook.training.engine.trace import read_head
from tests.training.engine.forking import run_workers
from tests.training.engine.replay import replay
from tests.training.engine.sim.works import Asked
from tests.training.engine.test_own_rules import AllBut, Fresh, Halved, Quartered

pytestmark = pytest.mark.sampled

WORKERS, PUSHES, DEADLINE_S = 4, 12, 30.0


def model() -> Module:
    torch.manual_seed(1)
    return Sequential(Linear(6, 8), Tanh(), Linear(8, 5), Tanh(), Linear(5, 1))


def optimizer(made: Module) -> Optimizer:
    return Adam(made.parameters(), lr=0.02)


def compute(made: Module, worker: int, seq: int) -> None:
    """The gradient on the batch of that push; one batch in five leaves the last layer out."""
    inputs = torch.randn(7, 6, generator=torch.Generator().manual_seed(1000 * worker + seq))
    assert isinstance(made, Sequential)
    out = made(inputs) if seq % 5 else made[:4](inputs)
    torch.autograd.backward(mse_loss(out, torch.zeros_like(out)))


def train(settings: Settings, workers: int = WORKERS) -> list[Tensor]:
    """The weights after a real run; the learning rate falls with each push."""
    run = SharedRun(workers, settings)

    def body(process: int) -> list[Tensor] | None:
        made = model()
        adam = optimizer(made)
        if process >= workers:
            serve(run, process - workers, DEADLINE_S, [adam])
            return None
        joined = join(run, run.member(process, DEADLINE_S), [adam])
        joined.begin()
        for seq in range(1, PUSHES + 1):
            for parameter in made.parameters():
                parameter.grad = None
            compute(made, process, seq)
            time.sleep(0.002 * (process + 1))
            adam.param_groups[0]["lr"] = 0.02 / seq
            joined.clients[0].push(valid=not (settings.rule.gathers and (process, seq) == (1, 3)))
        joined.finish()
        joined.wait_for_others()
        joined.pull()
        return [p.detach().clone() for p in made.parameters()]

    weights = run_workers(workers + run.servers, body)[0]
    run.close()
    assert isinstance(weights, list)
    return weights


@pytest.mark.parametrize(
    ("rule", "host", "shards"),
    list(AllPairs([[Async(), Sync(1), Softsync(3)], ["inline", "process"], [1, 3]])),
    ids=str,
)
def test_a_replay_gives_the_weights_bit_for_bit(tmp_path: Path, host: str, shards: int, rule: Rule) -> None:
    settings = Settings(rule=rule, host=host, shards=shards, trace=tmp_path)  # type: ignore[arg-type]
    expected = train(settings)
    made = model()
    replay(tmp_path, settings, optimizer(made), lambda worker, seq: compute(made, worker, seq))
    for again, weight in zip(made.parameters(), expected, strict=True):
        assert torch.equal(again.detach(), weight)
    head = read_head(tmp_path)
    assert len(head.last[0]) == shards
    assert head.last[0][0] >= (WORKERS * PUSHES if not rule.gathers else PUSHES)


def play(settings: Settings, timing: ClockSettings) -> list[Tensor]:
    """The weights after a run of virtual workers; the rate falls with each push."""
    clock = SimulatedClock(timing, WORKERS, settings.shards)
    run = SharedRun(WORKERS, settings, clock)
    made = model()
    adam = optimizer(made)
    one, seqs = ModelMultiplexer([adam]), dict.fromkeys(range(WORKERS), 0)
    workers = SimulatedWorkers(run, clock, one.make, Asked(lambda worker: seqs[worker] < PUSHES))
    workers.begin_all()
    while (worker := workers.next()) is not None:
        seqs[worker] += 1
        one.switch_to(worker)
        compute(made, worker, seqs[worker])
        adam.param_groups[0]["lr"] = 0.02 / seqs[worker]
        one.hand_over(worker)
        workers.push()
    shards = workers.partitions[0].shards
    weights = {
        place: view.clone()
        for shard in shards
        for place, view in zip(shard.plan.parameters, shard.views[shard.newest().buffer], strict=True)
    }
    workers.detach()
    run.close()
    return [weights[place] for place in sorted(weights)]


@pytest.mark.parametrize("rule", [Async(), Bounded(1), Sync(), Sync(1), Softsync(3)], ids=str)
def test_virtual_workers_are_replayed_bit_for_bit(tmp_path: Path, rule: Rule) -> None:
    timing = ClockSettings(Distribution("gamma", 0.1, 0.4), {1: 2.0}, 0.002, Link(0.01), server_link=Link(0.0, 1e5))
    settings = Settings(rule=rule, shards=2, trace=tmp_path)
    expected = play(settings, timing)
    made = model()
    replay(tmp_path, settings, optimizer(made), lambda worker, seq: compute(made, worker, seq))
    assert read_head(tmp_path).last[0][0] >= PUSHES
    for again, weight in zip(made.parameters(), expected, strict=True):
        assert torch.equal(again.detach(), weight)


@pytest.mark.parametrize(
    "settings",
    [
        Settings(rule=Bounded(2), damping=Inverse(), clip=Clip("norm", 0.1)),
        Settings(rule=Async(), damping=DelayCompensation(strength=1.0, adaptive=True), shards=2),
        Settings(rule=Sync(), clip=Clip("norm", 0.1), shards=2, host="process"),
        Settings(rule=Fresh(), damping=Halved(), shards=2),
        Settings(rule=AllBut(), damping=Quartered()),
        Settings(push_codec=TopK(0.1), damping=DropAbove(2), clip=Clip("norm", 0.1), shards=2),
        Settings(rule=Sync(1), push_codec=Qsgd(7, 64, error_feedback=True), host="process"),
    ],
    ids=["inverse-clip", "delay-compensation", "sync-clip", "own-refusing", "own-gathering", "topk-drops", "qsgd-late"],
)
def test_damping_and_clipping_are_replayed_too(tmp_path: Path, settings: Settings) -> None:
    settings = replace(settings, trace=tmp_path)
    expected = train(settings)
    made = model()
    replay(tmp_path, settings, optimizer(made), lambda worker, seq: compute(made, worker, seq))
    assert all(torch.equal(a.detach(), b) for a, b in zip(made.parameters(), expected, strict=True))


@pytest.mark.parametrize("shards", [1, 2])
def test_one_worker_is_replayed_in_two_versions_memory(tmp_path: Path, shards: int) -> None:
    damping = DelayCompensation(strength=1.0, adaptive=True)
    settings = Settings(rule=Async(), damping=damping, shards=shards, trace=tmp_path)
    assert settings.buffers(1) == 2
    expected = train(settings, workers=1)
    made = model()
    replay(tmp_path, settings, optimizer(made), lambda worker, seq: compute(made, worker, seq))
    assert all(torch.equal(a.detach(), b) for a, b in zip(made.parameters(), expected, strict=True))


def test_a_trace_of_other_settings_is_refused(tmp_path: Path) -> None:
    train(Settings(trace=tmp_path))
    with pytest.raises(ValueError, match=r"a trace of pushes by Fp32\(zstd=0\), not by Bf16\("):
        replay(tmp_path, Settings(push_codec=Bf16()), optimizer(model()), lambda worker, seq: None)
    with pytest.raises(ValueError, match=r"a trace of Async\(.*\) with NoDamping\(\), not of these settings"):
        replay(tmp_path, Settings(rule=Sync()), optimizer(model()), lambda worker, seq: None)
