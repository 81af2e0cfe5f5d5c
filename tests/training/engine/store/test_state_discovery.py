"""What trial steps show of an optimizer, and what they do not."""

import os
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import Linear, Parameter, Sequential
from torch.optim import SGD, Adam, Optimizer
from torch.optim.optimizer import register_optimizer_step_post_hook

from scalebook.training.engine.store.rebuilt_optimizer import UnfitError, counterparts, parameters_of, rebuild
from scalebook.training.engine.store.state_discovery import discover, own_random_numbers

Step = Callable[[Optimizer, Parameter, int], None]


def linear() -> Any:
    torch.manual_seed(1)
    return Sequential(Linear(3, 4), Linear(4, 2))


class Own(Optimizer):
    """SGD whose `also` is called with each parameter and the number of the step."""

    def __init__(self, params: Any, also: Step) -> None:
        super().__init__(params, {"lr": 0.1})
        self.also = also

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for group in self.param_groups:
            for parameter in group["params"]:
                count = self.state[parameter]["step"] = self.state[parameter].get("step", 0) + 1
                parameter.add_(parameter.grad, alpha=-group["lr"])
                self.also(self, parameter, count)


def keeps_on_the_parameter(optimizer: Optimizer, parameter: Parameter, count: int) -> None:
    parameter.momentum = parameter.grad  # type: ignore[attr-defined]


def keeps_a_list(optimizer: Any, parameter: Parameter, count: int) -> None:
    optimizer.seen = [*getattr(optimizer, "seen", []), count]


def keeps_without_a_parameter(optimizer: Any, parameter: Parameter, count: int) -> None:
    optimizer.state["all"] = torch.ones(3)


def changes_the_shape(optimizer: Any, parameter: Parameter, count: int) -> None:
    optimizer.state[parameter]["history"] = torch.ones(count)


def sets_a_setting(optimizer: Any, parameter: Parameter, count: int) -> None:
    optimizer.param_groups[0]["norms"] = [parameter.norm(), torch.ones(2)]


@pytest.mark.parametrize(
    ("also", "reason"),
    [
        (keeps_on_the_parameter, "a step changes an attribute of a parameter"),
        (keeps_a_list, "a step changes its attribute 'seen'"),
        (keeps_without_a_parameter, "it keeps tensors that do not belong to any parameter"),
        (changes_the_shape, "the shape of its state 'history' changes"),
        (sets_a_setting, "a step changes the param group entry 'norms'"),
    ],
)
def test_trial_steps_show(also: Step, reason: str) -> None:
    with pytest.raises(UnfitError, match=reason):
        discover(Own(linear().parameters(), also))


class Reading(SGD):
    """Looks at the model besides its param groups: to `use` it, in each step."""

    def __init__(self, model: Any, use: Callable[[Any], object], **settings: Any) -> None:
        super().__init__(model.parameters(), lr=0.1, **settings)
        self.use: Callable[[], object] = lambda: use(model)

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        super().step()
        self.use()


USES: dict[str, Callable[[Any], object]] = {
    "clamp": lambda model: model[0].weight.clamp_(-0.1, 0.1),
    "clamp of data": lambda model: model[1].weight.data.clamp_(-0.1, 0.1),
    "norm": lambda model: model[0].bias.norm(),
    "foreach": lambda model: torch._foreach_mul_(list(model.parameters()), 0.9),
    "in an except clause": lambda model: swallowed(lambda: model[0].weight.mul_(0.9)),
}


def swallowed(call: Callable[[], object]) -> None:
    try:
        call()
    except Exception:  # noqa: BLE001  # as some people's code does
        return


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_trial_steps_show_that_a_step_uses_the_model_and_leave_it_as_it_was(
    use: Callable[[Any], object], momentum: float
) -> None:
    model = linear()
    before = [p.detach().clone() for p in model.parameters()]
    found = discover(optimizer := Reading(model, use, momentum=momentum))
    assert found.reaches
    assert {entry.name for entry in found.entries} == ({"momentum_buffer"} if momentum else set())
    assert all(torch.equal(p, was) for p, was in zip(model.parameters(), before, strict=True))
    assert all(p.grad is None for p in model.parameters())
    assert optimizer.state == {}


