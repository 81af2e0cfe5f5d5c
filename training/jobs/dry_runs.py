"""Dry runs: one batch of training and one of validation, in the worker processes of the config's own strategy.

Nothing of it is recorded as a run. Its result is cached by the config and the content of the user's modules, so that a
form shows it until either changes.
"""

import hashlib
import json
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final

from scalebook.training.base import ConfigError, Workspace
from scalebook.training.base.files import records
from scalebook.training.experiments import Experiment, ask_describe
from scalebook.training.jobs.job_requests import find
from scalebook.training.jobs.recorded_clock import read_recorded

DEADLINE_S: Final = 300.0
"""For the imports, the data, the start of the workers, and a batch each of training and validation."""


@dataclass(frozen=True)
class DryRunResult:
    """`problem`: why it failed, in one line; "" if it did not."""

    seconds: float = 0.0
    """From the start of the fit, without the imports before it."""
    metrics: dict[str, float] = field(default_factory=dict)
    """What the model has logged."""
    problem: str = ""
    frame: str = ""
    """The line of the user's own code that raised the error, as in a traceback."""


def result(experiment: Experiment) -> DryRunResult | None:
    """The result of this config's dry run; None before `dry_run` has ended."""
    return records.peek(kept_at(experiment), DryRunResult)


def dry_run(experiment: Experiment) -> None:
    """Train and validate one batch in a process of its own, which starts the strategy's workers, and cache the result.

    It waits for no devices: for some seconds it shares cores and GPUs with the runs that have them.
    """
    path = kept_at(experiment)
    workspace = Workspace(Path(experiment.description.folder))
    try:
        config = read_recorded(experiment.to_run(), partial(find, workspace))
    except ConfigError as error:
        records.save(path, DryRunResult(problem=str(error)))
        return
    answer = ask_describe(path, "--dry-run", config, DryRunResult, DEADLINE_S, "one batch")
    records.save(path, DryRunResult(problem=answer) if isinstance(answer, str) else answer)


def kept_at(experiment: Experiment) -> Path:
    """The cache file of the result."""
    description = experiment.description
    config = json.dumps(experiment.completed, sort_keys=True, default=str)
    text = f"{description.content} {description.trusted} {config}"
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    return Workspace(Path(description.folder)).cache / f"dry-run-{digest}.json"
