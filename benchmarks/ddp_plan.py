"""A plan of `ddp` against DDP itself: two workers on two cores of this machine, predicted and measured.

    python -m benchmarks.ddp_plan [--rounds 2] [--width 8 16 32 64 128]
                                  [--reliability training/planner/reliability.json]

Each round measures a config's parts, as `scalebook plan -c` does, and then trains it under DDP; the ratio of updates/s
is of this pair, so that what others do on the machine is in both. Predicted / measured, by round and their median.
"""

import argparse
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import Others
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests
from scalebook.training.jobs.supervisor_handle import hold_supervisor
from scalebook.training.planner.answering import Setting
from scalebook.training.planner.measuring import measure
from scalebook.training.planner.question import Question
from scalebook.training.planner.reliability import ComparedPlan, PlansCompared, write
from scalebook.training.planner.tuning.followed_job import follow
from scalebook.training.pricing.links import OWN
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader

WORKERS: Final = 2
BEGINNING: Final = 2
"""Values of updates/s at the beginning of a run that do not count."""


def config(width: int, epochs: int) -> dict[str, Any]:
    """The shipped classifier on digits, under DDP."""
    return {
        "trainer": {"max_epochs": epochs, "accelerator": "cpu", "devices": WORKERS, "strategy": "ddp"},
        "model": {"class_path": "scalebook.training.zoo.models.ConvClassifier", "init_args": {"width": width}},
        "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 64}},
    }


def predicted(workspace: Workspace, body: dict[str, Any], description: Description) -> float:
    """Updates per second as planned."""
    experiment = Experiment.read(body, description)
    profile = measure(workspace, experiment, sys.stderr)
    question = Question(workers=(WORKERS,), rules=(), shards=()).of(experiment)
    return Setting.of(profile, question, question.rules[0], 1, OWN).play(WORKERS).updates_per_s


def measured(workspace: Workspace, body: dict[str, Any], description: Description) -> float:
    """Mean updates per second that a whole run recorded, without its beginning."""
    with hold_supervisor(workspace):
        (job,) = job_requests.submit(workspace, Experiment.read(body, description), seeds=[1])
        result = follow(workspace, job, lambda *_: None)
    assert result.status == "finished", job.tail()
    values = RunReader(workspace.tracking_uri()).curve(job.id, names.UPDATES_PER_SECOND).values
    return statistics.fmean(values[BEGINNING:])


def main() -> None:
    """Print a line for each round, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--width", type=int, nargs="+", default=[8, 16, 32, 64, 128])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--reliability", type=Path, help="add its cells to this file")
    args = parser.parse_args()
    others, cells = Others(), list[ComparedPlan]()
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder).resolve()).create()
        description = describe(workspace)
        for width in args.width:
            body, ratios = config(width, args.epochs), []
            for _ in range(args.rounds):
                plan, run = predicted(workspace, body, description), measured(workspace, body, description)
                ratios.append(plan / run)
                cells.append(ComparedPlan("ddp", "machine", f"{WORKERS} workers, width {width}", round(plan / run, 3)))
                print(
                    f"width {width}: predicted {plan:.1f}, measured {run:.1f} updates/s, {plan / run:.2f}", flush=True
                )
            print(f"width {width}: median {statistics.median(ratios):.2f}", flush=True)
    print(others.sentence())
    if args.reliability:
        command = f"python -m benchmarks.ddp_plan --rounds {args.rounds} --width {' '.join(map(str, args.width))}"
        write(args.reliability, PlansCompared(command, others.sentence(), cells))


if __name__ == "__main__":
    main()
