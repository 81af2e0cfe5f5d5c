"""What a search is, once it has been read: see `scalebook.training.experiments.search.definition`."""

from dataclasses import dataclass, field
from typing import Any, Final, Literal

from scalebook.training.engine.rules import RULES
from scalebook.training.experiments.experiment import Experiment
from scalebook.training.experiments.lr_scaling import Rule
from scalebook.training.experiments.search.space import Dimension
from scalebook.training.experiments.strategies import AsyncPSSettings, read_strategy

Scaling = Literal["strong", "weak"]
AMOUNTS: Final = ("seconds", "samples", "updates")
"""Objectives that are no metrics: what the trial took, or what it took to reach the target."""


@dataclass(frozen=True)
class Objective:
    """`name` is a metric or one of `AMOUNTS`; `lower`: the smaller value wins; `said`: whether the body says so."""

    name: str
    lower: bool
    said: bool = field(default=False, compare=False)


@dataclass(frozen=True)
class RateRule:
    """What the learning rate of a point means: so much per `per` samples of an update, scaled by `rule`.

    The config's `lr_scaling` key says the same to the run. `warmup_epochs`: how long the rate grows from the asked to
    the scaled one (Goyal et al. 2017, section 2.2).
    """

    rule: Rule
    per: int = 256
    warmup_epochs: float = 0.0


@dataclass(frozen=True)
class SearchSpec:
    """A search. `experiment` is the base; points change it (`point.resolve`).

    `scaling`: `strong` keeps the global batch (samples that all workers together compute at a time, also of those that
    push by themselves) as the point says and shares it out; `weak` gives that batch to each worker. `minutes` is of the
    search, `seconds_per_trial` of each run, `memory_mb` of each process beyond what it starts with.
    """

    experiment: Experiment
    space: tuple[Dimension, ...]
    objectives: tuple[Objective, ...]
    target: float | None = None
    scaling: Scaling = "strong"
    sampler: str = "tpe"
    sampler_seed: int = 1
    pruner: str = "none"
    trials: int = 100
    seeds: int = 1
    minutes: float | None = None
    seconds_per_trial: float | None = None
    exclusive: bool | str = False
    """Trials run one at a time: alone on their machine, or on all (`ALL`)."""
    failures: int = 10
    memory_mb: int | None = None
    points: tuple[dict[str, Any], ...] = ()
    storage: str | None = None
    preset: str | None = None
    rate: RateRule | None = None

    def dimension(self, name: str) -> Dimension:
        """The dimension called `name`; KeyError where there is none."""
        for dimension in self.space:
            if dimension.name == name:
                return dimension
        raise KeyError(name)

    @property
    def per(self) -> int | None:
        """The samples that a point's learning rate is per; None where it is applied as it stands in the point."""
        return self.rate.per if self.rate is not None and self.rate.rule != "none" else None

    def called(self, name: str) -> str:
        """A dimension as people say it: `batch size`, `learning rate per 256 samples`; one deep in the config as it is
        written."""
        words = name if "." in name else name.replace("_", " ")
        return f"{words} per {self.per:,} samples" if name == "learning_rate" and self.per else words

    def has(self, name: str) -> bool:
        return any(dimension.name == name for dimension in self.space)

    @property
    def is_simulated(self) -> bool:
        """Whether the workers of all trials are simulated: then no trial's seconds depend on those beside it."""
        stays = not any(dimension.name.endswith(("strategy.host", "strategy.class_path", "strategy.init_args.host",
                                                 "trainer.strategy")) for dimension in self.space)  # fmt: skip
        own = self.experiment.strategy
        if not self.has("strategy"):
            return stays and own.is_simulated
        is_server = own.is_simulated and isinstance(own, AsyncPSSettings)
        choices = self.dimension("strategy").choices
        return stays and all(
            is_server if isinstance(one, str) and one in RULES else self._simulates(one) for one in choices
        )

    def _simulates(self, strategy: Any) -> bool:
        """Whether one process simulates all workers of a strategy, as a config writes it."""
        return read_strategy({"strategy": strategy}, self.experiment.description, {}).is_simulated
