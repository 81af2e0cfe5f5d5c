"""The main function of a job's process: run the folder's config, and record in every case how it ended."""

import os
import shutil
import signal
import sys
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from lightning.pytorch import Trainer
from lightning.pytorch.utilities.exceptions import SIGTERMException

from scalebook.training.base import (
    ConfigError,
    Diverged,
    FailureClass,
    Workspace,
    active_run,
    code_changes,
    failures,
    import_modules,
    memory_limit,
    trust,
)
from scalebook.training.base.files import EXIT_NO_ROOM, BrokenRecord, is_full, records, yaml
from scalebook.training.callbacks import left_by_lost
from scalebook.training.cli.blame import blamed
from scalebook.training.cli.lightning_cli import TrainingCLI, quieten
from scalebook.training.cli.tee import copied_to
from scalebook.training.experiments import Confinement, classes
from scalebook.training.jobs import (
    MLFLOW_STATUS,
    STOPPED,
    THREADS,
    JobFolder,
    JobRequest,
    JobStart,
    LocalHandle,
    Result,
    StopRequest,
    SystemMetrics,
    machine_words,
    parts_of,
    this_machine,
)
from scalebook.training.lightning import EndedEarly, WorkerTraceback
from scalebook.training.tracking import SPOOL, names, require_known, run_start

if TYPE_CHECKING:
    from mlflow import MlflowClient

    from scalebook.training.tracking import Spool

PARTS: Final = "parts"
"""Folder, within the hidden one, of parts of runs that another node records."""
EXIT_FAILED: Final = 1
EXIT_CONFIGURATION: Final = 2
TERMINATED: Final = 128 + signal.SIGTERM
WRITE_S: Final = 5.0
POINTS_A_CALL: Final = 1000


def run_job(folder: Path) -> int:
    """Run the job in `folder`; exit code 0 finished or stopped on request, 1 failed, 2 for an invalid config.

    Runs in its own process, or in the foreground for `scalebook fit`, where the output is also copied to the log.
    Whatever happens, it reports the end to MLflow, then writes `result.json`. Must be called in the main thread, in a
    process that has not used CUDA.
    """
    job = JobFolder(folder)
    inline = _inline(job)
    with copied_to(job.log) if inline else nullcontext():
        if inline:
            print(f"scalebook: run {job.id}", flush=True)
        result, code = _outcome(job)
        recorded = _tell_mlflow(job, result)
        written = _write(job, result, recorded)
        _say(result)
    return code if written else EXIT_NO_ROOM


def prepare(folder: Path | None) -> None:
    """Do once, in a process that forks jobs, what each job would otherwise do itself: 0.1 s and more of a trial.

    Touches no user code, computes nothing, starts no thread and leaves no connection open. `folder`: that of a job for
    a fork, None if its records are on another node.
    """
    TrainingCLI.prepare()
    if folder is not None:
        run_start.make_store(JobFolder(folder).tracking_uri())


def take_part(workspace: Workspace, config: Mapping[str, Any], workers: int) -> int:
    """Train this node's part of a run that another node records; exit codes as from `run_job`.

    The run writes its records into a temporary folder, which is removed at the end.
    """
    folder = workspace.hidden / PARTS / uuid.uuid4().hex
    folder.mkdir(parents=True, mode=0o700)
    job = JobFolder(folder)
    try:
        records.put(job.config, yaml.dump(dict(config)).encode())
        job.write(JobRequest(folder.name, time.time(), "", "", config["seed_everything"], workers))
        job.write(JobStart(LocalHandle.of_this_process(leads_session=False), time.time(), inline=True))
        result, code = _outcome(job)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    _say(result)
    return code


def _say(result: Result) -> None:
    if result.status == "failed":
        print(f"scalebook: failed ({result.failure}): {result.cause}\n{result.advice}", file=sys.stderr, flush=True)
    else:
        print(f"scalebook: {result.cause or result.status}", flush=True)
    if result.lost:
        print(f"scalebook: {result.lost}", flush=True)


def _outcome(job: JobFolder) -> tuple[Result, int]:
    left = ""
    try:
        with _sigterm_asks_to_stop(job):
            left = left_by_lost(job, _train(job))
    except BaseException as error:  # noqa: BLE001 - the end of the job, whatever it is, is recorded
        result, code = _explained(job, error)
    else:
        # a stop that came after the last sample has changed nothing
        cut = job.cut.exists()
        result, code = _stopped(job, job.stop_request()) if cut else (Result("finished", time.time()), 0)
    return replace(result, lost=job.lost_words(left)), code


