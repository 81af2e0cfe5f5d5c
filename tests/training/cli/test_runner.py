"""Whole runs on few digits: what is recorded, and how every kind of end is told."""

import json
import os
import re
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import psutil
import pytest
import torch

from scalebook.training.base.errors import ConfigError
from scalebook.training.base.failures import FailureClass
from scalebook.training.base.files import yaml
from scalebook.training.base.workspace import Workspace
from scalebook.training.callbacks.job_files import left_by_lost
from scalebook.training.cli.runner import _set_threads, run_job, upload_artifacts
from scalebook.training.engine.coordination.measures import WorkerTimes
from scalebook.training.engine.launch import Launch
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.jobs import usage
from scalebook.training.jobs.executor import LocalHandle
from scalebook.training.jobs.gpus import GpuReading
from scalebook.training.jobs.job_folder import JobFolder, JobStart, LostWorker
from scalebook.training.jobs.usage import ALL, SystemMetrics, Usage
from scalebook.training.lightning.processes import process_watch
from scalebook.training.lightning.run_figures import MonitorFigures
from scalebook.training.tracking import directions, names
from scalebook.training.tracking.spool import LINES, Spool
from scalebook.training.tracking.worker_figures import parsed
from tests.training.benches import wait_for
from tests.training.interrupting import hearing
from tests.training.runs import ASYNC, artifacts, config, reader, run, submitted

pytestmark = [pytest.mark.long, pytest.mark.sampled]

SPLIT: Any = {"class_path": "ModelParallel", "init_args": {"tensor": 2}}
STRATEGIES = pytest.mark.parametrize("strategy", ["auto", "ddp", ASYNC, SPLIT], ids=["single", "ddp", "async", "split"])
WEIGHTS = 64 * 16 + 16 + 16 * 16 + 16 + 16 * 10 + 10 + 2 * (16 + 16)  # float32; three layers, two normalisations
PEERS: Any = {"class_path": "Peers", "init_args": {"workers": 2}}
WORKERS = pytest.mark.parametrize("strategy", ["ddp", ASYNC, PEERS, SPLIT], ids=["ddp", "async", "peers", "split"])
LONG = {"max_epochs": 100_000}


