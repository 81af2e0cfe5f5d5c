"""Virtual workers beside real ones with the same workload: do they predict updates and staleness?

    python -m benchmarks.virtual_truth [--seconds 0.8] [--seeds 5] [--only async:4:inline ...]
                                       [--reliability training/planner/reliability.json]

Workers are processes that compute the gradient of a small perceptron on digits and then sleep 20 ms, the last of them
40 ms, so that 16 fit on few cores; 2 do not sleep, and share caches. For each rule and host a single worker calibrates
the clock (`benchmarks/worker_cost.py`); for 2 workers beside a process that computes too. Ratios are virtual / real;
`distance` is the total variation between the two histograms of staleness. Read the column `ok`: updates/s and mean
staleness within 10 %, distance at most 0.15. The column `plan` is the planner's updates/s over the real ones, which
`--reliability` adds to the cells of the planner. 7 minutes on a quiet machine.
"""

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from benchmarks.common import Others, parser
from benchmarks.worker_cost import DEADLINE_S, Cost, calibrate, compute, task, woken
from scalebook.training.engine import Settings, SharedRun, join, serve
from scalebook.training.engine.memory.region import ROW, WAIT
from scalebook.training.engine.rules.clock_settings import Distribution
from scalebook.training.engine.rules.settings import HostName
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.engine.sim import ModelMultiplexer, SimulatedClock, SimulatedWorkers
from scalebook.training.lightning.processes.run_workers import run_workers
from scalebook.training.planner.answering import Setting
from scalebook.training.planner.answers import Point
from scalebook.training.planner.play import EndlessWork
from scalebook.training.planner.reliability import ComparedPlan, PlansCompared, strategy_of, write
from scalebook.training.pricing.links import OWN
from scalebook.training.pricing.profile import Profile

NEAR: Final = 0.1
"""Allowed relative error of a prediction, for updates/s and mean staleness."""
APART: Final = 0.15
"""Allowed distance of two histograms."""
HEADER: Final = "rule            workers host     updates/s  ratio  staleness  ratio  distance   plan  ok"
Row = Mapping[str, Any]
SLEEP_S: Final = 0.020
SLOW: Final = 2.0
CALIBRATING_S: Final = 1.5
SLEEPS: Final = (0.0, SLEEP_S)
RULES: Final[dict[str, Callable[[], Rule]]] = {
    "async": Async, "bounded 2": lambda: Bounded(2), "sync": Sync, "sync, 1 backup": lambda: Sync(1),
    "softsync 4": lambda: Softsync(4),
}  # fmt: skip
WORKERS: Final = (2, 4, 8, 16)
HOSTS: Final[tuple[HostName, ...]] = ("inline", "process")


class Seen(NamedTuple):
    """Results of one run. `stale`: pushes by staleness, as shares."""

    updates_per_s: float
    staleness: float
    stale: list[float]


def slept(workers: int) -> float:
    """Seconds of sleep for each gradient; 0 for two workers, which compute all the time."""
    return 0.0 if workers <= 2 else SLEEP_S


def slower(workers: int, gradient_s: float) -> float:
    """How many times as long the last worker takes, which sleeps SLOW times as long."""
    return (gradient_s + (SLOW - 1) * slept(workers)) / gradient_s


def linear(workers: int, alone: Cost) -> float:
    """Updates/s if no worker slowed another, with the last worker slower."""
    one = alone.gradient_s + alone.server_s
    return (workers - 1) / one + 1 / (one + (SLOW - 1) * slept(workers))


def real(rule: Rule, workers: int, host: HostName, seconds: float, seed: int) -> Seen:
    """So many processes, the last of which sleeps twice as long."""
    run = SharedRun(workers, Settings(rule, host=host))

    def body(worker: int) -> tuple[float, int]:
        torch.set_num_threads(1)
        model, optimizer = task(seed)
        joined = join(run, run.member(worker, DEADLINE_S), [optimizer])
        (client,) = joined.clients
        joined.begin()
        began, number = time.perf_counter(), worker
        while time.perf_counter() < began + seconds:
            compute(model, number)
            time.sleep(slept(workers) * (SLOW if worker == workers - 1 else 1.0))
            client.push()
            number += workers
        took = time.perf_counter() - began
        joined.finish()
        return took, client.pull()

    def server(number: int) -> None:
        serve(run, number, DEADLINE_S, [task(seed)[1]])

    try:
        parts = run_workers(workers, body, servers=run.servers, serve=server if run.servers else None)
        return _seen(run, max(version for _, version in parts) / max(took for took, _ in parts))
    finally:
        run.close()


