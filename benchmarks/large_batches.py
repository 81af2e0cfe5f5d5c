"""What large batches cost in few epochs, and how much scaling rules, LARS and LAMB recover: digits, MLPClassifier.

    python -m benchmarks.large_batches [--epochs 10] [--seeds 5]

Loss and accuracy on the validation images after the last epoch, mean and 95 % interval over the seeds, for the same
number of samples at every batch size. Momentum is 0.9 wherever there is one. The rate of the first row is the best at a
batch of 32; the rules take it from there; "best" rates are the best of a grid with doubling steps, on other seeds.
Takes about a minute on 2 cores.
"""

import argparse
import logging
import math
import statistics
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import torch
from lightning.pytorch import seed_everything
from torch.optim import SGD, Optimizer

from benchmarks.plain_training import plain_trainer
from scalebook.training.callbacks.rate_scaling import ScaledRates
from scalebook.training.experiments.lr_scaling import RateScaling
from scalebook.training.zoo.data import Digits
from scalebook.training.zoo.models import MLPClassifier
from scalebook.training.zoo.optimizers import LAMB, LARS

PER: Final = 32
WARM_UP: Final = 2.0  # epochs
SEARCH_SEEDS: Final = (101, 102)
STUDENT: Final = {3: 4.303, 5: 2.776, 10: 2.262}  # 97.5 % quantile of Student's t, by number of seeds

Make = Callable[[Any, float], Optimizer]
MAKERS: Final[dict[str, tuple[Make, Sequence[float]]]] = {
    "SGD": (lambda p, lr: SGD(p, lr=lr, momentum=0.9), [0.0015625 * 2**i for i in range(12)]),
    "LARS": (lambda p, lr: LARS(p, lr=lr, trust_coefficient=0.02), [0.03125 * 2**i for i in range(11)]),
    "LAMB": (lambda p, lr: LAMB(p, lr=lr), [0.00125 * 2**i for i in range(10)]),
}


class Row(NamedTuple):
    """One line of the table; `rate` as configured."""

    batch: int
    optimizer: str
    rate: float
    scaling: RateScaling | None
    words: str


class Ended(NamedTuple):
    """Results of one run."""

    loss: float
    accuracy: float


def trained(row: Row, epochs: int, seed: int) -> Ended:
    """Make one run, with the same Trainer, model and data as an experiment."""
    seed_everything(seed, verbose=False)
    model, data = MLPClassifier(), Digits(batch_size=row.batch)
    make, _ = MAKERS[row.optimizer]
    model.configure_optimizers = lambda: make(model.parameters(), row.rate)  # type: ignore[method-assign]  # this one's
    callbacks = [ScaledRates(row.scaling, row.batch)] if row.scaling else []
    trainer = plain_trainer(
        max_epochs=epochs, callbacks=callbacks, num_sanity_val_steps=0, check_val_every_n_epoch=epochs
    )
    trainer.fit(model, data)
    metrics = {name: float(value) for name, value in trainer.callback_metrics.items()}
    loss = metrics["val/loss"]
    return Ended(loss if math.isfinite(loss) else math.inf, metrics["val/accuracy"])


def best(optimizer: str, batch: int, epochs: int) -> float:
    """The rate of the grid with the least mean loss; the grid is extended upwards until the loss has grown twice."""
    losses: dict[float, float] = {}
    for rate in MAKERS[optimizer][1]:
        row = Row(batch, optimizer, rate, None, "")
        losses[rate] = statistics.mean(trained(row, epochs, seed).loss for seed in SEARCH_SEEDS)
        if min(list(losses.values())[-2:]) > min(losses.values()):
            break
    return min(losses, key=losses.__getitem__)


def rows(batches: Sequence[int], epochs: int) -> list[Row]:
    """The reference, and the rows of each batch size."""
    rate = best("SGD", PER, epochs)
    rows_ = [Row(PER, "SGD", rate, None, "best rate")]
    for batch in batches:
        rows_ += [
            Row(batch, "SGD", rate, None, "the same rate"),
            Row(batch, "SGD", rate, RateScaling("sqrt", PER, WARM_UP), "square root, warm-up"),
            Row(batch, "SGD", rate, RateScaling("linear", PER, WARM_UP), "linear, warm-up"),
            *(Row(batch, name, best(name, batch, epochs), None, "best rate") for name in MAKERS),
        ]
    return rows_


def line(row: Row, ended: Sequence[Ended]) -> str:
    """One line of a Markdown table."""
    used = row.rate * (row.scaling.factor(row.batch) if row.scaling else 1)
    figures = " | ".join(_interval([end[i] for end in ended], digits) for i, digits in ((0, 3), (1, 3)))
    return f"| {row.batch} | {row.optimizer} | {row.words} | {used:g} | {figures} |"


def _interval(values: Sequence[float], digits: int) -> str:
    half = STUDENT[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.mean(values):.{digits}f} ± {half:.{digits}f}"


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.large_batches", description=__doc__)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=5, choices=sorted(STUDENT))
    parser.add_argument("--batches", type=int, nargs="+", default=[256, 512, 1024])
    arguments = parser.parse_args(argv)
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    for words in (".*does not have many workers.*", ".*LeafSpec.*is deprecated.*"):
        warnings.filterwarnings("ignore", words)
    torch.set_num_threads(1)
    print("| batch | optimizer | | learning rate | val/loss | val/accuracy |\n|---|---|---|---|---|---|")
    for row in rows(arguments.batches, arguments.epochs):
        print(line(row, [trained(row, arguments.epochs, seed) for seed in range(1, arguments.seeds + 1)]), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
