"""Updates per second by number of nodes and codec at 1 Gbit/s, and the knee, measured and planned.

The shards are on one node, and each of 1 to 4 others has a worker: network namespaces of this machine (root; `tc`
shapes their links, with at most 0.6 ms of queue). A gradient takes 5 ms of sleep. The planner gets the declared link
and the measurements of one worker alone, and simulates the rest. These nodes share the cores, so the planner also gets
their number and the CPU time of a gradient. If `cores in use` (CPU time of workers and proxies per second) nears the
machine's cores, they cause the knee; slower links (`--gigabits 0.2`) show the link's knee. Read the rows "planner /
measured": rates, and last the knees. 9 minutes with `--seconds 2 --repeats 1`.

    python -m benchmarks.cluster_rates [--seconds 3] [--repeats 2] [--gigabits 1 0.2] [--only fp32]
                                       [--reliability training/planner/reliability.json]
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch

from benchmarks.common import Others, parser
from benchmarks.engine_ps import DEADLINE_S
from benchmarks.engine_task import make_optimizer, perceptron
from benchmarks.wire import end_at_once
from scalebook.training.engine.launch import Launch
from scalebook.training.engine.net.channel import ProxyAddress
from scalebook.training.engine.net.handshake import KEY_BYTES, Secret
from scalebook.training.engine.net.remote_end import RemoteEnd
from scalebook.training.engine.net.wire import listening
from scalebook.training.engine.rules.clock_settings import Distribution, Link, Seconds
from scalebook.training.engine.rules.codecs import Bf16, Int8, TopK
from scalebook.training.engine.rules.settings import Settings
from scalebook.training.engine.rules.update_rules import Rule, Sync
from scalebook.training.lightning.processes.run_workers import run_workers
from scalebook.training.planner.answering import find_knee
from scalebook.training.planner.answers import Point
from scalebook.training.planner.measuring import EVEN
from scalebook.training.planner.play import play
from scalebook.training.planner.reliability import ComparedPlan, PlansCompared, read_comparisons, strategy_of, write
from scalebook.training.pricing.links import PAYLOAD, Network
from scalebook.training.pricing.profile import Profile
from tests.cluster.far_run import wait
from tests.cluster.joins import Numbers
from tests.cluster.namespaces import Namespaces, namespaces, why_not
from tests.training.lightning.async_ps.machines import Machine

RUN: Final = "rates"
LATENCY_S: Final = 50e-6
COMPUTE_S: Final = 0.005
WARM_UP: Final = 40
"""Pushes of each worker before measuring, in which workers that need not meet drift apart."""
MOST: Final = 4
PLAYED: Final = 2000
"""Gradients of a simulation: connections that share a link need many to average."""
CODECS: Final[dict[str, Settings]] = {
    "fp32": Settings(),
    "fp32, sync": Settings(Sync()),
    "fp32, overlap": Settings(host="overlap"),
    "bf16": Settings(push_codec=Bf16(), pull_codec=Bf16()),
    "int8": Settings(push_codec=Int8(), pull_codec=Int8()),
    "top-k 1 %, pulls int8": Settings(push_codec=TopK(), pull_codec=Int8()),
}


class Rate(NamedTuple):
    """Of one run. Bytes are of one push and one pull. `server_s`: mean seconds of the shards for a push. `spread_s`:
    standard deviation of a worker's seconds from push to push. `cpu_s`: CPU time of a gradient, of worker and proxy."""

    updates_per_s: float
    push_bytes: float
    pull_bytes: float
    server_s: float
    spread_s: float = 0.0
    cpu_s: float = 0.0


class Part(NamedTuple):
    """Of one worker, while it was measured: seconds from push to push, bytes of all. `cpu_s`: of its whole life."""

    seconds: list[float]
    pushed: int
    pulled: int
    cpu_s: float


