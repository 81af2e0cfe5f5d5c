"""How far the linear scaling rule carries: figures and a picture in docs/figures (`python -m benchmarks.scaling_rule`).

    python -m benchmarks.scaling_rule [--seeds 5] [--epochs 20] [--out docs/figures]

A small perceptron on digits, plain SGD, the same number of epochs at every batch size from 16 to 1,024. First a grid of
batch sizes and learning rates (octaves), every point with several seeds, run as a search of Scalebook's own. Around the
best rate at batch 16 the loss hardly changes, so the smallest rate whose loss is not resolved from it is scaled to each
batch by three rules: linear (Goyal et al. 2017), square root (where that falls on the grid), and not at all; linear
once more with a gradual warm-up of 2 epochs, by the config's `lr_scaling`. A rule holds up to the batch at which its
loss is worse than at batch 16 and their 95 % intervals do not overlap. Takes about 6 minutes on 2 cores.
"""

import argparse
import json
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.machine import machine
from scalebook.training.base.workspace import Workspace
from scalebook.training.experiments.catalogue import describe
from scalebook.training.experiments.description import Description
from scalebook.training.jobs.supervisor_handle import hold_supervisor
from scalebook.training.search import search_folder as searches
from scalebook.training.search import search_requests
from scalebook.training.search.study.study_reader import read_study
from scalebook.training.search.study.trials import TrialRecord

BATCHES: Final[list[int]] = [2**exponent for exponent in range(4, 11)]
RATES: Final = [0.01 * 2**octave for octave in range(9)]
"""0.01 to 2.56, an octave apart, so that the linear rule falls on the grid."""
WARM_UP_EPOCHS: Final = 2
DEADLINE_S: Final = 3600.0
RULES: Final = ("best", "linear", "square root", "the same rate", "linear, warm-up")


@dataclass(frozen=True)
class Point:
    """One batch size under one rule. `loss`: mean over seeds of the best validation loss; None: it diverged."""

    rule: str
    batch: int
    rate: float
    loss: float | None
    spread: float | None
    """Half of the 95 % interval."""

    @property
    def low(self) -> float:
        return math.inf if self.loss is None else self.loss - (self.spread or 0.0)

    @property
    def high(self) -> float:
        return math.inf if self.loss is None else self.loss + (self.spread or 0.0)


def config(epochs: int, rate: float, scaling: Mapping[str, Any] | None = None) -> dict[str, Any]:
    content: dict[str, Any] = {
        "seed_everything": 1,
        "trainer": {"max_epochs": epochs, "accelerator": "cpu"},
        "model": {"class_path": "scalebook.training.zoo.models.MLPClassifier"},
        "data": {"class_path": "scalebook.training.zoo.data.Digits", "init_args": {"batch_size": 16}},
        "optimizer": {"class_path": "torch.optim.SGD", "init_args": {"lr": rate}},
    }
    return content if scaling is None else {**content, "lr_scaling": dict(scaling)}


def searched(workspace: Workspace, description: Description, name: str, body: Mapping[str, Any]) -> list[TrialRecord]:
    """All trials of a search over its whole grid."""
    folder = search_requests.start(workspace, body, None, name=name, description=description)
    deadline = time.monotonic() + DEADLINE_S
    printed = 0.0
    while folder.state() not in searches.ENDED:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{name} did not end within {DEADLINE_S:g} s")
        if (progress := folder.progress()) is not None and time.monotonic() - printed > 20:
            printed = time.monotonic()
            print(f"# {name}: {progress.done} of {progress.trials} points", flush=True)
        time.sleep(0.2)
    if (result := folder.result()) is None or result.status != "finished":
        raise RuntimeError(f"{name}: {result}")
    request = folder.request()
    return read_study(request.storage, request.study, folder.spec(description))


def points(workspace: Workspace, seeds: int, epochs: int) -> list[Point]:
    """Every rule at every batch size."""
    description = describe(workspace)
    common = {"objective": "val/loss", "sampler": "grid", "seeds": seeds, "failures": 10_000, "trials": 10_000}
    space = {"batch_size": {"grid": BATCHES}, "learning_rate": {"grid": RATES}}
    grid = searched(workspace, description, "grid", {**common, "config": config(epochs, 0.01), "space": space})
    by_point = {(record.point["batch_size"], record.point["learning_rate"]): record for record in grid}
    points_ = [best(batch, by_point) for batch in BATCHES]
    reference = gentlest(points_[0], by_point)
    base = RATES.index(reference)
    for rule, slope in (("linear", 1.0), ("square root", 0.5), ("the same rate", 0.0)):
        for octave, batch in enumerate(BATCHES):
            place = base + slope * octave
            if place == int(place) and place < len(RATES):
                points_.append(point(rule, batch, RATES[int(place)], by_point[batch, RATES[int(place)]]))
    scaling = {"rule": "linear", "per": BATCHES[0], "warmup_epochs": float(WARM_UP_EPOCHS)}
    warm = {"config": config(epochs, reference, scaling), "space": {"batch_size": {"grid": BATCHES}}}
    for record in searched(workspace, description, "warm-up", {**common, **warm}):
        batch = record.point["batch_size"]
        points_.append(point(RULES[-1], batch, reference * batch / BATCHES[0], record))
    return points_


