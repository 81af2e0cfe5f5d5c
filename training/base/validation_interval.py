"""What is said where a run would validate too rarely: before it starts, and when it starts."""

from typing import Final

from scalebook.training.base.errors import ConfigError

EVERY: Final = "check_val_every_n_epoch"
INTERVAL: Final = "val_check_interval"
KEY: Final = f"trainer.{INTERVAL}"


def too_rare(interval: int, batches: int, workers: int, about: str = "") -> ConfigError:
    """The error for an interval of more batches than each worker has in an epoch, which Lightning refuses. `about`: "at
    most ", if the batches are not known exactly."""
    whose = f"each of the {workers} workers has" if workers > 1 else "an epoch has"
    within = " in an epoch" if workers > 1 else ""
    plural = "batches" if batches != 1 else "batch"
    counts = "This setting counts each worker's batches. " if workers > 1 else ""
    fewer = "fewer" if about else f"{batches} or fewer"
    return ConfigError(
        KEY,
        f"is {interval}, but {whose} {about}{batches} {plural}{within}",
        f"{counts}Use {fewer}, or a fraction of an epoch such as 0.5. To count across epochs, set {EVERY}: null.",
    )
