"""Joining, leaving and coming back, in real processes."""

import time
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, ModuleList, Parameter
from torch.optim import SGD, Adam

from scalebook.training.engine import Joined, Settings, SharedRun, join
from scalebook.training.engine.rules.update_rules import Sync
from tests.training.engine.forking import run_workers

DEADLINE_S = 20.0


def joined(run: SharedRun, worker: int, optimizer: Any, deadline_s: float = DEADLINE_S) -> Joined:
    return join(run, run.member(worker, deadline_s), [optimizer])


def test_a_replica_keeps_the_values_and_ties_of_the_model() -> None:
    run = SharedRun(1)
    encoder, decoder = Linear(4, 3, bias=False), Linear(4, 3)
    decoder.weight = encoder.weight
    decoder.bias.requires_grad_(False)
    model = ModuleList([encoder, decoder])
    weight, bias = encoder.weight.detach().clone(), decoder.bias.detach().clone()
    one = joined(run, 0, SGD([p for p in model.parameters() if p.requires_grad], lr=1.0))
    one.begin()
    encoder(torch.ones(1, 4)).sum().backward()
    one.clients[0].push()
    assert decoder.weight is encoder.weight
    torch.testing.assert_close(decoder.weight.detach(), weight - 1)
    assert torch.equal(decoder.bias, bias)
    one.detach()
    assert encoder.weight.untyped_storage().nbytes() == 4 * 12


def test_several_optimizers_have_shards_of_their_own() -> None:
    run = SharedRun(1, Settings(shards=2))
    first, second = [Parameter(torch.zeros(3)), Parameter(torch.zeros(2))], [Parameter(torch.ones(4)) for _ in range(3)]
    one = join(run, run.member(0, 1.0), [SGD(first, lr=1.0), Adam(second, lr=0.1)])
    one.begin()
    for parameter in [*first, *second]:
        parameter.grad = torch.ones_like(parameter)
    one.clients[0].push()
    one.clients[0].push()
    one.clients[1].push()
    assert [p.tolist() for p in first] == [[-2.0] * 3, [-2.0] * 2]
    assert all(torch.allclose(p.detach(), torch.full((4,), 0.9)) for p in second)
    assert run.counts().updates == 3
    assert one.snapshot().versions == [2, 1]
    assert [(m.section, m.shard, m.applied) for m in run.pushes()] == [(0, 0, 2), (0, 1, 2), (1, 0, 1), (1, 1, 1)]


def test_workers_with_different_models_are_told_so() -> None:
    run = SharedRun(2)
    with pytest.raises(ValueError, match=r"model: workers .* have created different parameters"):
        run_workers(2, lambda worker: joined(run, worker, Adam([Parameter(torch.zeros(3 + worker))])))


def test_more_shards_than_parameters_are_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"^shards: is 3, but SGD has only 1 parameters. Use at most 1"):
        joined(SharedRun(1, Settings(shards=3)), 0, SGD([Parameter(torch.zeros(2))], lr=1.0))


def test_a_group_added_during_training_is_refused() -> None:
    optimizer = SGD([Parameter(torch.zeros(2))], lr=1.0)
    one = joined(SharedRun(1, Settings()), 0, optimizer)
    one.begin()
    optimizer.add_param_group({"params": [Parameter(torch.zeros(2))]})
    with pytest.raises(ValueError, match=r"a param group was added .* or train with strategy: auto"):
        one.clients[0].push()


def test_who_does_not_come_is_named() -> None:
    with pytest.raises(TimeoutError, match=r"rendezvous 'memory': workers \[1, 2\] did not arrive"):
        joined(SharedRun(3), 0, SGD([Parameter(torch.zeros(1))], lr=1.0), deadline_s=0.05)


def test_who_does_not_finish_is_named() -> None:
    run = SharedRun(2)

    def body(worker: int) -> str:
        one = joined(run, worker, SGD([Parameter(torch.zeros(1))], lr=1.0), deadline_s=0.5 if worker == 0 else 20.0)
        if worker == 1:
            time.sleep(1.5)
            return ""
        one.finish()
        with pytest.raises(TimeoutError, match=r"workers \[1\] neither pushed nor finished: nothing happened"):
            one.wait_for_others()
        return "told"

    assert run_workers(2, body)[0] == "told"


def steps(one: Joined, weight: Parameter, count: int) -> None:
    for _ in range(count):
        weight.grad = torch.ones_like(weight)
        one.clients[0].push()


def test_a_round_does_not_wait_for_a_worker_that_rests() -> None:
    run = SharedRun(2, Settings(rule=Sync()))

    def body(worker: int) -> float:
        weight = Parameter(torch.zeros(3))
        one = joined(run, worker, SGD([weight], lr=1.0))
        one.begin()
        if worker == 1:
            one.rest()
            time.sleep(0.5)
            one.begin()
        steps(one, weight, 20)
        one.finish()
        one.wait_for_others()
        one.pull()
        return float(weight.detach()[0])

    found = run_workers(2, body)
    assert found[0] == found[1]
    assert -40 <= found[0] < -20  # worker 0 alone for a while, and no round with two for each of its gradients


def test_a_worker_that_joins_late_begins_with_the_newest_version() -> None:
    run = SharedRun(2)

    def body(worker: int) -> Tensor:
        weight = Parameter(torch.zeros(3))
        one = joined(run, worker, SGD([weight], lr=1.0))
        one.begin()
        steps(one, weight, 5)
        if worker == 1:
            run.rejoin(1)
            weight = Parameter(torch.zeros(3))
            one = joined(run, worker, SGD([weight], lr=1.0))
            one.begin()
            assert float(weight.detach()[0]) <= -5
            steps(one, weight, 5)
        one.finish()
        one.wait_for_others()
        one.pull()
        return weight.detach().clone()

    assert [final.tolist() for final in run_workers(2, body)] == [[-15.0] * 3] * 2
    assert [m.duplicates for m in run.pushes()] == [0, 0]
