"""Asks questions whose answers are known: `python -m benchmarks.asks [NAME ...] [--budget 3m]`.

The models are those of `tests/training/asking/lab`. `known` is the true ratio to the first side of what decides, as a
range: from a simulation in NumPy at the rates that were chosen, a closed form, or a bound that no machine can break. An
answer is WRONG if a verdict contradicts it, or an interval excludes all of it; `not resolved` if no side has a verdict.
"""

import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import yaml

from benchmarks.common import Others, parser, row

LAB: Final = Path(__file__).parent.parent / "tests/training/asking/lab"
INF: Final = math.inf
Range = tuple[float, float]


def config(model: str, data: str, epochs: int = 10, trainer: Mapping[str, Any] | None = None, **model_args: Any) -> Any:
    name, _, sizes = data.partition(" ")
    return {
        "seed_everything": 1,
        "trainer": {"accelerator": "cpu", "devices": 1, "max_epochs": epochs, **(trainer or {})},
        "model": {"class_path": model, "init_args": model_args},
        "data": {"class_path": name, "init_args": yaml.safe_load(sizes or "{}")},
    }


@dataclass(frozen=True)
class Case:
    """`truth`: by the end of a side's cell, the range of its true ratio; `simulated`: from the answer's rows."""

    question: str
    config: Any
    against: Any = None
    truth: Mapping[str, Range] = field(default_factory=dict)
    simulated: Callable[[Any, Mapping[str, Any]], Mapping[str, Range]] | None = None
    options: tuple[str, ...] = ()


def quadratic(answer: Any, rates: Mapping[str, Any]) -> Mapping[str, Range]:
    """Samples to the target of the noisy quadratic: one process' mean with four times the batch, and stale gradients."""
    took = {side: [_crossed(side, rate, answer.target, seed) for seed in range(200)] for side, rate in rates.items()}
    logs = {side: np.log(amounts) for side, amounts in took.items()}
    base = next(side for side in logs if side.startswith("sync"))
    means = {side: float(np.exp(np.mean(log) - np.mean(logs[base]))) for side, log in logs.items()}
    return {side: (0.97 * mean, 1.03 * mean) for side, mean in means.items()}