def _explained(job: JobFolder, error: BaseException) -> tuple[Result, int]:
    failure, request = failures.classify(error), job.stop_request()
    by_key = any(
        isinstance(link, KeyboardInterrupt) for link in failures.chain(error)
    )  # Lightning makes a SystemExit of it
    terminated = isinstance(error, SIGTERMException) or (isinstance(error, SystemExit) and error.code == TERMINATED)
    interrupted = by_key or terminated or (request is not None and isinstance(error, SystemExit))
    if interrupted and failure.failure_class is not FailureClass.DISK_FULL:
        return _stopped(job, request, "by Ctrl+C" if by_key else "by SIGTERM to the run")
    if not _says_all(error):
        traceback.print_exception(error)
    config = _readable(job)
    failure = blamed(failure, error, Workspace(job.path.parent.parent.parent), config.get("model"), config.get("data"))
    code = EXIT_CONFIGURATION if failure.failure_class is FailureClass.CONFIGURATION else EXIT_FAILED
    cause, worker, frame = failure.cause, failure.worker, failure.frame
    diverged = next((link for link in failures.chain(error) if isinstance(link, Diverged)), None)
    if failure.failure_class is FailureClass.DIVERGED and diverged is not None and (progress := job.progress()):
        cause = diverged.words(progress.updates)  # how many it has made until its end is said by its progress alone
    advice = job.advice(failure.failure_class, failure.advice)
    return Result("failed", time.time(), failure.failure_class.value, cause, advice, worker, frame), code


def _says_all(error: BaseException) -> bool:
    """Whether this is our own word on the config, which follows from no other error: its traceback says nothing."""
    return all(isinstance(link, ConfigError | WorkerTraceback | EndedEarly) for link in failures.chain(error))


def _stopped(job: JobFolder, request: StopRequest | None, how: str = "") -> tuple[Result, int]:
    """The result of a run that has ended because of `request`, or, without one, `how`."""
    if request is None:
        return Result("stopped", time.time(), cause=f"{STOPPED} {how}".strip()), 0
    if request.failure is None:
        return Result("stopped", time.time(), cause=request.why), 0
    failure = FailureClass(request.failure)
    return Result("failed", time.time(), failure.value, request.why, job.advice(failure)), EXIT_FAILED


def _readable(job: JobFolder) -> dict[str, Any]:
    """The config; empty if it cannot be read."""
    try:
        return job.content()
    except BrokenRecord:
        return {}


def _train(job: JobFolder) -> Trainer:
    quieten()
    if SPOOL not in os.environ:
        require_known(job.tracking_uri())
    workspace = Workspace(job.path.parent.parent.parent)
    _, problems = import_modules(workspace)
    for problem in problems:
        print(f"scalebook: warning: {problem}", file=sys.stderr)
    config = job.content()
    trainer = over_nodes(classes.mapping(config.get("trainer")), _machines(job))
    if gpus := _fewer_gpus(job, trainer.get("devices", 1)):
        trainer = on_gpus(trainer, gpus)
    config["trainer"] = trainer
    if not trust.trusted(workspace):
        Confinement(config).confine(workspace.root, typed=_inline(job))
    _set_threads(config.get("threads", 1))
    modules = _kept_modules(job, code_changes.used(workspace, config))
    request = job.request()
    recorded_here = bool(request.tracking_uri) and not request.part and SPOOL not in os.environ
    with memory_limit(_memory_mb(job)), active_run.logging_to(job.tracking_uri(), job.id, here=recorded_here):
        return TrainingCLI("fit", config, job, modules=modules).trainer


def _set_threads(threads: int) -> None:
    """Without OMP_NUM_THREADS Lightning sets threads by the cores that it sees."""
    for name in THREADS:
        if (theirs := os.environ.get(name, str(threads))) != str(threads):
            print(f"scalebook: {name}={theirs} has no effect, because `threads` in the config is {threads}", flush=True)
            os.environ[name] = str(threads)
    os.environ["OMP_NUM_THREADS"] = str(threads)


def _kept_modules(job: JobFolder, modules: code_changes.OwnModules) -> str:
    """Copy the user's own modules, as imported now, into the job's folder; returns the record of them."""
    for file in modules.files:
        copy = job.path / names.MODULES / file.name
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_bytes(file.content)
    if modules.left_out:
        print(
            f"scalebook: warning: {modules.left_out} module files were not archived, because they are too many or "
            "too large"
        )
    return modules.record()


def _machines(job: JobFolder) -> int:
    """On which the queue has it run, more than its config says where it was spread; 0 where that says it."""
    request = job.request()
    if request.part or request.nodes > 1:
        return request.nodes
    others = len(parts_of(job, job.started()))
    return 1 + others if others else 0


def _fewer_gpus(job: JobFolder, devices: Any) -> int:
    """How many GPUs were assigned, if they are not as many as `devices`, the config's, and workers share them; else 0,
    because all nodes must have the same config."""
    request, started = job.request(), job.started()
    gpus = min(request.gpus, len(started.gpus)) if started is not None else 0
    return gpus if gpus != devices and request.strategy in classes.ENGINE_STRATEGIES else 0


