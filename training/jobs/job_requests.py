"""Submitting, finding, stopping and resuming jobs. Importing this loads neither torch nor MLflow."""

import os
import shutil
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from scalebook.training.base import ConfigError, Workspace, trust
from scalebook.training.base.files import BrokenRecord, disk_errors, records, refusals_told, yaml
from scalebook.training.experiments import (
    DDPSettings,
    Description,
    Experiment,
    config_hash,
    quoted_value,
    require,
    staying,
)
from scalebook.training.jobs.begin_request import OF, PARTS
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.executor import configured_executor
from scalebook.training.jobs.gpu_checks import computes_on_gpus, gpu_problems
from scalebook.training.jobs.job_environment import keep_environment
from scalebook.training.jobs.job_folder import ENDED, STOPPED, JobFolder, JobRequest, JobStart, Result, TrialOf
from scalebook.training.jobs.recorded_clock import read_recorded
from scalebook.training.jobs.supervisor_handle import ensure
from scalebook.training.tracking import names, run_start

CHECKPOINT_WORDS: Final = ("best", "last", "hpc")
"""Values of `ckpt_path` that Lightning resolves itself."""

COMMAND_LINE: Final = "command line"
"""The MLflow experiment of runs that belong to no notebook."""


def submit(
    workspace: Workspace,
    experiment: Experiment,
    *,
    seeds: Sequence[int],
    notebook: str | None = None,
    cell: str | None = None,
    priority: int = 0,
    start: bool = True,
    inline: bool = False,
    resumed_from: JobFolder | None = None,
    hashed: str = "",
    trial: TrialOf | None = None,
    recorded: Mapping[str, str] = MappingProxyType({}),
) -> list[JobFolder]:
    """Create a waiting job and a SCHEDULED MLflow run for each seed; with `start`, ensure that the supervisor runs.

    With `inline` the caller runs the jobs in this process, and no supervisor will. Raises ConfigError before anything
    is made. `notebook` is the file's name within the workspace; the MLflow experiment is called like it, without `.md`.
    `hashed`: the config hash of the cell, if the experiment is that of a run made from it. `recorded`: further tags of
    the runs.
    """
    require(experiment, typed=inline)
    completed, strategy = _completed(workspace, experiment, inline), experiment.strategy
    is_clustered = experiment.description.clustered
    executor = None if inline else configured_executor(workspace)
    machines = [this_machine()] if executor is None else executor.machines()
    for problem in gpu_problems(experiment, machines):
        raise ConfigError.of(problem)
    request = JobRequest(
        id="",
        created=0.0,
        mlflow_experiment=Path(notebook).stem if notebook else COMMAND_LINE,
        tracking_uri=workspace.tracking_uri(),
        seed=0,
        workers=strategy.processes,
        nodes=strategy.nodes,
        least=strategy.least_nodes,
        spreads=isinstance(strategy, DDPSettings) and strategy.nodes == 1 and strategy.workers > 1,
        threads=experiment.threads,
        accelerator="gpu" if computes_on_gpus(experiment, machines) else "cpu",
        devices=strategy.devices,
        gpu_share=experiment.gpu_share,
        notebook=notebook,
        cell=cell,
        config_hash=hashed or config_hash(experiment),
        priority=priority,
        strategy=strategy.name,
        resumed_from=resumed_from.id if resumed_from else None,
        name=_name(cell or _short_name(experiment), trial),
        trial=trial,
        stays={file.key: file.path for file in staying(workspace.root, completed)} if is_clustered else {},
    )
    jobs: list[JobFolder] = []
    with refusals_told(), disk_errors(workspace.hidden):
        client = run_start.open_store(workspace)
        in_mlflow = trial.experiment if trial is not None and trial.experiment else ""
        in_mlflow = in_mlflow or run_start.experiment_id(client, workspace, request.mlflow_experiment, notebook)
    with refusals_told(), disk_errors(workspace.hidden), run_start.submission(workspace) as tags:
        tags |= {**run_start.surroundings(workspace.root), **_tags(request, experiment), **recorded}
        for seed in seeds:
            name, seeded = f"{request.name} seed {seed}", {**completed, "seed_everything": seed}
            run_id = run_start.create_run(
                client,
                in_mlflow,
                _name_in_mlflow(request, seed),
                {**tags, names.TAG_SEED: str(seed)},
                {**seeded, **experiment.params()},
            )
            seeded_request = replace(request, id=run_id, created=time.time(), seed=seed, name=name)
            jobs.append(_write(workspace, seeded_request, yaml.dump(seeded), inline))
    if executor is not None and request.stays:
        executor.need(request.stays.values())
    if start and not inline:
        ensure(workspace)
    return jobs


def _completed(workspace: Workspace, experiment: Experiment, inline: bool) -> dict[str, Any]:
    """With all that a run needs, and the file of a checkpoint that is named in other ways."""
    completed = read_recorded(experiment.to_run(), partial(find, workspace))
    if completed.get("ckpt_path") is not None:
        completed["ckpt_path"] = checkpoint_file(completed["ckpt_path"], Path.cwd() if inline else workspace.root)
    return completed


