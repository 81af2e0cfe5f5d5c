"""Virtual workers beside real ones of the same workload: do they predict updates, staleness and loss?

    python -m benchmarks.virtual_truth [--seconds 0.8] [--seeds 5] [--only async:4:inline ...] [--json FILE]
                                       [--reliability scalebook/training/planning/reliability.json]

Workers are processes that compute the gradient of a small perceptron on digits and then sleep 20 ms, the last of them
40 ms, so that 16 fit on few cores; 2 do not sleep. A run of a single worker calibrates the clock, for either: the mean
time and the spread of a gradient, and of a push. Then every cell is run for real and on the virtual clock, with the
same samples, for each seed.
Ratios are virtual / real; `distance` is the total variation between the two histograms of staleness (0: equal, 1:
nothing in common); the loss is the mean of the last tenth. `ok`: updates/s and mean staleness within 10 %, distance at
most 0.15. At the end: whether loss curves can be told apart, gradient by gradient, for each rule
(`benchmarks/apart.py`; p after Holm's correction). With the defaults 6 minutes on a quiet machine.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from torch.optim import SGD

from benchmarks.apart import corrected, p_value, shortened
from benchmarks.digits_task import batch, batches_per_epoch, gradient, perceptron
from benchmarks.machine import Others, machine
from scalebook.training.planning.answer import Point, Range, Reliability
from scalebook.training.planning.play import Endless, play
from scalebook.training.planning.profile import Profile
from scalebook.training.ps import Settings, SharedRun, join, serve
from scalebook.training.ps.clock.virtual import VirtualClock
from scalebook.training.ps.policy.clock import ClockSettings, Distribution
from scalebook.training.ps.policy.rules import Async, Bounded, Rule, Softsync, Sync
from scalebook.training.ps.policy.settings import HostName
from scalebook.training.ps.worker.one_model import OneModel
from scalebook.training.ps.worker.virtual import VirtualWorkers
from scalebook.training.strategies.processes import run_workers

SLEEP_S: Final = 0.020
SLOW: Final = 2.0
LEARNING_RATE: Final = 0.02
DEADLINE_S: Final = 60.0
LEVEL: Final = 0.05
WARM_UP: Final = 20  # gradients that calibrate nothing: the first ones take ten times as long
RULES: Final[dict[str, Callable[[], Rule]]] = {
    "async": Async, "bounded 2": lambda: Bounded(2), "sync": Sync, "sync, 1 backup": lambda: Sync(1),
    "softsync 4": lambda: Softsync(4),
}  # fmt: skip
WORKERS: Final = (2, 4, 8, 16)
HOSTS: Final[tuple[HostName, ...]] = ("inline", "process")


class Seen(NamedTuple):
    """One run. `stale`: pushes by staleness, as shares."""

    updates_per_s: float
    staleness: float
    stale: list[float]
    losses: list[float]  # of all gradients, in order

    @property
    def loss(self) -> float:
        """The mean of the last tenth."""
        return statistics.fmean(self.losses[-max(1, len(self.losses) // 10) :])


class Cost(NamedTuple):
    """What one worker alone was measured to take, in seconds: a gradient with its sleep, its spread, and a push."""

    gradient_s: float
    cv: float
    push_s: float


def computed(model: torch.nn.Module, seed: int, number: int) -> float:
    """The loss of batch `number`, whose gradient is then in the model's parameters."""
    epoch, place = divmod(number, batches_per_epoch())
    return gradient(model, batch(seed, epoch, place))


def slept(workers: int) -> float:
    """Seconds that each sleeps beside a gradient: as many as there are cores compute all the time."""
    return 0.0 if workers <= 2 else SLEEP_S


