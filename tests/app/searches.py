"""A search that was never run: a thousand trials whose values come from a formula, for charts to draw.

The formula has what real searches have: a ridge along constant rate over batch that bends, divergence beyond it, memory
that ends at a batch size, noise, and pruned trials.
"""

import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scalebook.training.base.failures import FailureClass
from scalebook.training.base.trust import SEARCH, sign
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.search.definition import body_of
from scalebook.training.experiments.search.space import Dimension
from scalebook.training.experiments.search.types import Objective, SearchSpec
from scalebook.training.search.search_folder import SearchFolder, SearchProgress, SearchRequest, SearchResult
from scalebook.training.search.study.study import Study
from scalebook.training.search.study.trials import TrialRecord
from tests.app.described import description
from tests.app.recorded import config

BATCH = Dimension("batch_size", "powers_of_two", 16, 1024)
RATE = Dimension("learning_rate", "log_uniform", 0.001, 1.0)
WORKERS = Dimension("workers", "values", choices=(1, 2))
STRATEGY = Dimension("strategy", "values", choices=("single", "ddp", "async"))
FEATURES = Dimension("model.features", "int", 8, 64, log=True)
SPACE = (BATCH, RATE, STRATEGY, WORKERS)
EPOCH = 1437
"""Samples of an epoch; a trial has ten."""


def spec(space: Sequence[Dimension] = SPACE, **changes: Any) -> SearchSpec:
    """Over batch size, learning rate, strategy and workers, unless told otherwise; by validation loss."""
    told: dict[str, Any] = {
        "experiment": Experiment(config(), description()),
        "space": tuple(space),
        "objectives": (Objective("val/loss", True),),
        "trials": 1000,
        "seeds": 1,
        "pruner": "median",
        **changes,
    }
    return SearchSpec(**told)


def records(search: SearchSpec, trials: int = 1000, seed: int = 1, running: int = 0) -> list[TrialRecord]:
    """That many trials; the last `running` of them still run."""
    rng = random.Random(seed)
    found = [_ended(search, number, _point(search, rng), rng) for number in range(trials - running)]
    for number in range(trials - running, trials):
        point = _point(search, rng)
        curve = _curve(0.5, 0.9, rng)[: 1 + number % 4]
        found.append(TrialRecord(number, "running", point, curve=curve, started=1e9 + number))
    return found


def _point(search: SearchSpec, rng: random.Random) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for one in search.space:
        if one.kind in ("powers_of_two", "grid", "values"):
            found[one.name] = rng.choice(one.grid())
        elif one.logarithmic:
            found[one.name] = math.exp(rng.uniform(math.log(one.low), math.log(one.high)))
        else:
            found[one.name] = rng.uniform(one.low, one.high)
        if one.kind == "int":
            found[one.name] = round(found[one.name])
    return found


