"""Plans against runs on this machine: predicted and measured samples/s.

    python -m benchmarks.plans ddp [--only 8 16 32 64 128] [--rounds 2]
    python -m benchmarks.plans gpu [--only 32 256] [--accelerator cpu]
    python -m benchmarks.plans users [--only GRU U-Net tiny] [--rounds 1]
    [--reliability training/planner/reliability.json]

A config is measured, as `scalebook plan -c` does, and trained directly afterwards, so that both see the same load of
the machine. `ddp`: the shipped classifier of each width, two workers on two cores. `users`: small models of kinds that
people have (`benchmarks.engine_models`), each measured once a round and trained by two workers under async, ddp, d_psgd
and sync; five minutes. `gpu`: a classifier of each width, measured with four workers and trained by 1, 2, 4 and 8 under
AsyncPS on one GPU. A run takes 15 s. Read predicted / measured, which `--reliability` adds to the planner's cells.
"""

import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from benchmarks import engine_models
from benchmarks.common import machine, parser
from scalebook.training.base.trust import trust
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.jobs import job_requests
from scalebook.training.jobs.devices import this_machine
from scalebook.training.jobs.supervisor_handle import hold_supervisor
from scalebook.training.planner.answering import Setting
from scalebook.training.planner.measuring import measure
from scalebook.training.planner.question import Question, rules
from scalebook.training.planner.reliability import ComparedPlan, PlansCompared, place_of, strategy_of, write
from scalebook.training.planner.tuning.followed_job import follow
from scalebook.training.pricing.links import OWN
from scalebook.training.tracking import names
from scalebook.training.tracking.run_reader import RunReader

CORES: Final = 2
SHARING: Final = (1, 2, 4, 8)
TOGETHER: Final = 4
"""Workers whose parts are measured at once on a GPU."""
WIDTHS: Final = {"ddp": (8, 16, 32, 64, 128), "gpu": (32, 256)}
"""On a GPU, a gradient that takes Python longer than the GPU, and one that fills the GPU."""
NEAR: Final = 1.1
BEGINNING: Final = 2
"""Values of samples/s at the beginning of a run that do not count."""
UNTIL_TIME: Final = {"max_epochs": 1_000_000, "limit_val_batches": 0, "max_time": "00:00:00:08"}
STRATEGIES: Final[dict[str, Any]] = {
    "async": {"class_path": "AsyncPS", "init_args": {"workers": CORES}},
    "ddp": "ddp",
    "d_psgd:ring": {"class_path": "Peers", "init_args": {"workers": CORES, "exchange": "d_psgd", "topology": "ring"}},
    "sync": {"class_path": "AsyncPS", "init_args": {"workers": CORES, "rule": "sync"}},
}
"""Of users' models, as questions name them, and as configs do."""
Config = dict[str, Any]


class Pair(NamedTuple):
    """A run that follows its plan. `rule`: as a question names it, "": the config's own."""

    what: str
    workers: int
    config: Config
    rule: str = ""


class Compared(NamedTuple):
    """What is measured once, by a plan of `config`, and the runs that are compared with it."""

    system: str
    config: Config
    pairs: Sequence[Pair]


def classifier(width: int, workers: int, accelerator: str = "") -> Config:
    """The shipped classifier on digits: under DDP, or on one `accelerator` under a parameter server."""
    trainer: Config = {"max_epochs": 20, "accelerator": "cpu", "devices": workers, "strategy": "ddp"}
    if accelerator:
        server = {"class_path": "AsyncPS", "init_args": {"workers": workers}}
        devices = {"devices": 1} if accelerator == "gpu" else {}
        trainer = {**UNTIL_TIME, "accelerator": accelerator, "strategy": server, **devices}
    batch_size = width if accelerator else 64
    return {
        "trainer": trainer,
        "model": {"class_path": "scalebook.training.zoo.models.ConvClassifier", "init_args": {"width": width}},
        "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": batch_size}},
        **({"optimizer": {"class_path": "SGD", "init_args": {"lr": 0.001}}} if accelerator else {}),
    }


def users_model(name: str, strategy: str) -> Config:
    """One of `engine_models.TASKS`, trained by two workers."""
    devices = {"devices": CORES} if strategy == "ddp" else {}
    trainer = {**UNTIL_TIME, "accelerator": "cpu", "strategy": STRATEGIES[strategy], **devices}
    return {"trainer": trainer, **engine_models.TASKS[name].config(CORES)}


