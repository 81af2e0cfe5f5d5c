"""One worker at half speed: what it costs under each rule and under DDP.

    python -m benchmarks.stragglers [--seeds 3] [--epochs 20] [--only NAME ...] [--json FILE]

Four workers train a small perceptron on digits. Computing a gradient takes 0.3 ms, and each worker then sleeps 20 ms,
the last one 40 ms, so that four fit on two cores and their speed is known. The gradients of an epoch are handed out by
a shared cursor, first come, first served (DDP: in turn). Every gradient moves the parameters by the same rate: an
average of k gradients has k times the learning rate (linear scaling: Goyal et al. 2017, section 2.1). Worker 0, a fast
one, validates after each of its updates. Means over seeds with their 95 % interval (Student's t). Takes about 2
minutes.
"""

import argparse
import json
import math
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final, NamedTuple

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.optim import SGD

from benchmarks.digits_task import BATCH, accuracy, batch, batches_per_epoch, gradient, perceptron
from benchmarks.machine import Others, machine
from scalebook.training.engine import Settings, SharedRun, join
from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Sync
from scalebook.training.engine.worker.cursor import Cursor
from scalebook.training.lightning.processes.run_workers import run_workers

WORKERS: Final = 4
COMPUTE_S: Final = 0.020  # emulated time of one gradient
SLOW: Final = {WORKERS - 1: 2.0}  # worker -> factor on it
LEARNING_RATE: Final = 0.1  # for one gradient
TARGET: Final = 0.95  # validation accuracy
DEADLINE_S: Final = 60.0
DDP: Final = "DDP gloo"
T_975: Final = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}


class Trained(NamedTuple):
    """Results of one training. `to_target_s` is infinite if the target was missed; `dropped` is a share of all
    gradients."""

    updates_per_s: float
    samples_per_s: float
    to_target_s: float
    final_accuracy: float
    dropped: float
    staleness: float


class Part(NamedTuple):
    """What one worker measured: when it began and ended (monotonic clock), its gradients, and worker 0's validation."""

    began: float
    ended: float
    applied: int
    dropped: int
    version: int
    target_at: float
    final_accuracy: float


class Validation:
    """Worker 0's: remembers when the target was first reached."""

    def __init__(self, model: torch.nn.Module, worker: int) -> None:
        self._model, self._is_mine = model, worker == 0
        self.target_at, self.last = math.inf, math.nan

    def __call__(self) -> None:
        if self._is_mine:
            self.last = accuracy(self._model)
            if self.last >= TARGET and math.isinf(self.target_at):
                self.target_at = time.monotonic()


def compute(model: torch.nn.Module, worker: int, seed: int, number: int) -> None:
    """The gradient of batch `number` of the whole training, in the emulated time."""
    gradient(model, batch(seed, *divmod(number, batches_per_epoch())))
    time.sleep(COMPUTE_S * SLOW.get(worker, 1.0))


def under_rule(rule: Rule, averaged: int, seed: int, epochs: int) -> Trained:
    """With the parameter server; `averaged` gradients make one update."""
    run, cursor = SharedRun(WORKERS, Settings(rule=rule)), Cursor(WORKERS)

    def body(worker: int) -> Part:
        model = perceptron(seed)
        membership = run.member(worker, DEADLINE_S)
        joined = join(run, membership, [SGD(model.parameters(), lr=LEARNING_RATE * averaged)])
        (client,), validate, applied, dropped = joined.clients, Validation(model, worker), 0, 0
        cursor.enter_epoch(worker, 0, epochs * batches_per_epoch(), Deal.ONE_EACH)
        joined.begin()
        began = time.monotonic()
        while (taken := cursor.take_batch(worker)) is not None:
            compute(model, worker, seed, taken.batch)
            if client.push().applied:
                applied += 1
            else:
                dropped += 1
            cursor.mark_done(worker)
            validate()
        ended = time.monotonic()
        joined.finish()
        return Part(began, ended, applied, dropped, client.version, validate.target_at, validate.last)

    try:
        return trained(run_workers(WORKERS, body), run.staleness().mean())
    finally:
        run.close()