def _ended(search: SearchSpec, number: int, point: dict[str, Any], rng: random.Random) -> TrialRecord:
    seconds = _seconds(point) * math.exp(rng.gauss(0, 0.08))
    common: dict[str, Any] = {
        "number": number,
        "point": point,
        "started": 1e9 + number,
        "ended": 1e9 + number + seconds,
        "runs": {1 + i: f"{number:028x}{i:04x}" for i in range(search.seeds)},
    }
    workers = 1 if point.get("strategy") == "single" else point.get("workers", 1)
    batch, stale = point.get("batch_size", 64), 1.6 if point.get("strategy") == "async" else 1.0
    apart = math.log(point.get("learning_rate", 0.1) / _best_rate(batch)) + math.log(stale)
    if batch / workers > 512:
        cause = f"MemoryError: cannot allocate memory for a batch of {batch}"
        return TrialRecord(state="infeasible", failure=FailureClass.OUT_OF_MEMORY, cause=cause, seconds=0.4, **common)
    if apart > 1.9 + 0.2 * rng.random():
        curve = _curve(3.0, 0.1, rng)[:2]
        return TrialRecord(
            state="infeasible", failure=FailureClass.DIVERGED, cause="train/loss became nan after 90 updates",
            curve=curve, seconds=seconds * 0.2, **common,
        )  # fmt: skip
    if rng.random() < 0.01:
        cause = "worker 1 died: pid 4711, SIGKILL"
        return TrialRecord(state="failed", failure=FailureClass.WORKER_LOST, cause=cause, seconds=seconds, **common)
    value = _loss(apart, batch) * math.exp(rng.gauss(0, 0.03))
    curve = _curve(value, 0.6 + 0.3 * rng.random(), rng)
    if value > 0.9 and rng.random() < 0.6 and search.pruner != "none":
        kept = rng.randint(2, 5)
        cause = f"worse than the median of the others at {curve[kept - 1][0]:,} samples"
        return TrialRecord(state="pruned", cause=cause, curve=curve[:kept], seconds=seconds * kept / 10, **common)
    values = [value, *(seconds if one.name == "seconds" else 1 - value / 3 for one in search.objectives[1:])]
    spread = value * (0.02 + 0.02 * rng.random()) if search.seeds > 1 else None
    return TrialRecord(state="finished", values=tuple(values), curve=curve, seconds=seconds, spread=spread, **common)


def _best_rate(batch: float) -> float:
    """In proportion to the batch, and no more than that of a batch of 256."""
    return 0.03 * min(batch, 256) / 64


def _loss(apart: float, batch: float) -> float:
    return 0.12 + 0.16 * apart**2 + 0.05 * max(0.0, math.log2(batch / 128)) ** 2


def _seconds(point: dict[str, Any]) -> float:
    return float(1.2 + 120 / point.get("batch_size", 64) / point.get("workers", 1))


def _curve(end: float, speed: float, rng: random.Random) -> list[tuple[int, float]]:
    """Ten epochs, falling towards `end`."""
    return [
        (EPOCH * i, end + 2.0 * math.exp(-speed * i) + 0.02 * end * rng.gauss(0, 1) * (i < 10)) for i in range(1, 11)
    ]


def tell(study: Study, told: Sequence[TrialRecord]) -> None:
    """Put the trials into a real study, in their order, as the driver would."""
    for record in told:
        study.give(record.point)
        asked = study.ask()
        study.update_trial(asked.number, runs=record.runs, seconds=record.seconds, spread=record.spread)
        for samples, value in record.curve:
            study.report(asked.number, samples, value)
        if record.state == "finished":
            study.finish(asked.number, record.values)
        elif record.state == "pruned":
            study.prune(asked.number, record.cause)
        elif record.state == "infeasible":
            study.infeasible(asked.number, record.failure or "", record.cause)
        elif record.state == "failed":
            study.fail(asked.number, record.failure or "", record.cause)


def folder(
    workspace: Workspace, search: SearchSpec, told: Sequence[TrialRecord], *, ended: bool = True, asked: str = "0" * 12,
    notebook: str = "first-steps.md",
) -> SearchFolder:  # fmt: skip
    """The folder of a search with these trials in its journal; `asked` is its identity. Not `ended`, it waits."""
    found = SearchFolder(Path(workspace.studies) / f"{len(told):032x}")
    found.path.mkdir(parents=True)
    storage = f"journal:{found.path / 'journal.log'}"
    found.write(
        SearchRequest(
            id=found.id, created=1e9, name="batch-size", mlflow_experiment=Path(notebook).stem,
            tracking_uri=workspace.tracking_uri(), identity=asked, storage=storage, notebook=notebook,
            cell="batch-size",
        )
    )  # fmt: skip
    found.write_body(body_of(search))
    sign(found.path, found.id, SEARCH)
    tell(Study.open(storage, found.request().study, search), told)
    done = sum(one.state not in ("running", "waiting") for one in told)
    found.write(SearchProgress(2e9, done, len(told) - done, search.trials, left_s=95.0, overhead_s=0.21))
    if ended:
        found.write(SearchResult("finished", 2e9))
    return found
