"""An optimizer's `step` in a worker: not an update of its own, but a push."""

from collections.abc import Callable
from typing import Any

import torch
from torch.optim import Optimizer

from scalebook.training.ps.worker.end import OptimizerEnd, Pushed
from scalebook.training.strategies.applied_step import AppliedStep


class Pushing:
    """Takes the place of the optimizer's own step on this one object, so that whoever steps it pushes: Lightning's
    loops, its precision plugins, torch's GradScaler (which knows an optimizer by its identity), a model that has it in
    hand.
    """

    def __init__(self, optimizer: Optimizer, client: OptimizerEnd, push_every: int) -> None:
        self._optimizer, self._client, self._every, self._count = optimizer, client, push_every, 0
        self._pushed: Pushed | None = None
        self._step = AppliedStep.of(optimizer)
        self._step.push(self)
        if getattr(optimizer, "_step_supports_amp_scaling", False):  # fused ones; here a scaler is to unscale
            optimizer._step_supports_amp_scaling = False  # type: ignore[attr-defined]

    def __call__(self, closure: Callable[[], Any] | None = None, **others: Any) -> Any:
        """Compute the gradient, if that is still to do, hand it in and take the newest parameters.

        ValueError for arguments of an optimizer's own, which only its `step` would understand.
        """
        if others:
            raise ValueError(
                f"optimizer: a step with {', '.join(others)} does not work with a parameter server: it makes the step "
                "with a gradient alone. Call step without, or use strategy ddp."
            )
        output = None
        if closure is not None:
            with torch.enable_grad():
                output = closure()
        self._pushed = self._push(valid=True)
        return output

    @property
    def was_sent(self) -> bool:
        """Whether the last step sent something: with `push_every`, most only add to what will be sent."""
        return self._count % self._every == 0

    def result(self) -> Pushed:
        """What became of the step that has just been made. A loss scaler makes none when a gradient is infinite: that
        is handed in as a push without a gradient, for the others may be waiting for it.
        """
        pushed, self._pushed = self._pushed, None
        if pushed is None:
            pushed = self._push(valid=False)
        return self._client.completed(pushed)

    def end(self) -> None:
        """Give the optimizer its own step back."""
        self._step.push(None)

    def _push(self, valid: bool) -> Pushed:
        self._count += 1
        self._optimizer._opt_called = True  # type: ignore[attr-defined]  # a scheduler's sign of a step
        return self._client.push(valid)
