"""Errors of the engine name arguments; those of a config its keys."""

import re
from copy import copy

import pytest

from scalebook.training.base.errors import ConfigError
from scalebook.training.engine.rules.argument_error import ArgumentError
from scalebook.training.engine.rules.update_rules import Bounded
from scalebook.training.experiments.argument_keys import ELSEWHERE, OBJECTS, as_config_errors, key_of, problems_of
from scalebook.training.experiments.description import Description


@pytest.mark.parametrize(
    ("argument", "key"),
    [
        ("host", "trainer.strategy.init_args.host"),
        ("rule", "trainer.strategy.init_args.rule"),
        ("rule.bound", "trainer.strategy.init_args.rule.init_args.bound"),
        ("limits.restarts", "trainer.strategy.init_args.limits.restarts"),
        ("clock.link.bandwidth", "trainer.strategy.init_args.clock.link.bandwidth"),
        ("model", "model"),
        ("optimizer", "optimizer"),
        ("trainer.accumulate_grad_batches", "trainer.accumulate_grad_batches"),
    ],
)
def test_the_key_of_an_argument(argument: str, key: str) -> None:
    assert key_of(argument) == key


def test_all_arguments_that_are_objects_are_known(description: Description) -> None:
    """Else the key of one of their arguments would lack `init_args`."""
    fields = [field for info in description.strategies for field in info.fields]
    assert {field.name for field in fields if field.type == "class"} == set(OBJECTS)
    assert not {field.name for field in fields} & set(ELSEWHERE)


def test_an_error_is_a_problem_with_its_code() -> None:
    key = "trainer.strategy.init_args.rule.init_args.bound"
    (problem,) = problems_of(Bounded, 0)
    assert (problem.code, problem.key, problem.message) == ("out-of-bounds", key, "0 is less than 1")
    assert problems_of(Bounded, 3) == []
    with pytest.raises(ConfigError, match=rf"^{re.escape(key)}: 0 is less than 1\. ") as raised, as_config_errors():
        Bounded(0)
    assert raised.value.problem == problem


def test_errors_survive_the_way_from_a_worker() -> None:
    made = ArgumentError("contradiction", "host", "is overlap", "Use process.")
    again = copy(made)  # as pickle does between processes
    assert (again.code, again.argument, again.message, again.fix) == (made.code, made.argument, made.message, made.fix)
    assert str(again) == str(made) == "host: is overlap. Use process."
