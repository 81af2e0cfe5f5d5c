"""A config, parsed once: what everything between the YAML and LightningCLI reads."""

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final, Self

from scalebook.training.base import Problem
from scalebook.training.experiments.classes import (
    GROUP_OF_KEY,
    NamedClass,
    choose_class,
    mapping,
    positive,
    read_class,
    shortest_form,
)
from scalebook.training.experiments.description import ClassInfo, Description, Field, Group
from scalebook.training.experiments.fields import quoted_value
from scalebook.training.experiments.lr_scaling import KEY, RateScaling, read_scaling
from scalebook.training.experiments.strategies import Strategy, read_strategy
from scalebook.training.tracking import names

DEFAULT_SEED: Final = 1
DEFAULT_THREADS: Final = 1
"""CPU threads of each worker: a worker is one core, whatever the strategy, so that strategies compare."""
DEFAULT_EPOCHS: Final = 10
"""Budget where the config names none; Lightning's own would be 1000 epochs."""
TRAINER_DEFAULTS: Final[dict[str, Any]] = {
    "accelerator": "auto",
    "devices": 1,
    "log_every_n_steps": 50,
    "num_sanity_val_steps": 0,
}
BUDGETS: Final = ("max_epochs", "max_steps", "max_time")
NULL_IS_SAID: Final = ("check_val_every_n_epoch",)
"""Keys of the trainer that mean something else when they are null than when they are left out."""
STRATEGY: Final = "trainer.strategy"
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
        fix = "Use keys such as `model:` and `data:`."
        return cls({}, description, Problem("wrong-type", "config", f"is {quoted_value(config)}, not a mapping", fix))

    @cached_property
    def named(self) -> Mapping[str, NamedClass]:
        """The classes as the config names them, with the optimizer that is used by default; by key, of which the last
        is `trainer.strategy`."""
        strategy = mapping(self.written.get("trainer")).get("strategy")
        values = {key: self.filled.get(key) for key in GROUP_OF_KEY}
        return {key: read_class(value) for key, value in {**values, STRATEGY: strategy or "auto"}.items()}

    def info(self, key: str) -> ClassInfo | None:
        """The class that the config names at one of the keys of `named`; None where it is unknown."""
        return self.named[key].info(GROUP_OF_KEY.get(key, "strategies"), self.description)

    @cached_property
    def filled(self) -> Mapping[str, Any]:
        """`written` with the default optimizer, if it names none and the model has none of its own, with shared
        values."""
        if self.written.get("optimizer") is not None or self._makes_optimizers():
            return self.written
        return {**self.written, "optimizer": copy.deepcopy(self.description.default_optimizer)}

    def _makes_optimizers(self) -> bool:
        model = ConfiguredClass.of(self.written.get("model"), "models", self.description)
        return model.info is not None and model.info.own_optimizer

    @cached_property
    def completed(self) -> Mapping[str, Any]:
        """With classes by full path, their defaults, an optimizer, a seed, threads and a budget, as it runs.

        It says what the run will use, so that a later change of a default does not change what a record means. Parts
        with mistakes, and what it does not know, it leaves as they stand. It shares its values with `written`.
        """
        done = dict(self.filled)
        done["seed_everything"] = self._seed
        if done.get("threads") is None:
            done["threads"] = DEFAULT_THREADS
        done["trainer"] = self._completed_trainer()
        if self._makes_optimizers():
            done.pop("optimizer", None)
            done.pop("lr_scheduler", None)
        for key in GROUP_OF_KEY:
            if done.get(key) is not None:
                done[key] = _spelled_out(done[key], self.info(key), self.named[key].args)
            else:
                done.pop(key, None)
        return with_extras(done)

    @property
    def _seed(self) -> Any:
        seed = self.written.get("seed_everything")
        return DEFAULT_SEED if seed is None or isinstance(seed, bool) else seed

    def _completed_trainer(self) -> dict[str, Any]:
        written = mapping(self.written.get("trainer"))
        given = {key: value for key, value in written.items() if value is not None or key in NULL_IS_SAID}
        done = {**TRAINER_DEFAULTS, **given}
        if all(done.get(key) in (None, -1) for key in BUDGETS) and "max_epochs" not in done:
            done["max_epochs"] = DEFAULT_EPOCHS
        strategy = done.pop("strategy", "auto")
        info, args = self.info(STRATEGY), self.named[STRATEGY].args
        devices, nodes = done["devices"], positive(done.get("num_nodes")) or 1
        several = (isinstance(devices, int) and devices > 1) or nodes > 1
        if info is not None and info.config_value == "auto" and several:
            strategy = "ddp"  # what Lightning's `auto` chooses for several devices, said aloud
        elif info is not None:
            plain = info.config_value if not _own_args(args, info) else None
            strategy = plain or _spelled_out(strategy, info, args)
        return {"strategy": strategy, **done}

    def seeds(self, count: int) -> list[int]:
        """The config's `seed_everything` (1 where it names none) and the numbers after it, one for each run."""
        return seeds_from(self.written.get("seed_everything"), count)

    def to_run(self) -> dict[str, Any]:
        """A copy of `completed`, for LightningCLI."""
        return copy.deepcopy(dict(self.completed))

    def with_config(self, written: Mapping[str, Any]) -> "Experiment":
        """Another config with the same classes to choose from."""
        return Experiment(written, self.description)

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
        return read_strategy(self.trainer, self.description, mapping(self.named[STRATEGY].args))

    @property
    def callbacks(self) -> list[Any]:
        """The Trainer's callbacks, as the config names them."""
        named = self.trainer.get("callbacks")
        return named if isinstance(named, list) else [] if named is None else [named]

    @property
    def unsaving_callbacks(self) -> list[Any]:
        """Those that save no checkpoints."""
        return [one for one in self.callbacks if not (read_class(one).name or "").endswith("Checkpoint")]

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
            f"{self.strategy.workers:,} workers{each} are too many for {cores} {'core' if cores == 1 else 'cores'}, "
            f"because about {threads // cores:,} threads would take turns on each core, and every worker needs its "
            "own memory."
        )


