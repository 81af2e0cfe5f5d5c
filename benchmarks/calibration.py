"""Virtual workers and theory: the table of docs/benchmarks/calibration.md (`python -m benchmarks.calibration`).

Each row compares a published law with what the engine makes of it: its own rules, rounds, queues and clock, with a
parameter of one number. Nothing is fitted. A figure with random times has the half-width of its 95 % interval (batch
means); the others are exact. A row is off when its ratio is further from 1 than twice that half-width and 0.1 %; the
command then ends with code 1. It takes two minutes; `--share 0.25` simulates a quarter,
with intervals twice as wide, and leaves the file of the page as it is.
"""

import heapq
import json
import math
import random
import statistics
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from datetime import date
from functools import partial
from itertools import pairwise
from multiprocessing import get_context
from pathlib import Path
from typing import Any, Final, NamedTuple

import torch
from lightning.pytorch import LightningModule, Trainer
from scipy import integrate, stats
from torch import Tensor
from torch.nn import Parameter
from torch.optim import SGD
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.common import machine, parser, row
from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.rules.clock_settings import ClockSettings, Distribution
from scalebook.training.engine.rules.update_rules import Async, Rule, Softsync, Sync
from scalebook.training.engine.sim import SimulatedClock, SimulatedWorkers
from scalebook.training.lightning import AsyncPS
from scalebook.training.planner.play import EndlessWork

FIGURES: Final = Path(__file__).parents[1] / "docs" / "figures" / "calibration.json"
EXPONENTIAL: Final = ClockSettings(Distribution("exponential", 1.0))
BATCHES: Final = 20
"""Batches of an interval."""
SLACK: Final = 0.001


class Row(NamedTuple):
    """`error`: half of the 95 % interval of `engine`, in its unit; 0: exact. `at_most`: `theory` is a bound."""

    law: str
    case: str
    theory: float
    engine: float
    error: float = 0.0
    at_most: bool = False

    @property
    def ratio(self) -> float:
        """Engine over theory."""
        return self.engine / self.theory

    @property
    def holds(self) -> bool:
        """Whether they agree, as the module's docstring says."""
        return (self.at_most and self.ratio <= 1) or abs(self.ratio - 1) <= 2 * self.error / self.theory + SLACK


Task = partial[list[Row]]
"""Makes rows, in any process."""


class Played(NamedTuple):
    """`stale`: (worker, staleness) of each push, in order. `at`: seconds of each update."""

    stale: list[tuple[int, int]]
    at: list[float]

    def update_s(self, warm_up: int = 0) -> tuple[float, float]:
        """Mean seconds of an update, and half of its 95 % interval, without the first ones."""
        times = [0.0, *self.at][warm_up:]
        each = (len(times) - 1) // BATCHES
        means = [(times[(i + 1) * each] - times[i * each]) / each for i in range(BATCHES)]
        return statistics.fmean(means), _half(means)


def _half(values: Sequence[float]) -> float:
    """Half-width of the 95 % interval of the mean."""
    spread = statistics.stdev(values) / math.sqrt(len(values))
    return float(stats.t.ppf(0.975, len(values) - 1)) * spread


def play(
    rule: Rule,
    clock: ClockSettings,
    workers: int,
    gradients: int,
    seed: int = 0,
    gradient: Callable[[float], float] = lambda value: 0.0,
    start: float = 0.0,
    values: list[float] | None = None,
) -> Played:
    """Simulate so many gradients, each `gradient` of its worker's parameter value; the learning rate is 1. `values`
    gets the parameter after each update."""
    now = SimulatedClock(clock, workers, seed=seed)
    run = SharedRun(workers, Settings(rule, host="virtual", clock=clock), now)
    parameters: dict[int, Parameter] = {}

    def make(worker: int) -> list[SGD]:
        parameters[worker] = Parameter(torch.tensor([start]))
        return [SGD([parameters[worker]], lr=1.0)]

    try:
        players = SimulatedWorkers(run, now, make, EndlessWork())
        players.begin_all()
        (shard,) = players.partitions[0].shards
        stale, update_times = list[tuple[int, int]](), list[float]()
        for _ in range(gradients):
            worker = players.next()
            assert worker is not None, "there is always another batch"
            parameter = parameters[worker]
            parameter.grad = torch.tensor([gradient(parameter.item())])
            players.push()
            if (pushed := players.pushed.get(worker)) is not None:  # else it is being served
                stale.append((worker, pushed.staleness))
            if shard.version > len(update_times):
                update_times.append(now.now())
                if values is not None:
                    values.append(shard.views[shard.newest().buffer][0].item())
        players.detach()
        return Played(stale, update_times)
    finally:
        run.close()