def comparisons(kind: str, only: Sequence[str], accelerator: str) -> Iterator[Compared]:
    """What is compared."""
    if kind == "users":
        for name in only or engine_models.TASKS:
            pairs = [Pair(f"{name}, {rule}", CORES, users_model(name, rule), rule) for rule in STRATEGIES]
            yield Compared(name, users_model(name, "async"), pairs)
        return
    on, workers = (accelerator, SHARING) if kind == "gpu" else ("", (CORES,))
    for width in map(int, only or WIDTHS[kind]):
        pairs = [Pair(f"{count} workers, width {width}", count, classifier(width, count, on)) for count in workers]
        at_once = TOGETHER if kind == "gpu" else CORES
        yield Compared(f"classifier of width {width}", classifier(width, at_once, on), pairs)


def measured(workspace: Workspace, experiment: Experiment) -> float:
    """Mean samples per second that a whole run recorded, without its beginning."""
    with hold_supervisor(workspace):
        (job,) = job_requests.submit(workspace, experiment, seeds=[1])
        result = follow(workspace, job, lambda *_: None)
    assert result.status == "finished", job.tail()
    values = RunReader(workspace.tracking_uri()).curve(job.id, names.SAMPLES_PER_SECOND).values[BEGINNING:]
    return sum(values) / len(values)


def compared(workspace: Workspace, description: Description, one: Compared) -> tuple[list[ComparedPlan], float]:
    """A cell for each pair, with a line that is printed; and how many cores other programs used while parts were
    measured."""
    experiment = Experiment.read(one.config, description)
    profile, cells = measure(workspace, experiment, sys.stderr), list[ComparedPlan]()
    for pair in one.pairs:
        asked = Question(workers=(pair.workers,), rules=rules(pair.rule) if pair.rule else (), shards=())
        question = asked.of(experiment)
        setting = Setting.of(profile, question, question.rules[0], 1, OWN)
        plan = setting.play(pair.workers).samples_per_s
        run = measured(workspace, Experiment.read(pair.config, description))
        known, ratio = setting.reliability, round(plan / run, 3)
        low, high = known.updates_per_s.likely(plan)
        said = "in" if low <= run <= high else "OUT OF"
        print(
            f"{pair.what}: predicted {plan:.1f}, measured {run:.1f} samples/s, {ratio:.2f}, {said} the range of "
            f"{low:.0f} to {high:.0f} of {known.kind}",
            flush=True,
        )
        place = place_of(profile, own_network=True)
        cells.append(ComparedPlan(strategy_of(setting.rule), place, pair.what, ratio, system=one.system))
    return cells, profile.busy


def main() -> None:
    """Print a line for each plan."""
    options = parser(__doc__)
    options.add_argument("kind", choices=[*WIDTHS, "users"])
    options.add_argument("--rounds", type=int, help="how often each is measured and trained (ddp: 2, else 1)")
    options.add_argument("--only", nargs="+", default=[], help="these widths or models")
    options.add_argument("--accelerator", choices=["gpu", "cpu"], default="gpu", help="of gpu; cpu tries the command")
    options.add_argument("--reliability", type=Path, help="add its cells to this file")
    args = options.parse_args()
    busy, cells = 0.0, list[ComparedPlan]()
    rounds = args.rounds or (2 if args.kind == "ddp" else 1)
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = f"{folder}/state"
        workspace = Workspace(Path(folder).resolve()).create()
        (workspace.root / "scalebook.toml").write_text(f'modules = ["{engine_models.__name__}"]\n')
        trust(workspace)
        description = describe(workspace)
        for one in comparisons(args.kind, args.only, args.accelerator):
            for _ in range(rounds):
                more, used = compared(workspace, description, one)
                cells, busy = [*cells, *more], max(busy, used)
    near = sum(1 / NEAR <= cell.rates <= NEAR for cell in cells)
    where = f"{machine()}; other programs used up to {busy:g} cores while parts were measured"
    print(f"within 10 %: {near} of {len(cells)}\n{where}")
    if args.reliability and not (args.kind == "gpu" and args.accelerator == "cpu"):
        command = f"python -m benchmarks.plans {args.kind} --rounds {rounds}"
        command += f" --only {' '.join(args.only)}" if args.only else ""
        gpu = f"{this_machine().gpus[0].name}, " if args.kind == "gpu" else ""
        write(args.reliability, PlansCompared(command, gpu + where, cells))


if __name__ == "__main__":
    main()
