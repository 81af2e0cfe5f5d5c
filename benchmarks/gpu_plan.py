"""A plan of workers that share one GPU against their runs: predicted and measured updates/s.

    python -m benchmarks.gpu_plan [--width 32 256] [--workers 1 2 4 8] [--accelerator gpu]
                                  [--reliability training/planner/reliability.json]

For each width of the shipped classifier the parts of a config with `TOGETHER` workers are measured, as `scalebook plan
-c` does; then every number of workers trains under AsyncPS on one GPU. More of them than were measured at once are
planned to be no faster than these. With `--accelerator cpu` the same on the cores of this machine.
"""

import argparse
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.ddp_plan import measured
from benchmarks.machine import Others
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs.devices import this_machine
from scalebook.training.planner.answer_words import system_words
from scalebook.training.planner.answering import Setting
from scalebook.training.planner.measuring import measure
from scalebook.training.planner.question import Question
from scalebook.training.planner.reliability import ComparedPlan, PlansCompared, write
from scalebook.training.pricing.links import OWN

TOGETHER: Final = 4
BATCHES: Final = {32: 32, 256: 256}
"""Batch size by width: a gradient that Python dispatches longer than the GPU computes, and one that fills the GPU."""
SECONDS: Final = 8


def config(width: int, workers: int, accelerator: str) -> dict[str, Any]:
    """The shipped classifier on digits, under a parameter server whose workers share a device."""
    devices = {} if accelerator == "cpu" else {"devices": 1}
    return {
        "trainer": {
            "accelerator": accelerator, "max_epochs": -1, "limit_val_batches": 0,
            "max_time": f"00:00:00:{SECONDS:02d}",
            "strategy": {"class_path": "AsyncPS", "init_args": {"workers": workers}}, **devices,
        },
        "model": {"class_path": "scalebook.training.zoo.models.ConvClassifier", "init_args": {"width": width}},
        "data": {
            "class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": BATCHES.get(width, 64)},
        },
        "optimizer": {"class_path": "SGD", "init_args": {"lr": 0.001}},
    }  # fmt: skip


def main() -> None:
    """Print a line for each number of workers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, nargs="+", default=[32, 256])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--accelerator", choices=["gpu", "cpu"], default="gpu")
    parser.add_argument("--reliability", type=Path, help="add its cells to this file")
    args = parser.parse_args()
    others, cells = Others(), list[ComparedPlan]()
    gpus = this_machine().gpus if args.accelerator == "gpu" else []
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder).resolve()).create()
        description = describe(workspace)
        for width in args.width:
            body = config(width, TOGETHER, args.accelerator)
            experiment = Experiment.read(body, description)
            profile = measure(workspace, experiment, sys.stderr)
            print(system_words(profile), flush=True)
            question = Question(workers=tuple(args.workers), rules=(), shards=()).of(experiment)
            setting = Setting.of(profile, question, question.rules[0], 1, OWN)
            for workers in args.workers:
                plan = setting.play(workers).updates_per_s
                run = measured(workspace, config(width, workers, args.accelerator), description)
                what = f"{workers} workers, width {width}"
                cells.append(ComparedPlan("async", "gpus", what, round(plan / run, 3)))
                print(f"{what}: predicted {plan:.1f}, measured {run:.1f} updates/s, {plan / run:.2f}", flush=True)
    print(others.sentence())
    if args.reliability and gpus:
        command = f"python -m benchmarks.gpu_plan --width {' '.join(map(str, args.width))}"
        write(args.reliability, PlansCompared(command, f"{gpus[0].name}, {others.sentence()}", cells))


if __name__ == "__main__":
    main()