class Rated:
    """One run: `workers` nodes beside that of the shards."""

    def __init__(self, machines: Namespaces, workers: int, settings: Settings, folder: Path) -> None:
        self._machines, self._workers, self._settings = machines, workers, settings
        self._secret = Secret(os.urandom(KEY_BYTES))
        self._ports, self._pushes = Numbers(workers, "q"), Numbers(workers, "q")
        self._measures, self._over = Numbers(1, "q"), Numbers(1, "q")
        bodies: list[Callable[[], Any]] = [self._serve, *[partial(self._work, n) for n in range(workers)]]
        self._all = [Machine({}, body, folder / str(n)) for n, body in enumerate(bodies)]

    def rate(self, seconds: float) -> Rate:
        """Measure for so long, then end the run."""
        try:
            wait(lambda: min(self._pushes.all()) > WARM_UP, DEADLINE_S)
            self._measures[0] = 1
            time.sleep(seconds)
            self._over[0] = 1
            server_s, cpu_s = self._all[0].result()
            parts: list[Part] = [one.result() for one in self._all[1:]]
        finally:
            for one in self._all:
                one.end()
        measured = sum(len(part.seconds) for part in parts)
        return Rate(
            sum(len(part.seconds) / sum(part.seconds) for part in parts),
            sum(part.pushed for part in parts) / measured,
            sum(part.pulled for part in parts) / measured,
            server_s,
            statistics.fmean(statistics.pstdev(part.seconds) for part in parts),
            (cpu_s + sum(part.cpu_s for part in parts)) / sum(self._pushes.all()),
        )

    def _serve(self) -> tuple[float, float]:
        """Mean seconds of the shards for a push, and CPU seconds of the proxies."""
        self._machines.enter(0)
        listeners = [listening(self._machines.addresses[0]) for _ in range(self._workers)]
        launch = Launch(self._workers, self._settings)
        posts = [launch.post(n, RUN, one, self._secret, None) for n, one in enumerate(listeners)]
        for n, one in enumerate(listeners):
            self._ports[n] = one.getsockname()[1]

        def stand_in(worker: int) -> float:
            began = time.process_time()
            posts[worker].serve([make_optimizer(perceptron())], DEADLINE_S, DEADLINE_S, lost=end_at_once)
            return time.process_time() - began

        def serve(server: int) -> None:
            launch.server(server, DEADLINE_S).serve([make_optimizer(perceptron())])

        try:
            cpu_s = sum(run_workers(self._workers, stand_in, servers=launch.servers, serve=serve, threads=1))
            server = launch.figures.timings().server
            return 0.0 if server is None else server.mean, cpu_s
        finally:
            launch.close()

    def _work(self, worker: int) -> Part:
        self._machines.enter(worker + 1)
        torch.set_num_threads(1)
        wait(lambda: self._ports[worker] > 0, DEADLINE_S)
        reach = ProxyAddress(self._machines.addresses[0], self._ports[worker], self._secret, False)
        model = perceptron()
        end = RemoteEnd(reach, RUN, self._settings, worker, self._workers, DEADLINE_S)
        joined = end.join([make_optimizer(model)])
        gradients = [1e-3 * torch.randn_like(parameter) for parameter in model.parameters()]
        joined.start()
        joined.begin()
        began, seconds = time.process_time(), list[float]()
        before: tuple[int, int] | None = None
        while not self._over[0]:
            last = time.monotonic()
            time.sleep(COMPUTE_S)
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.grad = gradient
            joined.clients[0].push()
            self._pushes[worker] += 1
            if before is not None:
                seconds.append(time.monotonic() - last)
            elif self._measures[0]:
                before = _bytes(end, worker)
        assert before is not None, "it is measured first"
        pushed, pulled = (now - then for now, then in zip(_bytes(end, worker), before, strict=True))
        cpu_s = time.process_time() - began
        joined.finish()
        joined.wait_for_others()
        joined.detach()
        end.close()
        return Part(seconds, pushed, pulled, cpu_s)


def _bytes(end: RemoteEnd, worker: int) -> tuple[int, int]:
    """Bytes pushed and pulled by this worker so far."""
    own = [one for one in end.pushes() if one.worker == worker]
    return sum(one.pushed_bytes for one in own), sum(one.pulled_bytes for one in own)


def measured(settings: Settings, workers: int, seconds: float, gigabits: float = 1.0) -> Rate:
    """Measure a run over links of so many Gbit/s."""
    with namespaces(workers + 1) as machines, tempfile.TemporaryDirectory() as folder:
        for n in range(machines.count):
            machines.shape(n, gigabits * 1e9)
        return Rated(machines, workers, settings, Path(folder)).rate(seconds)


def profile_of(one: Rate, gigabits: float = 1.0, overlap: bool = False) -> Profile:
    """The profile that one worker alone shows. What is neither link nor shards is the worker's own, and so is the
    spread. Of its own time the CPU part waits for a core; the rest passes like latency. With `overlap` gradients hide
    behind transfers, so the spread is the shards'."""
    bandwidth = PAYLOAD * gigabits * 1e9 / 8
    own_s = 1 / one.updates_per_s - (one.push_bytes + one.pull_bytes) / bandwidth - one.server_s
    own_s = max(COMPUTE_S, own_s)
    core_s = own_s if overlap else min(own_s, one.cpu_s)
    return Profile(
        core_s if overlap else _spread(core_s, one.spread_s),
        1,
        one.push_bytes,
        one.pull_bytes,
        _spread(one.server_s, one.spread_s) if overlap else one.server_s,
        cores=None if overlap else os.cpu_count(),
        network=Network(Link(LATENCY_S + (own_s - core_s) / 2, bandwidth), Link(0.0, bandwidth)),
    )


