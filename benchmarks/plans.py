"""Plans against runs on this machine: predicted and measured updates/s, for DDP or for workers that share one GPU.

    python -m benchmarks.plans ddp [--width 8 16 32 64 128] [--rounds 2]
    python -m benchmarks.plans gpu [--width 32 256] [--accelerator cpu]
    [--reliability training/planner/reliability.json]

`ddp`: two workers on two cores. Each round measures a config's parts, as `scalebook plan -c` does, and then trains it;
a ratio is of such a pair, so that what others do on the machine is in both. `gpu`: parts of a config with four workers
are measured once for a width; then 1, 2, 4 and 8 workers train under AsyncPS on one GPU. More of them than were
measured at once are planned to be no faster than these. Half a minute for each pair of width and round or workers. Read
predicted / measured, which `--reliability` adds to the cells of the planner.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from benchmarks.common import Others, parser
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.supervisor_handle import hold_supervisor
from scalebook.training.planner.answering import Setting
from scalebook.training.planner.measuring import measure
from scalebook.training.planner.question import Question
from scalebook.training.planner.reliability import ComparedPlan, PlansCompared, write
from scalebook.training.planner.tuning.followed_job import follow
from scalebook.training.pricing.links import OWN
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader

CORES: Final = 2
SHARING: Final = (1, 2, 4, 8)
TOGETHER: Final = 4
"""Workers whose parts are measured at once on a GPU."""
WIDTHS: Final = {"ddp": [8, 16, 32, 64, 128], "gpu": [32, 256]}
BATCHES: Final = {32: 32, 256: 256}
"""Batch sizes on a GPU, by width: a gradient that takes Python longer than the GPU, and one that fills the GPU."""
BEGINNING: Final = 2
"""Values of updates/s at the beginning of a run that do not count."""
UNTIL_TIME: Final = {"max_epochs": -1, "limit_val_batches": 0, "max_time": "00:00:00:08"}


def config(width: int, workers: int, accelerator: str = "") -> dict[str, Any]:
    """The shipped classifier on digits: under DDP, or on one `accelerator` under a parameter server."""
    trainer: dict[str, Any] = {"max_epochs": 20, "accelerator": "cpu", "devices": workers, "strategy": "ddp"}
    if accelerator:
        server = {"class_path": "AsyncPS", "init_args": {"workers": workers}}
        devices = {"devices": 1} if accelerator == "gpu" else {}
        trainer = {**UNTIL_TIME, "accelerator": accelerator, "strategy": server, **devices}
    batch_size = BATCHES.get(width, 64) if accelerator else 64
    return {
        "trainer": trainer,
        "model": {"class_path": "scalebook.training.zoo.models.ConvClassifier", "init_args": {"width": width}},
        "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": batch_size}},
        **({"optimizer": {"class_path": "SGD", "init_args": {"lr": 0.001}}} if accelerator else {}),
    }


def planned(workspace: Workspace, experiment: Experiment, workers: tuple[int, ...]) -> list[float]:
    """Updates per second as planned, for each number of workers, from parts that are measured now."""
    profile = measure(workspace, experiment, sys.stderr)
    question = Question(workers=workers, rules=(), shards=()).of(experiment)
    setting = Setting.of(profile, question, question.rules[0], 1, OWN)
    return [setting.play(number).updates_per_s for number in workers]


def measured(workspace: Workspace, experiment: Experiment) -> float:
    """Mean updates per second that a whole run recorded, without its beginning."""
    with hold_supervisor(workspace):
        (job,) = job_requests.submit(workspace, experiment, seeds=[1])
        result = follow(workspace, job, lambda *_: None)
    assert result.status == "finished", job.tail()
    values = RunReader(workspace.tracking_uri()).curve(job.id, names.UPDATES_PER_SECOND).values[BEGINNING:]
    return sum(values) / len(values)


def main() -> None:
    """Print a line for each plan."""
    options = parser(__doc__)
    options.add_argument("kind", choices=list(WIDTHS))
    options.add_argument("--rounds", type=int, default=2, help="of ddp")
    options.add_argument("--width", type=int, nargs="+")
    options.add_argument("--accelerator", choices=["gpu", "cpu"], default="gpu", help="of gpu; cpu tries the command")
    options.add_argument("--reliability", type=Path, help="add its cells to this file")
    args = options.parse_args()
    others, cells, widths = Others(), list[ComparedPlan](), args.width or WIDTHS[args.kind]
    shares = args.kind == "gpu"
    accelerator, workers = (args.accelerator, SHARING) if shares else ("", (CORES,))
    with tempfile.TemporaryDirectory() as folder:
        workspace = Workspace(Path(folder).resolve()).create()
        description = describe(workspace)
        for width in widths:
            for _ in range(1 if shares else args.rounds):
                together = Experiment.read(config(width, TOGETHER if shares else CORES, accelerator), description)
                for number, plan in zip(workers, planned(workspace, together, workers), strict=True):
                    run = measured(workspace, Experiment.read(config(width, number, accelerator), description))
                    what, ratio = f"{number} workers, width {width}", plan / run
                    kind = ("async", "gpus") if shares else ("ddp", "machine")
                    cells.append(ComparedPlan(*kind, what, round(ratio, 3)))  # type: ignore[arg-type]  # see above
                    print(f"{what}: predicted {plan:.1f}, measured {run:.1f} updates/s, {ratio:.2f}", flush=True)
    where = others.sentence()
    print(where)
    if args.reliability and accelerator != "cpu":
        rounds = "" if shares else f" --rounds {args.rounds}"
        command = f"python -m benchmarks.plans {args.kind}{rounds} --width {' '.join(map(str, widths))}"
        gpu = f"{this_machine().gpus[0].name}, " if shares else ""
        write(args.reliability, PlansCompared(command, gpu + where, cells))


if __name__ == "__main__":
    main()
