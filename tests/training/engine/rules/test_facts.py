"""What rules and dampings declare, by what their classes say and which methods they have of their own."""

from typing import get_args

import pytest

from scalebook.training.engine.rules.contradictions import TABLE, CheckedSettings, find_contradictions, nobody_left
from scalebook.training.engine.rules.damping import DAMPINGS, Damping, DampingName
from scalebook.training.engine.rules.facts import DampingFacts, RuleFacts, count
from scalebook.training.engine.rules.local_steps import LOCALS, Downpour, LocalName, LocalSGD, NoLocalSteps
from scalebook.training.engine.rules.settings import HostName
from scalebook.training.engine.rules.update_rules import RULES, Arrival, Async, Rule, RuleName, Sync, View


class HalfOf(Rule):
    """Averages all but some, in two groups."""

    gradients_per_update = "workers - spared + 1"

    def __init__(self, spared: int = 1) -> None:
        self.spared = spared


class Picky(Async):
    """With an inherited name that is not its own."""

    def accepts(self, arrival: Arrival, view: View) -> bool:
        return arrival.staleness < 2


def test_the_names_in_signatures_are_those_of_the_classes() -> None:
    assert get_args(RuleName) == tuple(RULES)
    assert get_args(DampingName) == tuple(DAMPINGS)
    assert get_args(LocalName) == tuple(LOCALS)


def test_what_ours_declare() -> None:
    assert {name: kind.facts() for name, kind in RULES.items()} == {
        "async": RuleFacts("async"),
        "bounded": RuleFacts("bounded", "bounded, bound {bound}", waits=True),
        "sync": RuleFacts(
            "sync",
            None,
            "workers - backup_workers",
            "workers - backup_workers*cancel",
            synchronous=True,
            gathers=True,
            waits=True,
            refuses=True,
        ),
        "softsync": RuleFacts("softsync", "softsync, average {average}", "average", gathers=True),
    }
    assert {name: kind.facts() for name, kind in DAMPINGS.items()} == {
        "none": DampingFacts("none", ""),
        "inverse": DampingFacts("inverse", "inverse damping", scales=True),
        "drop_above": DampingFacts("drop_above", "drop above {limit}", drops=True),
        "delay_compensation": DampingFacts("delay_compensation", "delay compensation", compensates=True),
    }


def test_what_follows_for_a_class_of_the_users() -> None:
    assert HalfOf.facts() == RuleFacts("HalfOf", None, "workers - spared + 1", gathers=True)
    assert Picky.facts() == RuleFacts("Picky", refuses=True)
    rule = HalfOf(2)
    assert (rule.averaged(4), rule.computed(4)) == (3, 3)
    rule.check(4)
    assert rule.needed(View(0, 0, frozenset(), {0: 0})) == 3
    assert rule.needed(View(0, 2, frozenset({1}), {})) == 2
    assert (Sync(1).averaged(4), Sync(1).computed(4)) == (3, 4)
    assert (Sync(1, cancel=True).averaged(4), Sync(1, cancel=True).computed(4)) == (3, 3)


@pytest.mark.parametrize(
    ("told", "expected"),
    [("1", 1), ("workers", 4), ("workers - spared", 1), ("2 + workers - absent", 6), ("workers + 2*spared", 10)],
)
def test_a_number_of_gradients_is_a_sum(told: str, expected: int) -> None:
    assert count(told, 4, {"spared": 3}) == expected


def test_a_declaration_that_is_wrong_is_refused_when_the_class_is_made() -> None:
    with pytest.raises(
        TypeError, match=r"Wrong\.gradients_per_update names 'avarage', which is neither one of its arguments"
    ):
        type("Wrong", (Rule,), {"gradients_per_update": "avarage"})
    with pytest.raises(TypeError, match=r"Wrong\.gathers follows from .*: it is False\. Leave it out"):
        type("Wrong", (Rule,), {"gathers": True})
    with pytest.raises(TypeError, match=r"Wrong\.drops follows from .*: it is False"):
        type("Wrong", (Damping,), {"drops": True})


def test_an_argument_that_leaves_nobody_is_named_with_the_most_that_it_may_be() -> None:
    found = nobody_left(HalfOf.facts(), {"spared": 6}, 4)
    assert found is not None
    assert (found.argument, found.fix) == ("rule.spared", "Use at most 4, or use more workers.")
    assert nobody_left(HalfOf.facts(), {"spared": 4}, 4) is None
    with pytest.raises(ValueError, match=r"rule\.spared: is 6, which would leave none of"):
        HalfOf(6).check(4)


def test_every_contradiction_can_be_met_and_the_first_of_a_key_is_said() -> None:
    rules: list[type[Rule]] = [*RULES.values(), Picky]
    every = [
        CheckedSettings(
            rule.facts(),
            damping.facts(),
            host,
            drift,
            has_clock,
            local.facts(),
            rule is Sync,
        )
        for local in (NoLocalSteps, Downpour, LocalSGD)
        for rule in rules
        for damping in DAMPINGS.values()
        for host in get_args(HostName)
        for drift in (False, True)
        for has_clock in (False, True)
    ]
    for row in TABLE:
        said = [
            one for asked in every for one in find_contradictions(asked) if one.fix == row.fix.format(**asked._asdict())
        ]
        assert said, row.message
    for asked in every:
        keys = [one.argument for one in find_contradictions(asked)]
        assert len(keys) == len(set(keys))
    assert find_contradictions(CheckedSettings(Async.facts(), DAMPINGS["none"].facts(), "inline", True)) == []