@STRATEGIES
def test_a_run_records_all_that_every_run_records(
    strategy: Any, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(usage, "FIRST_S", 0.0)  # a machine with nothing else to do trains it in 0.1 s
    job, code, record = run(workspace, config(strategy, max_epochs=3))
    result = job.result()
    assert result is not None
    assert (code, result.status, record.status, record.outcome) == (0, "finished", "FINISHED", "finished")
    updates = 24 if strategy == "ddp" else 48  # 128 / 8 = 16 batches an epoch, by one worker or divided by two
    assert record.tags[names.TAG_MACHINE].startswith(f"{os.cpu_count()} core")
    found = record.metrics
    assert (found[names.UPDATES], found[names.SAMPLES]) == (updates, 3 * 128)
    assert 0 < found[names.SECONDS] < 60
    assert 0 not in (value for name, value in found.items() if name.startswith("perf/")), "no constant zeros"
    if strategy == SPLIT:  # with collectives within its layers, whose time nobody has measured
        assert not found.keys() & {*names.SHARES}
    else:
        assert sum(found.get(share, 0) for share in names.SHARES) == pytest.approx(1)
        assert found[names.COMPUTE_SHARE] > 0
        assert found[names.DATA_SHARE] > 0
    assert found[names.UPDATES_PER_SECOND] > 0
    assert found[names.SAMPLES_PER_SECOND] == pytest.approx(found[names.UPDATES_PER_SECOND] * 3 * 128 / updates)
    assert found[names.PEAK_MEMORY_MB] > 100
    assert found[f"{names.SYSTEM}system_memory_usage_megabytes"] > 100, "no supervisor samples a run in the foreground"
    if strategy not in (ASYNC, SPLIT):
        # Of the first it is counted (tests/training/engine/test_moved_bytes.py), of the second not measured.
        moved = found.get(names.PUSHED_PER_UPDATE, 0) + found.get(names.PULLED_PER_UPDATE, 0)
        assert moved == (0 if strategy == "auto" else 2 * (2 * 4 * WEIGHTS))  # as its hook counts
        assert found.get(names.BYTES, 0) == updates * moved
    for metric in (names.VAL_LOSS, names.VAL_ACCURACY):
        curve = reader(workspace).curve(job.id, metric)
        assert len(curve.values) == 3
        assert curve.values[-1] == found[names.final(metric)]
        choose = min if directions.direction(metric).lower else max
        assert choose(curve.values) == found[names.best(metric)]
        assert curve.updates == sorted(curve.updates)
        assert curve.samples[-1] <= 3 * 128
    losses = reader(workspace).curve(job.id, names.TRAIN_LOSS)
    assert losses.values[-1] == found[names.TRAIN_LOSS]
    assert losses.updates[-1] == updates
    assert losses.updates[0] <= (updates / 2 if strategy == ASYNC else 4)  # worker 1 may be ahead of worker 0's first


def test_an_asynchronous_run_records_staleness_and_each_worker(workspace: Workspace) -> None:
    job, _, record = run(workspace, config(ASYNC, max_epochs=3))
    found = artifacts(workspace, job.id)
    counts = json.loads(found[names.STALENESS_JSON].read_text())["counts"]
    assert sum(sum(row) for row in counts) == 48
    pushes = json.loads(found[names.PUSHES_JSON].read_text())
    assert [one["applied"] for one in pushes["shards"]] == [sum(row) for row in counts]
    assert [one["dropped"] + one["duplicates"] for one in pushes["shards"]] == [0, 0]
    assert [one["updates"] for one in pushes["workers"]] == [sum(row) for row in counts]
    assert [one["pushed_bytes"] for one in pushes["workers"]] == [4 * WEIGHTS * sum(row) for row in counts]
    moved = sum(one["pushed_bytes"] + one["pulled_bytes"] for one in pushes["workers"])
    directions = record.metrics[names.PUSHED_PER_UPDATE], record.metrics[names.PULLED_PER_UPDATE]
    assert sum(directions) == pytest.approx(moved / 48)
    assert names.GRADIENTS_PER_UPDATE not in record.metrics, "1, as nearly always"
    assert record.metrics[names.PUSHED_PER_UPDATE] == sum(one["pushed_bytes"] for one in pushes["workers"]) / 48
    assert [one["pushed_bytes"] for one in pushes["shards"]] == [one["pushed_bytes"] for one in pushes["workers"]]
    assert [one["pulled_bytes"] for one in pushes["shards"]] == [one["pulled_bytes"] for one in pushes["workers"]]
    assert not {names.DROPPED, names.DUPLICATES} & set(record.metrics), "no constant zeros"
    workers = parsed(found[names.WORKERS_JSONL].read_bytes())
    assert found[names.WORKERS_JSONL].read_bytes() == (job.path / names.WORKERS_JSONL).read_bytes()
    assert not [name for name in record.metrics if name.startswith("worker_")]
    assert all(0 < one["age_s"] < record.metrics[names.SECONDS] for one in pushes["shards"])
    assert names.DRIFT not in record.metrics, "drift is not measured unless asked for"
    for part in names.SHARES:
        assert 0 <= workers.last[names.per_worker(part, 1)] <= 1
    assert found[names.STALENESS_PICTURE].read_bytes().startswith(b"\x89PNG")
    mean = sum(bin_ * n for row in counts for bin_, n in enumerate(row)) / 48
    assert record.metrics[names.STALENESS_MEAN] == pytest.approx(mean)
    assert record.metrics[names.STALENESS_P95] >= int(mean)
    assert all(workers.last[names.per_worker(names.PEAK_MEMORY_MB, i)] > 100 for i in range(2))
    rates = [workers.last[names.per_worker(names.UPDATES_PER_SECOND, i)] for i in range(2)]
    assert sum(rates) == pytest.approx(record.metrics[names.UPDATES_PER_SECOND])


@pytest.mark.thorough
def test_virtual_workers_take_the_time_that_real_ones_took(workspace: Workspace) -> None:
    measured, _, _ = run(workspace, config(ASYNC, max_epochs=10, limit_val_batches=0))
    timings = json.loads(artifacts(workspace, measured.id)[names.TIMINGS_JSON].read_text())
    recorded = {"kind": "recorded", "run": measured.id[:12]}
    arguments = {"workers": 8, "host": "virtual", "clock": {"gradient_s": dict(recorded), "server_s": dict(recorded)}}
    asked = config({"class_path": "AsyncPS", "init_args": arguments}, max_epochs=2) | {"seed_everything": 3}
    asked["trainer"]["devices"] = 1
    job, code, record = run(workspace, asked, seed=3)
    assert code == 0
    clock = job.content()["trainer"]["strategy"]["init_args"]["clock"]
    assert clock["server_s"]["mean"] == pytest.approx(timings["server"]["mean"], rel=1e-4)
    assert clock["gradient_s"]["run"] == measured.id
    updates_a_worker = 2 * 16 / 8
    assert record.metrics[names.SECONDS] > 0.3 * updates_a_worker * clock["gradient_s"]["mean"]
    assert not (job.path / names.TIMINGS_JSON).exists(), "its times are declared"
    (measured.path / names.TIMINGS_JSON).unlink()
    assert submitted(workspace, job.content(), seed=3).content() == job.content(), "also where the run is no more"
    asked["trainer"]["strategy"]["init_args"]["clock"]["gradient_s"]["run"] = job.id
    with pytest.raises(ConfigError, match="has no timings, because it had no real workers"):
        submitted(workspace, asked)


def test_the_config_that_ran_and_the_log_are_artifacts(
    workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    job, _, _ = run(workspace, config())
    found = artifacts(workspace, job.id)
    assert found[names.CONFIG_ARTIFACT].read_text() == job.config.read_text()
    assert yaml.load(job.config.read_text())["optimizer"] == {
        "class_path": "torch.optim.SGD",
        "init_args": {"lr": 0.1, "momentum": 0, "weight_decay": 0, "nesterov": False},
    }
    printed = capsys.readouterr().out
    assert "100%  epoch 1  16 updates" in printed
    assert found["log.txt"].read_text() in job.log.read_text()
    assert "100%  epoch 1  16 updates" in job.log.read_text()


def losses(workspace: Workspace, job: JobFolder) -> tuple[float, float]:
    metrics = reader(workspace).run(job.id).metrics
    return metrics[names.TRAIN_LOSS], metrics[names.final(names.VAL_LOSS)]


def ours(metrics: dict[str, float]) -> list[str]:
    """Those that the model has not logged itself."""
    return [name for name in metrics if not name.startswith(("val/", "best/val/", "final/val/"))]


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", ["auto", "ddp"])
def test_the_same_seed_gives_the_same_loss_to_the_last_bit(
    strategy: str, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the environment says of threads, and wherever the process may run."""
    first, _, _ = run(workspace, config(strategy))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        second, _, _ = run(workspace, config(strategy))
    finally:
        os.sched_setaffinity(0, cores)
    other, _, _ = run(workspace, config(strategy), seed=2)
    assert losses(workspace, first) == losses(workspace, second)
    assert losses(workspace, first) != losses(workspace, other)


@STRATEGIES
def test_the_stop_file_ends_a_run_with_everything_recorded(strategy: Any, workspace: Workspace) -> None:
    job = submitted(workspace, config(strategy, min_epochs=50_000, **LONG))
    code = run_while(job, job.stop_file.touch)
    result = job.result()
    assert result is not None
    record = reader(workspace).run(job.id)
    assert (code, result.status, record.status, record.outcome) == (0, "stopped", "KILLED", "stopped")
    assert record.metrics[names.UPDATES] >= 50
    assert names.final(names.VAL_LOSS) in record.metrics
    assert (job.path / "checkpoints" / "last.ckpt").stat().st_size > 1000


@STRATEGIES
def test_a_stop_after_the_last_sample_came_too_late(strategy: Any, workspace: Workspace) -> None:
    job = submitted(workspace, config(strategy, max_epochs=10, num_sanity_val_steps=0, check_val_every_n_epoch=10))
    until = threading.Thread(target=stop_at_the_end, args=(job,))
    until.start()
    code = run_job(job.path)
    until.join()
    result = job.result()
    assert result is not None
    assert (job.stop_file.exists(), job.cut.exists()) == (True, False)
    assert (code, result.status, reader(workspace).run(job.id).status) == (0, "finished", "FINISHED")


def stop_at_the_end(job: JobFolder) -> None:
    until = time.monotonic() + 60
    while time.monotonic() < until:
        at = job.progress()
        if at is not None and at.phase == "ending":
            break
        time.sleep(0.001)
    job.ask_to_stop("pruned")


@pytest.mark.thorough
@STRATEGIES
def test_sigterm_is_a_request_to_stop(strategy: Any, workspace: Workspace) -> None:
    job = submitted(workspace, config(strategy, **LONG))
    code = run_while(job, lambda: os.kill(os.getpid(), signal.SIGTERM))
    result = job.result()
    assert result is not None
    assert (code, result.status, reader(workspace).run(job.id).status) == (0, "stopped", "KILLED")
    assert result.cause == "stopped on request by SIGTERM to the run"


@WORKERS
def test_a_run_that_dies_has_not_been_asked_to_stop(
    strategy: Any, workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Although its monitor ends the other workers by SIGTERM, which they hear at a batch."""
    job, seen = submitted(workspace, config(strategy, **LONG)), list[bool]()
    end = process_watch.ProcessWatch.terminate_all

    def noting(watch: process_watch.ProcessWatch) -> None:
        end(watch)
        seen.append(job.stop_file.exists())

    monkeypatch.setattr(process_watch.ProcessWatch, "terminate_all", noting)
    run_while(job, lambda: os.kill(worker(0), signal.SIGKILL))
    result, record = job.result(), reader(workspace).run(job.id)
    assert result is not None
    assert (result.status, result.failure, record.status) == ("failed", "worker lost", "FAILED")
    assert record.tags[names.TAG_CAUSE] == result.cause
    assert (seen, job.stop_request()) == ([False], None)


@pytest.mark.parametrize("strategy", [ASYNC, PEERS], ids=["async", "peers"])
def test_a_run_that_loses_a_worker_and_goes_on_says_so(
    strategy: Any, workspace: Workspace, capsys: pytest.CaptureFixture[str]
) -> None:
    job = submitted(workspace, config(strategy, **LONG))

    def lose() -> None:
        os.kill(worker(1), signal.SIGKILL)
        wait_for(job.lost_workers, "the loss to be recorded")
        job.ask_to_stop("stopped on request")

    assert run_while(job, lose) == 0
    result, record = job.result(), reader(workspace).run(job.id)
    assert result is not None
    (lost,) = job.lost_workers()
    assert (result.status, lost.worker, lost.restarted) == ("stopped", 1, False)
    assert lost.samples > 0
    assert record.tags[names.TAG_WORKERS_LOST] == result.lost
    assert f"after {lost.samples:,} samples (process" in result.lost
    assert result.lost.endswith("was killed by signal SIGKILL); the remaining workers took over the rest of the data")
    assert f"scalebook: {result.lost}\n" in capsys.readouterr().out


def test_what_a_fixed_share_has_left_is_counted(tmp_path: Path) -> None:
    job = JobFolder(tmp_path)
    figures = MonitorFigures(Launch(3, Settings()).figures)
    made: Any = SimpleNamespace(strategy=SimpleNamespace(figures=figures, hands_on_data=False))
    figures.worker_times = lambda: [WorkerTimes(0, 0, 0, 0, 0, samples) for samples in (80, 24, 80)]  # type: ignore[method-assign]
    assert left_by_lost(job, made) == ""
    job.note_lost(LostWorker(1, 0.0, "killed", 24, restarted=False))
    assert left_by_lost(job, made) == "about 56 samples were not trained"
    assert job.lost_words("rest") == "worker 1 died at 1970-01-01 00:00:00 UTC after 24 samples (killed); rest"
    made.strategy.hands_on_data = True
    assert left_by_lost(job, made) == "the remaining workers took over the rest of the data"


@WORKERS
def test_sigterm_to_a_worker_is_recorded_as_its(strategy: Any, workspace: Workspace) -> None:
    job, pids = submitted(workspace, config(strategy, **LONG)), list[int]()

    def ask() -> None:
        pids.append(worker(1))
        os.kill(pids[0], signal.SIGTERM)

    assert run_while(job, ask) == 0
    result, request = job.result(), job.stop_request()
    assert result is not None
    assert request is not None
    cause = f"stopped on request by SIGTERM to worker 1 (process {pids[0]})"
    assert (request.by, request.why, result.status, result.cause) == ("signal", cause, "stopped", cause)


def worker(number: int) -> int:
    """The pid of a worker of the run in this process."""
    return next(child.pid for child in psutil.Process().children() if child.name() == f"worker {number}")


# Ctrl+C may interrupt a `with open(...)` of psutil between the call and the block; Python then warns of the open file.
@pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <_io.FileIO name=./proc/:pytest.PytestUnraisableExceptionWarning"
)
@pytest.mark.parametrize("strategy", ["auto", ASYNC], ids=["single", "async"])
def test_ctrl_c_is_a_request_to_stop(strategy: Any, workspace: Workspace) -> None:
    job, main = submitted(workspace, config(strategy, **LONG)), threading.main_thread().ident
    assert main is not None
    with hearing():
        code = run_while(job, lambda: signal.pthread_kill(main, signal.SIGINT))
    result, record = job.result(), reader(workspace).run(job.id)
    assert result is not None
    assert (code, result.status, result.cause) == (0, "stopped", "stopped on request by Ctrl+C")
    assert (record.status, record.tags[names.TAG_CAUSE]) == ("KILLED", result.cause)


def run_while(job: JobFolder, act: Callable[[], None]) -> int:
    """Run the job; call `act` from another thread after 50 updates. Fails when that does not happen within 60 s."""
    acted: list[bool] = []
    ended = threading.Event()

    def watch() -> None:
        until = time.monotonic() + 60
        while time.monotonic() < until and not acted and not ended.wait(0.02):
            at = job.progress()
            if at is not None and at.updates > 50:
                acted.append(True)
                act()
        if not acted:
            job.stop_file.touch()

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        code = run_job(job.path)
    finally:
        ended.set()
        watcher.join()
    assert acted, job.tail()
    return code


@pytest.mark.thorough
@STRATEGIES
def test_a_loss_that_is_no_number_ends_the_run_as_diverged(strategy: Any, workspace: Workspace) -> None:
    job, code, record = run(workspace, config(strategy, lr=1e30, max_epochs=20))
    result = job.result()
    assert result is not None
    assert (code, result.status, result.failure) == (1, "failed", FailureClass.DIVERGED)
    assert result.cause.startswith("train/loss became ")
    assert record.status == "FAILED"
    assert record.tags[names.TAG_FAILURE] == "diverged"
    assert record.tags[names.TAG_CAUSE] == result.cause
    assert record.tags[names.TAG_ADVICE] == result.advice
    updates, progress = int(record.metrics[names.UPDATES]), job.progress()
    assert progress is not None
    assert (progress.phase, progress.updates) == ("ending", updates)
    assert updates >= 1
    assert re.search(rf" after (\d+ of )?{updates} updates?$", result.cause), (updates, result.cause)
    assert "Diverged" in artifacts(workspace, job.id)["log.txt"].read_text()


def test_what_only_the_run_can_refuse_is_a_failure_of_configuration(workspace: Workspace) -> None:
    given = config()
    given["model"] = {"class_path": "PixelCNN"}
    given["data"]["init_args"]["normalize"] = True
    job, code, record = run(workspace, given)
    result = job.result()
    assert result is not None
    assert (code, result.failure, record.status) == (2, FailureClass.CONFIGURATION, "FAILED")
    assert "data.init_args.normalize" in result.cause


def test_a_store_that_is_gone_does_not_hide_how_a_run_ended(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The supervisor finds the mark and tells MLflow later."""
    job = submitted(workspace, config())

    def refuse(*_: object) -> None:
        raise OSError("no store")

    monkeypatch.setattr("scalebook.training.tracking.run_start.client_after_fork", refuse)
    assert run_job(job.path) == 0
    result = job.result()
    assert result is not None
    assert result.status == "finished"
    assert job.unrecorded.exists()


@pytest.mark.parametrize("strategy", ["auto", ASYNC, SPLIT], ids=["single", "async", "split"])
def test_a_run_goes_on_from_its_checkpoint(strategy: Any, workspace: Workspace) -> None:
    first, _, _ = run(workspace, config(strategy, max_epochs=1))
    given = {**config(strategy, max_epochs=3), "ckpt_path": str(first.path / "checkpoints" / "last.ckpt")}
    job, code, record = run(workspace, given)
    assert code == 0, job.tail()
    assert (record.metrics[names.UPDATES], record.metrics[names.SAMPLES]) == (48, 384)
    assert reader(workspace).curve(job.id, names.TRAIN_LOSS).updates[0] > 16


@pytest.mark.parametrize("strategy", ["auto", ASYNC], ids=["single", "async"])
@pytest.mark.parametrize("epochs", [1, 2])
def test_a_checkpoint_with_nothing_left_to_train_is_said_in_one_line(
    strategy: Any, epochs: int, workspace: Workspace, capfd: pytest.CaptureFixture[str]
) -> None:
    first, _, _ = run(workspace, config(strategy, max_epochs=2))
    capfd.readouterr()
    checkpoint = str(first.path / "checkpoints" / "last.ckpt")
    job, code, _ = run(workspace, {**config(strategy, max_epochs=epochs), "ckpt_path": checkpoint})
    result, said = job.result(), "".join(capfd.readouterr())
    assert result is not None
    assert (code, result.failure) == (2, FailureClass.CONFIGURATION)
    assert result.cause == (
        f"trainer.max_epochs: is {epochs}, but the checkpoint has already completed 2 epochs, so nothing is left to "
        "train. Use more than 2, or start without ckpt_path."
    )
    assert said.count(result.cause) == 1
    assert "Traceback" not in said


@pytest.mark.parametrize("strategy", ["auto", ASYNC], ids=["single", "async"])
def test_an_epoch_that_a_stop_has_cut_short_counts(strategy: Any, workspace: Workspace) -> None:
    given = config(strategy, **LONG)
    given["data"]["init_args"] = {"batch_size": 1}
    first = submitted(workspace, given)
    run_while(first, lambda: first.ask_to_stop("stopped on request"))
    checkpoint = first.path / "checkpoints" / "last.ckpt"
    over = torch.load(checkpoint, weights_only=True)["loops"]["fit_loop"]["epoch_progress"]["current"]["processed"]
    given["trainer"]["max_epochs"] = over
    job, code, _ = run(workspace, {**given, "ckpt_path": str(checkpoint)})
    result = job.result()
    assert result is not None
    assert code == 2
    assert " (including the last one, which was cut short), so nothing is left to train" in result.cause


def test_a_model_that_draws_leaves_a_picture(workspace: Workspace) -> None:
    given = config()
    given["data"]["init_args"]["limit"] = 16
    given["model"] = {"class_path": "PixelCNN", "init_args": {"features": 4, "layers": 2}}
    job, code, record = run(workspace, given)
    assert code == 0, job.tail()
    assert artifacts(workspace, job.id)[names.SAMPLES_PICTURE].read_bytes().startswith(b"\x89PNG")
    assert names.best(names.VAL_BITS_PER_DIM) in record.metrics


def left(folder: Path, samples: list[Usage], cores: list[int]) -> list[list[Any]]:
    """What a job that took so much tells MLflow, line by line."""
    job = JobFolder(folder / "job")
    job.path.mkdir()
    job.write(JobStart(LocalHandle.of_this_process(), 1000.0, cores))
    usage.file_of(job).write_text("".join(json.dumps(asdict(sample)) + "\n" for sample in samples))
    job.log.write_text("done\n")
    upload_artifacts(Spool(folder / "spool"), job)
    return [json.loads(line) for line in (folder / "spool" / LINES).read_text().splitlines()]


def test_the_use_of_the_machine_has_the_names_of_mlflows_own(tmp_path: Path) -> None:
    gpus = [GpuReading("GPU-a", 0.5, 900.0, 60.0), GpuReading("GPU-b", None, 800.0, None)]
    log, points = left(tmp_path, [Usage(2.0, 1.0, 300.0, gpus), Usage(4.0, 1.5, 350.0)], cores=[0, 3])
    assert log[1:] == ["artifact", [log[2][0], None]]
    assert log[2][0].endswith("/log.txt")
    assert points[1:] == ["points", [
        ["system/cpu_utilization_percentage", 50.0, 1002000, 0],
        ["system/system_memory_usage_megabytes", 300.0, 1002000, 0],
        ["system/gpu_0_utilization_percentage", 50.0, 1002000, 0],
        ["system/gpu_0_memory_usage_megabytes", 900.0, 1002000, 0],
        ["system/gpu_1_memory_usage_megabytes", 800.0, 1002000, 0],
        ["system/cpu_utilization_percentage", 75.0, 1004000, 1],
        ["system/system_memory_usage_megabytes", 350.0, 1004000, 1],
    ]]  # fmt: skip


def test_of_a_long_run_a_part_of_the_samples_is_told(tmp_path: Path) -> None:
    told = left(tmp_path, [Usage(2.0 * i, 1.0, 300.0) for i in range(8 * ALL)], cores=[0])[1:]
    points = [point for line in told for point in line[2]]
    assert len(points) / 2 == ALL + 3 * ALL / 2, "as many more, each time that it goes on as long again"
    steps = [point[3] for point in points[::2]]
    assert steps[: ALL + 2] == [*range(ALL), ALL, ALL + 2]
    assert steps[-2:] == [8 * ALL - 16, 8 * ALL - 8]


def test_what_was_told_while_it_ran_is_what_is_told_at_its_end(tmp_path: Path) -> None:
    """With the same step and time, so that MLflow keeps one point of both."""
    samples = [Usage(2.0 * i, 1.0, 300.0, [GpuReading(f"GPU-{i % 2}", 0.5, 900.0, 60.0)]) for i in range(2 * ALL)]
    job = JobFolder(tmp_path / "job")
    job.path.mkdir()
    system = SystemMetrics(job)
    assert list(system.news()) == []
    job.write(JobStart(LocalHandle.of_this_process(), 1000.0, [0]))
    lines = [json.dumps(asdict(sample)) + "\n" for sample in samples]
    found: list[Any] = []
    with usage.file_of(job).open("a") as file:
        for line in lines:
            file.write(line[:20])
            file.flush()
            found += system.news()
            file.write(line[20:])
            file.flush()
            found += system.news()
    assert found == list(SystemMetrics(job).news())
    assert [step for _, step, _ in found] == [*range(ALL), *range(ALL, 2 * ALL, 2)]


def test_a_number_of_threads_that_has_no_effect_is_told(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "8")
    monkeypatch.setenv("MKL_NUM_THREADS", "2")
    _set_threads(2)
    assert (os.environ["OMP_NUM_THREADS"], os.environ["MKL_NUM_THREADS"]) == ("2", "2")
    printed = capsys.readouterr().out
    assert printed == "scalebook: OMP_NUM_THREADS=8 has no effect, because `threads` in the config is 2\n"
    _set_threads(2)
    assert capsys.readouterr().out == ""