def seeds_from(seed: object, count: int) -> list[int]:
    """The seeds of so many runs of a config with this `seed_everything`."""
    first = seed if isinstance(seed, int) and not isinstance(seed, bool) else DEFAULT_SEED
    return [first + offset for offset in range(count)]


def with_extras(content: dict[str, Any]) -> dict[str, Any]:
    """A config with the defaults of `lr_scaling` written out, and without extra keys that are at their default."""
    scaling = read_scaling(content.get(KEY))
    if scaling is not None:
        content[KEY] = scaling.written()
    nothing = {KEY: None, "noise_scale": False, "float32_matmul_precision": None, "gpu_share": 1}
    for key in nothing:
        if content.get(key) in (None, nothing[key]):
            content.pop(key, None)
    return content


def _own_args(args: Mapping[str, Any] | None, info: ClassInfo) -> bool:
    """Whether the config gives the class any argument that is not what it takes by itself."""
    fields = {one.name: one for one in info.fields}
    return args is None or any(
        name not in fields or shortest_form(value, fields[name]) != fields[name].default for name, value in args.items()
    )


def _spelled_out(value: Any, info: ClassInfo | None, given: Mapping[str, Any] | None) -> Any:
    """`{class_path, init_args}` with the full path and every default that is not None, for a class that the config
    writes as `value`, with the arguments `given`.

    Of a library's class only those a form shows at once: its switches for speed say nothing about an experiment.
    """
    if info is None or given is None:
        return value
    args: dict[str, Any] = {}
    for one in info.fields:
        if one.name in given:
            args[one.name] = _class_value(given[one.name], one)
        elif one.default is not None and not (info.source == "library" and one.advanced):
            args[one.name] = _class_value(copy.deepcopy(one.default), one)
    rest = {name: argument for name, argument in given.items() if name not in args}
    done: dict[str, Any] = {"class_path": info.class_path, "init_args": {**args, **rest}}
    if isinstance(value, Mapping) and "dict_kwargs" in value:
        done["dict_kwargs"] = value["dict_kwargs"]
    return done


def _class_value(value: Any, one: Field) -> Any:
    """The value of a field that is a class, `bounded`, with path and arguments; any other as it stands."""
    choice = choose_class(value, one) if one.type == "class" else None
    return value if choice is None else _spelled_out(value, choice.info, choice.args)
