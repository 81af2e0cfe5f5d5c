"""The largest learning rate that still trains, against the number of workers: figures and a picture in docs/figures.

    python -m benchmarks.learning_rates [--epochs 40] [--out docs/figures] [--skip-free]

A small perceptron on digits, plain SGD, batch 32. A learning rate works when 90 % of the validation images are
classified correctly after the last epoch, with at least two seeds of three; training stops early if it has not reached
30 % after a quarter of the epochs. Two ways to run N workers, both on the real engine with the rule `async`:

- in turn: N clients in one process push one after the other, so that every gradient is N - 1 updates stale;
- free: N processes, whose staleness depends on the machine.

Each with nothing, with `inverse` damping, with a warm-up of two epochs, and with both. Dashed: what a quadratic allows
at constant staleness tau = N - 1, 2 sin(pi / (4 tau + 2)), scaled to the measured rate of one worker. Takes about 4
minutes on 2 cores.
"""

import argparse
import json
import math
import mmap
import os
import statistics
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import torch
from torch.optim import SGD

from benchmarks.digits_task import accuracy, batch, batches_per_epoch, gradient, perceptron
from benchmarks.largest import largest, most
from benchmarks.machine import Others, machine
from scalebook.training.engine import Settings, SharedRun, join
from scalebook.training.engine.rules.damping import Damping, Inverse, NoDamping
from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.worker.cursor import Cursor
from scalebook.training.lightning.processes.run_workers import run_workers

TARGET: Final = 0.9
SEEDS: Final = 3
WARM_UP_EPOCHS: Final = 2
IN_TURN: Final = (1, 2, 4, 8, 16)
FREE: Final = (1, 2, 4)
START: Final = 4.0  # where the search begins: nothing trains there
HALVINGS: Final = 8
DEADLINE_S: Final = 60.0
HOPELESS: Final = 0.3  # validation accuracy after a quarter of the updates: a training with less is given up
Way = Literal["in turn", "free"]


class Variant(NamedTuple):
    """What is done about staleness."""

    name: str
    damping: Damping
    warm_up: bool

    def settings(self) -> Settings:
        """The engine's settings."""
        warmup_updates = WARM_UP_EPOCHS * batches_per_epoch() if self.warm_up else 0
        return Settings(damping=self.damping, warmup_updates=warmup_updates)


VARIANTS: Final = [
    Variant("nothing", NoDamping(), warm_up=False),
    Variant("warm-up", NoDamping(), warm_up=True),
    Variant("inverse damping", Inverse(), warm_up=False),
    Variant("inverse damping, warm-up", Inverse(), warm_up=True),
]


class Point(NamedTuple):
    """One search: the largest rate, None if none works, and the staleness of the trainings with it."""

    way: Way
    variant: str
    workers: int
    rate: float | None
    staleness: float | None  # mean
    median_staleness: float | None


def search(way: Way, variant: Variant, workers: int, epochs: int) -> Point:
    """The largest rate for one number of workers."""
    train = in_turn if way == "in turn" else free
    best: list[Ended] = []

    def trains(rate: float) -> bool:
        ended: list[Ended] = []

        def one(seed: int) -> bool:
            ended.append(train(workers, variant.settings(), rate, seed, epochs))
            return ended[-1].accuracy >= TARGET

        if good := most(SEEDS, one):
            best[:] = [each for each in ended if each.accuracy >= TARGET]
        return good

    rate = largest(trains, START, HALVINGS)
    if rate is None:
        return Point(way, variant.name, workers, None, None, None)
    _, means, medians = zip(*best, strict=True)
    return Point(way, variant.name, workers, rate, statistics.mean(means), statistics.mean(medians))


def several(searches: list[tuple[Way, Variant, int]], processes: int, epochs: int) -> list[Point]:
    """Many searches, shared among processes; each point is printed when it is found."""

    def body(process: int) -> list[Point]:
        points = []
        for way, variant, workers in searches[process::processes]:
            points.append(search(way, variant, workers, epochs))
            print(f"# {points[-1]}", flush=True)
        return points

    if processes == 1:
        return body(0)
    return [point for points in run_workers(processes, body) for point in points]


def theory(workers: int) -> float:
    """Largest stable rate on a quadratic at staleness workers - 1, divided by that at staleness 0, which is 2."""
    return math.sin(math.pi / (4 * (workers - 1) + 2))


