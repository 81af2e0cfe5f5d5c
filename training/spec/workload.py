"""How much a config asks for: strategy, workers, and the three sizes of a batch."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from training.spec.classes import mapping, named
from training.spec.complete import complete
from training.spec.description import Description, Group

STRATEGY_LABELS: Final = {"single": "One process", "ddp": "DDP", "AsyncPS": "Asynchronous parameter server"}
SYNCHRONOUS: Final = ("single", "ddp")


@dataclass(frozen=True)
class Workload:
    """What the scheduler, the form and the records must know of a config. Batch sizes are samples.

    The batch sizes are None where the data set has no `batch_size`.
    """

    strategy: str
    """`single`, `ddp`, `AsyncPS`, or the name of another class."""
    rule: str | None
    workers: int
    threads: int
    batch_per_worker: int | None
    accumulate: int
    """Batches of one worker that make one gradient."""
    batch_global: int | None
    """Samples that all workers together compute at a time: per worker x workers."""
    batch_effective: int | None
    """Samples whose gradients make one update: all workers' under DDP, one worker's where it pushes by itself."""
    learning_rate: float | None
    accelerator: str


def workload(config: Mapping[str, Any], description: Description) -> Workload:
    """Read it from a config, complete or not, which need not be free of errors (a form asks while one types)."""
    done = complete(config, description)
    trainer = mapping(done["trainer"])
    strategy = named(trainer.get("strategy"))
    info = strategy.info("strategies", description)
    name = _strategy_name(info.config_value or info.name if info else strategy.name or "auto")
    args = mapping(strategy.args)
    devices = _count(trainer.get("devices")) or 1
    workers = 1 if name == "single" else _count(args.get("workers")) or devices
    rule = args.get("rule") or (info and next((field.default for field in info.fields if field.name == "rule"), None))
    batch = _count(_argument(done, "data", "data", "batch_size", description))
    accumulate = _count(trainer.get("accumulate_grad_batches")) or 1
    synchronous = name in SYNCHRONOUS or rule == "sync"
    return Workload(
        strategy=name,
        rule=str(rule) if rule else None,
        workers=workers,
        threads=_count(done.get("threads")) or 1,
        batch_per_worker=batch,
        accumulate=accumulate,
        batch_global=batch and batch * workers,
        batch_effective=batch and batch * accumulate * (workers if synchronous else 1),
        learning_rate=_learning_rate(done, description),
        accelerator=str(trainer.get("accelerator") or "auto"),
    )


def _strategy_name(name: str) -> str:
    return "single" if name == "auto" else name.rsplit(".", 1)[-1]


def _count(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _argument(config: Mapping[str, Any], key: str, group: Group, name: str, description: Description) -> Any:
    told = named(config.get(key))
    if name in mapping(told.args):
        return mapping(told.args)[name]
    info = told.info(group, description)
    return next((field.default for field in info.fields if field.name == name), None) if info else None


def _learning_rate(config: Mapping[str, Any], description: Description) -> float | None:
    candidates = [
        _argument(config, "optimizer", "optimizers", "lr", description),
        _argument(config, "model", "models", "learning_rate", description),
        _argument(config, "model", "models", "lr", description),
    ]
    return next((float(one) for one in candidates if isinstance(one, int | float) and not isinstance(one, bool)), None)