def _spread(mean_s: float, spread_s: float) -> Seconds:
    return Distribution("gamma", mean_s, spread_s / mean_s) if spread_s > EVEN * mean_s else mean_s


def planned(rates: Sequence[Rate], gigabits: float, settings: Settings) -> list[Point]:
    """The planner's prediction from one node's rate, for each number of nodes in `rates`."""
    profile = profile_of(rates[0], gigabits, settings.overlap)
    return [
        play(profile, workers, settings.rule, cores=profile.cores, gradients=PLAYED, overlap=settings.overlap)
        for workers in range(1, len(rates) + 1)
    ]


def cells(name: str, rates: Sequence[Rate], points: Sequence[Point], gigabits: float, rule: Rule) -> list[ComparedPlan]:
    """The compared plans of all runs except the one that the planner was given."""
    return [
        ComparedPlan(
            strategy_of(rule),
            "network",
            f"{name}, {point.workers} machines, {gigabits:g} Gbit/s",
            round(point.samples_per_s / rate.updates_per_s, 3),
        )
        for point, rate in zip(points[1:], rates[1:], strict=True)
    ]


def row(name: str, rates: Sequence[Rate], points: Sequence[Point], rule: Rule) -> list[str]:
    """Lines of the table for one codec, by number of nodes; `points` as from `planned`."""
    measured_points = [
        replace(point, samples_per_s=rate.updates_per_s) for point, rate in zip(points, rates, strict=True)
    ]
    within = read_comparisons().of(strategy_of(rule), "network").updates_per_s
    knees = [find_knee(row[0].samples_per_s, row, within) for row in (measured_points, points)]
    size = f"{rates[0].push_bytes / 1e6:.2f} + {rates[0].pull_bytes / 1e6:.2f}"
    ratios = [f"{point.samples_per_s / rate.updates_per_s:.2f}" for point, rate in zip(points, rates, strict=True)]
    cores = [f"{rate.updates_per_s * rate.cpu_s:.2f}" for rate in rates]
    lines = [
        [name, size, *[f"{rate.updates_per_s:.1f}" for rate in rates], _knee(knees[0])],
        ["planner", "", *[f"{point.samples_per_s:.1f}" for point in points], _knee(knees[1])],
        ["planner / measured", "", *ratios, ""],
        ["cores in use", "", *cores, ""],
    ]
    if knees[0] is not None and knees[1] is not None:
        lines[2][-1] = f"{knees[1].workers / knees[0].workers:.2f}"
    return [f"| {' | '.join(line)} |" for line in lines]


def _knee(knee: Any) -> str:
    return f"{knee.workers:.1f}" if knee is not None else f"beyond {MOST}"


def main() -> None:
    options = parser(__doc__)
    options.add_argument("--seconds", type=float, default=3.0, help="seconds to measure each number of nodes and codec")
    options.add_argument("--repeats", type=int, default=2, help="turns, of which the median counts")
    options.add_argument("--gigabits", type=float, nargs="+", default=[1.0, 0.2], help="Gbit/s of every link")
    options.add_argument("--only", default="", help="only codecs with these words")
    options.add_argument("--reliability", type=Path, help="add its cells to this file")
    given = options.parse_args()
    if why := why_not():
        print(f"nothing was measured: {why}")
        return
    others, plans = Others(), list[ComparedPlan]()
    head = ["codec", "MB pushed + pulled", *[f"{n} machine{'s' * (n > 1)}" for n in range(1, MOST + 1)], "knee"]
    for gigabits in given.gigabits:
        print(f"\n{gigabits:g} Gbit/s\n\n| {' | '.join(head)} |\n|---|---:|{'---:|' * (MOST + 1)}")
        for name, settings in CODECS.items():
            if given.only not in name:
                continue
            turns = [
                [measured(settings, n, given.seconds, gigabits) for n in range(1, MOST + 1)]
                for _ in range(given.repeats)
            ]
            medians = [Rate(*map(statistics.median, zip(*same, strict=True))) for same in zip(*turns, strict=True)]
            points = planned(medians, gigabits, settings)
            plans += cells(name, medians, points, gigabits, settings.rule)
            print("\n".join(row(name, medians, points, settings.rule)), flush=True)
    print(f"\n{others.sentence()}")
    if given.reliability:
        command = f"python -m benchmarks.cluster_rates --seconds {given.seconds:g} --repeats {given.repeats}"
        write(given.reliability, PlansCompared(command, others.sentence(), plans))


if __name__ == "__main__":
    main()
