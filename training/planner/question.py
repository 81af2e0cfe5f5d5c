"""What is asked of a system: for which workers, rules, shards and networks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scalebook.training.base import ConfigError
from scalebook.training.engine.rules import EXCHANGES, RULES, TOPOLOGIES, ArgumentError, Async, Rule, Settings
from scalebook.training.experiments import Experiment, SingleProcess, classes, problem_of
from scalebook.training.planner.all_reduce import AllReduce, WithoutServer
from scalebook.training.planner.planned_config import configured, refuse_machines
from scalebook.training.planner.planned_peers import peers_named
from scalebook.training.pricing import links

MOST_WORKERS: Final = 512
MOST_TRAINED: Final = 16
"""Workers of a virtual run, where nobody asks for more by name."""
STRATEGIES: Final = "--strategies"
COMPARED: Final = "ddp,fsdp,sync,async"
"""Strategies that are compared by default: without a server, and a parameter server by its rule."""
AT: Final = 16
"""The default number of workers for which strategies are compared."""
WORKERS: Final = tuple(2**power for power in range(10))
PER_CORE: Final = 4
"""Workers for each core that all of them share, up to which is planned if nobody names numbers of workers."""
USUAL: Final = 64
"""The same where they share no cores."""


@dataclass(frozen=True)
class Question:
    """A question. Every combination of these is simulated.

    Args:
        workers: Numbers of workers, rising.
        rules: Rules of a parameter server, or strategies without one. Empty: the config's own, and `COMPARED` beside.
        shards: Numbers of parts into which the parameters are divided. Empty: the config's own.
        networks: Names of `links.NETWORKS`, or `own`: the profile's.
        seed: Seed of all draws.
        elastic: Fewest and most workers of a config whose nodes may join and leave; both are among `workers`.
        written: The config's settings beside rule and shards, and what is simulated if none of these is asked for.
        beside: The same in words, as far as it is not at its default.
        coded: Whether codecs make the profile's bytes fewer than the parameters'.
        config_workers: Workers of the config, among `workers`; 0 without a config, and for one process.
        at: Number of workers for which strategies are compared; 0: the config's, else up to AT.
        node: Workers of one node, if the config says so; 0: as in the profile.
        config_rule: The config's own among `rules`; None without a config.
    """

    workers: Sequence[int] = WORKERS
    rules: Sequence[Rule | WithoutServer] = field(default_factory=lambda: (Async(),))
    shards: Sequence[int] = (1,)
    networks: Sequence[str] = (links.OWN,)
    seed: int = 0
    elastic: Sequence[int] = ()
    written: Settings = field(default_factory=Settings)
    beside: str = ""
    coded: bool = False
    config_workers: int = 0
    at: int = 0
    node: int = 0
    config_rule: Rule | WithoutServer | None = None

    def of(self, experiment: Experiment) -> "Question":
        """The question with the settings of an experiment. ConfigError for what of its strategy cannot be planned."""
        plan, strategy = configured(experiment), experiment.strategy
        node = refuse_machines(strategy, self.networks)
        single = isinstance(strategy, SingleProcess)
        own = None if single else plan.aggregation
        question = replace(
            self,
            rules=self.rules or self._compared(own, plan.settings),
            config_rule=own,
            node=node,
            shards=self.shards or (plan.settings.shards,),
            written=plan.settings,
            beside=plan.beside,
            coded=plan.coded,
        )
        if single:
            return question
        ends = (strategy.workers,) if strategy.least is None else (strategy.least, strategy.workers)
        question = replace(question, workers=sorted({*self.workers, *ends}), config_workers=strategy.workers)
        return question if strategy.least is None else replace(question, elastic=ends)

    def _compared(self, own: Rule | WithoutServer | None, written: Settings) -> Sequence[Rule | WithoutServer]:
        """The config's own, and of the others those that go with what else it says."""
        others = []
        for rule in rules(COMPARED):
            if own is not None and rule.name == own.name:
                continue
            try:
                if isinstance(rule, Rule):
                    replace(written, rule=rule).check(max(2, *self.workers))
            except ValueError:
                continue
            others.append(rule)
        return (*(() if own is None else (own,)), *others)

    @property
    def compared_at(self) -> int:
        """The number of workers for which strategies are compared, one of `workers`."""
        if self.config_workers > 1 and not self.at:
            return self.config_workers
        return (
            self.at if self.at in self.workers else max((n for n in self.workers if n <= AT), default=self.workers[0])
        )

    def check(self) -> None:
        """ConfigError, naming option and remedy, for what cannot be asked."""
        if not self.workers or not all(1 <= count <= MOST_WORKERS for count in self.workers):
            raise ConfigError("--workers", f"is {_listed(self.workers)}", f"Use numbers from 1 to {MOST_WORKERS}.")
        if list(self.workers) != sorted(set(self.workers)):
            raise ConfigError("--workers", f"is {_listed(self.workers)}", "Use each number once, smallest first.")
        if not self.shards or not all(1 <= count <= MOST_SHARDS for count in self.shards):
            raise ConfigError("--shards", f"is {_listed(self.shards)}", f"Use numbers from 1 to {MOST_SHARDS}.")
        for rule in self.rules:
            if isinstance(rule, Rule):
                self._check_together(rule)
        for name in self.networks:
            if name != links.OWN and name not in links.NETWORKS:
                raise ConfigError(
                    "--links", f"there is no network {name!r}", classes.suggestion(name, [links.OWN, *links.NETWORKS])
                )

    def _check_together(self, rule: Rule) -> None:
        """ConfigError for a rule that does not go with what else the config says, with any number of workers."""
        problems = []
        for count in self.workers:
            try:
                replace(self.written, rule=rule).check(count)
            except ArgumentError as error:
                problems.append(error)
        if len(problems) == len(self.workers) and self.written != Settings():
            raise ConfigError.of(problem_of(problems[-1])) from None