def all_jobs(workspace: Workspace) -> list[JobFolder]:
    """Every job of the workspace whose request can be read, the newest first."""
    return _newest_first(_folders(workspace))


def open_jobs(workspace: Workspace) -> list[JobFolder]:
    """Those of `all_jobs` that have no result. It reads nothing of the others, which may be thousands."""
    jobs, result = workspace.jobs, JobFolder.FILES[Result]
    there = str(jobs)
    return _newest_first(
        JobFolder(jobs / name) for name in _names(workspace) if not os.path.exists(f"{there}/{name}/{result}")
    )


def _newest_first(jobs: Iterable[JobFolder]) -> list[JobFolder]:
    dated = []
    for job in jobs:
        try:
            dated.append((job.request().created, job.id, job))
        except (FileNotFoundError, BrokenRecord):
            continue  # deleted meanwhile; or `broken_jobs` has it
    return [job for _, _, job in sorted(dated, key=lambda entry: entry[:2], reverse=True)]


def broken_jobs(workspace: Workspace) -> list[BrokenRecord]:
    """Every record of a job that cannot be read. A process reads a job again when its records have changed."""
    jobs = workspace.jobs
    return [error for name, stamp in stamps(workspace).items() for error in _broken(jobs / name, stamp)]


@lru_cache(maxsize=16_384)
def _broken(path: Path, stamp: str) -> Sequence[BrokenRecord]:
    return JobFolder(path).broken()


_STAMPED = ("", *(f"/{JobFolder.FILES[kind]}" for kind in (JobRequest, JobStart, Result)))


def stamps(workspace: Workspace) -> dict[str, str]:
    """By job id, a text that changes whenever a record of the job is written (records are replaced, which changes their
    folder), and also when somebody edits its request, start or result in place."""
    jobs = str(workspace.jobs)
    return {name: " ".join([_stamp(f"{jobs}/{name}{file}") for file in _STAMPED]) for name in _names(workspace)}


def _stamp(path: str) -> str:
    try:
        facts = os.lstat(path)
    except OSError:
        return ""
    return f"{facts.st_mtime_ns}-{facts.st_size}"


def _folders(workspace: Workspace) -> list[JobFolder]:
    jobs = workspace.jobs
    return [JobFolder(jobs / name) for name in _names(workspace)]


def _names(workspace: Workspace) -> list[str]:
    if not workspace.jobs.is_dir():
        return []
    with os.scandir(workspace.jobs) as entries:
        return [
            entry.name for entry in entries
            if not entry.name.startswith(".") and (not entry.is_symlink() or trust.within(workspace, Path(entry.path)))
        ]  # fmt: skip


def folder_of(workspace: Workspace, run_id: str) -> JobFolder | None:
    """The job with this id; None if there is none, or if the id, which may come from a stranger's store, leads out of
    the folder of jobs."""
    path = workspace.jobs / run_id
    if path.name != run_id or run_id.startswith(".") or not path.is_dir():
        return None
    return JobFolder(path) if not path.is_symlink() or trust.within(workspace, path) else None


def find(workspace: Workspace, id_prefix: str) -> JobFolder:
    """The job whose id begins with `id_prefix`; ConfigError if there is none, or more than one."""
    names_found = sorted(name for name in _names(workspace) if name.startswith(id_prefix))
    if len(names_found) == 1:
        return JobFolder(workspace.jobs / names_found[0])
    if names_found:
        matches = ", ".join(name[:12] for name in names_found[:3])
        raise ConfigError(id_prefix, f"matches {len(names_found)} jobs ({matches})", "Enter more characters.")
    raise ConfigError(id_prefix, f"is not a job of {workspace.root}", "`scalebook jobs list` shows all jobs.")


def stop(job: JobFolder, how: str = "") -> None:
    """Stop a job: a waiting one before its start, a running one at its next update, or by force if it does not react.
    An ended job stays as it is. `how` a person has asked, such as "by Ctrl+C", becomes part of the recorded cause."""
    if job.state() in ENDED:
        return
    job.ask_to_stop(f"{STOPPED} {how}".strip())
    ensure(Workspace(job.path.parent.parent.parent))


def resume(workspace: Workspace, job: JobFolder, description: Description) -> JobFolder:
    """Submit a new job that resumes from the newest checkpoint of an ended one; ConfigError if that is not possible."""
    if job.state() not in ENDED:
        raise ConfigError(job.id[:12], f"is {job.state()}", "Only a job that has ended can be resumed.")
    checkpoint = job.newest_checkpoint()
    if checkpoint is None:
        raise ConfigError(job.id[:12], "left no checkpoint", "Run the job's experiment again instead.")
    config = {**job.content(), "ckpt_path": str(checkpoint)}
    return _once_more(workspace, job, Experiment(config, description), resumed_from=job)


def again(workspace: Workspace, job: JobFolder, description: Description) -> JobFolder:
    """Submit a new job with the config and the seed of an ended one, from the start. ConfigError if it has not ended.

    For a resumed run, the new one starts where its experiment starts.
    """
    if job.state() not in ENDED:
        raise ConfigError(job.id[:12], f"is {job.state()}", "Only a job that has ended can be run again.")
    config = job.content()
    if job.request().resumed_from is not None:
        config.pop("ckpt_path", None)
    return _once_more(workspace, job, Experiment(config, description))


