"""Learning rate schedules of several workers: what advances them.

- `interval: step` counts updates of the parameters, whoever makes them, as `max_steps` does: the learning rate is a
  function of the version, so it does not depend on the number of workers or on their speed, and a worker that joins
  late has the rate of the others. `trainer.estimated_stepping_batches` counts the same.
  Where workers make steps of their own optimizers (`local`) it counts these, a worker's own.
- `interval: epoch` counts each worker's own epochs; all pass through the same ones.
- ReduceLROnPlateau: only worker 0 has validation metrics. It tells the others what it tells its schedulers, and theirs
  do the same, at their next push.
- With manual optimization a model steps its schedulers itself: in every worker, as often as its own code says.

With a single worker everything is as Lightning does it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MethodType
from typing import Any

from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.worker.worker_end import JoinedEnd, PlateauStep, Signals
from scalebook.training.lightning.package import LightningModule, LRSchedulerConfig, Trainer
from scalebook.training.lightning.steps import Steps


class Schedules:
    """The schedules of one of several workers. Between `start` and `uninstall` it replaces the model's
    `lr_scheduler_step` in this process; without `start` Lightning steps them."""

    def __init__(self, module: LightningModule, worker: int, signals: Signals) -> None:
        self._module, self._worker, self._signals = module, worker, signals
        self._original: Callable[[Any, Any], None] = module.lr_scheduler_step
        self._configs: list[LRSchedulerConfig] = []
        self._taken: list[int] = []  # steps of each scheduler
        self._plateau_steps = 0  # of those that worker 0 has told, the ones that are done
        self._is_ours = False

    def start(self, configs: Sequence[LRSchedulerConfig], versions: Mapping[int, int]) -> None:
        """Take over the schedulers. `versions`: by the id of each optimizer, the schedulers' present step: 0, or the
        resumed checkpoint's."""
        self._configs, self._is_ours = list(configs), True
        self._original = self._module.lr_scheduler_step
        self._taken = [versions[id(config.scheduler.optimizer)] // config.frequency for config in configs]
        self._module.lr_scheduler_step = _Stepping(self._module, self._step)  # type: ignore[method-assign]  # here only

    def uninstall(self) -> None:
        """Undo `start`: the model has its own `lr_scheduler_step` again."""
        if self._is_ours:
            vars(self._module).pop("lr_scheduler_step", None)
        self._configs, self._is_ours = [], False

    def mine(self) -> list[LRSchedulerConfig]:
        """The schedulers that Lightning steps in this worker: in others than worker 0 not those that need a validation
        metric."""
        return [config for config in self._configs if self._worker == 0 or not config.reduce_on_plateau]

    def follow(self, versions: Mapping[int, int]) -> None:
        """Advance the schedules to these versions (by the id of the optimizer), and repeat what worker 0's
        ReduceLROnPlateau did."""
        for index, config in enumerate(self._configs):
            if config.interval == "step" and not config.reduce_on_plateau:
                version = versions[id(config.scheduler.optimizer)]
                until = min(version // config.frequency, getattr(config.scheduler, "total_steps", math.inf))
                while self._taken[index] < until:
                    config.scheduler.optimizer._opt_called = True  # type: ignore[attr-defined]  # by whomever
                    self._original(config.scheduler, None)
                    self._taken[index] += 1
        if self._worker > 0 and self._is_ours:
            for step in self._signals.plateau_steps(self._plateau_steps):
                self._original(self._configs[step.scheduler].scheduler, step.metric)
                self._plateau_steps += 1

    def _step(self, scheduler: Any, metric: Any) -> None:
        """What Lightning calls: after each batch, epoch or validation of this worker."""
        index = next(i for i, config in enumerate(self._configs) if config.scheduler is scheduler)
        config = self._configs[index]
        if config.reduce_on_plateau:
            self._signals.add_plateau_step(PlateauStep(index, float(metric)))
        elif config.interval == "step":
            return  # `follow` does it
        self._original(scheduler, metric)


class _Stepping:
    """In the place of a model's `lr_scheduler_step`; a copy of the model has its own method."""

    def __init__(self, module: LightningModule, step: Callable[[Any, Any], None]) -> None:
        self._module, self._step = module, step

    def __call__(self, scheduler: Any, metric: Any) -> None:
        self._step(scheduler, metric)

    def __reduce__(self) -> tuple[Any, ...]:
        return _own_step, (self._module,)


def _own_step(module: LightningModule) -> Any:
    return MethodType(type(module).lr_scheduler_step, module)


@contextmanager
def updates_estimated(trainer: Trainer, settings: Settings, processes: int, workers: int) -> Iterator[None]:
    """Let `trainer.estimated_stepping_batches` count the updates of all workers meanwhile, or with `local` a worker's
    own steps, instead of one process's batches."""
    loop, max_steps, local = trainer.fit_loop, trainer.max_steps, settings.local
    computed = settings.computed_in_step(workers)
    if local.steps and max_steps > 0:  # updates
        loop.epoch_loop.max_steps = math.ceil(max_steps * settings.computed(workers) / workers)
    original: list[int | float] = []

    def setup_data() -> None:
        type(loop).setup_data(loop)
        if not original:
            original.append(loop.max_batches)
            loop.max_batches *= processes / computed
            if math.isfinite(loop.max_batches):
                loop.max_batches = math.ceil(loop.max_batches)

    loop.setup_data = setup_data  # type: ignore[method-assign]  # which is what the estimate calls
    try:
        yield
    finally:
        del vars(loop)["setup_data"]
        loop.epoch_loop.max_steps = max_steps
        if original:
            loop.max_batches = original[0]


class ScheduleFollower:
    """Makes one worker's step count and schedules follow the updates, from when it has joined; call `schedule` and
    `count` when its training starts. `workers`: of the run."""

    def __init__(self, joined: JoinedEnd, trainer: Trainer, worker: int, workers: int, signals: Signals) -> None:
        self._joined, self._trainer, self._workers = joined, trainer, workers
        self.steps = Steps(trainer, alone=workers == 1)
        self.schedules = Schedules(trainer.lightning_module, worker, signals)

    @property
    def versions(self) -> list[int]:
        """Each optimizer's version in this worker's replica."""
        return self._joined.versions

    @property
    def updates(self) -> int:
        """The updates of all optimizers together."""
        return sum(self._joined.versions)

    def schedule(self, steps: Sequence[int]) -> None:
        """Let learning rates follow the updates from now on, if several workers train. `steps`: by optimizer, how far
        its rates have been scheduled."""
        trainer = self._trainer
        if self._workers > 1 and trainer.lightning_module.automatic_optimization:
            optimizers = [client.optimizer for client in self._joined.clients]
            by_id = {id(optimizer): count for optimizer, count in zip(optimizers, steps, strict=True)}
            self.schedules.start(trainer.strategy.lr_scheduler_configs, by_id)
            trainer.strategy.lr_scheduler_configs = self.schedules.mine()

    def count(self, before: Sequence[int]) -> None:
        """Let the Trainer's steps count updates from now on; `before`: versions of the checkpoint that the run resumes
        from."""
        self.steps.start(self.versions, before)
        self.rates()

    def rates(self) -> None:
        """Set the learning rates for the version of this worker's replica, or for its own steps."""
        self.schedules.follow({id(client.optimizer): client.steps for client in self._joined.clients})

    def moved(self, versions: Sequence[int]) -> None:
        """Follow a pull without a push."""
        self.steps.moved(versions)
        self.rates()

    def pushed(self, least: int) -> None:
        """Follow a push; `least`: updates that have certainly been made."""
        self.rates()
        self.steps.pushed(self.versions, least)
