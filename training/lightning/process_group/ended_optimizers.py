"""In the process that called fit: the optimizers and schedules of worker 0 as they were when it ended.

They can be read there and saved, without code of a person's that the workers have run already.
"""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, Final, NamedTuple, NoReturn

import torch
from torch import Tensor
from torch.optim import Optimizer
from typing_extensions import override

from scalebook.training.lightning.package import LRSchedulerConfig, Trainer, _MockOptimizer, rank_zero_warn
from scalebook.training.lightning.processes.strategy_launcher import is_plain

STATELESS: Final = (
    "trainer.optimizers: the state of {} (such as moments) was lost when the workers exited. If you save a "
    "checkpoint in the process that called fit(), it has the weights and schedules, but not the optimizer's state. "
    "Save in the workers instead: use a ModelCheckpoint, or call trainer.save_checkpoint in on_train_end."
)


class OptimizersEnd(NamedTuple):
    """Plain data that a worker leaves."""

    optimizers: list[tuple[str, list[dict[str, Any]]]]
    """Class and param groups of each, with the names of parameters; None is one that the module does not have."""
    schedules: list[tuple[dict[str, Any], dict[str, Any], list[float] | None]]
    """What configures each, but for itself; its `state_dict()`; its last learning rates, if it says them."""


class EndedOptimizer(Optimizer):
    """Has the param groups that a worker's optimizer had at its end, over the parameters of the module here. Its state
    has ended with the worker, so `state_dict` warns. It makes no step."""

    def __init__(self, kind: str, groups: list[dict[str, Any]]) -> None:
        super().__init__(groups, {})
        self.kind = kind

    @override
    def __repr__(self) -> str:
        return f"{self.kind} from a finished fit"

    @override
    def state_dict(self) -> dict[str, Any]:
        rank_zero_warn(STATELESS.format(self.kind))
        return super().state_dict()

    @override
    def step(self, closure: Callable[[], float] | None = None) -> NoReturn:
        raise RuntimeError(
            f"trainer.optimizers: {self.kind} was lost when the workers of the fit exited. Create a new one for more "
            "steps."
        )


class EndedSchedule:
    """A worker's schedule at its end: what can be asked of it without another step."""

    def __init__(self, state: dict[str, Any], rates: list[float] | None) -> None:
        self._state, self._rates = state, rates

    def state_dict(self) -> dict[str, Any]:
        return self._state

    def get_last_lr(self) -> list[float]:
        """The learning rates of its last step. AttributeError if it is of those that do not say them."""
        if self._rates is None:
            raise AttributeError("get_last_lr: this schedule does not report its last learning rates.")
        return self._rates


def as_they_end(trainer: Trainer) -> OptimizersEnd:
    """In a worker, after its work. What is no plain data stays there."""
    names: dict[Tensor, str] = {parameter: name for name, parameter in trainer.lightning_module.named_parameters()}
    optimizers = []
    for optimizer in trainer.optimizers:
        groups = [
            _plain(group) | {"params": [names.get(parameter) for parameter in group["params"]]}
            for group in optimizer.param_groups
        ]
        optimizers.append((type(optimizer).__name__, groups))
    schedules = []
    for config in trainer.lr_scheduler_configs:
        schedule: Any = config.scheduler
        told = {one.name: getattr(config, one.name) for one in fields(config) if one.name != "scheduler"}
        rates = list(schedule.get_last_lr()) if hasattr(schedule, "get_last_lr") else None
        schedules.append((_plain(told), _plain(schedule.state_dict()), rates))
    return OptimizersEnd(optimizers, schedules)


def put_ended(trainer: Trainer, end: OptimizersEnd) -> None:
    """In the process that called, when the module has its weights: give them to its Trainer."""
    parameters = dict(trainer.lightning_module.named_parameters())
    optimizers: list[Optimizer] = []
    for kind, groups in end.optimizers:
        own = [
            group | {"params": [parameters.get(name, torch.empty(0)) for name in group["params"]]} for group in groups
        ]
        optimizers.append(EndedOptimizer(kind, own) if own else _MockOptimizer())
    trainer.strategy.optimizers = optimizers
    trainer.strategy.lr_scheduler_configs = [
        LRSchedulerConfig(EndedSchedule(state, rates), **config)  # type: ignore[arg-type]  # it is only read
        for config, state, rates in end.schedules
    ]


def _plain(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if is_plain(value)}