def draw(points: Sequence[Point], path: Path) -> None:
    """Draw the picture."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.6), layout="constrained")
    for variant, marker, color in zip(VARIANTS, "os^D", ("C0", "C1", "C2", "C3"), strict=True):
        for way, style in (("in turn", f"{marker}-"), ("free", f"{marker}:")):
            places = [(p.workers, p.rate) for p in points if (p.way, p.variant) == (way, variant.name) and p.rate]
            if places:
                label = variant.name if way == "in turn" else None
                face = color if way == "in turn" else "white"
                axes.plot(
                    *zip(*places, strict=True), style, color=color, label=label, markersize=6, markerfacecolor=face
                )
    alone = [p.rate for p in points if p.way == "in turn" and p.variant == VARIANTS[0].name and p.workers == 1]
    if alone and alone[0]:
        allowed = [alone[0] * theory(n) for n in IN_TURN]
        axes.plot(IN_TURN, allowed, "--", color="0.4", label=r"$2\,\sin(\pi/(4\tau+2))$, scaled")
    if any(point.way == "free" for point in points):
        axes.plot([], [], "o:", color="0.4", markerfacecolor="white", label=f"free processes, {os.cpu_count()} cores")
    axes.set(xscale="log", yscale="log")
    axes.set(xlabel="workers N (in turn: staleness N - 1)", ylabel="largest learning rate that trains")
    axes.set_xticks(IN_TURN, [str(n) for n in IN_TURN])
    axes.minorticks_off()
    rates = [0.05, 0.1, 0.2, 0.5, 1.0, 2.0]
    axes.set_yticks(rates, [f"{rate:g}" for rate in rates])
    axes.grid(color="0.9")
    axes.legend(frameon=False)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    plt.close(figure)


def table(points: Sequence[Point]) -> str:
    """Markdown: a row for each variant and way, a column for each number of workers."""
    lines = [f"| against staleness | workers | {' | '.join(str(n) for n in IN_TURN)} |"]
    lines.append("|---|---|" + "---:|" * len(IN_TURN))
    for way in dict.fromkeys(point.way for point in points):
        for variant in VARIANTS:
            rates = {p.workers: p.rate for p in points if (p.way, p.variant) == (way, variant.name)}
            cells = [f"{rate:.3f}" if (rate := rates.get(n)) else "none" if n in rates else "" for n in IN_TURN]
            lines.append(f"| {variant.name} | {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


class Ended(NamedTuple):
    """Results of one training."""

    accuracy: float
    staleness: float  # mean
    median_staleness: float


def in_turn(workers: int, settings: Settings, rate: float, seed: int, epochs: int) -> Ended:
    """N clients in this process, each pushing in its turn; until the end of the warm-up only worker 0."""
    run, updates = SharedRun(workers, settings), epochs * batches_per_epoch()
    models = [perceptron(seed) for _ in range(workers)]
    try:
        with ThreadPoolExecutor(workers) as together:  # each waits for all the others
            joining = [
                together.submit(join, run, run.member(worker, DEADLINE_S), [SGD(model.parameters(), lr=rate)])
                for worker, model in enumerate(models)
            ]
            joined = [future.result() for future in joining]
        begun = 0
        for number in range(updates):
            worker = 0 if number < settings.warmup_updates else number % workers
            while begun <= worker:
                joined[begun].begin()
                begun += 1
            gradient(models[worker], batch(seed, *divmod(number, batches_per_epoch())))
            joined[worker].clients[0].push()
            if number == updates // 4 and accuracy(models[worker]) < HOPELESS:
                return Ended(0.0, math.nan, math.nan)
        joined[0].pull()
        return Ended(accuracy(models[0]), run.staleness().mean(), run.staleness().quantile(0.5))
    finally:
        run.close()


def free(workers: int, settings: Settings, rate: float, seed: int, epochs: int) -> Ended:
    """N processes that take batches from a shared cursor."""
    run, cursor, updates = SharedRun(workers, settings), Cursor(workers), epochs * batches_per_epoch()
    hopeless = mmap.mmap(-1, 1)

    def body(worker: int) -> float:
        model = perceptron(seed)
        joined = join(run, run.member(worker, DEADLINE_S), [SGD(model.parameters(), lr=rate)])
        cursor.enter_epoch(worker, 0, updates, Deal.ONE_EACH)
        joined.begin()
        while not hopeless[0] and (taken := cursor.take_batch(worker)) is not None:
            gradient(model, batch(seed, *divmod(taken.batch, batches_per_epoch())))
            joined.clients[0].push()
            cursor.mark_done(worker)
            if taken.batch == updates // 4:
                hopeless[0] = accuracy(model) < HOPELESS
        joined.finish()
        joined.wait_for_others()
        joined.pull()
        return 0.0 if hopeless[0] else accuracy(model)

    try:
        final = run_workers(workers, body)[0]
        return Ended(final, run.staleness().mean(), run.staleness().quantile(0.5))
    finally:
        run.close()


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--out", type=Path, default=Path("docs/figures"))
    parser.add_argument("--skip-free", action="store_true", help="only the workers in turn")
    given = parser.parse_args()
    torch.set_num_threads(1)
    others = Others()
    points = several(
        [("in turn", variant, n) for n in IN_TURN for variant in VARIANTS], os.cpu_count() or 1, given.epochs
    )
    if not given.skip_free:
        points += several([("free", variant, n) for n in FREE for variant in VARIANTS], 1, given.epochs)
    draw(points, given.out / "largest-learning-rate.png")
    content: dict[str, Any] = {"machine": machine(), "epochs": given.epochs, "points": [p._asdict() for p in points]}
    (given.out / "largest-learning-rate.json").write_text(json.dumps(content, indent=1) + "\n")
    print(f"\n{table(points)}\n\n{others.sentence()}")


if __name__ == "__main__":
    main()
