"""What is said before the start is what is taken; on emulated GPUs."""

import pytest
import torch
from torch.optim import SGD, Adam, Optimizer

from scalebook.training.engine import Settings, SharedRun, join
from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.codecs import Bf16, Codec, Fp16, Int8
from scalebook.training.engine.rules.local_steps import Downpour, LocalSGD
from scalebook.training.engine.rules.update_rules import Sync
from scalebook.training.engine.sim import SimulatedClock, SimulatedWorkers
from scalebook.training.engine.worker.worker_end import MemoryNeed
from tests.training.engine.emulated_gpu import Gpus
from tests.training.engine.emulated_gpu import gpus as gpus
from tests.training.engine.sim.works import Asked

COUNT = 600_000
BYTES = 4 * COUNT


def of_one(optimizer: Optimizer, settings: Settings | None = None) -> MemoryNeed:
    told: list[MemoryNeed] = []
    run = SharedRun(1, settings or Settings())
    one = join(run, run.member(0, 5.0), [optimizer], told.append)
    one.detach()
    return told[0]


def close_to(size: float) -> object:
    return pytest.approx(size, rel=0.01)


def test_a_worker_on_a_gpu_has_its_parameters_there(gpus: Gpus) -> None:
    need = of_one(SGD([gpus.parameter(torch.zeros(COUNT))], lr=1.0))
    assert (need.on_gpu, need.gradients, need.replicas) == (close_to(2 * BYTES), close_to(BYTES), 0)
    assert need.total == close_to(gpus.most_registered)
    local = of_one(Adam([gpus.parameter(torch.zeros(COUNT))]), Settings(local=LocalSGD(every=2)))
    assert (local.on_gpu, local.replicas) == (close_to(4 * BYTES), 0)
    summed = of_one(SGD([gpus.parameter(torch.zeros(COUNT))], lr=1.0), Settings(local=Downpour(2, 2)))
    assert (summed.on_gpu, summed.replicas) == (close_to(4 * BYTES), 0)
    gpus.most_registered = 0
    gathered = of_one(SGD([gpus.parameter(torch.zeros(COUNT))], lr=1.0), Settings(Sync()))
    assert (gathered.on_gpu, gathered.gradients) == (close_to(2 * BYTES), 0)
    assert gathered.total == close_to(gpus.most_registered)


@pytest.mark.parametrize(("codec", "at_first", "at_most"), [(Bf16(), 0.5, 0.5), (Fp16(), 0.5, 1.5), (Int8(), 1.0, 1.0)])
def test_gradients_that_the_device_rounds_take_half(codec: Codec, at_first: float, at_most: float, gpus: Gpus) -> None:
    """Of fp16 what is said is what it takes once a number is beyond its range, and all come as they are."""
    told: list[MemoryNeed] = []
    run = SharedRun(1, Settings(push_codec=codec))
    weight = gpus.parameter(torch.zeros(COUNT))
    one = join(run, run.member(0, 5.0), [SGD([weight], lr=1.0)], told.append)
    one.start()
    one.begin()
    host = one.clients[0].host
    assert told[0].gradients == close_to(at_most * BYTES)
    assert gpus.most_registered == close_to(told[0].total - (at_most - at_first) * BYTES)
    weight.grad = torch.full((COUNT,), 1e6)
    one.clients[0].push()
    assert gpus.most_registered == close_to(told[0].total)
    carriers = host.transfer.carriers
    gathered = sum(memory.numel() for carrier in carriers for image in carrier._images for _, memory in image._runs)
    assert told[0].on_gpu == close_to(BYTES + gathered)
    one.detach()


def test_on_a_cpu_nothing_is_said_of_a_gpu() -> None:
    need = of_one(SGD([torch.nn.Parameter(torch.zeros(COUNT))], lr=1.0), Settings(local=LocalSGD(every=2)))
    assert (need.on_gpu, need.replicas, need.gradients) == (0, close_to(2 * BYTES), close_to(BYTES))


def test_virtual_workers_on_a_gpu_have_a_copy_each(gpus: Gpus) -> None:
    workers, told = 5, list[MemoryNeed]()
    clock = SimulatedClock(ClockSettings(gradient_s=1.0), workers)
    run = SharedRun(workers, Settings(host="virtual", clock=clock.settings), clock)

    def make(worker: int) -> list[Optimizer]:
        return [SGD([gpus.parameter(torch.zeros(COUNT))], lr=1.0)]

    played = SimulatedWorkers(run, clock, make, Asked(lambda worker: False), announce=told.append)
    (need,) = told
    copies = [played.joined[worker].clients[0].replica._own for worker in range(workers)]
    assert need.on_gpu == close_to(2 * sum(own[0].untyped_storage().nbytes() for own in copies))
    assert need.gradients == close_to(workers * BYTES)
    assert need.total == close_to(gpus.most_registered)
    played.detach()
    assert gpus.registered == {}
