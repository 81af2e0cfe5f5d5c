"""What a worker on a GPU page-locks, waits for and takes back; on emulated GPUs."""

import time
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.optim import SGD, Optimizer

from scalebook.training.engine import Joined, Settings, SharedRun, join
from scalebook.training.engine.memory.device import Cuda, landing
from scalebook.training.engine.rules.local_steps import LocalSGD
from tests.training.engine.emulated_gpu import Gpus
from tests.training.engine.emulated_gpu import gpus as gpus

COUNT = 600_000  # 2.4 MB, of which a power of two is 4.2 MB
BYTES = 4 * COUNT


def joined(*optimizers: Optimizer, settings: Settings | None = None) -> Joined:
    run = SharedRun(1, settings or Settings())
    one = join(run, run.member(0, 5.0), list(optimizers))
    one.start()
    one.begin()
    return one


def push(one: Joined, *gradients: Tensor, number: int = 0) -> None:
    client = one.clients[number]
    for parameter, gradient in zip(client.replica.parameters, gradients, strict=True):
        parameter.grad = gradient
    client.push()


def test_registrations_are_taken_back_at_the_end(gpus: Gpus) -> None:
    """Memory that is unmapped and still registered makes the next registration at its address an error."""
    for _ in range(4):
        weight = gpus.parameter(torch.zeros(COUNT))
        one = joined(SGD([weight], lr=1.0))
        push(one, torch.ones(COUNT))
        assert len(gpus.registered) == 2  # the run's memory, and where gradients land
        assert weight.tolist()[:2] == [-1.0, -1.0]
        one.detach()
        assert gpus.registered == {}


def test_a_worker_gets_a_context_on_its_own_gpu_alone(gpus: Gpus) -> None:
    weight = gpus.parameter(torch.zeros(5), index=3)
    one = joined(SGD([weight], lr=1.0))
    push(one, torch.ones(5))
    one.detach()
    assert (gpus.contexts, gpus.current) == ({3}, 0)


def test_no_more_is_page_locked_than_is_used(gpus: Gpus) -> None:
    one = joined(SGD([gpus.parameter(torch.zeros(COUNT))], lr=1.0))
    size = one.clients[0].host.partition.plan.end
    one.detach()
    assert gpus.most_registered <= 1.01 * (size + BYTES)


def test_every_gpu_of_a_model_over_two_is_waited_for_and_keeps_its_parameters(gpus: Gpus) -> None:
    weights = [gpus.parameter(torch.zeros(3), index=index) for index in (0, 1, 0)]
    one = joined(SGD(weights, lr=1.0))
    client = one.clients[0]
    gpus.synchronised.clear()
    brought = client.host.transfer.copy_to_host([torch.full((3,), float(index)) for index in (1, 2, 3)])
    assert set(gpus.synchronised) == {0, 1}
    assert [gradient.tolist() for gradient in brought if gradient is not None] == [[1.0] * 3, [2.0] * 3, [3.0] * 3]
    own = [parameter.untyped_storage().data_ptr() for parameter in client.replica.parameters]
    one.detach()
    assert len(set(own)) == 3  # one copy for each row of neighbours


@pytest.mark.alone
@pytest.mark.parametrize("settings", [Settings(), Settings(local=LocalSGD(every=2))])
def test_the_backward_pass_is_no_part_of_the_push(settings: Settings, gpus: Gpus) -> None:
    """A GPU still computes when Python has come to the push."""
    one = joined(SGD([gpus.parameter(torch.zeros(5))], lr=1.0), settings=settings)
    began, steps, seconds = time.perf_counter(), 4, 0.05
    for _ in range(steps):
        gpus.compute(seconds)
        push(one, torch.ones(5))
    (times,) = one.run.worker_times()
    whole = time.perf_counter() - began
    one.detach()
    waited_for = steps if not settings.local.steps else steps // 2
    assert whole >= waited_for * seconds
    assert times.communicate < 0.2 * whole


@pytest.mark.parametrize(("code", "words"), [(2, "cudaErrorMemoryAllocation"), (801, "CUDA error 801")])
def test_what_cannot_be_page_locked_is_said(code: int, words: str, gpus: Gpus) -> None:
    gpus.code = code
    with pytest.raises(RuntimeError, match=rf"could not be page-locked: {words}\. Raise the limit"):
        joined(SGD([gpus.parameter(torch.zeros(5))], lr=1.0))


def test_memory_that_nobody_has_any_more_is_not_page_locked_any_more(gpus: Gpus) -> None:
    kept: Any = landing(100, Cuda([torch.device("cuda", 0)]))
    assert list(gpus.registered.values()) == [kept[0].numel()] == [100]
    del kept
    assert gpus.registered == {}
