"""The config of a test, made from that of an experiment: the same training, cut to a few updates."""

import copy
from collections.abc import Mapping, Sequence
from typing import Any, Final

from scalebook.training.base import ConfigError, Workspace, trust
from scalebook.training.base.files import HELP, CommandParser
from scalebook.training.experiments import (
    CommandLine,
    Description,
    Experiment,
    catalogue,
    classes,
    command_line,
    require,
)

TRAINER: Final[dict[str, Any]] = {
    "max_epochs": -1,
    "limit_val_batches": 0,
    "num_sanity_val_steps": 0,
    "enable_checkpointing": False,
    "enable_model_summary": False,
    "enable_progress_bar": False,
}
BUDGETS: Final = ("min_epochs", "min_steps", "max_time", "fast_dev_run", "overfit_batches")
MEANT_FOR_WHOLE_RUNS: Final = ("lr_scheduler", "lr_scaling", "noise_scale", "ckpt_path")


def prepared(
    argv: Sequence[str], parser: CommandParser, queued: bool = True
) -> tuple[Workspace, Description, CommandLine] | int:
    """Workspace, its description and the command line, once the folder is trusted; ConfigError for mistakes.

    Where nothing or only help is asked for, the help is printed, and the exit code comes back. `queued`: as `validate`.
    """
    workspace = Workspace.find()
    trust.resolve_trust(workspace, trust.OPTION in argv, runs=bool(argv) and not set(HELP) & set(argv))
    description = catalogue.describe(workspace)
    line = requested(argv, description, parser.takes_value(), queued)
    if line is None:
        parser.print_help()
        return 0 if argv else 2
    return workspace, description, line


def requested(
    argv: Sequence[str], description: Description, options: Mapping[str, bool], queued: bool = True
) -> CommandLine | None:
    """Config and options of a command line; None for --help, or where there is nothing. ConfigError for mistakes."""
    line = command_line.parse(argv, description, options)
    if line.options.keys() & set(HELP) or not argv:
        return None
    require(line.experiment(description), queued=queued)
    return line


def shorten_training(experiment: Experiment, updates: int, callback: Mapping[str, Any]) -> Experiment:
    """The experiment for `updates` updates, with `callback` added, and without what only whole runs need.

    No validation, no checkpoint, no schedule or scaling of the rate, epochs as many as it takes.
    """
    done = {key: copy.deepcopy(value) for key, value in experiment.written.items() if key not in MEANT_FOR_WHOLE_RUNS}
    trainer = {key: value for key, value in classes.mapping(done.get("trainer")).items() if key not in BUDGETS}
    callbacks = [dict(callback), *experiment.unsaving_callbacks]
    done["trainer"] = {**trainer, **TRAINER, "max_steps": updates, "callbacks": callbacks}
    return experiment.with_config(done)


def number(options: Mapping[str, str | None], name: str, default: float | None, least: float) -> float | None:
    """The value of an option, at least `least`; ConfigError otherwise."""
    text = options.get(name)
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError as error:
        raise ConfigError(name, f"is {text!r}, not a number", f"Use {name} NUMBER.") from error
    if not value >= least:
        raise ConfigError(name, f"is {text}", f"Use at least {least:g}.")
    return value


def whole_number(options: Mapping[str, str | None], name: str, default: int | None, least: int = 1) -> int | None:
    """The value of an option as a whole number, at least `least`; ConfigError otherwise."""
    value = number(options, name, default, least)
    if value is None:
        return None
    if value != int(value):
        raise ConfigError(name, f"is {options[name]}", "Use a whole number.")
    return int(value)