# --- staleness -------------------------------------------------------------------------------------------------------


def staleness(share: float) -> Iterator[Task]:
    """Staleness under `async` and `softsync`."""
    yield from (partial(_equal, workers) for workers in (2, 8, 64))
    yield from (partial(_memoryless, workers, int(share * 24_000)) for workers in (4, 16))
    yield from (partial(_softsync, average, max(1500, int(share * 6000))) for average in (30, 10, 3, 1))


def _equal(workers: int) -> list[Row]:
    seen = [stale for _, stale in play(Async(), ClockSettings(1.0), workers, 4 * workers).stale[workers:]]
    spread = float(max(seen) - min(seen))
    return [Row("equal workers: N - 1", f"N = {workers}", workers - 1, statistics.fmean(seen), spread)]


def _memoryless(workers: int, gradients: int) -> list[Row]:
    pushes = play(Async(), EXPONENTIAL, workers, gradients).stale
    own = [stale for worker, stale in pushes if worker == 0][1:]  # of one worker: independent of each other
    mean, case = statistics.fmean(own), f"N = {workers}"
    return [
        Row("memoryless workers: geometric, mean N - 1", case, workers - 1, mean, _half(own)),
        Row("the same: chi-square over its degrees of freedom", case, 1.0, *_chi_square(own, workers)),
    ]


def _softsync(average: int, gradients: int) -> list[Row]:
    clock = ClockSettings(Distribution("gamma", 1.0, 0.1))
    seen = [stale for _, stale in play(Softsync(average), clock, 30, gradients).stale[300:]]
    n, each = 30 // average, len(seen) // BATCHES
    error = _half([statistics.fmean(seen[i * each : (i + 1) * each]) for i in range(BATCHES)])
    law = "n-softsync, N = 30, c = 30/n: (N - 1) / c"
    return [
        Row(law, f"n = {n}", 29 / average, statistics.fmean(seen), error),
        Row("the same: at most 2n", f"n = {n}", 2 * n, max(seen), at_most=True),
    ]


FEWEST: Final = 5
"""Least expected count in each bin of a chi-square test, and beyond the last bin."""


def _chi_square(seen: Sequence[int], workers: int) -> tuple[float, float]:
    """Chi-square against geometric(1 / N), over its degrees of freedom, and half of the 95 % width that it has by
    chance."""
    counts, total, stay = Counter(seen), len(seen), 1 - 1 / workers
    bins: list[tuple[int, float]] = []
    begin = 0
    for end in range(1, max(seen) + 2):  # values from begin to end - 1, as many as make five expected ones
        expected = total * (stay**begin - stay**end)
        if expected >= FEWEST and total * stay**end >= FEWEST:
            bins.append((sum(counts[value] for value in range(begin, end)), expected))
            begin = end
    bins.append((sum(count for value, count in counts.items() if value >= begin), total * stay**begin))
    degrees = len(bins) - 1
    return sum((a - b) ** 2 / b for a, b in bins) / degrees, float(stats.chi2.ppf(0.975, degrees)) / degrees - 1


# --- seconds of a synchronous update ---------------------------------------------------------------------------------


def rounds(share: float) -> Iterator[Task]:
    """Rounds under `sync`."""
    for workers in (4, 16, 64):
        theory = harmonic(workers)
        yield partial(_round, "exponential times: H(N)", f"N = {workers}", theory, Sync(), EXPONENTIAL, workers, share)
    for workers, cv in ((16, 0.2), (64, 0.5)):
        clock, case = ClockSettings(Distribution("gamma", 1.0, cv)), f"N = {workers}, cv {cv:g}"
        theory = _largest_gamma(workers, cv)
        yield partial(_round, "gamma times: largest of N", case, theory, Sync(), clock, workers, share)
    for needed, spare in ((8, 1), (16, 4)):
        case, workers = f"{needed} + {spare}", needed + spare
        law, theory = "backup workers that stop (`cancel`): H(N + b) - H(b)", harmonic(workers) - harmonic(spare)
        yield partial(_round, law, case, theory, Sync(spare, cancel=True), EXPONENTIAL, workers, share)
        yield partial(_finishing, needed, spare, share)


def _finishing(needed: int, spare: int, share: float) -> list[Row]:
    workers = needed + spare
    theory, error = late_ones_finish(needed, workers, int(share * 40_000))
    law = "backup workers that finish first: a simulation of 15 lines"
    (row,) = _round(law, f"{needed} + {spare}", theory, Sync(spare), EXPONENTIAL, workers, share)
    return [row._replace(error=math.hypot(row.error, error))]


