"""What every strategy must do under Lightning: the strategies, the reference they are held against, the scale of it."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.strategies import Strategy
from torch import Tensor
from torch.utils.data import DataLoader

from scalebook.training.lightning import DDP, AsyncPS
from scalebook.training.zoo.shuffle import EpochShuffle
from tests.training.lightning.async_ps.small import HELD_OUT, Diary, data, diaries, trainer, weights

WORKERS: Final = 2
BATCH: Final = 8
SAMPLES: Final = 96
BATCHES: Final = SAMPLES // BATCH
"""Of all workers together, in one epoch."""


@dataclass(frozen=True)
class Case:
    """One strategy with two workers.

    `averaged` gradients make one update, each of one batch; `exact`: two workers with batch b must give the weights of
    a single process with batch 2 b, up to the order of summation.
    """

    name: str
    make: Callable[..., Strategy]
    averaged: int
    exact: bool

    def __str__(self) -> str:
        return self.name

    @property
    def is_ddp(self) -> bool:
        return self.name == "ddp"

    def updates(self, batches: int) -> int:
        """Updates that so many batches make."""
        return batches // self.averaged

    def about(self, updates: int) -> list[int]:
        """Updates where each needs several batches of one worker: who comes first takes the next batch, so that one may
        have an odd number of them.
        """
        return [updates] if self.exact else [updates - 1, updates, updates + 1]


def _ddp(**arguments: Any) -> DDP:
    """With what DDP needs for models whose parameters do not all have a gradient in every step."""
    return DDP(find_unused_parameters=arguments.get("unused", False))


def _asynchronous(rule: Any, host: Any) -> Callable[..., AsyncPS]:
    def make(unused: bool = False, **arguments: Any) -> AsyncPS:
        shards = 1 if host == "inline" else 2
        return AsyncPS(rule=rule, workers=WORKERS, host=host, shards=shards, **arguments)

    return make


AVERAGED: Final = {"async": 1, "bounded": 1, "sync": WORKERS, "softsync": WORKERS}
CASES: Final = [
    Case("ddp", _ddp, averaged=WORKERS, exact=True),
    *(
        Case(f"{rule}-{host}", _asynchronous(rule, host), averaged, exact=rule == "sync")
        for rule, averaged in AVERAGED.items()
        for host in ("inline", "process")
    ),
]
FEW: Final = [case for case in CASES if case.name in ("ddp", "async-inline", "sync-process")]
"""For what does not hang on the rule: one of each host, one that applies at once and one that averages."""

SOME: Final = [
    case for case in CASES if case.name not in ("async-process", "bounded-inline", "softsync-inline", "sync-inline")
]
"""For what hangs a little on the rule: each of them once."""


def _of_which(cases: list[Case], per_commit: list[Case]) -> pytest.MarkDecorator:
    """A test of these cases, of which a commit runs some."""
    left = pytest.mark.thorough
    return pytest.mark.parametrize(
        "case", [pytest.param(one, id=one.name, marks=[] if one in per_commit else [left]) for one in cases]
    )


every = _of_which(CASES, SOME)
some = _of_which(SOME, FEW)
few = _of_which(FEW, FEW)
exact = pytest.mark.parametrize("case", [case for case in CASES if case.exact], ids=str)
parameter_server = pytest.mark.parametrize("case", [case for case in FEW if not case.is_ddp], ids=str)


def batches(size: int = BATCH, samples: int = SAMPLES) -> DataLoader[Any]:
    """Shuffled so that two workers with batches of 8 see together what one process with batches of 16 sees."""
    whole: Any = data(samples)
    return DataLoader(whole, batch_size=size, sampler=EpochShuffle(whole))


def in_order() -> DataLoader[Any]:
    """For validation, test and prediction."""
    return DataLoader(data(HELD_OUT), batch_size=BATCH)


def fitted(
    case: Case,
    folder: Path,
    model: LightningModule,
    arguments: dict[str, Any] | None = None,
    train: Any = None,
    ckpt_path: Any = None,
    **settings: Any,
) -> tuple[Trainer, list[dict[str, Any]]]:
    """Fit under the case's strategy; the Trainer, and every worker's diary. `arguments` are the strategy's."""
    callbacks = [*settings.pop("callbacks", []), Diary(folder)]
    made = trainer(folder, case.make(**(arguments or {})), devices=WORKERS, callbacks=callbacks, **settings)
    made.fit(model, batches() if train is None else train, in_order(), ckpt_path=ckpt_path)
    return made, diaries(folder)


def single(folder: Path, model: LightningModule, **settings: Any) -> Tensor:
    """The weights that one process reaches with the batches of both workers put together."""
    made = trainer(folder, "auto", **settings)
    made.fit(model, batches(WORKERS * BATCH), in_order())
    return weights(model)
