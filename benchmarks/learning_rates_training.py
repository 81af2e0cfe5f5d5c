"""One training of `benchmarks.learning_rates` on the real engine: N workers in turn, or N free processes."""

import math
import mmap
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple

from torch.optim import SGD

from benchmarks.digits_task import accuracy, batch, batches_per_epoch, gradient, perceptron
from scalebook.training.ps import Settings, SharedRun, join
from scalebook.training.ps.worker.cursor import Cursor
from scalebook.training.strategies.processes import run_workers

DEADLINE_S: Final = 60.0
HOPELESS: Final = 0.3  # validation accuracy after a quarter of the updates: a training with less is given up


class Ended(NamedTuple):
    """One training."""

    accuracy: float
    staleness: float  # mean
    median_staleness: float


def in_turn(workers: int, settings: Settings, rate: float, seed: int, epochs: int) -> Ended:
    """N clients in this process, each pushing when it is its turn; before the end of the warm-up it is worker 0's."""
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
        cursor.begin(worker, 0, updates, turns=False)
        joined.begin()
        while not hopeless[0] and (claim := cursor.claim(worker)) is not None:
            gradient(model, batch(seed, *divmod(claim.batch, batches_per_epoch())))
            joined.clients[0].push()
            cursor.done(worker)
            if claim.batch == updates // 4:
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
