"""`scalebook fit|validate|test|predict`: a config from files and overrides, checked, then run in the foreground.

Torch is imported only when the config is right, so that a mistake is said within half a second.
"""

import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.files import yaml
from scalebook.training.base.files.terminal import give, untouched
from scalebook.training.base.modules import import_modules
from scalebook.training.base.node_rank import NodeRank
from scalebook.training.base.safe_path import importing
from scalebook.training.base.trust import OPTION, resolve_trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments import catalogue, sparse_tables
from scalebook.training.experiments.command_line import merge, parse, read
from scalebook.training.experiments.completion import complete
from scalebook.training.experiments.description import GROUPS, Description
from scalebook.training.experiments.num_nodes import place_of
from scalebook.training.experiments.renamed import renewed
from scalebook.training.experiments.validate import validate
from scalebook.training.experiments.workload import workload
from scalebook.training.jobs.gpus import VISIBLE, gpus_here
from scalebook.training.jobs.job_folder import JobFolder
from scalebook.training.jobs.job_requests import checkpoint_file, find, submit
from scalebook.training.jobs.recorded_clock import read_recorded

OPTIONS: Final = {
    "fit": {"--help": False, "-h": False, "--print_config": False, OPTION: False},
    "validate": {"--help": False, "-h": False, "--run": True, OPTION: False},
}
HELP: Final = """usage: scalebook {command} -c FILE [-c FILE ...] [--KEY VALUE ...]

Keys are those of a LightningCLI config, such as --trainer.max_epochs 3, --model PixelCNN, --model.features 32,
--data.batch_size 64, --optimizer.lr 0.01. Later ones win. {more}
Models: {models}. Data: {data}. Strategies: {strategies}.
`scalebook describe NAME` tells what a class takes. --trust has the folder's own modules imported, from now on."""
MORE: Final = {
    "fit": "--print_config shows the whole config and runs nothing.",
    "validate": "--run ID takes config and checkpoint of a recorded run, --ckpt_path FILE names another checkpoint.",
}


def main(argv: Sequence[str]) -> int:
    """`fit`, `validate`, `test` or `predict`, then files and overrides. ConfigError before anything is started."""
    command = argv[0]
    kind = "fit" if command == "fit" else "validate"
    workspace = Workspace.find()
    idle = len(argv) == 1 or {"--help", "-h", "--print_config"} & set(argv)
    resolve_trust(workspace, OPTION in argv, runs=not idle)
    description = catalogue.describe(workspace)
    line = parse(argv[1:], description, OPTIONS[kind])
    if line.options.keys() & {"--help", "-h"} or len(argv) == 1:
        listed = {group: ", ".join(info.name for info in getattr(description, group)) for group in GROUPS}
        print(HELP.format(command=command, more=MORE[kind], **listed))
        return 0 if len(argv) > 1 else 2
    if (run_id := line.options.get("--run")) is not None:
        line.config = _of_run(find(workspace, run_id), line.config, description)
    line.config, older = renewed(line.config)
    problems = validate(line.config, description, typed=True)
    is_right = all(problem.severity != "error" for problem in problems)
    if command == "fit" and is_right and sparse_tables.inspect_model(line.config, description):
        problems = validate(line.config, description, typed=True)
    for problem in [*older, *problems]:
        if problem.severity == "error":
            raise ConfigError(problem.key, problem.message, problem.remedy)
        print(f"scalebook: warning: {problem}", file=sys.stderr)
    config = complete(line.config, description)
    if "--print_config" in line.options:
        give(yaml.dump(config))
        return 0
    place = place_of(config, os.environ, description) if command == "fit" else None
    with untouched():
        import_modules(workspace)
        if command != "fit":
            return _evaluate(command, config)
        return _fit(workspace, line.config, config, description, place)


def _fit(
    workspace: Workspace,
    written: dict[str, Any],
    config: dict[str, Any],
    description: Description,
    place: NodeRank | None,
) -> int:
    """Here and now, recorded as a job like those of the browser. On several machines by the first one alone."""
    with importing():
        from scalebook.training.cli.lightning_cli import TrainingCLI, quieten
        from scalebook.training.cli.runner import run_job, take_part

    quieten()
    TrainingCLI("fit", read_recorded(config, partial(find, workspace)), None, run=False)
    if place is not None and place.index > 0:
        if config.get("ckpt_path") is not None:
            config["ckpt_path"] = checkpoint_file(config["ckpt_path"], Path.cwd())
        return take_part(workspace.create(), config, workload(config, description).processes)
    (job,) = submit(workspace, written, seeds=[config["seed_everything"]], description=description, inline=True)
    started = job.started()
    if place is None and started is not None and started.gpus:
        _take(started.gpus)
    return run_job(job.path)


def _take(gpus: Sequence[str]) -> None:
    """Let CUDA, which has not been used, see those alone that the queue now lends to nobody else."""
    for note in gpus_here().notes:
        print(f"scalebook: warning: {note}", file=sys.stderr)
    os.environ[VISIBLE] = ",".join(gpus)


def _evaluate(command: str, config: dict[str, Any]) -> int:
    """In one process, whatever the run had: several would count some samples twice. Lightning prints the metrics."""
    if not config.get("ckpt_path"):
        raise ConfigError("ckpt_path", "is missing", "Name a run with --run ID, or a file with --ckpt_path FILE.")
    config["ckpt_path"] = checkpoint_file(config["ckpt_path"], Path.cwd())
    from lightning.fabric.utilities.exceptions import MisconfigurationException

    from scalebook.training.cli.lightning_cli import TrainingCLI, quieten

    config["trainer"] = {**config["trainer"], "strategy": "auto", "devices": 1, "num_nodes": 1}
    quieten()
    try:
        TrainingCLI(command, config, None)
    except MisconfigurationException as error:
        raise ConfigError(command, str(error), "Use another command, or a model and data that support it.") from error
    return 0


def _of_run(job: JobFolder, overrides: dict[str, Any], description: Description) -> dict[str, Any]:
    """Config and newest checkpoint of a recorded run, under what the command line says."""
    config = {**read(job.config), "ckpt_path": str(job.path / "checkpoints" / "last.ckpt")}
    return merge(config, overrides, description)