MOST_SHARDS: Final = 64


def usual_workers(cores: int | None, networks: Sequence[str]) -> tuple[int, ...]:
    """The numbers of workers that are planned if nobody names any. `cores` (or GPUs): those that workers share on the
    profile's own links; None if they share none."""
    is_shared = cores is not None and set(networks) <= {links.OWN}
    most = PER_CORE * cores if cores is not None and is_shared else USUAL
    return tuple(count for count in WORKERS if count <= most)


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values)) or "empty"


def numbers(text: str, option: str) -> tuple[int, ...]:
    """The numbers in `1,2,4`; ConfigError for anything else."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(option, f"is {text!r}", f"Use numbers separated by commas, such as {option} 1,2,4.") from None


def rules(text: str) -> tuple[Rule | WithoutServer, ...]:
    """The rules in `ddp,async,bounded:2,sgp:torus`: ddp, fsdp, a rule's name and the value of its first argument, or
    an exchange of peers and its topology, without which it is a ring.

    ConfigError otherwise.
    """
    return tuple(_rule(part.strip()) for part in text.split(","))


def _rule(text: str) -> Rule | WithoutServer:
    if text in COLLECTIVES:
        return COLLECTIVES[text]
    name, _, value = text.partition(":")
    if name in EXCHANGES:
        if (peers := peers_named(name, value)) is None:
            raise ConfigError(
                STRATEGIES, f"there is no topology {value!r}", classes.suggestion(value, list(TOPOLOGIES))
            )
        return peers
    if name not in RULES:
        names = [*COLLECTIVES, *RULES, *EXCHANGES]
        raise ConfigError(STRATEGIES, f"there is no rule {name!r}", classes.suggestion(name, names))
    kind = RULES[name]
    arguments: dict[str, Any] = {}
    if value:
        first = next(iter(kind().settings()), None)
        if first is None:
            fix = f"Use {name}. To sum gradients, set `local: downpour` in a config, and plan that config."
            raise ConfigError(STRATEGIES, f"is {text!r}, but {name} takes no number", fix)
        try:
            arguments = {first: int(value)}
        except ValueError:
            raise ConfigError(
                STRATEGIES, f"is {text!r}", f"Write {name}: followed by a whole number, such as {name}:2."
            ) from None
    try:
        return kind(**arguments)
    except ValueError as error:
        raise ConfigError(
            STRATEGIES,
            f"{text}: {error}",
            f"Use rules separated by commas, such as {STRATEGIES} async,bounded:4,sync,softsync:4.",
        ) from None


COLLECTIVES: Final[Mapping[str, AllReduce]] = {"ddp": AllReduce(), "fsdp": AllReduce(sharded=True)}


def label(rule: Rule | WithoutServer) -> str:
    """As `rules` reads it: `bounded:4`; with its first argument if that is no default, or the name alone says
    nothing."""
    if isinstance(rule, WithoutServer):
        return rule.name
    settings = rule.settings()
    first = next(iter(settings), None)
    default = type(rule)().settings()
    if first is None or (settings == default and rule.words is None):
        return rule.name
    return f"{rule.name}:{settings[first]}"