def virtual(rule: Rule, workers: int, host: HostName, cost: Cost, seconds: float, seed: int) -> Seen:
    """The same on a clock with the costs of a single worker; the servers serve pushes one after the other."""
    clock = SimulatedClock(cost.clock(slower(workers, cost.gradient_s), workers, host), workers, seed=seed)
    run = SharedRun(workers, Settings(rule), clock)
    waits = run.control.seconds[WAIT::ROW]
    waited = [0.0] * workers

    def gradient_s(worker: int) -> float:
        """Longer after having waited for others."""
        has_waited, waited[worker] = waits[worker] > waited[worker], float(waits[worker])
        return clock.gradient_s(worker) + (cost.woken_s if has_waited else 0.0)

    model, optimizer = task(seed)
    one = ModelMultiplexer([optimizer])
    players = SimulatedWorkers(run, clock, one.make, EndlessWork(), gradient_s=gradient_s)
    number = 0
    players.begin_all()
    while (worker := players.next()) is not None and clock.now() < seconds:
        one.switch_to(worker)
        compute(model, number)
        number += 1
        one.hand_over(worker)
        players.push()
    seen = _seen(run, players.partitions[0].shards[0].version / clock.now())
    players.end_all()
    players.detach()
    run.close()
    return seen


def planned(rule: Rule, workers: int, cost: Cost, slowdown: float) -> Point:
    """The planner's prediction in steady state, without gradients. It knows a worker alone under async, and the
    slowdown when as many compute as there are cores."""
    gradient_s = Distribution("gamma", cost.gradient_s, cost.cv) if cost.cv else cost.gradient_s
    stragglers = {workers - 1: slower(workers, cost.gradient_s)}
    profile = Profile(gradient_s, 1, 0, 0, cost.server_s, stragglers, slowdown={2: slowdown})
    return Setting(profile, rule, 1, OWN, 0).play(workers)


def _seen(run: SharedRun, updates_per_s: float) -> Seen:
    histogram = run.staleness()
    counts = histogram.counts.sum(0).tolist()
    return Seen(updates_per_s, histogram.mean(), [count / max(1, sum(counts)) for count in counts])


def distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Total variation between two histograms of shares."""
    return sum(abs(a - b) for a, b in zip(first, second, strict=True)) / 2


def row(
    name: str, workers: int, host: str, sleeps: bool, theirs: Sequence[Seen], ours: Sequence[Seen], plan: Point
) -> Row:
    """One cell: real runs, virtual ones of the same seeds, and the planner's simulation."""
    rate, stale = _mean(theirs, "updates_per_s"), _mean(theirs, "staleness")
    return {
        "rule": name, "workers": workers, "host": host, "sleeps": sleeps,
        "updates_per_s": rate, "updates_ratio": _mean(ours, "updates_per_s") / rate,
        "staleness": stale, "staleness_ratio": _mean(ours, "staleness") / stale if stale else 1.0,
        "distance": statistics.fmean(distance(a.stale, b.stale) for a, b in zip(theirs, ours, strict=True)),
        "planned_updates_ratio": plan.updates_per_s / rate,
        "planned_staleness_ratio": plan.staleness / stale if stale else 1.0,
    }  # fmt: skip


def _mean(values: Sequence[Seen], what: str) -> float:
    return statistics.fmean(getattr(value, what) for value in values)


def failures(cell: Row) -> list[str]:
    """The figures of a cell that are further off than allowed, in words."""
    said = []
    for what, words in (("updates_ratio", "updates/s"), ("staleness_ratio", "staleness")):
        if abs(cell[what] - 1) > NEAR:
            said.append(f"{words} {cell[what]:.2f} of the measured")
    if cell["distance"] > APART:
        said.append(f"histograms {cell['distance']:.2f} apart")
    return said


def line(cell: Row) -> str:
    """A row below HEADER."""
    return (
        f"{cell['rule']:<15} {cell['workers']:>7} {cell['host']:<8} {cell['updates_per_s']:>9.1f} "
        f"{cell['updates_ratio']:>6.2f} {cell['staleness']:>10.2f} {cell['staleness_ratio']:>6.2f} "
        f"{cell['distance']:>9.2f} {cell['planned_updates_ratio']:>6.2f}  {'NO' if failures(cell) else 'yes'}"
    )


