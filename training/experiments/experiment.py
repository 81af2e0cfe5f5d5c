"""A config, parsed once: what everything between the YAML and LightningCLI reads."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

from scalebook.training.base.errors import Problem
from scalebook.training.experiments.classes import NamedClass, mapping, positive, read_class
from scalebook.training.experiments.completion import seeds_from, to_read
from scalebook.training.experiments.description import ClassInfo, Description, Group
from scalebook.training.experiments.fields import quoted_value
from scalebook.training.experiments.lr_scaling import KEY, RateScaling, read_scaling
from scalebook.training.experiments.strategies import Strategy, read_strategy
from scalebook.training.tracking import names

MOST_A_CORE: Final = 8
"""Threads that share a core before that is taken for a slip: some experiments crowd a machine on purpose."""


@dataclass(frozen=True)
class ConfiguredClass:
    """A class of the user's config, such as the model.

    Attributes:
        name: Its full path, or as written where it is unknown; None where the config names none.
        info: The class; None where it is unknown.
        args: Its arguments, with the defaults that a run has.
    """

    name: str | None
    info: ClassInfo | None = field(repr=False)
    args: Mapping[str, Any]

    def setting(self, name: str) -> Any:
        """The argument `name`, else its default; None where the class has no such argument."""
        if name in self.args:
            return self.args[name]
        return next((one.default for one in self.info.fields if one.name == name), None) if self.info else None

    @property
    def last_name(self) -> str:
        """Its name without the module; "" where the config names none."""
        return (self.name or "").rpartition(".")[2]

    @classmethod
    def of(cls, value: Any, group: Group, description: Description) -> "ConfiguredClass":
        """The class that a config's value names."""
        named: NamedClass = read_class(value)
        return cls(named.name, named.info(group, description), mapping(named.args))


@dataclass(frozen=True)
class BatchSizes:
    """In samples; each is None where the data set has no `batch_size`.

    Attributes:
        per_worker: The data set's `batch_size`.
        accumulate: Batches of one worker that make one gradient.
        together: Samples that all workers compute at a time: per worker x batches.
        effective: Samples whose gradients make one update.
        averaged: Samples whose mean gradient the learning rate multiplies: `effective`, except that gradients which a
            worker sums into one push (`downpour`) are as many steps in one, and that it is one worker's where each
            makes steps of its own.
    """

    per_worker: int | None
    accumulate: int
    together: int | None
    effective: int | None
    averaged: int | None


@dataclass(frozen=True)
class LearningRate:
    """`requested` as the config has it; `scaled`: what `lr_scaling` makes of it, None where the config has none. Both
    are None where they are not known."""

    requested: float | None
    scaled: float | None

    @property
    def applied(self) -> float | None:
        """The one that the optimizer gets."""
        return self.requested if self.scaled is None else self.scaled


