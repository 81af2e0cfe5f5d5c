"""What it costs, in samples, and saves, in bytes, that workers communicate rarely: scikit-learn's digits.

`python -m benchmarks.local_steps`: eight virtual workers, the perceptron of `digits_task`, SGD with one learning rate
for all, three seeds. A row: gradients of 32 samples, bytes pushed and pulled by all workers, and virtual seconds until
the shards' parameters have a validation loss below the target; the median of the seeds, and how many of them came
there. Links are slow: without local steps most of the time goes by on them.
"""

import argparse
from itertools import count
from statistics import median
from typing import Final, NamedTuple

import torch
from torch.nn.functional import cross_entropy
from torch.optim import SGD

from benchmarks.digits_task import batch, batches_per_epoch, gradient, images, perceptron
from scalebook.training.planning.play import Endless
from scalebook.training.ps import Settings, SharedRun
from scalebook.training.ps.clock.virtual import VirtualClock
from scalebook.training.ps.policy.clock import ClockSettings, Distribution, Link
from scalebook.training.ps.policy.local import DiLoCo, Elastic, Local, LocalSGD, NoLocalSteps, Significance
from scalebook.training.ps.policy.rules import Async, Rule, Sync
from scalebook.training.ps.worker.one_model import OneModel
from scalebook.training.ps.worker.virtual import VirtualWorkers

WORKERS: Final = 8
EPOCHS: Final = 60
EACH: Final = 16
"""Gradients after which the parameters are looked at."""
TIMING: Final = ClockSettings(
    Distribution("gamma", 0.05, 0.2), link=Link(1e-3, 1e6), server_link=Link(0.0, 4e6), server_s=1e-4
)
CASES: Final[list[tuple[Rule, Local]]] = [
    (Sync(), NoLocalSteps()),
    *((Sync(), LocalSGD(every)) for every in (1, 4, 16, 64)),
    (Sync(), LocalSGD(16, dense_updates=20)),
    *((Sync(), DiLoCo(every)) for every in (4, 16, 64)),
    *((Sync(), Elastic(every)) for every in (4, 16)),
    (Async(), NoLocalSteps()),
    *((Async(), LocalSGD(every)) for every in (4, 16, 64)),
    (Async(), Elastic(4)),
    (Async(), Significance(0.003)),
]


class Reached(NamedTuple):
    """Of one run, until its loss was below the target."""

    gradients: int
    megabytes: float
    seconds: float
    updates: int


def run(rule: Rule, local: Local, seed: int, rate: float, target: float) -> Reached | None:
    """Train until the target, or None where `EPOCHS` do not lead there."""
    model, (_, held_out) = perceptron(seed), images()
    one_model = OneModel([SGD(model.parameters(), lr=rate)])
    clock = VirtualClock(TIMING, WORKERS, seed=seed)
    shared = SharedRun(WORKERS, Settings(rule, local=local), clock)
    players = VirtualWorkers(shared, clock, one_model.make, Endless())
    players.begin()
    try:
        for number in count():
            epoch, place = divmod(number, batches_per_epoch())
            if epoch == EPOCHS:
                return None
            worker = players.next()
            assert worker is not None, "there is always another batch"
            one_model.show(worker)
            gradient(model, batch(seed, epoch, place))
            one_model.hand_over(worker)
            players.push()
            if number % EACH == EACH - 1:
                (section,) = players.sections
                newest = [shard.newest() for shard in section.shards]
                one_model.put(players.joined[0].clients[0].replica.seen(newest))
                with torch.no_grad():
                    loss = cross_entropy(model(held_out.pixels), held_out.labels).item()
                if loss < target:
                    moved = sum(times.pushed_bytes + times.pulled_bytes for times in shared.worker_times())
                    return Reached(number + 1, moved / 1e6, clock.now(), shared.counts().updates)
        raise AssertionError("counting has no end")
    finally:
        players.detach()
        shared.close()


def main() -> None:
    """Print a table of rules and of when workers communicate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--rate", type=float, default=0.2)
    parser.add_argument("--target", type=float, default=0.3)
    args = parser.parse_args()
    torch.set_num_threads(1)
    print("rule   local                          gradients  updates      MB  virtual s  reached")
    for rule, local in CASES:
        words = (local.words or local.name).format(**local.settings()) if local.steps else "none"
        words += ", post-local" if getattr(local, "dense_updates", 0) else ""
        found = [one for seed in range(args.seeds) if (one := run(rule, local, seed, args.rate, args.target))]
        row = [median(part) for part in zip(*found, strict=True)] or [float("nan")] * 4
        figures = f"{row[0]:>9.0f}  {row[3]:>7.0f}  {row[1]:>6.1f}  {row[2]:>9.1f}  {len(found)}/{args.seeds}"
        print(f"{rule.name:<5}  {words:<30} {figures}", flush=True)


if __name__ == "__main__":
    main()
