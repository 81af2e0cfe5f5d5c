"""What a call of `optimizer.step` does, and with which learning rate: the only place where Scalebook replaces it.

In this order:

1. Before the call the param groups have the rates that are asked for: a schedule's (`Schedules` advances it by
   updates, Lightning where there is one worker).
2. Each rate is multiplied by a factor of the number of updates so far (`ScaledRate`): that of `lr_scaling` with its
   warm-up, or of a range test. It holds until the call returns, for whatever is done in it.
3. The closure computes the gradient.
4. The step is made by the optimizer, or a push takes its place (`PushingStep`): the scaled rates travel with the
   gradient, and a worker's own steps between two pushes (`downpour`) use them. Where it makes steps of its own
   optimizer (`local`) they are these steps' alone; what travels has the outer optimizer's rate.
5. Whoever applies a push multiplies them by what its damping makes of staleness (`engine/store/shard.py`).
6. The optimizer may have a local rate for each layer, which multiplies that again (LARS, LAMB).
7. The param groups have the rates again that were asked for; what somebody else has set meanwhile stays.

A trace has the product of 1 and 2, which travels, and the factor of 5.

What advances the schedules of several workers:

- `interval: step` counts updates of the parameters, whoever makes them, as `max_steps` does: the learning rate is a
  function of the version, so it does not depend on the number of workers or on their speed, and a worker that joins
  late has the rate of the others. As in one process a schedule makes its step when the hook `optimizer_step` is over,
  and then `trainer.global_step` is the version of that step. `trainer.estimated_stepping_batches` counts the same.
  Where workers make steps of their own optimizers (`local`) it counts these, a worker's own.
- `interval: epoch` counts each worker's own epochs; all pass through the same ones.
- ReduceLROnPlateau: only worker 0 has validation metrics. It tells the others what it tells its schedulers, and theirs
  do the same, at their next push.
- With manual optimization a model steps its schedulers itself: in every worker, as often as its own code says.

With a single worker everything is as Lightning does it.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import MethodType
from typing import Any, Protocol, runtime_checkable

import torch
from torch.optim import Optimizer

from scalebook.training.engine.rules import Settings
from scalebook.training.engine.worker import worker_end
from scalebook.training.lightning.package import LightningModule, LRSchedulerConfig, Trainer
from scalebook.training.lightning.steps import Steps


class AppliedStep:
    """Replaces one optimizer's `step`, as long as its rates are scaled or its gradients are pushed."""

    _wrapped_by_lr_sched = True  # what a scheduler of torch's looks for, lest it warn

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._replaced = vars(optimizer).get("step")
        self._own: Callable[..., Any] = optimizer.step
        self.__wrapped__ = self._own
        self._push: Callable[..., Any] | None = None
        self._scaled: Callable[[], AbstractContextManager[None]] = nullcontext
        optimizer.step = self  # type: ignore[method-assign]  # on the object only

    @classmethod
    def of(cls, optimizer: Optimizer) -> "AppliedStep":
        """The optimizer's AppliedStep; installs a new one if there is none."""
        step = vars(optimizer).get("step")
        return step if isinstance(step, cls) else cls(optimizer)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the optimizer's own step, or the push that takes its place, with the scaled learning rates. ValueError
        if a wrapper around the push would have to act on its result."""
        if self._push is not None and vars(self._optimizer).get("step") is not self:
            raise ValueError(
                f"optimizer: the step of {type(self._optimizer).__name__} was replaced during training, but nothing "
                "that the new step adds would be part of the update. Make the replacement in configure_optimizers."
            )
        with self._scaled():
            return (self._push or self._own)(*args, **kwargs)

    def push(self, push: Callable[..., Any] | None) -> None:
        """Call `push` instead of the optimizer's own step from now on; None restores the own step."""
        self._push = push
        self._leave_if_idle()

    def scale(self, scaled: Callable[[], AbstractContextManager[None]] | None) -> None:
        """Make each call inside the context `scaled()` from now on; None ends the scaling."""
        assert scaled is None or self._scaled is nullcontext, "only one object may scale a learning rate"
        self._scaled = scaled or nullcontext
        self._leave_if_idle()

    def _leave_if_idle(self) -> None:
        """Give the optimizer back the step it had, if nobody else has."""
        if self._push is None and self._scaled is nullcontext and vars(self._optimizer).get("step") is self:
            if self._replaced is None:
                del vars(self._optimizer)["step"]
            else:
                self._optimizer.step = self._replaced