def _crossed(side: str, rate: float, target: float, seed: int, workers: int = 4, every: int = 8) -> float:
    from scalebook.training.notebook.claims.intervals import crossing

    chance, samples, features = np.random.default_rng(seed), 512, 16
    shared = np.ones(features)
    held = [shared.copy() for _ in range(workers)]
    places, values = [], []
    for step in range(1, 4 * samples // workers + 1):
        for worker in range(workers):
            gradient = held[worker] - chance.standard_normal(features)
            if side.startswith("sync"):
                shared = shared - rate * gradient / workers
            elif side.startswith("async"):
                shared = shared - rate * gradient
                held[worker] = shared
            else:
                held[worker] = held[worker] - rate * gradient
        if side.startswith("sync"):
            held = [shared] * workers
        elif side.startswith("local") and step % every == 0:
            shared = np.mean(held, axis=0)
            held = [shared.copy() for _ in range(workers)]
        if step % (64 // workers) == 0:
            places.append(float(step * workers))
            values.append(float(np.mean(shared**2)))
    found = crossing(places, values, target, True)
    return found.value if found else math.nan


BUSY: Final = config("known.Regression", "known.Samples {samples: 256, noise: 3}", 4, work=6, lr=0.004)
WIDE: Final = config("known.Regression", "known.Samples {samples: 256, noise: 0}", 4, ballast=2000, lr=0.02)
FOUR: Final = {"class_path": "AsyncPS", "init_args": {"workers": 4, "host": "virtual", "clock": {"gradient_s": 0.1}}}
STALE: Final = {"strategy": FOUR, "val_check_interval": 0.125}
NOISY: Final = config("known.Quadratic", "known.Noise {samples: 512}", 4, STALE, lr=0.02)
STEEP: Final = config("known.Quadratic", "known.Noise {samples: 256, spread: 0.01}", 4, STALE, lr=0.4, momentum=0.9)
LINE: Final = "known.Samples {samples: 256, noise: 0.5}"
FOUR_TERMS: Final = float(np.sum(np.linspace(-1, 1, 16)[12:] ** 2) / np.sum(np.linspace(-1, 1, 16)[8:] ** 2))
UNET: Final = config("theirs.UNet", "theirs.Discs", 6)
TEXTS: Final = config("theirs.TextNet", "theirs.Texts", 10)
CURVE: Final = config("theirs.Regressor", "theirs.Curve", 10)
STEPS: Final = {"max_steps": 320, "max_epochs": -1}
HIDDEN: Final = config("theirs.Hidden", "theirs.Curve", 10, STEPS)
TWICE: Final = {"ddp-2": (0.45, INF), "async-2": (0.45, INF)}
"""Two workers at most halve the time; the rest is for smoother steps."""
CASES: Final[dict[str, Case]] = {
    "busy": Case("more-workers", BUSY, truth={"ddp-2": (0.45, 0.95), "async-2": (0.45, 0.95)}),
    "wide": Case("more-workers", WIDE, truth={"ddp-2": (1, INF), "async-2": (1, INF), "async-4-virtual": (0.9, INF)}),
    "noisy": Case("cost-of-updates", NOISY, simulated=quadratic),
    "steep": Case("cost-of-updates", STEEP, truth={"async-4-virtual": (2, INF)}),
    "same": Case(
        "a-or-b", config("known.Regression", LINE, 4, lr=0.02), config("known.Regression", LINE, 4, lr=0.02, name="b"),
        {"a": (1, 1)},
    ),
    "better": Case(
        "a-or-b", config("known.Regression", LINE, 8, features=12), config("known.Regression", LINE, 8, features=8),
        {"a": (0.9 * FOUR_TERMS, 1.2 * FOUR_TERMS)},
    ),
    "small-batch": Case("batch-and-rate", config(
        "known.Regression", "known.Samples {samples: 256, noise: 3, batch_size: 2}", 4, lr=0.004), truth={"best": (0, 0.9)}
    ),
    "best-batch": Case("batch-and-rate", config(
        "known.Regression", "known.Samples {samples: 256, noise: 0}", 4, lr=0.04), truth={"best": (0.8, INF)}
    ),
    "unet": Case("more-workers", UNET, truth=TWICE),
    "texts": Case("more-workers", TEXTS, truth=TWICE),
    "curve": Case("more-workers", CURVE, truth=TWICE),
    "hidden": Case("more-workers", HIDDEN, truth=TWICE, options=("--metric", "val_accuracy", "--goal", "max")),
    "unet-same": Case("a-or-b", UNET, {**UNET, "seed_everything": 7}, {"a": (1, 1)}),
    "texts-same": Case("a-or-b", TEXTS, {**TEXTS, "seed_everything": 7}, {"a": (1, 1)}),
    "curve-same": Case("a-or-b", CURVE, {**CURVE, "seed_everything": 7}, {"a": (1, 1)}),
    "hidden-same": Case(
        "a-or-b", HIDDEN, {**HIDDEN, "seed_everything": 7}, {"a": (1, 1)}, options=("--metric", "val_accuracy", "--goal", "max")
    ),
    "unet-batch": Case("batch-and-rate", UNET),
    "texts-batch": Case("batch-and-rate", TEXTS),
    "curve-cost": Case("cost-of-updates", CURVE),
    "hidden-cost": Case("cost-of-updates", HIDDEN, options=("--metric", "val_accuracy", "--goal", "max")),
}  # fmt: skip


def ask(case: Case, folder: Path, budget: str) -> tuple[str, str, str, int]:
    """The answer's headline, the known answer, what it is, and how many runs there were. Ends with the folder."""
    from scalebook.training.asking import AnswerReader
    from scalebook.training.base import Workspace
    from scalebook.training.cli import ask as command
    from scalebook.training.experiments import catalogue
    from scalebook.training.notebook import store
    from scalebook.training.tracking import RunReader

    shutil.copytree(LAB, folder)
    (folder / "scalebook.toml").write_text('modules = ["known", "theirs"]\n')
    for name, one in (("asked", case.config), ("other", case.against)):
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(one))
    os.chdir(folder)
    against = ["--against", "other.yaml"] if case.against else []
    command.main([case.question, "-c", "asked.yaml", *against, "--budget", budget, *case.options, "--trust"])
    workspace, stored = Workspace(folder), store.read(folder / "asked-asked.md")
    reader = RunReader(workspace.tracking_uri())
    (cell,) = stored.notebook.answers()
    answer = AnswerReader(workspace, reader, stored.path.name, stored.notebook, catalogue.describe(workspace)).answer(
        cell
    )
    truth = case.truth
    if case.simulated is not None and answer.rows:
        truth = case.simulated(answer, {row.cell.removeprefix(f"{cell.name}-"): row.rate for row in answer.rows})
    found, said = _judged(answer, cell.name, truth)
    return answer.headline, said, found, sum(row.seeds for row in answer.rows)


def _judged(answer: Any, cell: str, truth: Mapping[str, Range]) -> tuple[str, str]:
    from scalebook.training.asking.answer_rows import decided_by
    from scalebook.training.asking.asking import SIMULATED_BOUND
    from scalebook.training.asking.recipes import all_recipes

    found, said = "not resolved", []
    bound = next(one.bound for one in all_recipes().values() if one.question == answer.question)
    for line in answer.rows[1:]:
        side = line.cell.removeprefix(f"{cell}-")
        low, high = truth.get(side, (0, INF))
        said += [f"{side} {low:.2f} to {high:.2f}"] if side in truth else []
        ratio = line.ratios.get(decided_by(answer, line))
        if line.verdict not in ("supported", "refuted") or ratio is None:
            continue
        at = SIMULATED_BOUND if decided_by(answer, line) != answer.figure else bound
        beyond = low > at if line.verdict == "supported" else high < at
        if beyond or low == high == at or ratio.low > high or ratio.high < low:
            return "WRONG", "; ".join(said)
        found = "right"
    return found, "; ".join(said)


def main() -> int:
    """Print the table, a row for each; exit code 1 if an answer is wrong."""
    options = parser(__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", default=[*CASES], help=", ".join(CASES))
    options.add_argument("--budget", default="10m")
    given = options.parse_args()
    others, wrong = Others(), 0
    print(row("ask", "question", "answer", "known", "", "fresh runs", "minutes"))
    print("|---|---|---|---|---|---:|---:|")
    for name in given.names:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            os.environ["XDG_STATE_HOME"], began = f"{folder}/state", time.monotonic()
            try:
                said = ask(CASES[name], Path(folder) / "lab", given.budget)
            finally:
                os.chdir("/")
        wrong += said[2] == "WRONG"
        headline, known, found, runs = said
        minutes = (time.monotonic() - began) / 60
        print(row(name, CASES[name].question, headline, known, found, runs, f"{minutes:.1f}"), flush=True)
    print(f"\n{others.sentence()}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