def best(batch: int, by_point: Mapping[tuple[int, float], TrialRecord]) -> Point:
    """The rate with the least loss."""
    mine = [(rate, record) for (its, rate), record in by_point.items() if its == batch and record.state == "finished"]
    rate, record = min(mine, key=lambda pair: pair[1].values[0])
    return point("best", batch, rate, record)


def gentlest(top: Point, by_point: Mapping[tuple[int, float], TrialRecord]) -> float:
    """The smallest rate at the batch of `top` whose loss is not resolved from it."""
    mine = [point("", top.batch, rate, by_point[top.batch, rate]) for rate in RATES]
    return next(point_.rate for point_ in mine if point_.low <= top.high)


def point(rule: str, batch: int, rate: float, record: TrialRecord) -> Point:
    loss = record.values[0] if record.state == "finished" else None
    return Point(rule, batch, rate, loss, record.spread)


def holds_up_to(rule: str, points_: Sequence[Point]) -> int:
    """The largest batch up to which the rule's measured loss is not resolved from that at the first batch."""
    mine = {point_.batch: point_ for point_ in points_ if point_.rule == rule}
    last = BATCHES[0]
    for batch in (batch for batch in BATCHES if batch in mine):
        if mine[batch].low > mine[BATCHES[0]].high:
            return last
        last = batch
    return last


def table(points_: Sequence[Point]) -> str:
    lines = ["batch " + "".join(f"{rule:>24}" for rule in RULES)]
    for batch in BATCHES:
        cells = []
        for rule in RULES:
            point_ = next((each for each in points_ if (each.rule, each.batch) == (rule, batch)), None)
            cells.append("" if point_ is None else _cell(point_))
        lines.append(f"{batch:>5} " + "".join(f"{cell:>24}" for cell in cells))
    return "\n".join(lines)


def _cell(point_: Point) -> str:
    return (
        f"{point_.rate:.3g}: diverged"
        if point_.loss is None
        else f"{point_.rate:.3g}: {point_.loss:.3f} ± {point_.spread or 0:.3f}"
    )


def draw(points_: Sequence[Point], path: Path) -> None:
    """On the left the best rate and those of the rules, on the right the loss under each rule."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 4.4), layout="constrained")
    for rule, style, color in zip(RULES, ("o", "s-", "^-", "D-", "v--"), ("k", "C0", "C1", "C2", "C0"), strict=True):
        mine = sorted((point_ for point_ in points_ if point_.rule == rule), key=lambda point_: point_.batch)
        if rule != RULES[-1]:
            label = "best of the grid" if rule == "best" else rule
            left.plot(
                [point_.batch for point_ in mine], [point_.rate for point_ in mine], style, color=color, label=label
            )
        good = [point_ for point_ in mine if point_.loss is not None]
        right.errorbar(
            [point_.batch for point_ in good],
            [point_.loss or 0.0 for point_ in good],
            [point_.spread or 0.0 for point_ in good],
            fmt=style if rule != "best" else "o-",
            color=color,
            label="best of the grid" if rule == "best" else rule,
            capsize=3,
        )
    for axes, title in ((left, "learning rate"), (right, "best validation loss, 95 % intervals")):
        axes.set(xscale="log", yscale="log", xlabel="batch size", title=title, xticks=BATCHES, xticklabels=BATCHES)
        axes.minorticks_off()
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    figure.savefig(path, dpi=150)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling_rule", description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    options: Any = parser.parse_args()
    print(machine(), flush=True)
    with tempfile.TemporaryDirectory() as root:
        workspace = Workspace(Path(root).resolve()).create()
        with hold_supervisor(workspace):
            points_ = points(workspace, options.seeds, options.epochs)
    print(
        f"rate: best validation loss after {options.epochs} epochs, {options.seeds} seeds ± half of the 95 % interval"
    )
    print(table(points_))
    for rule in RULES[1:]:
        print(f"{rule}: as good as at batch {BATCHES[0]} up to batch {holds_up_to(rule, points_)}")
    options.out.mkdir(parents=True, exist_ok=True)
    content = {
        "machine": machine(),
        "seeds": options.seeds,
        "epochs": options.epochs,
        "points": [asdict(point_) for point_ in points_],
    }
    (options.out / "scaling-rule.json").write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    draw(points_, options.out / "scaling-rule.png")
    return 0


if __name__ == "__main__":
    sys.exit(main())
