"""Asks questions whose answers are known: `python -m benchmarks.asks [NAME ...] [--budget 10m]`.

The models are those of `tests/training/asking/lab`. `known` is the range of a side's true ratio to the first side: from
a simulation in NumPy or a closed form, at the points that were chosen, or a bound that no machine can break. An answer
is WRONG if a verdict contradicts it, or an interval with a verdict excludes all of it; without a verdict it is `not
resolved`.
"""

import math
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
import yaml

from benchmarks.common import machine, parser, row

LAB: Final = Path(__file__).parent.parent / "tests/training/asking/lab"
INF: Final = math.inf
Truth = Mapping[str, tuple[float, float]]
"""By the end of a side's name, the range of its true ratio."""


class Case(NamedTuple):
    question: str
    config: dict[str, Any]
    truth: Truth = {}  # noqa: RUF012 - none is changed
    against: dict[str, Any] | None = None
    options: tuple[str, ...] = ()


def config(model: str, data: str, epochs: int, trainer: Mapping[str, Any] = {}, **model_args: Any) -> dict[str, Any]:
    name, _, sizes = data.partition(" ")
    return {
        "seed_everything": 1,
        "trainer": {"accelerator": "cpu", "devices": 1, "max_epochs": epochs, **trainer},
        "model": {"class_path": model, "init_args": model_args},
        "data": {"class_path": name, "init_args": yaml.safe_load(sizes or "{}")},
    }


def other(one: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        **one,
        "seed_everything": 7,
        "model": {**one["model"], "init_args": {**one["model"]["init_args"], **changes}},
    }


FOUR: Final = {"class_path": "AsyncPS", "init_args": {"workers": 4, "host": "virtual", "clock": {"gradient_s": 0.1}}}
STALE: Final = {"strategy": FOUR, "val_check_interval": 0.125}
LINE, UNET = "known.Regression", config("theirs.UNet", "theirs.Discs", 6)
TEXTS, CURVE = config("theirs.TextNet", "theirs.Texts", 10), config("theirs.Regressor", "theirs.Curve", 10)
HIDDEN: Final = config("theirs.Hidden", "theirs.Curve", -1, {"max_steps": 320})
FITTED: Final = config(LINE, "known.Samples {samples: 256, noise: 0.5}", 6)
SCORE, SAME = ("--metric", "val_accuracy", "--goal", "max"), {"a": (1.0, 1.0)}
LEFT: Final = [float(np.sum(np.linspace(-1, 1, 16)[features:] ** 2)) for features in (12, 8)]
"""The loss of regressions that may use so many features."""
TWICE: Final = {"ddp-2": (0.45, INF), "async-2": (0.45, INF)}
"""Two workers at most halve the time."""
CASES: Final[dict[str, Case]] = {
    "busy": Case("more-workers", config(LINE, "known.Samples {samples: 256, noise: 3}", 4, work=6, lr=0.004),
                 {"ddp-2": (0.45, 0.95), "async-2": (0.45, 0.95)}),
    "wide": Case("more-workers", config(LINE, "known.Samples {samples: 256, noise: 0}", 4, ballast=2000),
                 {"ddp-2": (1, INF), "async-2": (0.45, INF), "async-4-virtual": (0.9, INF)}),
    "noisy": Case("cost-of-updates", config("known.Quadratic", "known.Noise {samples: 256}", 2, STALE, lr=0.02)),
    "steep": Case("cost-of-updates", config("known.Quadratic", "known.Noise {samples: 256, spread: 0.01}", 2, STALE,
                                            lr=0.4, momentum=0.9), {"async-4-virtual": (2, INF)}),
    "same": Case("a-or-b", FITTED, SAME, other(FITTED, name="b")),
    "better": Case("a-or-b", other(FITTED, features=12), {"a": (0.9 * LEFT[0] / LEFT[1], 1.2 * LEFT[0] / LEFT[1])},
                   other(FITTED, features=8)),
    "small-batch": Case("batch-and-rate", config(LINE, "known.Samples {samples: 256, noise: 3, batch_size: 2}", 4,
                                                 lr=0.004), {"best": (0, 0.9)}),
    "best-batch": Case("batch-and-rate", config(LINE, "known.Samples {samples: 256, noise: 0}", 4, lr=0.04)),
    "unet": Case("more-workers", UNET, TWICE), "texts": Case("more-workers", TEXTS, TWICE),
    "curve": Case("more-workers", CURVE, TWICE), "hidden": Case("more-workers", HIDDEN, TWICE, options=SCORE),
    "unet-same": Case("a-or-b", UNET, SAME, other(UNET)), "texts-same": Case("a-or-b", TEXTS, SAME, other(TEXTS)),
    "curve-same": Case("a-or-b", CURVE, SAME, other(CURVE)),
    "hidden-same": Case("a-or-b", HIDDEN, SAME, other(HIDDEN), SCORE),
    "unet-batch": Case("batch-and-rate", UNET), "texts-batch": Case("batch-and-rate", TEXTS),
    "curve-cost": Case("cost-of-updates", CURVE), "hidden-cost": Case("cost-of-updates", HIDDEN, options=SCORE),
}  # fmt: skip


def quadratic(rates: Mapping[str, float], target: float) -> Truth:
    """Of the case `noisy`, from 200 runs of four workers at each side's rate, within a tenth."""
    amounts = {side: [_samples(side, rate, target, seed) for seed in range(200)] for side, rate in rates.items()}
    log = {side: float(np.mean(np.log(one))) for side, one in amounts.items()}
    ratios = {side: math.exp(one - log["sync-4-virtual"]) for side, one in log.items()}
    return {side: (0.9 * one, 1.1 * one) for side, one in ratios.items() if side.startswith(("async", "local"))}