def test_an_attribute_of_the_optimizer_is_copied_with_its_parameters() -> None:
    class Holding(SGD):
        def __init__(self, model: Any) -> None:
            super().__init__(model.parameters(), lr=0.0)
            self.model = model

        def step(self, closure: Any = None) -> None:  # type: ignore[override]
            super().step()
            self.model[0].weight.data.clamp_(-0.1, 0.1)

    model = linear()
    given = Holding(model)
    assert not discover(given).reaches
    others = [Parameter(p.detach().clone()) for p in model.parameters()]
    rebuild(given, others).step()
    assert float(others[0].detach().abs().max()) == pytest.approx(0.1)
    assert float(model[0].weight.detach().abs().max()) > 0.1


class Kind(Parameter):
    """A parameter that an optimizer knows by its class."""


@pytest.mark.parametrize("made", [Parameter(torch.ones(2)), Kind(torch.ones(2)), torch.ones(2, requires_grad=True)])
def test_a_counterpart_has_class_and_attributes_also_later(made: Any) -> None:
    made.lr_mult = 2.0
    other: Any
    (other,) = counterparts(SGD([made]), [torch.zeros(2)], [0])
    assert type(other) is type(made)
    assert other.requires_grad
    assert torch.equal(other, torch.zeros(2))
    made.lr_mult = 3.0
    assert other.lr_mult == 3.0


def test_trial_steps_call_no_hooks_and_no_step_that_was_put_on_the_object() -> None:
    called: list[str] = []
    optimizer = Adam(linear().parameters())
    optimizer.register_step_pre_hook(lambda *_: called.append("pre"))
    optimizer.register_step_post_hook(lambda *_: called.append("post"))
    handle = register_optimizer_step_post_hook(lambda *_: called.append("all"))
    optimizer.step = lambda closure=None: called.append("step")  # type: ignore[method-assign]
    try:
        discover(optimizer)
        assert called == []
        for parameter in parameters_of(optimizer):
            parameter.grad = torch.ones_like(parameter)
        Adam.step(optimizer)
        assert called == ["pre", "post", "all"]
    finally:
        handle.remove()


LATE = 4  # one step more than are tried


def later(also: Step) -> Step:
    return lambda optimizer, parameter, count: also(optimizer, parameter, count) if count >= LATE else None


@pytest.mark.parametrize("also", [keeps_on_the_parameter, keeps_a_list, changes_the_shape, sets_a_setting])
def test_trial_steps_do_not_show_what_begins_later(also: Step) -> None:
    """State and settings that begin later are refused in the step that makes them (`SharedState.refuse_new`,
    `refuse_changes`); attributes that begin later are kept by each process for itself."""
    found = discover(Own(linear().parameters(), later(also)))
    assert {entry.name for entry in found.entries} == {"step"}


def test_trial_steps_show_that_a_step_uses_parameters_of_another_optimizer() -> None:
    model = linear()
    before = model[1].weight.detach().clone()

    def halves(optimizer: Optimizer, parameter: Parameter, count: int) -> None:
        model[1].weight.mul_(0.5)

    with pytest.raises(UnfitError, match="it uses parameters of another optimizer"):
        discover(Own(model[0].parameters(), halves), list(model[1].parameters()))
    assert torch.equal(model[1].weight, before)


def test_trial_steps_do_not_show_what_reads_memory_past_torch() -> None:
    model = linear()
    weights = model[0].weight.detach().numpy()

    def reads(optimizer: Any, parameter: Tensor, count: int) -> None:
        parameter.mul_(float(abs(weights).max()))

    assert not discover(Own(model.parameters(), reads)).reaches


def test_threads_take_turns_with_the_generator_and_a_fork_does_not_wait_for_one() -> None:
    """Without turns two of 8 threads can wait for each other for good: for the generator and for the interpreter."""

    def draw(_: int) -> float:
        with own_random_numbers():
            return float(torch.rand(()))

    torch.manual_seed(5)
    before = torch.get_rng_state()
    with ThreadPoolExecutor(8) as threads:
        assert len(set(threads.map(draw, range(400), timeout=60))) == 1
    assert torch.equal(torch.get_rng_state(), before)
    with own_random_numbers():
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            draw(0)
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