def _round(
    law: str, case: str, theory: float, rule: Sync, clock: ClockSettings, workers: int, share: float
) -> list[Row]:
    updates = max(200, int(share * 1200 * min(1, 16 / workers)))
    pushes = updates * (rule.averaged(workers) if rule.cancel else workers)
    return [Row(law, case, theory, *play(rule, clock, workers, pushes).update_s(warm_up=10))]


def harmonic(terms: int) -> float:
    """H(n) = 1 + 1/2 + ... + 1/n."""
    return math.fsum(1 / k for k in range(1, terms + 1))


def _largest_gamma(workers: int, cv: float) -> float:
    """The mean of the largest of so many gamma times of mean 1: the integral of 1 - F(t)^N."""
    of = stats.gamma(1 / cv**2, scale=cv**2)
    return float(integrate.quad(lambda t: 1 - of.cdf(t) ** workers, 0, 20, limit=200)[0])


def late_ones_finish(needed: int, workers: int, count: int) -> tuple[float, float]:
    """Mean seconds of a round, and the half-width of its interval, if a late worker finishes its gradient and then
    begins one of the newest version. Independent of the engine."""
    draw = random.Random(1)
    due = [(draw.expovariate(1.0), worker, 0) for worker in range(workers)]
    heapq.heapify(due)
    version, given, ends, last = 0, list[int](), list[float](), 0.0
    while version < count:
        now, worker, base = heapq.heappop(due)
        if base == version:
            given.append(worker)
        else:
            heapq.heappush(due, (now + draw.expovariate(1.0), worker, version))
        if len(given) == needed:
            version += 1
            ends.append(now - last)
            last = now
            for one in given:
                heapq.heappush(due, (now + draw.expovariate(1.0), one, version))
            given = []
    each = count // BATCHES
    return statistics.fmean(ends), _half([statistics.fmean(ends[i * each : (i + 1) * each]) for i in range(BATCHES)])


# --- one server ------------------------------------------------------------------------------------------------------

SERVER_S: Final = 0.05


def servers(share: float) -> Iterator[Task]:
    """Updates per second of N workers that compute for 1 s on average, and queue for a server of 0.05 s."""
    yield from (partial(_constant_server, workers) for workers in (4, 16, 64))
    yield from (partial(_drawn_server, workers, max(2000, int(share * 10_000))) for workers in (4, 8, 16, 32))


def _constant_server(workers: int) -> list[Row]:
    constant = ClockSettings(1.0, server_s=SERVER_S)
    seconds, _ = play(Async(), constant, workers, 41 * workers).update_s(warm_up=20 * workers)
    theory = min(workers / (1 + SERVER_S), 1 / SERVER_S)
    return [Row("constant server", f"N = {workers}", theory, 1 / seconds)]


def _drawn_server(workers: int, gradients: int) -> list[Row]:
    drawn = ClockSettings(Distribution("exponential", 1.0), server_s=Distribution("exponential", SERVER_S))
    seconds, error = play(Async(), drawn, workers, gradients).update_s(warm_up=200)
    law, theory = "exponential server: machine repairman", machine_repairman(workers)
    return [Row(law, f"N = {workers}", theory, 1 / seconds, error / seconds**2)]


def machine_repairman(workers: int) -> float:
    """Updates per second by mean value analysis: an arriving worker finds the queue of one worker fewer."""
    queue = rate = 0.0
    for count in range(1, workers + 1):
        waits = SERVER_S * (1 + queue)
        rate = count / (1 + waits)
        queue = rate * waits
    return rate


# --- what staleness does to a step -----------------------------------------------------------------------------------


def momentum(share: float) -> Iterator[Task]:
    """How the parameters go on after a slope that becomes flat at the first update."""
    yield from (partial(_coasting, workers, max(4, int(share * 40))) for workers in (2, 4, 8))


def _coasting(workers: int, each: int) -> list[Row]:
    moved: list[list[float]] = []
    for seed in range(each * BATCHES):
        values = [0.5]
        play(Async(), EXPONENTIAL, workers, workers + 1, seed, lambda w: float(w > 0), 0.5, values)
        moved.append([before - after for before, after in pairwise(values)])
    left_out = [_decay(moved[: i * each] + moved[(i + 1) * each :]) for i in range(BATCHES)]
    error = _half(left_out) * (BATCHES - 1)  # jackknife
    law = "velocity kept by an update: 1 - 1/N"
    return [Row(law, f"N = {workers}", 1 - 1 / workers, _decay(moved), error)]