@dataclass(frozen=True)
class Experiment:
    """A config that need not be complete, nor free of errors: what cannot be parsed stays raw.

    `written` is what the user wrote. Everything else is derived from it, once, when it is first asked for. `broken`:
    the problem of a config that is no mapping; `written` is then empty.
    """

    written: Mapping[str, Any]
    description: Description = field(repr=False, compare=False)
    broken: Problem | None = None

    @classmethod
    def read(cls, config: object, description: Description) -> Self:
        """The experiment of a config as YAML has it."""
        if isinstance(config, Mapping):
            return cls(config, description)
        remedy = "Write keys such as `model:` and `data:`."
        return cls(
            {}, description, Problem("wrong-type", "config", f"is {quoted_value(config)}, not a mapping", remedy)
        )

    @cached_property
    def completed(self) -> Mapping[str, Any]:
        """With all defaults, as it runs. It shares its values with `written`."""
        return to_read(self.written, self.description)

    def seeds(self, count: int) -> list[int]:
        """The config's `seed_everything` (1 where it names none) and the numbers after it, one for each run."""
        return seeds_from(self.written, count)

    def to_run(self) -> dict[str, Any]:
        """A copy of `completed`, for LightningCLI."""
        return copy.deepcopy(dict(self.completed))

    def with_config(self, config: Mapping[str, Any]) -> "Experiment":
        """Another config with the same classes to choose from."""
        return Experiment(config, self.description)

    @cached_property
    def model(self) -> ConfiguredClass:
        return self._class("model", "models")

    @cached_property
    def data(self) -> ConfiguredClass:
        return self._class("data", "data")

    @cached_property
    def optimizer(self) -> ConfiguredClass:
        """The optimizer that is used: without a name where the model has its own."""
        return self._class("optimizer", "optimizers")

    @cached_property
    def lr_scheduler(self) -> ConfiguredClass:
        return self._class("lr_scheduler", "lr_schedulers")

    @property
    def classes(self) -> dict[str, ConfiguredClass]:
        """Those of the top keys of the config."""
        return {"model": self.model, "data": self.data, "optimizer": self.optimizer, "lr_scheduler": self.lr_scheduler}

    def _class(self, key: str, group: Group) -> ConfiguredClass:
        return ConfiguredClass.of(self.completed.get(key), group, self.description)

    @cached_property
    def trainer(self) -> Mapping[str, Any]:
        """The settings of the Trainer, with our defaults."""
        settings: Mapping[str, Any] = self.completed["trainer"]
        return settings

    @cached_property
    def strategy(self) -> Strategy:
        written = mapping(self.written.get("trainer")).get("strategy")
        return read_strategy(self.trainer, self.description, written)

    @property
    def accelerator(self) -> str:
        return str(self.trainer.get("accelerator") or "auto")

    @property
    def threads(self) -> int:
        """CPU threads of each worker."""
        return positive(self.completed.get("threads")) or 1

    @property
    def gpu_share(self) -> float:
        """Share of its GPU's memory."""
        share = self.completed.get("gpu_share")
        return float(share) if isinstance(share, int | float) and 0 < share <= 1 and share is not True else 1.0

    @cached_property
    def batch(self) -> BatchSizes:
        strategy, size = self.strategy, positive(self.data.setting("batch_size"))
        accumulate = positive(self.trainer.get("accumulate_grad_batches")) or 1
        averaged = 1 if strategy.has_local_steps else strategy.gradients
        return BatchSizes(
            per_worker=size,
            accumulate=accumulate,
            together=size and size * strategy.batches,
            effective=size and size * accumulate * strategy.gradients * strategy.batches_in_push,
            averaged=size and size * accumulate * averaged,
        )

    @cached_property
    def scaling(self) -> RateScaling | None:
        """How the batch size scales the learning rate."""
        return read_scaling(self.completed.get(KEY))

    @cached_property
    def rate(self) -> LearningRate:
        candidates = (
            self.optimizer.setting("lr"), self.model.setting("learning_rate"), self.model.setting("lr")
        )  # fmt: skip
        numbers = (one for one in candidates if isinstance(one, int | float) and not isinstance(one, bool))
        requested = next((float(number) for number in numbers), None)
        samples = self.batch.averaged
        if self.scaling is None or requested is None or samples is None:
            return LearningRate(requested, None)
        return LearningRate(requested, requested * self.scaling.factor(samples))

    def tags(self) -> dict[str, Any]:
        """The tags of a run before it starts; None where something does not apply."""
        return {
            names.TAG_STRATEGY: self.strategy.name,
            names.TAG_RULE: self.strategy.words,
            names.TAG_WORKERS: self.strategy.workers,
            names.TAG_CLOCK: names.VIRTUAL if self.strategy.is_simulated else None,
            names.TAG_BATCH_PER_WORKER: self.batch.per_worker,
            names.TAG_BATCH_GLOBAL: self.batch.together,
            names.TAG_LR_ASKED: self.rate.requested,
            names.TAG_LR_SCALED: self.rate.scaled,
        }

    def params(self) -> dict[str, Any]:
        """The same as parameters, which MLflow's charts and filters take: every run has all of them. `lr` is the rate
        that is applied; what the config does not say, of a data set without a batch size, is `unknown`."""
        by_name = {
            "strategy": self.strategy.name,
            "rule": self.strategy.words or names.NO_RULE,
            "workers": self.strategy.workers,
            "batch_per_worker": self.batch.per_worker,
            "batch_global": self.batch.together,
            "lr": self.rate.applied,
            "clock": names.VIRTUAL if self.strategy.is_simulated else names.REAL,
        }
        return {name: names.UNKNOWN if value is None else value for name, value in by_name.items()}

    def crowd_words(self, cores: int) -> str:
        """`1,000 workers on 2 cores: ...`; "" where they have room enough, or crowd it no more than is often wanted."""
        threads = self.strategy.processes * self.threads
        if threads <= MOST_A_CORE * cores:
            return ""
        each = f" with {self.threads} threads each" if self.threads > 1 else ""
        return (
            f"{self.strategy.workers:,} workers{each} on {cores} {'core' if cores == 1 else 'cores'}: about "
            f"{threads // cores:,} would take turns on each, and every worker takes memory of its own."
        )
