"""The time that a study costs its driver and the pages: `python -m benchmarks.search_speed` (about two minutes).

The real store, TPE over three dimensions, trials with 20 curve points each, four of them running at a time; no model is
trained. Prints median and 95th percentile in ms of each call, of the 100 trials before 100, 300 and 1,000, and of
reading for a page: the first time in a process, and then after each trial. `--storage URL` for another store than a
journal, `--sampler` and `--pruner` for others than TPE and none.
"""

import argparse
import math
import random
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.machine import Others
from scalebook.training.experiments.description import Description
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.space import Dimension
from scalebook.training.experiments.search.types import Objective, SearchSpec
from scalebook.training.search.study import study_reader
from scalebook.training.search.study.study import AskedTrial, Study
from scalebook.training.search.study.study_reader import read_study
from scalebook.training.search.study.trials import TrialRecord

SIZES = (100, 300, 1000)
POINTS = 20
SPACE = (
    Dimension("batch_size", "powers_of_two", 16, 1024),
    Dimension("learning_rate", "log_uniform", 0.001, 1.0),
    Dimension("strategy", "values", choices=("single", "ddp", "async")),
)
SIDE_BY_SIDE = 4


class Clock:
    """Durations of calls in ms, by name."""

    def __init__(self) -> None:
        self.ms: dict[str, list[float]] = defaultdict(list)

    def time(self, name: str, action: Callable[[], Any]) -> Any:
        began = time.perf_counter()
        result = action()
        self.ms[name].append((time.perf_counter() - began) * 1000)
        return result

    def row(self, trials: int) -> str:
        cells = [_cell(self.ms[name]) for name in ("ask", "report", "prune?", "tell", "records", "read")]
        self.ms.clear()
        return f"| {trials:,} | " + " | ".join(cells) + " |"


def _cell(ms: list[float]) -> str:
    ordered = sorted(ms)
    return f"{statistics.median(ordered):.1f} / {ordered[int(0.95 * (len(ordered) - 1))]:.1f}"


def _loss(point: dict[str, Any]) -> float:
    rate, batch = float(point["learning_rate"]), int(point["batch_size"])
    return 0.1 + math.log10(rate / 0.1) ** 2 + 0.05 * math.log2(batch / 128) ** 2


def _train(study: Study, trial: AskedTrial, clock: Clock, rng: random.Random) -> None:
    """Report one trial's curve and its end; one in twelve diverges, one in thirty is lost."""
    loss = _loss(trial.point)
    for place in range(1, POINTS + 1):
        value = loss + 2 * math.exp(-place / 5) + rng.gauss(0, 0.01)
        clock.time("report", partial(study.report, trial.number, 1000 * place, value))
        if clock.time("prune?", lambda: study.should_prune(trial.number)):
            clock.time("tell", lambda: study.prune(trial.number, "others were better"))
            return
    study.update_trial(trial.number, seconds=2.0, spread=0.01)
    if trial.number % 12 == 7:
        clock.time("tell", lambda: study.infeasible(trial.number, "diverged", "val/loss became nan"))
    elif trial.number % 30 == 11:
        clock.time("tell", lambda: study.fail(trial.number, "killed", "signal 9"))
    else:
        clock.time("tell", lambda: study.finish(trial.number, [loss]))


def _first_read(storage: str, spec: SearchSpec) -> float:
    """Seconds of the first read in a process that has imported Optuna."""
    study_reader.forget()
    began = time.perf_counter()
    read_study(storage, "study", spec)
    return time.perf_counter() - began


def measure(storage: str, spec: SearchSpec) -> None:
    study = Study.open(storage, "study", spec, samples_total=1000 * POINTS)
    clock, rng = Clock(), random.Random(1)
    going: list[AskedTrial] = []
    print("| trials | ask | report | prune? | tell | records (driver) | read (page) |\n|---|---|---|---|---|---|---|")
    for number in range(1, max(SIZES) + 1):
        going.append(clock.time("ask", study.ask))
        study.update_trial(going[-1].number, runs={1: f"{number:032x}"})
        if len(going) == SIDE_BY_SIDE:
            _train(study, going.pop(0), clock, rng)
        clock.time("records", study.records)
        records: list[TrialRecord] = clock.time("read", lambda: read_study(storage, "study", spec))
        assert len(records) == number, "the page does not see every trial"
        if number + 100 in SIZES:
            clock.ms.clear()
        if number in SIZES:
            print(clock.row(number), flush=True)
            print(f"    first read of {number:,} trials: {_first_read(storage, spec):.2f} s", flush=True)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--storage", help="an Optuna URL; default: a journal in a temporary folder")
    options.add_argument("--sampler", default="tpe")
    options.add_argument("--pruner", default="none")
    chosen = options.parse_args()
    others = Others()
    objective = (Objective("val/loss", True),)
    spec = SearchSpec(
        Experiment({}, Description([], [], [], [], [], [], {})),
        SPACE,
        objective,
        sampler=chosen.sampler,
        pruner=chosen.pruner,
        trials=max(SIZES),
    )
    with tempfile.TemporaryDirectory() as folder:
        measure(chosen.storage or f"journal:{Path(folder) / 'journal.log'}", spec)
    print(f"ms, median / 95th percentile. {others.sentence()}")


if __name__ == "__main__":
    main()