def _once_more(
    workspace: Workspace,
    job: JobFolder,
    experiment: Experiment,
    resumed_from: JobFolder | None = None,
) -> JobFolder:
    request = job.request()
    return submit(
        workspace,
        experiment,
        seeds=[request.seed],
        notebook=_notebook_now(workspace, job),
        cell=request.cell,
        priority=request.priority,
        resumed_from=resumed_from,
        hashed=request.config_hash,
    )[0]


def _notebook_now(workspace: Workspace, job: JobFolder) -> str | None:
    """The file of its notebook by the name that it has now: a renamed one is followed in MLflow only."""
    from mlflow.exceptions import MlflowException

    try:
        tags: dict[str, str] = run_start.open_store(workspace).get_run(job.id).data.tags
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
        return job.request().notebook
    return tags.get(names.TAG_NOTEBOOK, job.request().notebook)


def delete(workspace: Workspace, job: JobFolder) -> None:
    """Remove an ended job's folder, and its MLflow run (which MLflow keeps among its deleted ones)."""
    from mlflow.exceptions import MlflowException

    started = job.started()
    if (job.state() not in ENDED and not _held(workspace, job)) or (started is not None and started.alive()):
        raise ConfigError(job.id[:12], f"is {job.state()}", "Stop it first.")
    try:
        run_start.open_store(workspace).delete_run(job.id)
    except MlflowException as error:
        if error.error_code != "RESOURCE_DOES_NOT_EXIST":
            raise
    for part in workspace.hidden.glob(f"{PARTS}/{job.id}{OF}*"):
        shutil.rmtree(part)
    shutil.rmtree(job.path)


def _held(workspace: Workspace, job: JobFolder) -> bool:
    """Whether it waits for the folder to be trusted."""
    return job.state() == "waiting" and not trust.may_run(workspace, job.path, trust.JOB)


def _write(workspace: Workspace, request: JobRequest, config: str, inline: bool) -> JobFolder:
    """The folder is filled under another name, so that it appears whole."""
    beside = JobFolder(workspace.jobs / f".{request.id}")
    try:
        beside.path.mkdir()
        records.put(beside.config, config.encode(), durable=True)
        beside.write(request)
        trust.sign(beside.path, request.id, trust.JOB)
        if not inline:
            keep_environment(beside.path, request.id)
        with _in_foreground(workspace, request) if inline else nullcontext() as started:
            if started is not None:
                beside.write(started)
            job = JobFolder(beside.path.rename(workspace.jobs / request.id))
    except BaseException:
        shutil.rmtree(beside.path, ignore_errors=True)
        raise
    records.sync_folder(workspace.jobs)
    return job


def _in_foreground(workspace: Workspace, request: JobRequest) -> AbstractContextManager[JobStart]:
    """What other runs hold concerns a run that waits for nobody; whoever submits to the queue loads nothing of it."""
    from scalebook.training.jobs.gpu_allocation import in_foreground

    return in_foreground(workspace, request)


def checkpoint_file(word: str, folder: Path) -> str:
    """The file that `ckpt_path` names, relative to `folder`; ConfigError if it does not exist."""
    if word in CHECKPOINT_WORDS:
        return word
    path = folder / word
    try:
        there = path.is_file()
    except OSError:  # a name too long for a file
        there = False
    if not there:
        raise ConfigError(
            "ckpt_path", f"is {quoted_value(word)}, which does not exist", "Use the path of a .ckpt file."
        )
    return str(path)


def _name(name: str, trial: TrialOf | None) -> str:
    return name if trial is None else f"{name} trial {trial.number}"


def _name_in_mlflow(request: JobRequest, seed: int) -> str:
    """`seed 2: two-with-ddp`: MLflow's pages cut names after some 20 characters, so what differs comes first."""
    trial = f"trial {request.trial.number}, " if request.trial else ""
    return f"{trial}seed {seed}: {request.cell or request.name}"


def _short_name(experiment: Experiment) -> str:
    return f"{experiment.model.last_name} {experiment.strategy.name} × {experiment.strategy.workers}"


def _tags(request: JobRequest, experiment: Experiment) -> dict[str, str]:
    """What is known of all runs before they start; what does not apply is left out."""
    tags: dict[str, Any] = {
        names.TAG_NOTEBOOK: request.notebook,
        names.TAG_CELL: request.cell,
        names.TAG_CONFIG_HASH: request.config_hash,
        **experiment.tags(),
        names.TAG_MODEL: experiment.model.name,
        names.TAG_DATA: experiment.data.name,
        **(_trial_tags(request.trial) if request.trial else {}),
    }
    return {key: str(value) for key, value in tags.items() if value is not None}


def _trial_tags(trial: TrialOf) -> dict[str, Any]:
    return {names.TAG_PARENT: trial.search, names.TAG_TRIAL: trial.number, names.TAG_POINT: trial.point}
