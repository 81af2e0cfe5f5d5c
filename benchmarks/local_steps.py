"""What rare communication of workers costs in samples and saves in bytes: scikit-learn's digits.

`python -m benchmarks.local_steps`: eight virtual workers, the perceptron of `digits_task`, SGD, five seeds, each way at
its own best rate (`RATES`, a factor of two apart). A row shows gradients of 32 samples, bytes pushed and pulled by all
workers, and virtual seconds until the shards' parameters have a validation loss below the target, relative to plain
`sync`, with the 95 % interval of claims: it includes the effect of choosing the rate by the same seeds. A best rate at
an edge is marked. Links are slow: without local steps they take most of the time. Ten minutes on a quiet core; `--all`
adds the other rules and ways.
"""

import argparse
from collections.abc import Mapping, Sequence
from itertools import count
from statistics import fmean
from typing import Final, NamedTuple

import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from benchmarks.digits_task import batch, batches_per_epoch, gradient, images, perceptron
from scalebook.training.engine import Settings, SharedRun
from scalebook.training.engine.rules.clock_settings import ClockSettings, Distribution, Link
from scalebook.training.engine.rules.local_steps import DiLoCo, Elastic, Local, LocalSGD, NoLocalSteps, Significance
from scalebook.training.engine.rules.update_rules import Async, Rule, Sync
from scalebook.training.engine.sim import ModelMultiplexer, SimulatedClock, SimulatedWorkers
from scalebook.training.experiments.search.space import Dimension
from scalebook.training.notebook.claims.evidence import SeedOutcome, best_of, by_others
from scalebook.training.notebook.claims.intervals import Amount, Confidence, crossing, ratio_interval
from scalebook.training.planner.play import EndlessWork
from scalebook.training.search.study.trials import TrialRecord

WORKERS: Final = 8
EPOCHS: Final = 60
EACH: Final = 16
"""Gradients between two evaluations of the parameters."""
DIVERGED: Final = 20.0
"""A loss from which no run recovers."""
TIMING: Final = ClockSettings(
    Distribution("gamma", 0.05, 0.2), link=Link(1e-3, 1e6), server_link=Link(0.0, 4e6), server_s=1e-4
)
RATES: Final = (0.2, 0.4, 0.8, 1.6)
CASES: Final[list[tuple[Rule, Local]]] = [
    (Sync(), NoLocalSteps()),
    (Sync(), LocalSGD(16)),
    (Sync(), LocalSGD(64)),
    (Sync(), DiLoCo(64)),
]
OTHERS: Final[list[tuple[Rule, Local]]] = [
    (Sync(), LocalSGD(4)),
    (Sync(), LocalSGD(16, dense_updates=20)),
    *((Sync(), DiLoCo(every)) for every in (4, 16)),
    *((Sync(), Elastic(every)) for every in (4, 16)),
    (Async(), NoLocalSteps()),
    *((Async(), LocalSGD(every)) for every in (4, 16, 64)),
    (Async(), Elastic(4)),
    (Async(), Significance(0.003)),
]


class Reached(NamedTuple):
    """What one run took until its loss reached the target, interpolated between two evaluations; censored if it never
    did."""

    gradients: Amount
    megabytes: Amount
    seconds: Amount


