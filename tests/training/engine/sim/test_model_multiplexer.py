"""One model for all virtual workers is as good as a model for each."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch.optim import SGD, Optimizer

from scalebook.training.engine import Settings, SharedRun, WrittenError
from scalebook.training.engine.rules.clock_settings import ClockSettings, Death, Distribution
from scalebook.training.engine.rules.update_rules import Bounded, Rule, Sync
from scalebook.training.engine.sim import ModelMultiplexer, SimulatedClock, SimulatedWorkers
from tests.training.engine.sim.works import Asked, TorchStream

WORKERS = 3


def made() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.Dropout(0.5), nn.Linear(6, 2))


def optimizer_of(model: nn.Module) -> Optimizer:
    return SGD(model.parameters(), lr=0.01, momentum=0.5)


def backward(model: nn.Module, number: int) -> None:
    inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(number))
    model(inputs).square().mean().backward()


def trained(
    virtual: Callable[[Callable[[int], bool], SharedRun, SimulatedClock], SimulatedWorkers],
    compute: Callable[[int, int], None],
    rule: Rule,
    deaths: tuple[Death, ...] = (),
) -> Tensor:
    """The parameters after 30 gradients, the learning rate halved after 15 of them."""
    clock = SimulatedClock(ClockSettings(Distribution("gamma", 1.0, 0.4), server_s=0.1, deaths=deaths), WORKERS)
    run = SharedRun(WORKERS, Settings(rule), clock)
    left = iter(range(30))
    taken: dict[int, int] = {}

    def wants(worker: int) -> bool:
        taken[worker] = next(left, -1)
        return taken[worker] >= 0

    workers = virtual(wants, run, clock)
    workers.begin_all()
    while (worker := workers.next()) is not None:
        compute(worker, taken[worker])
        workers.push()
    shard = workers.partitions[0].shards[0]
    whole = torch.cat([view.flatten() for view in shard.views[shard.newest().buffer]])
    workers.detach()
    run.close()
    return whole


def with_one_model(rule: Rule, deaths: tuple[Death, ...] = ()) -> Tensor:
    model = made()
    optimizer = optimizer_of(model)
    one = ModelMultiplexer([optimizer], lambda: list(model.buffers()), [TorchStream()])

    def compute(worker: int, number: int) -> None:
        one.switch_to(worker)
        backward(model, number)
        optimizer.param_groups[0]["lr"] = 0.01 if number < 15 else 0.005
        one.hand_over(worker)

    return trained(
        lambda wants, run, clock: SimulatedWorkers(run, clock, one.make, Asked(wants)), compute, rule, deaths
    )


def with_a_model_each(rule: Rule) -> Tensor:
    models = [made() for _ in range(WORKERS)]
    optimizers = [optimizer_of(model) for model in models]
    states = [TorchStream().of_worker(worker) for worker in range(WORKERS)]

    def compute(worker: int, number: int) -> None:
        torch.set_rng_state(states[worker])
        models[worker].zero_grad()
        backward(models[worker], number)
        optimizers[worker].param_groups[0]["lr"] = 0.01 if number < 15 else 0.005
        states[worker] = torch.get_rng_state()

    return trained(
        lambda wants, run, clock: SimulatedWorkers(run, clock, lambda worker: [optimizers[worker]], Asked(wants)),
        compute,
        rule,
    )


@pytest.mark.parametrize("rule", [Bounded(2), Sync()])
def test_one_model_gives_what_a_model_each_gives(rule: Rule) -> None:
    ours = with_one_model(rule)
    assert torch.equal(ours, with_a_model_each(rule))
    assert bool(ours.isfinite().all())


def test_a_worker_that_returns_begins_anew() -> None:
    deaths = (Death(1, 2.5, 4.0),)
    first, second = with_one_model(Bounded(2), deaths), with_one_model(Bounded(2), deaths)
    assert torch.equal(first, second)
    assert not torch.equal(first, with_one_model(Bounded(2)))


@pytest.mark.parametrize("through_data", [True, False])
def test_what_is_written_into_the_model_is_an_error(through_data: bool) -> None:
    model = made()
    optimizer = optimizer_of(model)
    one = ModelMultiplexer([optimizer], lambda: list(model.buffers()))

    def compute(worker: int, number: int) -> None:
        one.switch_to(worker)
        backward(model, number)
        if number == 5:
            parameter = next(model.parameters())
            if through_data:
                parameter.data = torch.zeros_like(parameter)
            else:
                with torch.no_grad():
                    parameter.zero_()
        one.hand_over(worker)

    with pytest.raises(WrittenError, match=r"wrote into parameter 0 in a forward pass"):
        trained(lambda wants, run, clock: SimulatedWorkers(run, clock, one.make, Asked(wants)), compute, Bounded(2))


def test_a_group_that_is_added_is_an_error() -> None:
    model = made()
    optimizer = optimizer_of(model)
    one = ModelMultiplexer([optimizer], lambda: list(model.buffers()))

    def compute(worker: int, number: int) -> None:
        one.switch_to(worker)
        backward(model, number)
        optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(1))]})
        one.hand_over(worker)

    with pytest.raises(ValueError, match=r"optimizer: a param group was added during training\. Add all groups"):
        trained(lambda wants, run, clock: SimulatedWorkers(run, clock, one.make, Asked(wants)), compute, Bounded(2))


def test_no_worker_has_parameters_of_its_own() -> None:
    model = made()
    one = ModelMultiplexer([optimizer_of(model)])
    clock = SimulatedClock(ClockSettings(1.0), workers=8)
    run = SharedRun(8, Settings(), clock)
    workers = SimulatedWorkers(run, clock, one.make, Asked(lambda worker: True))
    workers.begin_all()
    assert len({joined.clients[0].replica.parameters[0].data_ptr() for joined in workers.joined.values()}) == 1
    worker = workers.next()
    assert worker is not None
    one.switch_to(worker)
    assert next(model.parameters()).data_ptr() == workers.joined[worker].clients[0].replica.parameters[0].data_ptr()
    workers.detach()
    run.close()