@runtime_checkable
class CountsUpdates(Protocol):
    """A strategy whose updates are not the Trainer's steps."""

    def version(self, optimizer: Optimizer) -> int:
        """Updates of this optimizer's parameters, by all workers, as this worker knows them; with `local`, the steps of
        this worker's own optimizer."""

    def gradients_averaged(self) -> int:
        """How many workers' gradients are averaged into one such update, or step."""

    def gradients_computed(self) -> int:
        """How many gradients all workers compute per such update, or step."""


class ScaledRate:
    """Multiplies the learning rates of all param groups of one optimizer, during each of its steps.

    Args:
        steps_made: Updates before the first step, for a strategy that does not count them itself (`counts`).
        factor: A function of the number of updates so far.
    """

    def __init__(
        self, optimizer: Optimizer, counts: CountsUpdates | None, steps_made: int, factor: Callable[[int], float]
    ) -> None:
        self._optimizer, self._counts, self._made, self._factor = optimizer, counts, steps_made, factor
        self._step = AppliedStep.of(optimizer)
        self._step.scale(self._scaled)

    @contextmanager
    def _scaled(self) -> Iterator[None]:
        factor, groups = self._factor(self.updates()), self._optimizer.param_groups
        rates = [group["lr"] for group in groups]
        scaled = [rate * factor for rate in rates]
        for group, rate in zip(groups, scaled, strict=True):
            group["lr"] = rate
        try:
            yield
        finally:
            self._made += 1
            for group, before, during in zip(groups, rates, scaled, strict=False):
                if group["lr"] is during:
                    group["lr"] = before

    def updates(self) -> int:
        """Updates so far, those before a checkpoint included."""
        return self._made if self._counts is None else self._counts.version(self._optimizer)

    def uninstall(self) -> None:
        """End the scaling."""
        self._step.scale(None)


class PushingStep:
    """Replaces the step of this one optimizer object with a push, whoever calls it: Lightning's loops, its precision
    plugins, torch's GradScaler (which knows an optimizer by its identity), or the model."""

    def __init__(self, optimizer: Optimizer, client: worker_end.OptimizerEnd, before_push: Callable[[], None]) -> None:
        """`before_push` is called when a gradient is complete."""
        self._optimizer, self._client, self._before_push = optimizer, client, before_push
        self._pushed: worker_end.PushResult | None = None
        self._step = AppliedStep.of(optimizer)
        self._step.push(self)
        if getattr(optimizer, "_step_supports_amp_scaling", False):  # fused ones; here a scaler is to unscale
            optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]

    def __call__(self, closure: Callable[[], Any] | None = None, **others: Any) -> Any:
        """Compute the gradient, if that is still to do, push it, and pull the newest parameters.

        ValueError for further arguments, which only the optimizer's own `step` understands.
        """
        if others:
            why = f"its step is called with {', '.join(others)}, but a server cannot receive such arguments"
            raise ValueError(
                f"optimizer: {type(self._optimizer).__name__} does not work with a parameter server: {why}. Use "
                "another optimizer, for instance torch.optim.SGD or torch.optim.Adam, or strategy ddp."
            )
        output = None
        if closure is not None:
            with torch.enable_grad():
                output = closure()
        self._before_push()
        self._pushed = self._push(valid=True)
        return output

    def result(self) -> worker_end.PushResult:
        """The result of the last step. When a gradient is infinite, a loss scaler skips the step: then this makes a
        push without a gradient, because others may wait for it."""
        pushed, self._pushed = self._pushed, None
        if pushed is None:
            pushed = self._push(valid=False)
        return self._client.completed(pushed)

    def uninstall(self) -> None:
        """Restore the optimizer's own step."""
        self._step.push(None)

    def _push(self, valid: bool) -> worker_end.PushResult:
        self._optimizer._opt_called = True  # type: ignore[attr-defined]  # a scheduler's sign of a step
        return self._client.push(valid)


