"""When a run validates: in words, how rarely it may, and what Lightning would refuse of it when the run starts."""

from collections.abc import Mapping
from typing import Any, TypeGuard

from scalebook.training.base import Problem, validation_interval
from scalebook.training.experiments.data_paths import most_samples
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.fields import quoted_value


def problems(experiment: Experiment) -> list[Problem]:
    """Errors of `val_check_interval`, by itself, beside `check_val_every_n_epoch: null`, and for the size of the data
    where that is known."""
    trainer = experiment.trainer
    interval = trainer.get(validation_interval.INTERVAL)
    if isinstance(interval, int | float) and not (_is_share(interval) or _is_count(interval)):
        fix = "Use a fraction of an epoch such as 0.25, or a number of batches of each worker such as 100."
        return [
            Problem(
                "out-of-bounds",
                validation_interval.KEY,
                f"is {quoted_value(interval)}, which is neither a fraction of an epoch nor a number of batches",
                fix,
            )
        ]
    if _across_epochs(trainer):
        if interval is None or _is_share(interval):
            said = "is missing" if interval is None else f"is {quoted_value(interval)}, not a whole number"
            why = f"{said}, but with {validation_interval.EVERY}: null, batches are counted across epochs"
            fix = f"Use a number of batches of each worker, such as 100, or remove {validation_interval.EVERY}."
            return [Problem("wrong-type", validation_interval.KEY, why, fix)]
        return []
    if not _is_count(interval) or trainer.get("limit_val_batches") == 0 or trainer.get("fast_dev_run"):
        return []
    most = _most_batches(experiment)
    if most is None or interval <= most:
        return []
    return [validation_interval.too_rare(interval, most, experiment.strategy.workers, "at most ").problem]


def validation_words(experiment: Experiment) -> str:
    """`Validates after every 100 batches of each worker, which are 400 of all 4.`; "" where no number of batches is
    asked for."""
    trainer = experiment.trainer
    interval = trainer.get(validation_interval.INTERVAL)
    if not _is_count(interval) or trainer.get("limit_val_batches") == 0 or problems(experiment):
        return ""
    workers = experiment.strategy.workers
    batches = "batch" if interval == 1 else f"{interval:,} batches"
    of = f" of each worker ({interval * workers:,} over all {workers} workers)" if workers > 1 else ""
    return f"Validates after every {batches}{of}{', across epochs' if _across_epochs(trainer) else ''}."


def _most_batches(experiment: Experiment) -> int | None:
    """Not fewer than a worker has in an epoch; None where the size of the data is not known."""
    samples, limit = most_samples(experiment), experiment.trainer.get("limit_train_batches")
    if samples is None or experiment.batch.together is None:
        return None
    most = -(-samples // experiment.batch.together)
    return min(most, limit) if _is_count(limit) else most


def _across_epochs(trainer: Mapping[str, Any]) -> bool:
    return validation_interval.EVERY in trainer and trainer[validation_interval.EVERY] is None


def _is_count(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _is_share(value: Any) -> bool:
    """As Lightning reads floats: a part of an epoch, or a whole number of batches."""
    return isinstance(value, float) and (0 <= value <= 1 or value.is_integer())
