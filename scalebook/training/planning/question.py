"""What is asked of a system: for which workers, rules, shards and networks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scalebook.training.config.classes import suggestion
from scalebook.training.config.description import Description
from scalebook.training.config.workload import workload
from scalebook.training.errors import ConfigError
from scalebook.training.planning.links import NETWORKS, OWN
from scalebook.training.ps.policy.rules import RULES, Async, Rule

MOST_WORKERS: Final = 512
WORKERS: Final = tuple(2**power for power in range(10))


@dataclass(frozen=True)
class Question:
    """Every combination of these is played.

    Args:
        workers: How many, rising.
        rules: What becomes of gradients.
        shards: Into how many parts the parameters are divided.
        networks: Names of `links.NETWORKS`, or `own`: the profile's.
        seed: Of what is drawn.
        elastic: Of a config whose machines may join and leave: the fewest workers, and all; both are among `workers`.
    """

    workers: Sequence[int] = WORKERS
    rules: Sequence[Rule] = field(default_factory=lambda: (Async(),))
    shards: Sequence[int] = (1,)
    networks: Sequence[str] = (OWN,)
    seed: int = 0
    elastic: Sequence[int] = ()

    def of(self, config: Mapping[str, Any], description: Description) -> "Question":
        """The same of this config."""
        load = workload(config, description)
        if load.least is None:
            return self
        ends = load.least, load.workers
        return replace(self, workers=sorted({*self.workers, *ends}), elastic=ends)

    def check(self) -> None:
        """ConfigError, naming option and remedy, for what cannot be asked."""
        if not self.workers or not all(1 <= count <= MOST_WORKERS for count in self.workers):
            raise ConfigError("--workers", f"is {_listed(self.workers)}", f"Write numbers from 1 to {MOST_WORKERS}.")
        if list(self.workers) != sorted(set(self.workers)):
            raise ConfigError("--workers", f"is {_listed(self.workers)}", "Write each number once, the smallest first.")
        if not self.shards or not all(1 <= count <= MOST_SHARDS for count in self.shards):
            raise ConfigError("--shards", f"is {_listed(self.shards)}", f"Write numbers from 1 to {MOST_SHARDS}.")
        for name in self.networks:
            if name != OWN and name not in NETWORKS:
                raise ConfigError("--links", f"there is no network {name!r}", suggestion(name, [OWN, *NETWORKS]))


MOST_SHARDS: Final = 64


def _listed(values: Sequence[int]) -> str:
    return ",".join(map(str, values)) or "empty"


def numbers(text: str, option: str) -> tuple[int, ...]:
    """Of `1,2,4`; ConfigError for anything else."""
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise ConfigError(option, f"is {text!r}", f"Write numbers with commas between, as {option} 1,2,4.") from None


def rules(text: str, option: str = "--rules") -> tuple[Rule, ...]:
    """Of `async,bounded:2,sync:1`: a rule's name, and the value of its first argument; ConfigError otherwise."""
    return tuple(_rule(part.strip(), option) for part in text.split(","))


def _rule(text: str, option: str) -> Rule:
    name, _, value = text.partition(":")
    if name not in RULES:
        raise ConfigError(option, f"there is no rule {name!r}", suggestion(name, list(RULES)))
    kind = RULES[name]
    arguments: dict[str, Any] = {}
    if value:
        try:
            arguments = {next(iter(kind().settings())): int(value)}
        except ValueError:
            raise ConfigError(option, f"is {text!r}", f"Write a whole number after {name}:, as {name}:2.") from None
    try:
        return kind(**arguments)
    except ValueError as error:
        raise ConfigError(option, f"{text}: {error}", f"As {option} async,bounded:4,sync,softsync:4.") from None


def label(rule: Rule) -> str:
    """As `rules` reads it: `bounded:4`; its first argument where it is not at its default, or the name says nothing."""
    settings = rule.settings()
    first = next(iter(settings), None)
    default = type(rule)().settings()
    if first is None or (settings == default and rule.words is None):
        return rule.name
    return f"{rule.name}:{settings[first]}"
