from dataclasses import dataclass, field

import pytest

from scalebook.training.engine.rules.update_rules import (
    RULES,
    Arrival,
    Async,
    Bounded,
    Rule,
    Softsync,
    Sync,
    View,
    make_rule,
)
from tests.training.engine.refusing import refused


@dataclass
class Moment:
    """A view, with what most rules do not look at left out."""

    clocks: dict[int, int] = field(default_factory=dict)
    contributed: tuple[int, ...] = ()
    version: int = 0

    def view(self) -> View:
        return View(self.version, len(self.contributed), frozenset(self.contributed), self.clocks)


def begins(rule: Rule, moment: Moment) -> list[int]:
    return [worker for worker in moment.clocks if rule.may_begin(worker, moment.view())]


def test_staleness_is_what_others_did_meanwhile() -> None:
    assert Arrival(worker=1, base_version=4, version=9).staleness == 5


def test_async_takes_everything_at_once() -> None:
    rule, view = Async(), Moment({0: 0, 1: 90}).view()
    assert [rule.accepts(Arrival(0, base, 9), view) for base in (9, 5, 0)] == [True] * 3
    assert rule.may_begin(1, view)
    assert rule.needed(view) == 1
    assert (rule.gathers, rule.waits) == (False, False)


@pytest.mark.parametrize(
    ("bound", "clocks", "expected"),
    [
        (1, {0: 3, 1: 3}, [0, 1]),
        (1, {0: 4, 1: 3}, [1]),
        (2, {0: 4, 1: 3}, [0, 1]),
        (4, {0: 8, 1: 6, 2: 4}, [1, 2]),
        (4, {0: 8, 1: 6}, [0, 1]),
        (1, {3: 7}, [3]),
    ],
)
def test_bounded_lets_begin_whose_next_push_stays_within_the_bound(
    bound: int, clocks: dict[int, int], expected: list[int]
) -> None:
    rule = Bounded(bound)
    assert begins(rule, Moment(clocks)) == expected
    assert rule.accepts(Arrival(0, 0, 100), Moment(clocks).view())
    assert rule.needed(Moment(clocks).view()) == 1


def test_sync_waits_for_all_workers_of_one_version() -> None:
    rule = Sync()
    rule.check(3)
    moment = Moment({0: 1, 1: 1, 2: 0}, contributed=(0, 1), version=5)
    assert rule.needed(moment.view()) == 3
    assert begins(rule, moment) == [2]
    assert [rule.accepts(Arrival(2, base, 5), moment.view()) for base in (5, 4)] == [True, False]


@pytest.mark.parametrize(
    ("backup_workers", "living", "contributed", "needed"),
    [
        (0, (0, 1, 2, 3), (), 4),
        (1, (0, 1, 2, 3), (), 3),
        (3, (0, 1, 2, 3), (), 1),
        (0, (0, 1, 2), (), 3),  # one has died
        (0, (0, 1, 2), (3,), 4),  # after it gave its gradient
        (1, (0, 1), (), 2),
        (1, (0, 1), (2,), 3),
        (0, (), (1, 2), 2),  # the rest of a run that has ended
        (0, (), (), 1),
    ],
)
def test_sync_needs_the_first_n_or_as_many_as_are_left(
    backup_workers: int, living: tuple[int, ...], contributed: tuple[int, ...], needed: int
) -> None:
    rule = Sync(backup_workers)
    rule.check(4)
    assert rule.needed(Moment(dict.fromkeys(living, 0), contributed).view()) == needed


def test_softsync_averages_so_many_of_any_version_by_any_worker() -> None:
    rule = Softsync(3)
    rule.check(2)
    moment = Moment({0: 9, 1: 2}, contributed=(0, 1), version=7)
    assert rule.needed(moment.view()) == 3
    assert begins(rule, moment) == [0, 1]
    assert rule.accepts(Arrival(0, 2, 7), moment.view())


def test_softsync_takes_the_rest_when_nobody_is_left_to_give_more() -> None:
    assert Softsync(5).needed(Moment({}, contributed=(0, 3)).view()) == 2


@pytest.mark.parametrize(
    ("make", "mistake"),
    [
        (lambda: Bounded(0), "out-of-bounds rule.bound"),
        (lambda: Sync(-1), "out-of-bounds rule.backup_workers"),
        (lambda: Softsync(0), "out-of-bounds rule.average"),
        (
            lambda: Sync(2).check(2),
            "out-of-bounds rule.backup_workers",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_key_and_remedy(make: object, mistake: str) -> None:
    assert callable(make)
    with refused(mistake):
        make()


def test_an_unknown_name_is_refused() -> None:
    with refused("unknown-value rule"):
        make_rule("hogwild")  # type: ignore[arg-type]  # as a YAML file may


def test_a_rule_is_what_it_was_set_to() -> None:
    told = Sync(1)
    told.check(4)
    assert told == Sync(1)
    assert hash(told) == hash(Sync(1))
    assert Sync(1) != Sync(2)
    assert Bounded(2) != Softsync(2)
    assert repr(Async()) == "Async()"
    assert repr(told) == "Sync(backup_workers=1, cancel=False)"
    assert len({Bounded(2), Bounded(2), Bounded(3)}) == 2


def test_a_bare_name_means_the_defaults() -> None:
    assert [make_rule("async"), make_rule("bounded"), make_rule("sync"), make_rule("softsync")] == [
        Async(),
        Bounded(),
        Sync(),
        Softsync(),
    ]
    rule = Bounded(7)
    assert make_rule(rule) is rule
    assert {name: rule.name for name, rule in RULES.items()} == {name: name for name in RULES}