def noise_free(own: tuple[int, float], best: tuple[int, float]) -> Truth:
    """Of the case `best-batch`, by batch size and rate: without noise, a step of SGD multiplies the excess loss of 16
    features by 1 - 2 rate + rate^2 (batch + 17) / batch. In time, a step costs between as much at any batch size, and
    in proportion to it. Within a tenth."""
    (few, many) = (1 / -math.log(1 - 2 * rate + rate**2 * (batch + 17) / batch) for batch, rate in (best, own))
    ratios = few / many, few * best[0] / (many * own[0])
    return {"best": (0.9 * min(ratios), 1.1 * max(ratios))}


def _samples(side: str, rate: float, target: float, seed: int) -> float:
    from scalebook.training.notebook.claims.intervals import crossing

    chance, weights, held, places, values = np.random.default_rng(seed), np.ones(16), np.ones((4, 16)), [], []
    for step in range(1, 129):
        noise = chance.standard_normal((4, 16))
        for worker in range(4):
            if side.startswith("async"):
                weights = weights - rate * (held[worker] - noise[worker])
                held[worker] = weights
        if not side.startswith("async"):
            held = held - rate * (held - noise)
            if side.startswith("sync") or step % 8 == 0:
                weights = held.mean(0)
                held = np.tile(weights, (4, 1))
        if step % 8 == 0:  # as often as the runs validate
            places.append(4.0 * step)
            values.append(float(np.mean(weights**2)))
    found = crossing(places, values, target, True)
    return found.value if found is not None else math.nan


def ask(name: str, folder: Path, budget: str) -> list[object]:
    """The headline, what is known, whether they agree, and the number of runs with fresh seeds."""
    from scalebook.training.asking import AnswerReader
    from scalebook.training.base import Workspace
    from scalebook.training.cli import ask as command
    from scalebook.training.experiments import catalogue
    from scalebook.training.notebook import store
    from scalebook.training.tracking import RunReader

    case = CASES[name]
    shutil.copytree(LAB, folder)
    (folder / "scalebook.toml").write_text('modules = ["known", "theirs"]\n')
    for file, content in (("asked", case.config), ("other", case.against)):
        (folder / f"{file}.yaml").write_text(yaml.safe_dump(content))
    os.chdir(folder)
    against = ["--against", "other.yaml"] if case.against else []
    command.main([case.question, "-c", "asked.yaml", *against, "--budget", budget, *case.options, "--trust"])
    workspace, stored = Workspace(folder), store.read(folder / "asked-asked.md")
    reader, description = RunReader(workspace.tracking_uri()), catalogue.describe(workspace)
    (cell,) = stored.notebook.answers()
    found = AnswerReader(workspace, reader, stored.path.name, stored.notebook, description).answer(cell)
    sides = {one.cell.removeprefix(f"{cell.name}-"): one for one in found.rows}
    truth = case.truth
    if name == "noisy" and sides:
        truth = quadratic({side: one.rate or 0.0 for side, one in sides.items()}, found.target or 0.0)
    elif name == "best-batch" and len(sides) > 1:
        truth = noise_free(*((one.batch or 4, one.rate or 0.0) for one in found.rows))
    known = "; ".join(f"{side} {low:.2f} to {high:.2f}" for side, (low, high) in truth.items())
    return [found.headline, known, _judged(found, cell.name, truth), sum(one.seeds for one in found.rows)]


def _judged(found: Any, cell: str, truth: Truth) -> str:
    from scalebook.training.asking.answer_rows import decided_by
    from scalebook.training.asking.asking import SIMULATED_BOUND
    from scalebook.training.asking.recipes import all_recipes

    sides = [side for side in found.rows[1:] if side.verdict in ("supported", "refuted")]
    for side in sides:
        figure, (low, high) = decided_by(found, side), truth.get(side.cell.removeprefix(f"{cell}-"), (0, INF))
        asked = next(one.bound for one in all_recipes().values() if one.question == found.question)
        bound, ratio = SIMULATED_BOUND if figure != found.figure else asked, side.ratios[figure]
        contradicts = low > bound if side.verdict == "supported" else high < bound
        if contradicts or low == high == bound or ratio.low > high or ratio.high < low:
            return "WRONG"
    return "right" if sides else "not resolved"


def main() -> int:
    """Print the table, a row for each; exit code 1 if an answer is wrong."""
    options = parser(__doc__)
    options.add_argument("names", nargs="*", metavar="NAME", help=", ".join(CASES))
    options.add_argument("--budget", default="10m")
    given, rows = options.parse_args(), []
    for name in given.names or CASES:
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            os.environ["XDG_STATE_HOME"], began = f"{folder}/state", time.monotonic()
            try:
                said = ask(name, Path(folder) / "lab", given.budget)
            except Exception as error:  # noqa: BLE001 - a question without an answer is a row of its own
                said = [f"No answer: {error}", "", "not resolved", 0]
            os.chdir("/")
        rows.append(row(name, CASES[name].question, *said, f"{(time.monotonic() - began) / 60:.1f}"))
        print(rows[-1], flush=True)
    head = [row("ask", "question", "answer", "known", "is", "fresh runs", "minutes"), "|---|---|---|---|---|---:|---:|"]
    print("\n".join(["", *head, *rows, "", f"{machine()}."]))
    return 1 if any("| WRONG |" in one for one in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