def under_ddp(seed: int, epochs: int) -> Trained:
    """With torch's DistributedDataParallel over gloo."""

    def body(worker: int, store: Path) -> Part:
        os.environ["GLOO_SOCKET_IFNAME"] = "lo"
        dist.init_process_group("gloo", init_method=f"file://{store}", rank=worker, world_size=WORKERS)
        model = perceptron(seed)
        parallel, validate = DistributedDataParallel(model), Validation(model, worker)
        optimizer = SGD(model.parameters(), lr=LEARNING_RATE * WORKERS)
        steps = epochs * batches_per_epoch() // WORKERS
        dist.barrier()
        began = time.monotonic()
        for step in range(steps):
            compute(parallel, worker, seed, step * WORKERS + worker)
            optimizer.step()
            validate()
        return Part(began, time.monotonic(), steps, 0, steps, validate.target_at, validate.last)

    with tempfile.TemporaryDirectory() as folder:
        return trained(run_workers(WORKERS, partial(body, store=Path(folder, "store"))), staleness=0.0)


def trained(parts: Sequence[Part], staleness: float) -> Trained:
    """Results of all workers, timed from when the first began to when the last ended."""
    began = min(part.began for part in parts)
    seconds = max(part.ended for part in parts) - began
    applied, dropped = sum(part.applied for part in parts), sum(part.dropped for part in parts)
    return Trained(
        updates_per_s=max(part.version for part in parts) / seconds,
        samples_per_s=applied * BATCH / seconds,
        to_target_s=parts[0].target_at - began,
        final_accuracy=parts[0].final_accuracy,
        dropped=dropped / (applied + dropped),
        staleness=staleness,
    )


SYSTEMS: Final[dict[str, Callable[[int, int], Trained]]] = {
    "async": partial(under_rule, Async(), 1),
    "bounded 4": partial(under_rule, Bounded(4), 1),
    "sync": partial(under_rule, Sync(), WORKERS),
    "sync, one backup": partial(under_rule, Sync(backup_workers=1), WORKERS - 1),
    DDP: under_ddp,
}


def mean_interval(values: Sequence[float], digits: int = 0) -> str:
    """Mean and half-width of its 95 % interval, as text; and how many were finite if not all were."""
    finite = [value for value in values if math.isfinite(value)]
    if len(finite) < len(values):
        return f"reached in {len(finite)} of {len(values)}"
    if len(values) < 2:
        return f"{values[0]:.{digits}f}"
    half = T_975.get(len(values) - 1, 1.96) * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):.{digits}f} ± {half:.{digits}f}"


def table(results: Mapping[str, Sequence[Trained]]) -> str:
    """Markdown. Seconds to the target are also shown relative to DDP's with the same seed, which varies less."""
    lines = [
        f"| rule | updates/s | samples/s | seconds to {TARGET:.0%} | of DDP's | dropped | staleness | last accuracy |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for name, runs in results.items():
        updates, samples, seconds, final, dropped, staleness = zip(*runs, strict=True)
        pairs = zip(seconds, (run.to_target_s for run in results.get(DDP, ())), strict=False)
        shares = [a / b for a, b in pairs if math.isfinite(a) and math.isfinite(b)]
        lines.append(
            f"| {name} | {mean_interval(updates)} | {mean_interval(samples)} | {mean_interval(seconds, 2)} | "
            f"{mean_interval(shares, 2) if shares else '-'} | {statistics.mean(dropped):.0%} | "
            f"{statistics.mean(staleness):.2f} | {statistics.mean(final):.1%} |"
        )
    return "\n".join(lines)


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--only", action="append", default=[], choices=list(SYSTEMS), metavar="NAME")
    parser.add_argument("--json", type=Path, help="also write every single training here")
    given = parser.parse_args()
    torch.set_num_threads(1)
    others = Others()
    results: dict[str, list[Trained]] = {name: [] for name in given.only or SYSTEMS}
    for seed in range(given.seeds):
        for name, runs in results.items():
            runs.append(SYSTEMS[name](seed, given.epochs))
            print(f"# seed {seed}, {name}: {runs[-1].to_target_s:.2f} s to {TARGET:.0%}", flush=True)
    print(f"\n{table(results)}\n\n{others.sentence()}")
    if given.json:
        content = {name: [run._asdict() for run in runs] for name, runs in results.items()}
        given.json.write_text(json.dumps({"machine": machine(), "runs": content}, indent=1))


if __name__ == "__main__":
    main()