def _decay(moved: Sequence[Sequence[float]]) -> float:
    """The decay of the mean velocity, over as many updates as there are workers."""
    mean = [statistics.fmean(of_all) for of_all in zip(*moved, strict=True)]
    return sum(mean[1:]) / sum(mean[:-1])


class Quadratic(LightningModule):
    """w^2 / 2. Writes the w that each gradient is computed from to a file, 8 bytes each."""

    def __init__(self, rate: float, file: Path) -> None:
        super().__init__()
        self.weight, self.rate, self.file = Parameter(torch.ones(1, dtype=torch.float64)), rate, file

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        with self.file.open("ab") as file:
            file.write(self.weight.detach().numpy().tobytes())
        return (self.weight**2).sum() / 2

    def configure_optimizers(self) -> SGD:
        return SGD(self.parameters(), lr=self.rate)


def limit(share: float) -> Iterator[Task]:
    """The largest rate at which a quadratic of curvature 1 does not diverge, by whole Trainer runs. Nothing is random,
    so `share` has no effect."""
    yield from (partial(_limit, workers) for workers in (1, 2, 4, 8, 16))


def _limit(workers: int) -> list[Row]:
    stale = workers - 1
    theory = 2 * math.sin(math.pi / (4 * stale + 2))
    law = "largest stable rate"
    return [Row(law, f"tau = {stale}", theory, _largest_rate(workers, 0.9 * theory, 1.05 * theory))]


def _largest_rate(workers: int, low: float, high: float) -> float:
    """Secant search for zero growth of w^2."""
    points = [(rate, _growth(workers, rate)) for rate in (low, high)]
    for _ in range(3):
        (x, fx), (y, fy) = points[-2:]
        rate = y - fy * (y - x) / (fy - fx)
        points.append((rate, _growth(workers, rate)))
        if abs(points[-1][1]) < 1e-5:
            break
    return points[-1][0]


def _growth(workers: int, rate: float) -> float:
    """Growth of log w^2 per update, after transients have died out. Over whole half-periods: at the limit w oscillates
    with period 2 (2 tau + 1) updates."""
    half = 2 * workers - 1
    window = 10 * half
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "values"
        trainer = Trainer(
            strategy=AsyncPS("async", workers=workers, host="virtual", clock=ClockSettings(1.0)),
            accelerator="cpu", devices=1, max_steps=3 * window + workers, max_epochs=-1, logger=False,
            enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
        )  # fmt: skip
        trainer.fit(Quadratic(rate, file), DataLoader(TensorDataset(torch.zeros(4 * window, 1)), batch_size=1))
        values = torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.float64)
    first, second = ((values[-k * window :][:window] ** 2).sum().item() for k in (2, 1))
    return math.log(second / first) / window


# --- the table --------------------------------------------------------------------------------------------------------

PARTS: Final[dict[str, Callable[[float], Iterator[Task]]]] = {
    "Staleness": staleness,
    "Seconds of a synchronous update": rounds,
    "A server and its queue": servers,
    "Momentum through asynchrony": momentum,
    "Largest stable learning rate": limit,
}
"""By their names in the table."""


def cells(part: str, one: Row) -> dict[str, str]:
    """A row as the table shows it."""
    error = f" ± {one.error / one.theory:.3f}" if one.error else ""
    return {
        "part": part, "law": one.law, "case": one.case,
        "theory": f"{one.theory:.4g}", "engine": f"{one.engine:.4g}", "ratio": f"{one.ratio:.4f}{error}",
    }  # fmt: skip


def main() -> None:
    """Print the rows, and write them for the page. Exit code 1 where a row is off."""
    options = parser(__doc__)
    options.add_argument("--share", type=float, default=1.0, help="share of the random simulations to run")
    share = options.parse_args().share
    shown, off = list[dict[str, str]](), list[Row]()
    with ProcessPoolExecutor(
        mp_context=get_context("forkserver"), initializer=torch.set_num_threads, initargs=(1,)
    ) as pool:
        under_way = {part: [pool.submit(task) for task in tasks(share)] for part, tasks in PARTS.items()}
        for part, made in under_way.items():
            rows = [one for rows in made for one in rows.result()]
            off += [one for one in rows if not one.holds]
            shown += [cells(part, one) for one in rows]
            print("\n".join(row(*cells(part, one).values()) for one in rows), flush=True)
    if share == 1:
        content = {"rows": shown, "machine": machine(), "date": date.today().isoformat()}
        FIGURES.write_text(json.dumps(content, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    for one in off:
        print(f"OFF: {one}")
    sys.exit(bool(off))


if __name__ == "__main__":
    main()
