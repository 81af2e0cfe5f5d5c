"""Where a config has the arguments that the engine and the strategies name in their errors."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from scalebook.training.base import ConfigError, Problem
from scalebook.training.engine.rules import ArgumentError

ARGUMENTS: Final = "trainer.strategy.init_args"
OBJECTS: Final = ("rule", "damping", "local", "push_codec", "pull_codec", "codec", "exchange", "topology")
"""Arguments of strategies that are objects with arguments of their own."""
ELSEWHERE: Final = ("model", "optimizer", "data", "trainer")
"""What strategies are given that are no arguments of theirs: keys of a config by themselves."""


def key_of(argument: str) -> str:
    """`rule.bound` as `trainer.strategy.init_args.rule.init_args.bound`."""
    name, _, below = argument.partition(".")
    if name in ELSEWHERE:
        return argument
    return f"{ARGUMENTS}.{name}.init_args.{below}" if below and name in OBJECTS else f"{ARGUMENTS}.{argument}"


def problem_of(error: ArgumentError) -> Problem:
    """The same mistake as one of a config."""
    return Problem(error.code, key_of(error.argument), error.message, error.fix)


def problems_of(read: Callable[..., object], *written: object) -> list[Problem]:
    """The problem of what an argument says, as its reader in the engine refuses it; none where it does not."""
    try:
        read(*written)
    except ArgumentError as error:
        return [problem_of(error)]
    return []


@contextmanager
def as_config_errors() -> Iterator[None]:
    """Raise an ArgumentError as the ConfigError that names the key of the config."""
    try:
        yield
    except ArgumentError as error:
        raise ConfigError.of(problem_of(error)) from error
