"""A ceiling on memory: what is above it fails as out of memory, in the run's own process and in its workers."""

import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from scalebook.training.base.failures import FailureClass, classify
from scalebook.training.base.memory import MB, data_bytes, free_bytes, memory_limit
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs.job_folder import TrialOf
from scalebook.training.jobs.job_requests import submit
from scalebook.training.lightning import AsyncPS
from scalebook.training.lightning.ddp.ddp import DDP
from tests.training.lightning.async_ps.small import Batch, Small, fit, trainer
from tests.training.runs import config, reader

LIMIT_MB = 200
RUN = """
import importlib, os, pathlib, sys
from scalebook.training.jobs.launcher import PRELOAD
for name in PRELOAD: importlib.import_module(name)
from scalebook.training.cli.runner import run_job
codes = []
for path in sys.argv[1:]:
    if not (pid := os.fork()): os._exit(run_job(pathlib.Path(path)))
    codes.append(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
print("codes", *codes)
"""
"""As in forks of the fork server, what is imported counts as there from the start."""


pytestmark = [pytest.mark.long, pytest.mark.usefixtures("one_thread")]


def take(how: str) -> Any:
    """300 MB."""
    if how == "torch":
        return torch.empty(300 * MB, dtype=torch.uint8)
    if how == "numpy":
        return np.empty(300 * MB, dtype=np.uint8)
    return bytearray(300 * MB)


@pytest.mark.parametrize("how", ["torch", "numpy", "python"])
def test_what_is_above_the_ceiling_is_out_of_memory(how: str) -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_limit(LIMIT_MB):
        assert len(torch.empty(100 * MB, dtype=torch.uint8)) == 100 * MB
        assert 0 < (free_bytes() or 0) <= LIMIT_MB * MB
        with pytest.raises((RuntimeError, MemoryError)) as caught:
            take(how)
    assert classify(caught.value).failure_class is FailureClass.OUT_OF_MEMORY
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert len(take(how)) == 300 * MB


def test_without_one_nothing_changes() -> None:
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with memory_limit(None):
        assert resource.getrlimit(resource.RLIMIT_DATA) == before
    assert free_bytes() is None or before[0] != resource.RLIM_INFINITY
    assert data_bytes() > 10 * MB


class Hungry(Small):
    """Worker `worker` takes 300 MB in its first step: under async nobody knows how many it gets."""

    def __init__(self, worker: int) -> None:
        super().__init__()
        self.worker = worker

    def training_step(self, batch: Batch, batch_idx: int) -> Tensor:
        if batch_idx == 0 and self.trainer.global_rank == self.worker:
            take("torch")
        return super().training_step(batch, batch_idx)


@pytest.mark.sampled
@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize("name", ["ddp", "async"])
def test_a_worker_that_wants_too_much_ends_the_run_as_out_of_memory(name: str, worker: int, tmp_path: Path) -> None:
    made = trainer(tmp_path, DDP() if name == "ddp" else AsyncPS(), 2)
    with memory_limit(LIMIT_MB), pytest.raises(RuntimeError) as caught:
        fit(made, Hungry(worker))
    assert classify(caught.value).failure_class is FailureClass.OUT_OF_MEMORY


@pytest.mark.thorough
def test_a_trial_has_the_limit_that_it_was_given(workspace: Workspace, description: Description) -> None:
    """A wide net on 128 digits: 8 at a time fit into 100 MB, 128 do not.

    In processes of their own: this one may hold memory that earlier tests have freed.
    """
    jobs = []
    for batch in (8, 128):
        given = config(max_epochs=1)
        given["model"] = {"class_path": "ConvClassifier", "init_args": {"width": 384, "blocks": 2}}
        given["data"]["init_args"]["batch_size"] = batch
        given["trainer"] |= {"max_steps": 2, "limit_val_batches": 0, "enable_checkpointing": False}
        trial = TrialOf("", 1, f"batch {batch}", memory_mb=100)
        jobs += submit(workspace, Experiment.read(given, description), seeds=[1], inline=True, trial=trial)
    command = [sys.executable, "-c", RUN, *(str(job.path) for job in jobs)]
    done = subprocess.run(command, check=True, timeout=100, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "codes 0 1", done.stdout + done.stderr
    for job, failure, outcome in zip(jobs, (None, "out of memory"), ("finished", "failed"), strict=True):
        result = job.result()
        assert result is not None
        assert result.failure == failure, result.cause
        assert reader(workspace).run(job.id).outcome == outcome
