"""`scalebook fit|validate|test|predict`: a config from files and overrides, checked, then run in the foreground.

Torch is imported only after the config is checked, so that a mistake is reported within half a second.
"""

import os
import sys
import warnings
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final

from scalebook.training.base import ConfigError, NodeRank, Workspace, import_modules, node_rank, safe_path, trust
from scalebook.training.base.files import HELP, CommandParser, terminal, yaml
from scalebook.training.experiments import (
    GROUPS,
    Description,
    Experiment,
    SingleProcess,
    catalogue,
    classes,
    command_line,
    inspect_model,
    quoted_value,
    validate,
)
from scalebook.training.jobs import VISIBLE, JobFolder, gpus_here, job_requests, read_recorded

RUN: Final = "--run"
ABOUT: Final = {
    "fit": "Run one experiment in the foreground and record it.",
    "validate": "Validate the model of a checkpoint and print the metrics.",
    "test": "Run the model of a checkpoint over the test data and print the metrics.",
    "predict": "Run the model of a checkpoint over the prediction data.",
}
KEYS: Final = (
    "To set keys of the config, add --KEY VALUE, for example --trainer.max_epochs 3, --model PixelCNN, "
    "--model.features 32, --data.batch_size 64, --optimizer.lr 0.01. If several configs or options set the same key, "
    "the last one wins."
)


def parser(command: str, offered: str = "") -> CommandParser:
    """The parser of one of the four commands. `offered`: the classes of the workspace, in words."""
    evaluates = command != "fit"
    parser = CommandParser(
        f"scalebook {command}",
        usage=f"scalebook {command} -c FILE [-c FILE ...] [options] [--KEY VALUE ...]",
        about="\n\n".join(part for part in (ABOUT[command], KEYS, offered) if part),
        example=f"{command} --run 3f2a9c1e" if evaluates else "fit -c x.yaml --trainer.max_epochs 3",
        page="concepts/training.md" if evaluates else "reference/config.md",
    )
    parser.add_argument(
        *command_line.CONFIG_OPTIONS,
        metavar="FILE",
        action="append",
        help="config file; if there are several, they are merged",
    )
    if evaluates:
        parser.add_argument(RUN, metavar="ID", help="use the config of this run and its newest checkpoint")
        parser.add_argument(
            "--ckpt_path", metavar="FILE", help="checkpoint to use, instead of the ckpt_path in the config"
        )
    else:
        parser.add_argument("--print_config", action="store_true", help="print the whole config and run nothing")
    parser.add_argument(trust.OPTION, action="store_true", help=trust.HELP)
    return parser


def _options(command: str) -> dict[str, bool]:
    """Those that are no keys of the config."""
    return {option: takes for option, takes in parser(command).takes_value().items() if option != "--ckpt_path"}


def main(argv: Sequence[str]) -> int:
    """Run `fit`, `validate`, `test` or `predict` with files and overrides. ConfigError before anything starts."""
    command = argv[0]
    workspace = Workspace.find()
    idle = len(argv) == 1 or {*HELP, "--print_config"} & set(argv)
    trust.resolve_trust(workspace, trust.OPTION in argv, runs=not idle)
    description = catalogue.describe(workspace)
    line = command_line.parse(argv[1:], description, _options(command))
    if line.options.keys() & set(HELP) or len(argv) == 1:
        names = {group: ", ".join(info.name for info in getattr(description, group)) for group in GROUPS}
        offered = "Models: {models}. Data: {data}. Strategies: {strategies}.".format(**names)
        parser(command, offered).print_help()
        return 0 if len(argv) > 1 else 2
    if (run_id := line.options.get(RUN)) is not None:
        line.config = _of_run(job_requests.find(workspace, run_id), line.config, description)
    experiment = line.experiment(description)
    problems = validate(experiment, typed=True)
    is_right = all(problem.severity != "error" for problem in problems)
    if command == "fit" and is_right and inspect_model(experiment):
        problems = validate(experiment, typed=True)
    for problem in problems:
        if problem.severity == "error":
            raise ConfigError.of(problem)
        print(f"scalebook: warning: {problem}", file=sys.stderr)
    if "--print_config" in line.options:
        terminal.give(yaml.dump(experiment.to_run()))
        return 0
    place = place_of(experiment, os.environ) if command == "fit" else None
    with terminal.untouched():
        import_modules(workspace)
        if command != "fit":
            return _evaluate(command, experiment.to_run())
        return _fit(workspace, experiment, place)


