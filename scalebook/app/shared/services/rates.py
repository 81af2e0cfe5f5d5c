"""What a batch makes of a learning rate, in words."""

from scalebook.training.config.rate_scaling import RateScaling
from scalebook.training.config.workload import Workload


def scaled_words(load: Workload, scaling: RateScaling | None) -> str:
    """`0.1 per 256 → 0.4 at a batch of 1,024`, with the warm-up; "" where nothing is scaled or the batch is unknown."""
    if scaling is None or scaling.rule == "none" or load.batch_averaged is None:
        return ""
    factor = scaling.factor(load.batch_averaged)
    if load.learning_rate is None:
        change = f"The model's own rates, per {scaling.per:,} → {factor:g} times that"
    else:
        change = f"{load.learning_rate:g} per {scaling.per:,} → {load.learning_rate * factor:g}"
    words = f"{change} at a batch of {load.batch_averaged:,}"
    if scaling.warmup_epochs and factor > 1:
        words += f", reached after {scaling.warmup_epochs:g} epoch{'' if scaling.warmup_epochs == 1 else 's'}"
    return words


def rate_words(load: Workload) -> str:
    """`0.1`, `0.1 → 0.4` where it is scaled, "" where it is not known."""
    if load.learning_rate is None:
        return ""
    scaled = load.learning_rate_scaled
    if scaled is None or scaled == load.learning_rate:
        return f"{load.learning_rate:g}"
    return f"{load.learning_rate:g} → {scaled:g}"
