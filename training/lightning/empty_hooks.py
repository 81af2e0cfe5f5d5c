"""Hooks that a callback does not define cost nothing."""

from typing import Final

from scalebook.training.lightning.package import Callback

_OF_BATCHES: Final = (
    "on_train_batch_start", "on_before_zero_grad", "on_before_backward", "on_after_backward",
    "on_before_optimizer_step", "on_train_batch_end", "on_validation_batch_start", "on_validation_batch_end",
)  # fmt: skip


class SkipsEmptyHooks:
    """Mix-in for a callback: Lightning skips the hooks of batches that the callback does not define.

    Otherwise Lightning formats a name and enters its profiler for each of these hooks, even if they do nothing. It
    skips a hook that is None.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        for hook in _OF_BATCHES:
            if getattr(cls, hook) is getattr(Callback, hook):
                setattr(cls, hook, None)
