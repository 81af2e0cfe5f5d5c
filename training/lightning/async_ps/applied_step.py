"""What a call of `optimizer.step` does, and with which learning rate: the only place where Scalebook replaces it.

In this order:

1. Before the call the param groups have the rates that are asked for: a schedule's (`schedules.py` advances
   it by updates, Lightning where there is one worker).
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
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol, runtime_checkable

import torch
from torch.optim import Optimizer

from scalebook.training.engine.worker.worker_end import OptimizerEnd, PushResult


class AppliedStep:
    """Replaces one optimizer's `step`, as long as its rates are scaled or its gradients are pushed."""

    _wrapped_by_lr_sched = True  # what a scheduler of torch's looks for, lest it warn

    def __init__(self, optimizer: Optimizer) -> None:
        self._optimizer = optimizer
        self._replaced = vars(optimizer).get("step")
        self._own: Callable[..., Any] = optimizer.step
        self._push: Callable[..., Any] | None = None
        self._scaled: Callable[[], AbstractContextManager[None]] = nullcontext
        optimizer.step = self  # type: ignore[method-assign]  # on the object only

    @classmethod
    def of(cls, optimizer: Optimizer) -> "AppliedStep":
        """The optimizer's AppliedStep; installs a new one if there is none."""
        step = vars(optimizer).get("step")
        return step if isinstance(step, cls) else cls(optimizer)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the optimizer's own step, or the push that takes its place, with the scaled learning rates."""
        with self._scaled():
            return (self._push or self._own)(*args, **kwargs)

    def push(self, push: Callable[..., Any] | None) -> None:
        """Call `push` instead of the optimizer's own step from now on; None restores the own step."""
        self._push = push
        self._leave_if_idle()

    def scale(self, scaled: Callable[[], AbstractContextManager[None]] | None) -> None:
        """Make each call inside the context `scaled()` from now on; None ends the scaling."""
        assert scaled is None or self._scaled is nullcontext, "a learning rate is scaled by one of us"
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

    def __init__(self, optimizer: Optimizer, client: OptimizerEnd) -> None:
        self._optimizer, self._client = optimizer, client
        self._pushed: PushResult | None = None
        self._step = AppliedStep.of(optimizer)
        self._step.push(self)
        if getattr(optimizer, "_step_supports_amp_scaling", False):  # fused ones; here a scaler is to unscale
            optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]

    def __call__(self, closure: Callable[[], Any] | None = None, **others: Any) -> Any:
        """Compute the gradient, if that is still to do, push it, and pull the newest parameters.

        ValueError for further arguments, which only the optimizer's own `step` understands.
        """
        if others:
            why = f"its step is called with {', '.join(others)}, which a server does not have"
            raise ValueError(
                f"optimizer: {type(self._optimizer).__name__} does not work with a parameter server: {why}. Use "
                "another optimizer, for instance torch.optim.SGD or torch.optim.Adam, or strategy ddp."
            )
        output = None
        if closure is not None:
            with torch.enable_grad():
                output = closure()
        self._pushed = self._push(valid=True)
        return output

    def result(self) -> PushResult:
        """The result of the last step. When a gradient is infinite, a loss scaler skips the step: then this makes a
        push without a gradient, because others may wait for it."""
        pushed, self._pushed = self._pushed, None
        if pushed is None:
            pushed = self._push(valid=False)
        return self._client.completed(pushed)

    def uninstall(self) -> None:
        """Restore the optimizer's own step."""
        self._step.push(None)

    def _push(self, valid: bool) -> PushResult:
        self._optimizer._opt_called = True  # type: ignore[attr-defined]  # a scheduler's sign of a step
        return self._client.push(valid)