def real(rule: Rule, workers: int, host: HostName, seconds: float, seed: int) -> Seen:
    """So many processes, the last of which sleeps twice as long."""
    run = SharedRun(workers, Settings(rule, host=host))

    def made() -> tuple[torch.nn.Module, SGD]:
        model = perceptron(seed)
        return model, SGD(model.parameters(), lr=LEARNING_RATE)

    def body(worker: int) -> tuple[float, int, list[tuple[float, float]]]:
        torch.set_num_threads(1)
        model, optimizer = made()
        joined = join(run, run.member(worker, DEADLINE_S), [optimizer])
        (client,) = joined.clients
        joined.begin()
        began, number, losses = time.perf_counter(), worker, []
        while time.perf_counter() < began + seconds:
            loss = computed(model, seed, number)
            time.sleep(slept(workers) * (SLOW if worker == workers - 1 else 1.0))
            losses.append((time.monotonic(), loss))
            client.push()
            number += workers
        took = time.perf_counter() - began
        joined.finish()
        return took, client.pull(), losses

    def server(number: int) -> None:
        serve(run, number, DEADLINE_S, [made()[1]])

    try:
        parts = run_workers(workers, body, servers=run.servers, serve=server if run.servers else None)
        versions, took = max(part[1] for part in parts), max(part[0] for part in parts)
        return _seen(run, versions / took, [loss for _, loss in sorted(pair for part in parts for pair in part[2])])
    finally:
        run.close()


def virtual(rule: Rule, workers: int, cost: Cost, seconds: float, seed: int) -> Seen:
    """The same on a clock made of what one worker alone has taken; the servers serve pushes one after the other."""
    gradient_s = Distribution("gamma", cost.gradient_s, cost.cv) if cost.cv else cost.gradient_s
    factor = (cost.gradient_s + (SLOW - 1) * slept(workers)) / cost.gradient_s
    clock = VirtualClock(ClockSettings(gradient_s, {workers - 1: factor}, cost.push_s), workers, seed=seed)
    run = SharedRun(workers, Settings(rule), clock)
    model = perceptron(seed)
    one = OneModel([SGD(model.parameters(), lr=LEARNING_RATE)])
    players = VirtualWorkers(run, clock, one.make, Endless())
    numbers, losses = {worker: worker for worker in range(workers)}, []
    players.begin()
    while (worker := players.next()) is not None and clock.now() < seconds:
        one.show(worker)
        losses.append(computed(model, seed, numbers[worker]))
        numbers[worker] += workers
        one.hand_over(worker)
        players.push()
    updates = players.sections[0].shards[0].version / clock.now()
    found = _seen(run, updates, losses)
    players.end()
    players.detach()
    run.close()
    return found


def planned(rule: Rule, workers: int, cost: Cost) -> Point:
    """The same clock, played by the planner: without gradients, in steady state."""
    gradient_s = Distribution("gamma", cost.gradient_s, cost.cv) if cost.cv else cost.gradient_s
    slow = (cost.gradient_s - SLEEP_S + SLOW * SLEEP_S) / cost.gradient_s
    profile = Profile(gradient_s, 1, 0, 0, cost.push_s, {workers - 1: slow})
    return play(profile, workers, rule)


def _seen(run: SharedRun, updates_per_s: float, losses: list[float]) -> Seen:
    histogram = run.staleness()
    counts = histogram.counts.sum(0).tolist()
    return Seen(updates_per_s, histogram.mean(), [count / max(1, sum(counts)) for count in counts], losses)


def calibrate(seconds: float, sleep_s: float) -> Cost:
    """One worker alone, which sleeps so long beside each gradient."""
    run = SharedRun(1, Settings(Async()))

    def body(worker: int) -> Cost:
        torch.set_num_threads(1)
        model = perceptron(0)
        joined = join(run, run.member(worker, DEADLINE_S), [SGD(model.parameters(), lr=LEARNING_RATE)])
        (client,) = joined.clients
        joined.begin()
        gradients, pushes, number = [], [], 0
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            began = time.perf_counter()
            computed(model, 0, number)
            time.sleep(sleep_s)
            handed = time.perf_counter()
            client.push()
            gradients.append(handed - began)
            pushes.append(time.perf_counter() - handed)
            number += 1
        joined.finish()
        gradients, pushes = gradients[WARM_UP:], pushes[WARM_UP:]
        mean = statistics.fmean(gradients)
        return Cost(mean, statistics.stdev(gradients) / mean, statistics.fmean(pushes))

    try:
        cost: Cost = run_workers(1, body)[0]
        return cost
    finally:
        run.close()


def distance(first: Sequence[float], second: Sequence[float]) -> float:
    """Total variation between two histograms of shares."""
    return sum(abs(a - b) for a, b in zip(first, second, strict=True)) / 2