def verdicts(rows: Sequence[Row], linear: Mapping[int, float]) -> list[str]:
    """How many cells agree, which do not and why, and async workers' updates/s relative to `linear`, by number of
    workers."""
    said = []
    for sleeps, words in ((True, "workers that sleep"), (False, "workers that only compute")):
        cells = [cell for cell in rows if cell["sleeps"] is sleeps]
        if not cells:
            continue
        good = [cell for cell in cells if not failures(cell)]
        rates = [cell["updates_ratio"] for cell in cells]
        plans = [cell["planned_updates_ratio"] for cell in cells]
        said.append(
            f"{words}: {len(good)} of {len(cells)} cells agree; updates/s {min(rates):.2f} to {max(rates):.2f} of the "
            f"measured, by the planner {min(plans):.2f} to {max(plans):.2f}"
        )
    said += [
        f"  {cell['rule']}, {cell['workers']} workers, {cell['host']}: {'; '.join(failed)}"
        for cell in rows
        if (failed := failures(cell))
    ]
    for cell in rows:
        if cell["rule"] == "async" and cell["sleeps"]:
            share = cell["updates_per_s"] / linear[cell["workers"]]
            said.append(f"{cell['workers']} async workers, {cell['host']}: {share:.3f} of linear")
    return said


def cells(rows: Sequence[Row]) -> list[ComparedPlan]:
    """The planner's cells: workers that sleep, and workers that only compute and share caches; with staleness if there
    is any."""
    return [
        ComparedPlan(
            strategy_of(RULES[cell["rule"]]()),
            "machine" if cell["sleeps"] else "short",
            f"{cell['rule']}, {cell['workers']} workers, {cell['host']}",
            round(cell["planned_updates_ratio"], 3),
            round(cell["planned_staleness_ratio"], 3) if cell["staleness"] else None,
        )
        for cell in rows
    ]


def main() -> None:
    """Print a line for each cell."""
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=0.8, help="seconds of each run")
    options.add_argument("--seeds", type=int, default=5)
    options.add_argument("--only", nargs="+", help="rule:workers:host")
    options.add_argument("--reliability", type=Path, help="add its cells to this file")
    args = options.parse_args()
    torch.set_num_threads(1)
    rows, others = list[Row](), Others()
    alone = {sleep_s: calibrate(Async(), "inline", sleep_s, 0, CALIBRATING_S) for sleep_s in SLEEPS}
    pressed = calibrate(Async(), "inline", 0.0, 1, CALIBRATING_S)
    slowdown = (pressed.gradient_s + pressed.server_s) / (alone[0.0].gradient_s + alone[0.0].server_s)
    wakes = {sleep_s: woken(sleep_s, CALIBRATING_S) for sleep_s in SLEEPS}
    for sleep_s, one in alone.items():
        print(f"async, inline, alone, {1e3 * sleep_s:g} ms of sleep: {one.words()}")
    print(f"beside another process that computes a gradient takes {slowdown:.2f} times as long\n{HEADER}")
    for (name, make), host, sleep_s in product(RULES.items(), HOSTS, SLEEPS):
        cost: Cost | None = None
        for workers in WORKERS:
            if slept(workers) != sleep_s or (args.only and f"{name}:{workers}:{host}" not in args.only):
                continue
            if cost is None:
                cost = calibrate(make(), host, sleep_s, 0 if sleep_s else 1, CALIBRATING_S, wakes[sleep_s])
            ours = [virtual(make(), workers, host, cost, args.seconds, seed) for seed in range(args.seeds)]
            theirs = [real(make(), workers, host, args.seconds, seed) for seed in range(args.seeds)]
            plan = planned(make(), workers, alone[sleep_s], 1.0 if sleep_s else slowdown)
            rows.append(row(name, workers, host, sleep_s > 0, theirs, ours, plan))
            print(line(rows[-1]), flush=True)
    print("\n".join(verdicts(rows, {workers: linear(workers, alone[SLEEP_S]) for workers in WORKERS})))
    print(others.sentence())
    if args.reliability:
        command = f"python -m benchmarks.virtual_truth --seconds {args.seconds:g} --seeds {args.seeds}"
        write(args.reliability, PlansCompared(command, others.sentence(), cells(rows)))


if __name__ == "__main__":
    main()
