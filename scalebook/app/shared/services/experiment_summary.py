"""An experiment in one line."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from scalebook.app.shared.services import form
from scalebook.app.shared.services.rates import rate_words
from scalebook.app.shared.services.words import figure, plural
from scalebook.training.config.classes import mapping, named
from scalebook.training.config.description import Description
from scalebook.training.config.workload import strategy_words, workload
from scalebook.training.durations import duration


@dataclass(frozen=True)
class ExperimentSummary:
    """The parts of an experiment in a few words each; "" where the config says nothing of one."""

    model_and_data: str
    strategy: str
    batch: str
    optimizer: str
    budget: str
    remark: str = ""
    """What the cell says of itself; no part of the line."""

    def parts(self) -> list[str]:
        return [part for part in (self.model_and_data, self.strategy, self.batch, self.optimizer, self.budget) if part]


def summary(config: Mapping[str, Any], description: Description, remark: str = "") -> ExperimentSummary:
    """The parts for a config that may have errors: what cannot be read is left out."""
    load = workload(config, description)
    model, data = _short(config.get("model")), _short(config.get("data"))
    return ExperimentSummary(
        model_and_data=" on ".join(part for part in (model, data) if part),
        strategy=strategy_words(load.strategy, load.rule, load.workers, load.is_simulated),
        batch=_batch(load.batch_per_worker, load.batch_global, load.workers),
        optimizer=_optimizer(config, description, rate_words(load)),
        budget=_budget(config),
        remark=remark,
    )


def _short(value: Any) -> str:
    return (named(value).name or "").rsplit(".", 1)[-1]


def _batch(per_worker: int | None, together: int | None, workers: int) -> str:
    if per_worker is None:
        return ""
    return f"batch {per_worker}" if workers == 1 else f"batch {per_worker} per worker, {together} global"


def _optimizer(config: Mapping[str, Any], description: Description, rate: str) -> str:
    model = form.chosen(config, "model", "models", description)
    name = "its own optimizer" if model and model.own_optimizer else _short(config.get("optimizer"))
    name = name or _short(description.default_optimizer)
    schedule = _short(config.get("lr_scheduler"))
    words = [name, rate and f"lr {rate}", schedule]
    return ", ".join(word for word in words if word)


def _budget(config: Mapping[str, Any]) -> str:
    if not any(key in mapping(config.get("trainer")) for key in form.BUDGET_KEYS.values()):
        return ""
    budget = form.budget_of(config)
    if not isinstance(budget.value, int | float):
        return ""
    if budget.kind == "time":
        return duration(budget.value * 60)
    return plural(int(budget.value), {"epochs": "epoch", "updates": "update"}[budget.kind])


def interval(mean: float | None, half: float | None) -> str:
    """`2.103 ± 0.012`, the plain figure where there is no interval (one seed)."""
    if mean is None:
        return ""
    return figure(mean) if half is None else f"{figure(mean)} ± {figure(half, 2)}"
