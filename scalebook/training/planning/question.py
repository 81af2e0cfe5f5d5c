"""What is asked of a system: for which workers, rules, shards and networks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from scalebook.training.config.classes import suggestion
from scalebook.training.config.description import Description
from scalebook.training.errors import ConfigError
from scalebook.training.planning.configured import configured, refuse_machines
from scalebook.training.planning.links import NETWORKS, OWN
from scalebook.training.ps.policy.rules import RULES, Async, Rule
from scalebook.training.ps.policy.settings import Settings

MOST_WORKERS: Final = 512
COMPARED: Final = "async,bounded:4,sync"
"""Rules of a parameter server, where nobody has named one."""
WORKERS: Final = tuple(2**power for power in range(10))


@dataclass(frozen=True)
class Question:
    """Every combination of these is played.

    Args:
        workers: How many, rising.
        rules: What becomes of gradients. None of them: as the config has it.
        shards: Into how many parts the parameters are divided. None: as the config has it.
        networks: Names of `links.NETWORKS`, or `own`: the profile's.
        seed: Of what is drawn.
        elastic: Of a config whose machines may join and leave: the fewest workers, and all; both are among `workers`.
        written: What a config says beside rule and shards, and what is played where none of these is asked for.
        beside: The same in words, as far as it is not at its default.
        coded: Whether codecs make the profile's bytes fewer than the parameters'.
        config_workers: Of the config, which are among `workers`; 0 without one, and for one that trains in one process.
    """

    workers: Sequence[int] = WORKERS
    rules: Sequence[Rule] = field(default_factory=lambda: (Async(),))
    shards: Sequence[int] = (1,)
    networks: Sequence[str] = (OWN,)
    seed: int = 0
    elastic: Sequence[int] = ()
    written: Settings = field(default_factory=Settings)
    beside: str = ""
    coded: bool = False
    config_workers: int = 0

    def of(self, config: Mapping[str, Any], description: Description) -> "Question":
        """The same of this config. ConfigError for what of its strategy cannot be planned."""
        found = configured(config, description)
        load = found.load
        refuse_machines(load, self.networks)
        single = load.strategy == "single"
        asked = replace(
            self,
            rules=self.rules or (rules(COMPARED) if single else (found.settings.rule,)),
            shards=self.shards or (found.settings.shards,),
            written=found.settings,
            beside=found.beside,
            coded=found.coded,
        )
        if single:
            return asked
        ends = (load.workers,) if load.least is None else (load.least, load.workers)
        asked = replace(asked, workers=sorted({*self.workers, *ends}), config_workers=load.workers)
        return asked if load.least is None else replace(asked, elastic=ends)

    def check(self) -> None:
        """ConfigError, naming option and remedy, for what cannot be asked."""
        if not self.workers or not all(1 <= count <= MOST_WORKERS for count in self.workers):
            raise ConfigError("--workers", f"is {_listed(self.workers)}", f"Write numbers from 1 to {MOST_WORKERS}.")
        if list(self.workers) != sorted(set(self.workers)):
            raise ConfigError("--workers", f"is {_listed(self.workers)}", "Write each number once, the smallest first.")
        if not self.shards or not all(1 <= count <= MOST_SHARDS for count in self.shards):
            raise ConfigError("--shards", f"is {_listed(self.shards)}", f"Write numbers from 1 to {MOST_SHARDS}.")
        for rule in self.rules:
            self._check_together(rule)
        for name in self.networks:
            if name != OWN and name not in NETWORKS:
                raise ConfigError("--links", f"there is no network {name!r}", suggestion(name, [OWN, *NETWORKS]))

    def _check_together(self, rule: Rule) -> None:
        """ConfigError for a rule that does not go with what else the config says, with any number of workers."""
        problems = []
        for count in self.workers:
            try:
                replace(self.written, rule=rule).check(count)
            except ValueError as error:
                problems.append(error)
        if len(problems) == len(self.workers) and self.written != Settings():
            raise ConfigError.said_by(problems[-1]) from None


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