def over_nodes(trainer: Mapping[str, Any], nodes: int) -> dict[str, Any]:
    """The Trainer's settings for the same run of DDP on `nodes` nodes, with an equal part of its workers on each;
    unchanged if `nodes` is 0, or the settings have nodes."""
    if nodes in (0, classes.positive(trainer.get("num_nodes")) or 1):
        return dict(trainer)
    return {**trainer, "devices": trainer["devices"] // nodes, "num_nodes": nodes}


def on_gpus(trainer: Mapping[str, Any], gpus: int) -> dict[str, Any]:
    """The Trainer's settings for the same run of AsyncPS or Peers, whose workers share `gpus` GPUs."""
    strategy = trainer["strategy"]  # with its arguments, as every config that was completed
    args = dict(strategy.get("init_args") or {})
    if not isinstance(args.get("workers"), Mapping):  # of a range there is one for each GPU
        args["workers"] = args.get("workers") or trainer.get("devices", 1)
    return {**trainer, "devices": gpus, "strategy": {**strategy, "init_args": args}}


def _inline(job: JobFolder) -> bool:
    """Whether `scalebook fit` runs the job in the foreground."""
    started = job.started()
    return started is not None and started.inline


def _memory_mb(job: JobFolder) -> int | None:
    """The memory limit of each process of a trial; None on a GPU, whose own memory is the limit."""
    request = job.request()
    return request.trial.memory_mb if request.trial is not None and request.accelerator == "cpu" else None


def _write(job: JobFolder, result: Result, recorded: bool) -> bool:
    """Write the result, and the file `unrecorded` if MLflow does not have it; retry for WRITE_S while the disk is full.

    False if that failed: the supervisor then writes what it knows, once there is space.
    """
    deadline = time.monotonic() + WRITE_S
    while True:
        try:
            if not recorded:
                job.unrecorded.touch()
            job.write(result)
        except OSError as error:
            if not is_full(error):
                raise
            if time.monotonic() > deadline:
                traceback.print_exc()
                return False
            time.sleep(0.2)
        else:
            return True


def _tell_mlflow(job: JobFolder, result: Result) -> bool:
    """Send artifacts, tags and status to MLflow; False on a failure, after which the supervisor does the rest."""
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        if job.request().part:
            return True  # the first machine's says it
        from mlflow.entities import RunTag

        client = run_start.client_after_fork(job.tracking_uri())
        upload_artifacts(client, job)
        tags = {
            names.TAG_STATUS: result.status,
            names.TAG_FAILURE: result.failure,
            names.TAG_CAUSE: result.cause,
            names.TAG_ADVICE: result.advice,
            names.TAG_WORKERS_LOST: result.lost[: names.LONGEST_TAG],
            names.TAG_DEVICES: _devices(job),
            names.TAG_MACHINE: _machine(),
        }
        run_tags = [RunTag(name, value) for name, value in tags.items() if value]
        client.log_batch(job.id, tags=run_tags, synchronous=True)  # together: a disk is waited for at each call
        run_start.terminated(client, job.id, MLFLOW_STATUS[result.status], int(result.ended * 1000))
    except ConfigError as error:  # the store's database is of another version
        print(f"scalebook: {error}", file=sys.stderr)
        return False
    except Exception:  # noqa: BLE001 - any failure of the store must not hide how the run ended
        traceback.print_exc()
        return False
    return True


def _devices(job: JobFolder) -> str:
    """The devices assigned to the run; "" in the foreground, where it may use all."""
    started = job.started()
    if started is None or started.inline:
        return ""
    return "; ".join(
        f"{f'{lent.machine}: ' if lent.machine else ''}{', '.join([*lent.gpus, *(f'core {n}' for n in lent.cores)])}"
        for lent in started.lent
    )


def _machine() -> str:
    """The cores of the machine, and the GPUs that the run could see.

    "" if their driver does not answer any more, which is printed.
    """
    try:
        return machine_words(os.cpu_count() or 1, this_machine().gpus)
    except Exception:  # noqa: BLE001 - a lost GPU, maybe why the run failed: that is still to be told
        traceback.print_exc()
        return ""


@contextmanager
def _sigterm_asks_to_stop(job: JobFolder) -> Iterator[None]:
    """Turn SIGTERM into a request to stop, until training begins; then the StopFile callback in worker 0 does it."""

    def ask(_signal: int, _frame: FrameType | None) -> None:
        with suppress(OSError):  # a full disk; the run ends all the same
            job.ask_to_stop(f"{STOPPED} by SIGTERM to the run", "signal")
        raise SystemExit(TERMINATED)

    before = signal.signal(signal.SIGTERM, ask)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def upload_artifacts(client: "MlflowClient | Spool", job: JobFolder) -> None:
    """Send the files of an ended job to MLflow, the most important first: log, figures of single workers, system
    metrics. Raises what MLflow raises."""
    from mlflow.entities import Metric

    for file in (job.log, job.path / names.WORKERS_JSONL):
        if file.exists():
            client.log_artifact(job.id, str(file))
    points = [
        Metric(name, value, timestamp_ms, step)
        for metrics, step, timestamp_ms in SystemMetrics(job).news()
        for name, value in metrics.items()
    ]
    for first in range(0, len(points), POINTS_A_CALL):
        client.log_batch(job.id, metrics=points[first : first + POINTS_A_CALL], synchronous=True)
