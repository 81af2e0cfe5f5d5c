"""The real thing: workers in processes of their own, through the public door."""

import os
import signal
import threading
import time

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Parameter
from torch.optim import SGD, Adam

from training.failures import WorkerLost
from training.ps import SharedRun, join
from training.ps.hosts.inline import ShardTorn
from training.ps.region import REFUSED, TORN, Control
from training.ps.rules import Async
from training.strategies.processes import run_workers

DEADLINE_S = 20.0


class Work:
    """`pushes` constant gradients a worker, by SGD with learning rate 1: the parameters count the pushes."""

    def __init__(self, workers: int, pushes: int, max_updates: int | None = None, pause_s: float = 0.0) -> None:
        self.run, self.workers = SharedRun(workers), workers
        self.pushes, self.max_updates, self.pause_s = pushes, max_updates, pause_s

    def __call__(self, worker: int) -> Tensor:
        weights = [Parameter(torch.zeros(50, 3)), Parameter(torch.zeros(7))]
        membership = self.run.member(worker, DEADLINE_S)
        client = join(self.run, membership, SGD(weights, lr=1.0), Async(self.max_updates)).client
        for _ in range(self.pushes):
            for weight in weights:
                weight.grad = torch.ones_like(weight)
            time.sleep(self.pause_s)
            if client.push().is_last:
                break
        membership.finish()
        membership.wait_for_others()
        client.pull()
        return torch.cat([weight.detach().flatten() for weight in weights])


def test_concurrent_pushes_sum_exactly() -> None:
    work = Work(workers=4, pushes=250)
    for final in run_workers(4, work):
        assert torch.equal(final, torch.full((157,), -1000.0))
    histogram = work.run.control.staleness()
    assert histogram.counts.sum(1).tolist() == [250] * 4
    assert [times.updates for times in work.run.control.worker_times()] == [250] * 4


def test_a_budget_of_updates_is_exact_over_all_workers() -> None:
    work = Work(workers=3, pushes=1000, max_updates=100, pause_s=0.001)
    assert [final[0].item() for final in run_workers(3, work)] == [-100.0] * 3
    control = work.run.control
    assert sum(times.updates for times in control.worker_times()) == 100
    assert sum(control.word(worker, REFUSED) for worker in range(3)) <= 2


def test_two_free_workers_have_a_mean_staleness_of_about_one() -> None:
    work = Work(workers=2, pushes=150, pause_s=0.004)
    run_workers(2, work)
    assert 0.7 < work.run.control.staleness().mean() < 1.2


def test_one_worker_never_meets_staleness() -> None:
    work = Work(workers=1, pushes=20)
    run_workers(1, work)
    assert work.run.control.staleness().max() == 0


def test_a_replica_keeps_the_values_and_ties_of_the_model() -> None:
    run = SharedRun(1)
    encoder, decoder = Linear(4, 3, bias=False), Linear(4, 3)
    decoder.weight = encoder.weight
    decoder.bias.requires_grad_(False)
    model = torch.nn.ModuleList([encoder, decoder])
    weight, bias = encoder.weight.detach().clone(), decoder.bias.detach().clone()
    client = join(
        run, run.member(0, 1.0), SGD([p for p in model.parameters() if p.requires_grad], lr=1.0), Async()
    ).client
    encoder(torch.ones(1, 4)).sum().backward()
    client.push()
    assert decoder.weight is encoder.weight
    torch.testing.assert_close(decoder.weight.detach(), weight - 1)
    assert torch.equal(decoder.bias, bias)
    client.detach()
    assert encoder.weight.untyped_storage().nbytes() == 4 * 12


def test_workers_with_different_models_are_told_so() -> None:
    run = SharedRun(2)

    def body(worker: int) -> None:
        join(run, run.member(worker, DEADLINE_S), Adam([Parameter(torch.zeros(3 + worker))]), Async())

    with pytest.raises(ValueError, match=r"model: workers .* have made different parameters"):
        run_workers(2, body)


def test_a_group_added_during_training_is_refused() -> None:
    run = SharedRun(1)
    optimizer = SGD([Parameter(torch.zeros(2))], lr=1.0)
    client = join(run, run.member(0, 1.0), optimizer, Async()).client
    optimizer.add_param_group({"params": [Parameter(torch.zeros(2))]})
    with pytest.raises(ValueError, match="a param group was added"):
        client.push()


def test_who_does_not_come_is_named() -> None:
    control = Control(workers=3)
    run = SharedRun(3)
    run.control = control
    with pytest.raises(TimeoutError, match=r"rendezvous 'memory': workers \[1, 2\] did not come within 0.05 s"):
        join(run, run.member(0, 0.05), SGD([Parameter(torch.zeros(1))], lr=1.0), Async())


def test_who_does_not_finish_is_named_but_a_push_buys_time() -> None:
    run = SharedRun(2)
    membership = run.member(0, 0.3)
    other = run.member(1, 0.3)

    def push_slowly() -> None:
        for _ in range(4):
            time.sleep(0.15)
            run.control.words[8] += 1

    thread = threading.Thread(target=push_slowly)
    started = time.monotonic()
    thread.start()
    with pytest.raises(TimeoutError, match=r"workers \[1\] neither pushed nor finished within 0.3 s"):
        membership.wait_for_others()
    assert time.monotonic() - started > 0.7
    thread.join()
    other.finish()
    membership.wait_for_others()


def test_a_worker_killed_inside_the_lock_stops_the_others_at_once() -> None:
    run = SharedRun(2)

    def body(worker: int) -> str:
        weight = Parameter(torch.zeros(3))
        joined = join(run, run.member(worker, DEADLINE_S), SGD([weight], lr=1.0), Async())
        weight.grad = torch.ones(3)
        if worker == 1:
            run.control.lock.acquire(1.0)
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            while True:
                joined.client.push()
        except ShardTorn:
            time.sleep(60)  # the monitor must see the death by itself
        return "not reached"

    started = time.monotonic()
    with pytest.raises(WorkerLost, match=r"worker 1 died: process .* was killed by signal SIGKILL"):
        run_workers(2, body)
    assert time.monotonic() - started < 10
    assert run.control.lock.acquire(1.0) in (True, False)
    run.control.lock.release()


def test_torn_parameters_are_refused_by_every_door() -> None:
    run = SharedRun(1)
    client = join(run, run.member(0, 1.0), SGD([Parameter(torch.zeros(1))], lr=1.0), Async()).client
    run.control.head[TORN] = 1
    for door in (client.push, client.pull, client.snapshot):
        with pytest.raises(ShardTorn):
            door()