class Schedules:
    """The schedules of one of several workers. Between `start` and `uninstall` it replaces the model's
    `lr_scheduler_step` in this process; without `start` Lightning steps them."""

    def __init__(
        self,
        module: LightningModule,
        worker: int,
        signals: worker_end.Signals,
        versions: Callable[[], Mapping[int, int]],
        at_version: Callable[[int], AbstractContextManager[None]],
    ) -> None:
        """`versions`: present ones, by the id of the optimizer. `at_version`: the context in which a schedule makes
        its step for this version."""
        self._module, self._worker, self._signals = module, worker, signals
        self._versions, self._at_version = versions, at_version
        self._original: Callable[[Any, Any], None] = module.lr_scheduler_step
        self._configs: list[LRSchedulerConfig] = []
        self._taken: list[int] = []  # steps of each scheduler
        self._every: list[int] = []  # updates between two of them
        self._plateau_steps = 0  # of those that worker 0 has told, the ones that are done
        self._is_ours = False

    def start(self, configs: Sequence[LRSchedulerConfig], versions: Mapping[int, int]) -> None:
        """Take over the schedulers. `versions`: by the id of each optimizer, the schedulers' present step: 0, or the
        resumed checkpoint's."""
        self._configs, self._is_ours = list(configs), True
        self._original = self._module.lr_scheduler_step
        batches = self._module.trainer.accumulate_grad_batches  # which Lightning's frequency counts
        self._every = [config.frequency // math.gcd(config.frequency, batches) for config in configs]
        pairs = zip(configs, self._every, strict=True)
        self._taken = [versions[id(config.scheduler.optimizer)] // every for config, every in pairs]
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

    def follow(self) -> None:
        """Advance the schedules to the present versions, and repeat what worker 0's ReduceLROnPlateau did."""
        for index, config in enumerate(self._configs):
            if config.interval == "step" and not config.reduce_on_plateau:
                self._advance(index, config)
        if self._worker > 0 and self._is_ours:
            for step in self._signals.plateau_steps(self._plateau_steps):
                self._original(self._configs[step.scheduler].scheduler, step.metric)
                self._plateau_steps += 1

    def _advance(self, index: int, config: LRSchedulerConfig) -> None:
        """Advance a schedule of steps to the present version."""
        version, every = self._versions()[id(config.scheduler.optimizer)], self._every[index]
        until = min(version // every, getattr(config.scheduler, "total_steps", math.inf))
        while self._taken[index] < until:
            config.scheduler.optimizer._opt_called = True  # type: ignore[attr-defined]  # by whomever
            self._taken[index] += 1
            with self._at_version(self._taken[index] * every):
                self._original(config.scheduler, None)

    def _step(self, scheduler: Any, metric: Any) -> None:
        """What Lightning calls: after each batch, epoch or validation of this worker."""
        index = next(i for i, config in enumerate(self._configs) if config.scheduler is scheduler)
        config = self._configs[index]
        if config.reduce_on_plateau:
            self._signals.add_plateau_step(worker_end.PlateauStep(index, float(metric)))
        elif config.interval == "step":
            self._advance(index, config)
            return
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
    `count` when its training starts."""

    def __init__(self, joined: worker_end.JoinedEnd, trainer: Trainer, end: worker_end.WorkerEnd) -> None:
        self._joined, self._trainer, self._workers = joined, trainer, end.workers
        self._counts_own_steps = end.settings.local.steps
        workers, worker, signals = end.workers, end.worker, end.signals
        self.steps = Steps(trainer, alone=workers == 1)
        self.schedules = Schedules(trainer.lightning_module, worker, signals, self._schedule_steps, self._shown)

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
        self.schedules.follow()

    def _schedule_steps(self) -> dict[int, int]:
        return {id(client.optimizer): client.steps for client in self._joined.clients}

    def _shown(self, version: int) -> AbstractContextManager[None]:
        """The step count of one optimizer's version: with `local`, schedules count a worker's own steps instead."""
        return self.steps.shown(self.updates if self._counts_own_steps else version)

    def moved(self, versions: Sequence[int]) -> None:
        """Follow a pull without a push."""
        self.steps.moved(versions)
        self.rates()

    def pushed(self, least: int) -> None:
        """Follow a push; `least`: updates that have certainly been made. The schedules follow after the step."""
        self.steps.pushed(self.versions, least)
