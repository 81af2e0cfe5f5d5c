"""A runner without torch for a search's trials: learning is a formula of batch size and rate, which also tell failures.

The best point is a batch of 64 with a rate of 0.1. A rate above 5 diverges, a batch above 256 runs out of memory, a
batch of 1 raises. `SECONDS` of time for the whole of it, in four validations of 1,000 samples each.
"""

import json
import math
import os
import time
from pathlib import Path
from typing import Any

from scalebook.training.base.failures import FailureClass
from scalebook.training.base.files import yaml
from scalebook.training.jobs.job_folder import JobFolder, Progress, Result
from scalebook.training.tracking import names

VALIDATIONS = 4
SAMPLES = 1000


def run(folder: Path) -> int:
    """One trial's run; takes `STAND_IN_S` seconds (0.1)."""
    job = JobFolder(folder)
    print(f"rows {os.environ.get('ROWS')}", flush=True)
    config = yaml.load(job.config.read_text(encoding="utf-8"))
    batch, rate = config["data"]["init_args"]["batch_size"], config["optimizer"]["init_args"]["lr"]
    pause = float(os.environ.get("STAND_IN_S", "0.1")) / VALIDATIONS
    result = _failure(batch, rate) or _trained(job, batch, rate, config["seed_everything"], pause)
    job.write(result)
    return 0 if result.status == "finished" else 1


def loss(batch: int, rate: float, seed: int, validation: int) -> float:
    """After validation number `validation` (from 1); seeds differ by a thousandth."""
    far = math.log2(batch / 64) ** 2 / 10 + math.log10(rate / 0.1) ** 2
    return (0.1 + far) * (1 + 1 / validation) + seed / 1000


def _failure(batch: int, rate: float) -> Result | None:
    now = time.time()
    if rate > 5:
        return Result("failed", now, FailureClass.DIVERGED.value, "train/loss became nan after 3 updates", "Lower it.")
    if batch > 256:
        return Result("failed", now, FailureClass.OUT_OF_MEMORY.value, f"no memory for {batch} samples", "Fewer.")
    if batch == 1:
        return Result("failed", now, FailureClass.UNKNOWN.value, "ValueError: a batch of one", "Read the log.")
    return None


def _trained(job: JobFolder, batch: int, rate: float, seed: int, pause: float) -> Result:
    values: list[float] = []
    for validation in range(1, VALIDATIONS + 1):
        time.sleep(pause)
        if (request := job.stop_request()) is not None:
            return Result("stopped", time.time(), cause=request.why)
        values.append(loss(batch, rate, seed, validation))
        samples = validation * SAMPLES
        point: dict[str, Any] = {"updates": samples // batch, "samples": samples, "seconds": pause * validation}
        with job.curve.open("a", encoding="utf-8") as file:
            file.write(json.dumps({**point, "metrics": {names.VAL_LOSS: values[-1]}}) + "\n")
        metrics = {names.best(names.VAL_LOSS): min(values)}
        job.write(Progress(time.time(), "training", epoch=validation, metrics=metrics, **point))
    return Result("finished", time.time())