def main() -> None:
    """Print a line for each cell."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.8, help="of each run")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--only", nargs="+", help="rule:workers:host")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--reliability", type=Path, help="write the ranges that every plan is told with")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(machine())
    rows = []
    others = Others()
    costs = {sleep_s: calibrate(max(2.0, args.seconds), sleep_s) for sleep_s in (0.0, SLEEP_S)}
    for sleep_s, cost in costs.items():
        took = f"a gradient {1e3 * cost.gradient_s:.2f} ms (cv {cost.cv:.2f}), a push {1e3 * cost.push_s:.2f} ms"
        print(f"with {1e3 * sleep_s:g} ms of sleep: {took}")
    differences: dict[str, list[list[list[float]]]] = {}
    print("rule            workers host     updates/s  ratio  staleness  ratio  distance     loss  virtual  ok")
    for name, make in RULES.items():
        for workers in WORKERS:
            for host in HOSTS:
                if args.only and f"{name}:{workers}:{host}" not in args.only:
                    continue
                seeds = range(args.seeds)
                cost = costs[slept(workers)]
                ours = [virtual(make(), workers, cost, args.seconds, seed) for seed in seeds]
                theirs = [real(make(), workers, host, args.seconds, seed) for seed in seeds]
                rows.append(_row(name, workers, host, theirs, ours, planned(make(), workers, cost)))
                pairs = [(a.losses, b.losses) for a, b in zip(theirs, ours, strict=True)]
                differences.setdefault(name, []).append(shortened(pairs))
    for name, p in corrected({name: p_value(cells) for name, cells in differences.items()}).items():
        print(f"{name:<15} loss curves {'told apart' if p < LEVEL else 'not told apart'}, p {p:.3f}")
    print(others.sentence())
    if args.json:
        args.json.write_text(json.dumps(rows, indent=1))
    if args.reliability:
        command = f"python -m benchmarks.virtual_truth --seconds {args.seconds:g} --seeds {args.seeds}"
        args.reliability.write_text(json.dumps(asdict(ranges(rows, command)), indent=1) + "\n")


def ranges(rows: Sequence[Mapping[str, Any]], command: str) -> Reliability:
    """Of the planner, over all cells; staleness where there is any."""
    rates = [row["planned_updates_ratio"] for row in rows]
    stale = [row["planned_staleness_ratio"] for row in rows if row["staleness"]]
    return Reliability(
        Range(round(min(rates), 2), round(max(rates), 2)), Range(round(min(stale), 2), round(max(stale), 2)), len(rows),
        command, machine(),
    )  # fmt: skip


def _row(
    name: str, workers: int, host: str, theirs: Sequence[Seen], ours: Sequence[Seen], plan: Point
) -> dict[str, object]:
    def mean(values: Sequence[Seen], what: str) -> float:
        return statistics.fmean(getattr(value, what) for value in values)

    rate, rated = mean(theirs, "updates_per_s"), mean(ours, "updates_per_s") / mean(theirs, "updates_per_s")
    stale = mean(theirs, "staleness")
    staled = mean(ours, "staleness") / stale if stale else 1.0
    apart = statistics.fmean(distance(a.stale, b.stale) for a, b in zip(theirs, ours, strict=True))
    ok = abs(rated - 1) <= 0.1 and abs(staled - 1) <= 0.1 and apart <= 0.15
    print(
        f"{name:<15} {workers:>7} {host:<8} {rate:>9.1f} {rated:>6.2f} {stale:>10.2f} {staled:>6.2f} {apart:>9.2f} "
        f"{mean(theirs, 'loss'):>8.3f} {mean(ours, 'loss'):>8.3f}  {'yes' if ok else 'NO'}",
        flush=True,
    )
    return {
        "rule": name, "workers": workers, "host": host, "updates_per_s": rate, "updates_ratio": rated,
        "staleness": stale, "staleness_ratio": staled, "distance": apart, "ok": ok,
        "planned_updates_ratio": plan.updates_per_s / rate,
        "planned_staleness_ratio": plan.staleness / stale if stale else 1.0,
    }  # fmt: skip


if __name__ == "__main__":
    main()
