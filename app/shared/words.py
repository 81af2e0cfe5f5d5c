"""Figures, times, rates and experiments as short texts."""

import math
import sys
import time
from dataclasses import dataclass
from typing import Final

from scalebook.app.shared import form
from scalebook.training.base import duration
from scalebook.training.experiments import Experiment, LearningRate, classes, strategy_words

LONG: Final = 15
"""Powers of ten from which a figure is written with an exponent."""
MOST_PLACES: Final = 6
"""Decimal places up to which a figure is written without an exponent."""


def figure(value: float | None, digits: int = 4) -> str:
    """`digits` significant digits with trailing zeros and separated thousands: `0.03100`, `2.103`, `12,400`; "" for
    None."""
    if value is None:
        return ""
    if math.isnan(value):
        return "NaN"
    if abs(value) >= sys.float_info.max:  # MLflow keeps the largest number there is in place of infinity
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    size = math.floor(math.log10(abs(value)))
    if size >= LONG:
        return f"{value:.{max(digits - 2, 0)}e}"
    if size >= digits - 1:
        return f"{value:,.0f}"
    if size < -4:
        return f"{value:.{max(digits - 2, 0)}e}"
    return f"{value:.{digits - 1 - size}f}"


def spoken(field: str) -> str:
    """A config's field in words, `batch size`; a dotted path as it is, `model.init_args.layers`."""
    return field if "." in field else field.replace("_", " ")


def plain(value: object) -> str:
    """A config's value as short text: floats without noise, None as `–`, collections as YAML on one line."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(plain(item) for item in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {plain(item)}" for key, item in value.items()) + "}"
    return str(value)


def ago(moment: float, now: float | None = None) -> str:
    """The time since a unix time: `just now`, `5 min ago`, `3 h ago`, `2 days ago`, then the date."""
    past = (time.time() if now is None else now) - moment
    if past < 60:
        return "just now"
    if past < 3600:
        return f"{past // 60:.0f} min ago"
    if past < 86400:
        return f"{past // 3600:.0f} h ago"
    if past < 7 * 86400:
        days = int(past // 86400)
        return "yesterday" if days == 1 else f"{days} days ago"
    return time.strftime("%d %b %Y", time.localtime(moment))


def plural(count: int, noun: str) -> str:
    """`1 worker`, `2 workers`."""
    return f"{count} {noun}" if count == 1 else f"{count:,} {noun}s"


def sentence(text: str) -> str:
    """`text` with a full stop, and a capital letter unless it begins with the name of a metric or a key; an empty text
    stays empty."""
    text = text.strip()
    name = any(mark in text.partition(" ")[0] for mark in "/_.")
    return text and (text if name else f"{text[:1].upper()}{text[1:]}") + (
        "" if text.endswith((".", "!", "?")) else "."
    )


def scaled_words(experiment: Experiment) -> str:
    """`0.1 per 256 → 0.4 at a batch of 1,024`, with the warm-up; "" without scaling, or if the batch is unknown."""
    scaling, batch, rate = experiment.scaling, experiment.batch.averaged, experiment.rate.requested
    if scaling is None or scaling.rule == "none" or batch is None:
        return ""
    factor = scaling.factor(batch)
    if rate is None:
        change = f"The model's learning rates for a batch of {scaling.per:,} → {factor:g} times those rates"
    else:
        change = f"{rate:g} per {scaling.per:,} → {rate * factor:g}"
    words = f"{change} at a batch of {batch:,}"
    if scaling.warmup_epochs and factor > 1:
        words += f", reached after {scaling.warmup_epochs:g} epoch{'' if scaling.warmup_epochs == 1 else 's'}"
    return words


def rate_words(rate: LearningRate) -> str:
    """The learning rate: `0.1`, or scaled `0.1 → 0.4`; "" if it is not known."""
    if rate.requested is None:
        return ""
    if rate.scaled is None or rate.scaled == rate.requested:
        return f"{rate.requested:g}"
    return f"{rate.requested:g} → {rate.scaled:g}"


@dataclass(frozen=True)
class ExperimentSummary:
    """The parts of an experiment, each as short text; "" for a part that the config does not set."""

    model_and_data: str
    strategy: str
    batch: str
    optimizer: str
    budget: str
    remark: str = ""
    """The cell's own remark; not part of the line."""

    def parts(self) -> list[str]:
        return [part for part in (self.model_and_data, self.strategy, self.batch, self.optimizer, self.budget) if part]


def summary(experiment: Experiment, remark: str = "") -> ExperimentSummary:
    """The parts of an experiment's line; it may have errors, parts that cannot be read are left out."""
    strategy, batch = experiment.strategy, experiment.batch
    return ExperimentSummary(
        model_and_data=" on ".join(one.last_name for one in (experiment.model, experiment.data) if one.last_name),
        strategy=strategy_words(strategy.name, strategy.words, strategy.workers, strategy.is_simulated),
        batch=_batch_words(batch.per_worker, batch.together, strategy.workers),
        optimizer=_optimizer_words(experiment),
        budget=_budget_words(experiment),
        remark=remark,
    )


def _batch_words(per_worker: int | None, together: int | None, workers: int) -> str:
    if per_worker is None:
        return ""
    return f"batch {per_worker}" if workers == 1 else f"batch {per_worker} per worker, {together} global"


def _optimizer_words(experiment: Experiment) -> str:
    rate = rate_words(experiment.rate)
    name = experiment.optimizer.last_name or "its own optimizer"
    words = [name, rate and f"lr {rate}", experiment.lr_scheduler.last_name]
    return ", ".join(word for word in words if word)


def _budget_words(experiment: Experiment) -> str:
    if not any(key in classes.mapping(experiment.written.get("trainer")) for key in form.BUDGET_KEYS.values()):
        return ""
    budget = form.ConfigDraft(dict(experiment.written)).budget()
    if not isinstance(budget.value, int | float):
        return ""
    if budget.kind == "time":
        return duration(budget.value * 60)
    return plural(int(budget.value), {"epochs": "epoch", "updates": "update"}[budget.kind])


def interval(mean: float | None, half: float | None) -> str:
    """`2.103 ± 0.012`, `38 ± 36`: both to the second digit of the interval. The plain figure without an interval (one
    seed), or if all seeds agree."""
    if mean is None:
        return ""
    if half is None or not (math.isfinite(mean) and math.isfinite(half)):
        return figure(mean)
    if half == 0:
        return f"{mean:,.0f}" if mean.is_integer() and abs(mean) < 10**LONG else figure(mean)
    places = max(0, 1 - math.floor(math.log10(half)))
    if places > MOST_PLACES or max(abs(mean), half) >= 10**LONG:
        return f"{figure(mean)} ± {figure(half, 2)}"
    return f"{mean:,.{places}f} ± {half:,.{places}f}"