def run(rule: Rule, local: Local, seed: int, rate: float, target: float) -> Reached:
    """Train until the target, or for `EPOCHS`, or until the loss is not finite."""
    model, (_, held_out) = perceptron(seed), images()
    multiplexer = ModelMultiplexer([SGD(model.parameters(), lr=rate)])
    clock = SimulatedClock(TIMING, WORKERS, seed=seed)
    shared = SharedRun(WORKERS, Settings(rule, local=local), clock)
    players = SimulatedWorkers(shared, clock, multiplexer.make, EndlessWork())
    players.begin_all()
    looks: list[tuple[float, float, float]] = []
    losses: list[float] = []
    try:
        for number in count():
            epoch, place = divmod(number, batches_per_epoch())
            if epoch == EPOCHS or (losses and not losses[-1] < DIVERGED) or sum(loss < target for loss in losses) > 1:
                break
            worker = players.next()
            assert worker is not None, "there is always another batch"
            multiplexer.switch_to(worker)
            gradient(model, batch(seed, epoch, place))
            multiplexer.hand_over(worker)
            players.push()
            if number % EACH == EACH - 1:
                (partition,) = players.partitions
                newest = [shard.newest() for shard in partition.shards]
                multiplexer.put(players.joined[0].clients[0].replica.seen(newest))
                with torch.no_grad():
                    losses.append(cross_entropy(model(held_out.pixels), held_out.labels).item())
                moved = sum(times.pushed_bytes + times.pulled_bytes for times in shared.worker_times())
                looks.append((number + 1, max(moved, 1) / 1e6, clock.now()))
    finally:
        players.detach()
        shared.close()
    amounts = [crossing(axis, losses, target, lower=True) for axis in zip(*looks, strict=True)]
    assert all(amount is not None for amount in amounts)
    return Reached(*(amount for amount in amounts if amount is not None))


class Side(NamedTuple):
    """One way: at its best rate by gradients, and by seed at the rate that the other seeds choose."""

    rate: float
    at_edge: bool
    runs: Sequence[Reached]
    left_out: Sequence[Reached]

    def ratio(self, of: "Side", axis: str) -> Confidence | None:
        """Its ratio to `of` on this axis."""
        mine, theirs = ([_by_seed(runs, axis) for runs in (side.runs, side.left_out)] for side in (self, of))
        return ratio_interval(mine[0], theirs[0], (mine[1], theirs[1]))


def _by_seed(runs: Sequence[Reached], axis: str) -> Mapping[int, Amount]:
    return {seed: getattr(reached, axis) for seed, reached in enumerate(runs)}


def search(rule: Rule, local: Local, seeds: int, target: float) -> Side:
    """Run all rates with all seeds."""
    by_rate = [[run(rule, local, seed, rate, target) for seed in range(seeds)] for rate in RATES]
    trials = [TrialRecord(i, "finished", {"rate": rate}) for i, rate in enumerate(RATES)]
    space = [Dimension("rate", "grid", choices=RATES)]
    trial_runs = {i: [SeedOutcome(reached.gradients) for reached in runs] for i, runs in enumerate(by_rate)}
    best = best_of(trials, trial_runs, lower=True, space=space).number
    gradients = by_others(trials, trial_runs, lower=True, space=space)
    chosen = [next(runs[seed] for runs in by_rate if runs[seed].gradients is gradients[seed]) for seed in range(seeds)]
    return Side(RATES[best], best in (0, len(RATES) - 1), by_rate[best], chosen)


def main() -> None:
    """Print a table of rules and of when workers communicate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--target", type=float, default=0.3)
    parser.add_argument("--all", action="store_true", help="the other rules and ways too")
    args = parser.parse_args()
    torch.set_num_threads(1)
    print(f"rule   {'local':<30} rate  reached  gradients  MB  virtual s   of plain sync's: gradients; MB; seconds")
    base: Side | None = None
    for rule, local in CASES + (OTHERS if args.all else []):
        words = (local.words or local.name).format(**local.settings()) if local.steps else "none"
        words += ", post-local" if getattr(local, "dense_updates", 0) else ""
        side = search(rule, local, args.seeds, args.target)
        base = base or side
        there = sum(not reached.gradients.censored for reached in side.runs)
        means = [fmean(getattr(reached, axis).value for reached in side.runs) for axis in Reached._fields]
        ratios = [_words(side.ratio(base, axis)) for axis in Reached._fields] if side is not base else []
        rate = f"{side.rate:g}{' (edge)' if side.at_edge else ''}"
        figures = f"{rate:<10} {there}/{args.seeds}  {means[0]:>8.0f}  {means[1]:>8.1f}  {means[2]:>8.1f}"
        print(f"{rule.name:<5}  {words:<30} {figures}   {'; '.join(ratios)}", flush=True)


def _words(of: Confidence | None) -> str:
    return "-" if of is None else f"{of.value:.3g} ({of.low:.3g} to {of.high:.3g})"


if __name__ == "__main__":
    main()
