"""A task of `benchmarks.engine` through Lightning's Trainer, under any strategy, in a script or as a recorded run."""

import json
import logging
import os
import subprocess
import sys
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from lightning.pytorch import Callback, LightningModule, Trainer

from benchmarks.engine_models import Task, class_path
from benchmarks.engine_task import Measured
from scalebook.training.lightning import register
from scalebook.training.lightning.processes.run_workers import run_workers

ROOT: Final = Path(__file__).resolve().parents[1]
RUN_S: Final = 120.0
"""Seconds of a recorded run, at most, beyond those in which it is measured."""
QUIET: Final[dict[str, Any]] = {
    "logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "enable_model_summary": False,
}  # fmt: skip


class Clock(Callback):
    """Times this worker's steps after the warm-up and ends the run; worker 0 writes the figures into `file`."""

    def __init__(self, file: str, warm_up: int, steps: int) -> None:
        self.file, self.warm_up, self.steps = file, warm_up, steps
        self.count, self.started, self.cpu = 0, 0.0, 0.0

    def on_train_batch_start(self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int) -> None:
        if self.count == self.warm_up:
            self.started, self.cpu = time.perf_counter(), time.process_time()
        if self.count == self.warm_up + self.steps and trainer.is_global_zero:
            seconds, cpu = time.perf_counter() - self.started, time.process_time() - self.cpu
            found, strategy = {"step_s": seconds / self.steps, "cpu_s": cpu / self.steps}, trainer.strategy
            if hasattr(strategy, "figures"):
                found["staleness"] = strategy.figures.staleness().mean()
                trainer.should_stop = True  # asynchronous workers have no common number of steps
            Path(self.file).write_text(json.dumps(found))
        self.count += 1


def through_lightning(task: Task, strategy: str, workers: int, seconds: float, recorded: bool = False) -> Measured:
    """Worker 0's step time and CPU time stand for those of all workers. `recorded`: as a run of `scalebook fit`."""
    averaged = 1 if strategy == "async_ps" else workers  # gradients in one update
    steps, warm_up = max(1, int(seconds * task.steps_per_s)), 2 * task.steps_per_s // 3
    with TemporaryDirectory() as folder:
        clock: dict[str, Any] = {"file": f"{folder}/figures.json", "warm_up": warm_up, "steps": steps}
        trainer: dict[str, Any] = {"accelerator": "cpu", "devices": workers, "max_epochs": 1_000_000}
        trainer["max_steps"] = -1 if strategy == "async_ps" else warm_up + steps + 1
        if recorded:
            _fit(Path(folder), task, strategy, clock, trainer, RUN_S + 3 * seconds)
        else:
            logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
            warnings.filterwarnings("ignore")
            register()
            Trainer(**trainer, **QUIET, strategy=strategy, callbacks=[Clock(**clock)], default_root_dir=folder).fit(
                task.model(), task.data(workers)
            )
        found = json.loads(Path(clock["file"]).read_text())
    gradients = workers / found["step_s"]
    return Measured(gradients / averaged, gradients, 1000 * found["cpu_s"], found.get("staleness", 0.0))


def unconnected(task: Task, processes: int, seconds: float) -> Measured:
    """A Trainer in each of several processes that share nothing: the limit of the machine."""
    alone = run_workers(processes, lambda worker: through_lightning(task, "auto", 1, seconds))
    rate = sum(measured.gradients_per_s for measured in alone)
    return Measured(rate, rate, sum(measured.cpu_ms for measured in alone) / processes)


def _fit(
    folder: Path, task: Task, strategy: str, clock: dict[str, Any], trainer: dict[str, Any], deadline_s: float
) -> None:
    """The command, in a workspace of its own. RuntimeError with the end of its output if it fails."""
    workers, callbacks = trainer["devices"], [{"class_path": class_path(Clock), "init_args": clock}]
    trainer |= {"strategy": strategy, "callbacks": callbacks}
    if strategy == "async_ps":
        del trainer["devices"]
        trainer["strategy"] = {"class_path": "AsyncPS", "init_args": {"workers": workers}}
    config = {"trainer": trainer, **task.config(workers)}
    file, workspace = folder / "run.yaml", folder / "workspace"
    file.write_text(json.dumps(config))  # JSON is YAML
    workspace.mkdir()
    (workspace / "scalebook.toml").write_text('modules = ["benchmarks.engine_models"]\n')
    own = {"SCALEBOOK_WORKSPACE": str(workspace), "XDG_STATE_HOME": str(folder), "OMP_NUM_THREADS": "1"}
    environment = {key: value for key, value in os.environ.items() if key != "MLFLOW_TRACKING_URI"} | own
    command = [sys.executable, "-m", "scalebook", "fit", "-c", str(file), "--trust"]
    environment["PYTHONPATH"] = str(ROOT)  # of Clock
    ended = subprocess.run(
        command, check=False, timeout=deadline_s, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    if ended.returncode:
        raise RuntimeError(f"scalebook fit ended with {ended.returncode}: {ended.stdout.decode()[-2000:]}")
