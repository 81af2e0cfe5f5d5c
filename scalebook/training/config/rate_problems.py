"""What is wrong with a config's `lr_scaling`: a scaling that cannot be, or that has no effect."""

import math
from collections.abc import Mapping
from typing import Any

from scalebook.training.config.classes import mapping, suggestion
from scalebook.training.config.description import Description
from scalebook.training.config.fields import check_value, shown
from scalebook.training.config.rate_scaling import FIELDS, KEY, NO_BATCH, rate_scaling
from scalebook.training.config.workload import workload
from scalebook.training.errors import Problem


def problems(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """Errors and warnings about `lr_scaling`; none where the config has no such key."""
    settings = config.get(KEY)
    if settings is None:
        return []
    if not isinstance(settings, Mapping):
        remedy = f"Write {KEY}: {{rule: linear, per: 256, warmup_epochs: 1}}."
        return [Problem(KEY, f"is {shown(settings)}, not a mapping", remedy)]
    fields = {field.name: field for field in FIELDS}
    findings: list[Problem] = []
    for name, value in settings.items():
        if name not in fields:
            findings.append(Problem(f"{KEY}.{name}", "is not an argument", suggestion(str(name), fields)))
        elif problem := check_value(f"{KEY}.{name}", value, fields[name]):
            findings.append(problem)
        elif value == math.inf:
            findings.append(Problem(f"{KEY}.{name}", "is infinite", "Write a number of epochs."))
    return findings or _impossible(config, description)


def _impossible(config: Mapping[str, Any], description: Description) -> list[Problem]:
    """What makes a scaling that is well written impossible for this config."""
    scaling, load = rate_scaling(config), workload(config, description)
    assert scaling is not None
    if scaling.rule == "none":
        return [_idle("rule none does not change the rate")] if scaling.warmup_epochs else []
    if load.batch_averaged is None:
        if config.get("data") is None:
            return []
        return [Problem(KEY, NO_BATCH, "Remove it, or write rule: none.")]
    if not scaling.warmup_epochs:
        return []
    if scaling.factor(load.batch_averaged) <= 1:
        return [_idle(f"a batch of {load.batch_averaged:,} does not raise a learning rate per {scaling.per:,}")]
    epochs = mapping(config.get("trainer")).get("max_epochs")
    if isinstance(epochs, int) and 0 < epochs <= scaling.warmup_epochs:
        which = f"{KEY}.warmup_epochs"
        remedy = "Use fewer, or train longer."
        return [Problem(which, f"is {scaling.warmup_epochs:g}, and the run ends after {epochs}", remedy, "warning")]
    return []


def _idle(why: str) -> Problem:
    return Problem(f"{KEY}.warmup_epochs", f"has no effect: {why}", "Remove it.", "warning")