def place_of(experiment: Experiment, environment: Mapping[str, str]) -> NodeRank | None:
    """As `node_rank`, of an experiment that is complete and without errors."""
    strategy, trainer = experiment.strategy, experiment.trainer
    own = strategy.args.get("workers") if strategy.joins_engine else None
    number = classes.positive(own if isinstance(own, int) else trainer.get("devices"))
    rank = node_rank.node_rank(environment, classes.positive(trainer.get("num_nodes")) or 1, number)
    if rank is not None and isinstance(strategy, SingleProcess):
        written = quoted_value(trainer.get("strategy"))
        why = f"is {written}, which needs exactly one process, but {rank.by} started {rank.count}"
        raise ConfigError("trainer.strategy", why, "Use ddp or AsyncPS, or start only one process.")
    return rank


def _fit(workspace: Workspace, experiment: Experiment, place: NodeRank | None) -> int:
    """Fit in the foreground, recorded as a job like those of the browser; on several nodes the first one records it."""
    with safe_path.importing():
        from scalebook.training.cli.lightning_cli import TrainingCLI, quieten
        from scalebook.training.cli.runner import run_job, take_part

    quieten()
    config = experiment.to_run()
    TrainingCLI("fit", read_recorded(config, partial(job_requests.find, workspace)), None, run=False)
    if place is not None and place.index > 0:
        if config.get("ckpt_path") is not None:
            config["ckpt_path"] = job_requests.checkpoint_file(config["ckpt_path"], Path.cwd())
        return take_part(workspace.create(), config, experiment.strategy.processes)
    (job,) = job_requests.submit(workspace, experiment, seeds=[config["seed_everything"]], inline=True)
    started = job.started()
    if place is None and started is not None and started.gpus:
        _take(started.gpus)
    return run_job(job.path)


def _take(gpus: Sequence[str]) -> None:
    """Make only these GPUs visible to CUDA, which must be unused so far; the queue assigns them to no other run."""
    for note in gpus_here().notes:
        print(f"scalebook: warning: {note}", file=sys.stderr)
    os.environ[VISIBLE] = ",".join(gpus)


def _evaluate(command: str, config: dict[str, Any]) -> int:
    """Evaluate in one process, whatever the run had: several would count some samples twice. Lightning prints the
    metrics."""
    if not config.get("ckpt_path"):
        raise ConfigError(
            "ckpt_path", "is missing", "Add --run ID for a run's checkpoint, or --ckpt_path FILE for a file."
        )
    config["ckpt_path"] = job_requests.checkpoint_file(config["ckpt_path"], Path.cwd())
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    from scalebook.training.base import active_run
    from scalebook.training.cli.lightning_cli import TrainingCLI, quieten

    config["trainer"] = {**config["trainer"], "strategy": "auto", "devices": 1, "num_nodes": 1}
    quieten()
    warnings.filterwarnings("ignore", ".*The dirpath has changed.*")  # of a ModelCheckpoint, which saves nothing here
    try:
        with nullcontext() if os.environ.get(active_run.ADDRESS) else active_run.logging_nothing():
            TrainingCLI(command, config, None)
    except MisconfigurationException as error:
        raise ConfigError(command, str(error), "Use another command, or a model and data that support it.") from error
    return 0


def _of_run(job: JobFolder, overrides: dict[str, Any], description: Description) -> dict[str, Any]:
    """Config and newest checkpoint of a recorded run, with the overrides of the command line."""
    config = {**command_line.read(job.config), "ckpt_path": str(job.path / "checkpoints" / "last.ckpt")}
    return command_line.merge(config, overrides, description)
