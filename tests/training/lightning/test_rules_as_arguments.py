"""Rules and dampings on a command line and in YAML, by name or by class."""

import pytest
from jsonargparse import ArgumentParser, Namespace

from scalebook.training.engine.rules.damping import (
    Damping,
    DampingName,
    DelayCompensation,
    DropAbove,
    Inverse,
    NoDamping,
    make_damping,
)
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, RuleName, Softsync, Sync, make_rule

RULES = "scalebook.training.engine.rules"


class Ruled:
    """Stands for the strategy that takes a rule.

    Args:
        rule: What is done with a gradient.
    """

    def __init__(self, rule: RuleName | Rule = "async") -> None:
        self.rule = make_rule(rule)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], Async()),
        (["--strategy.rule=bounded"], Bounded()),
        (["--strategy.rule=Bounded", "--strategy.rule.bound=3"], Bounded(3)),
        (
            [f"--strategy.rule={RULES}.Sync", "--strategy.rule.backup_workers=2"],
            Sync(2),
        ),
        (
            [f'--strategy.rule={{"class_path": "{RULES}.Sync", "init_args": {{"backup_workers": 2}}}}'],
            Sync(2),
        ),
        (['--strategy.rule={"class_path": "Softsync"}'], Softsync()),
    ],
)
def test_the_command_line_and_yaml_say_a_rule_by_name_or_by_class(arguments: list[str], expected: Rule) -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Ruled, "strategy")
    told = parser.parse_args(arguments)
    assert parser.instantiate(told).strategy.rule == expected
    again = parser.parse_string(parser.dump(told))
    assert parser.instantiate(again).strategy.rule == expected
    if isinstance(told.strategy.rule, Namespace):
        assert told.strategy.rule.class_path == f"{RULES}.{type(expected).__name__}"


class Damped:
    """Stands for the strategy that takes a damping."""

    def __init__(self, damping: DampingName | Damping = "none") -> None:
        self.damping = make_damping(damping)


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ([], NoDamping()),
        (["--strategy.damping=inverse"], Inverse()),
        (["--strategy.damping=DropAbove", "--strategy.damping.limit=3"], DropAbove(3)),
        (
            ['--strategy.damping={"class_path": "DelayCompensation", "init_args": {"adaptive": true}}'],
            DelayCompensation(adaptive=True),
        ),
    ],
)
def test_the_command_line_and_yaml_say_a_damping_by_name_or_by_class(arguments: list[str], expected: Damping) -> None:
    parser = ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Damped, "strategy")
    told = parser.parse_args(arguments)
    again = parser.parse_string(parser.dump(told))
    assert parser.instantiate(again).strategy.damping == expected
