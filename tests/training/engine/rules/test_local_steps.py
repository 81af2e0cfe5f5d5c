"""When a worker communicates: periods, rates, thresholds, and what is refused."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from scalebook.training.engine import Settings
from scalebook.training.engine.rules.damping import DelayCompensation
from scalebook.training.engine.rules.facts import LocalFacts
from scalebook.training.engine.rules.local_steps import (
    LOCALS,
    DiLoCo,
    Downpour,
    Elastic,
    Local,
    LocalSGD,
    NoLocalSteps,
    Significance,
    make_local,
)
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync, Sync
from tests.training.engine.refusing import refused


def never() -> float:
    raise AssertionError("nobody asks how far it has moved")


class Shrinking(Local):
    """One of a person's own."""

    def is_due(self, since: int, version: int, moved: Callable[[], float]) -> bool:
        return since >= max(1, 5 - version)


def test_what_ours_declare() -> None:
    assert {name: kind.facts() for name, kind in LOCALS.items()} == {
        "none": LocalFacts("none", ""),
        "downpour": LocalFacts("downpour", "Downpour, pushes every {n_push}, fetches every {n_fetch}", sums=True),
        "local_sgd": LocalFacts("local_sgd", "local SGD, every {every}", steps=True),
        "diloco": LocalFacts("diloco", "DiLoCo, every {every}", steps=True),
        "elastic": LocalFacts("elastic", "elastic averaging, every {every}", steps=True, keeps=True),
        "significance": LocalFacts("significance", "pushes after moving by {share} of the norm", steps=True),
    }
    assert Shrinking.facts() == LocalFacts("Shrinking", None, steps=True)


@pytest.mark.parametrize(
    ("local", "expected"),
    [
        (LocalSGD(8), {0: 8, 100: 8}),
        (LocalSGD(1, doubling_updates=1), {0: 1, 9: 1}),
        (LocalSGD(8, dense_updates=3), {0: 1, 2: 1, 3: 8}),
        (DiLoCo(12, dense_updates=2, doubling_updates=10), {1: 1, 2: 2, 11: 2, 12: 4, 22: 8, 32: 12, 10**6: 12}),
        (Elastic(5), {0: 5, 7: 5}),
    ],
    ids=repr,
)
def test_periods(local: LocalSGD | DiLoCo | Elastic, expected: dict[int, int]) -> None:
    for version, period in expected.items():
        assert local.period(version) == period
        assert [local.is_due(since, version, never) for since in (period - 1, period)] == [False, True]


def test_rates() -> None:
    for local in (LocalSGD(4, outer_rate=0.5), DiLoCo(4, outer_rate=0.5)):
        assert local.rate(8, 8, synchronous=True) == local.rate(6, 8, synchronous=True) == 0.5
        assert local.rate(1, 8, synchronous=False) == 0.5 / 8
        assert local.rate(2, 8, synchronous=False) == 0.5 / 4
    assert [kind().rate(2, 8, synchronous=False) for kind in (Elastic, Significance)] == [1.0, 1.0]
    assert Elastic().pull(9) == pytest.approx(0.1)
    assert Elastic(alpha=0.5).pull(9) == 0.5
    assert (DiLoCo().nesterov, DiLoCo().outer_momentum, LocalSGD().outer_momentum) == (True, 0.9, 0.0)


def test_significance_is_asked_of_what_has_moved() -> None:
    assert not Significance(0.1).is_due(3, 0, lambda: 0.1)
    assert Significance(0.1).is_due(3, 0, lambda: 0.11)
    assert Significance(0.1, most=3).is_due(3, 0, never)
    assert not Significance(0.1, decays=True).is_due(1, 0, lambda: 0.06)
    assert not Significance(0.1, decays=True).is_due(1, 3, lambda: 0.04), "0.1 / sqrt(4)"
    assert Significance(0.1, decays=True).is_due(1, 3, lambda: 0.06), "0.1 / sqrt(4)"


def test_gradients_of_an_update() -> None:
    assert Settings(Sync(), local=LocalSGD(16)).computed(4) == 64
    assert Settings(local=Significance(most=10)).computed(4) == 10
    assert Settings(Softsync(2)).computed(4) == 2
    assert Settings(local=Downpour(3, 1)).computed(4) == 3


@pytest.mark.parametrize(
    ("make", "mistake"),
    [
        (lambda: Downpour(0), "out-of-bounds local.n_push"),
        (lambda: Downpour(n_fetch=-2), "out-of-bounds local.n_fetch"),
        (lambda: LocalSGD(0), "out-of-bounds local.every"),
        (lambda: LocalSGD(dense_updates=-1), "out-of-bounds local.dense_updates"),
        (lambda: LocalSGD(outer_rate=0.0), "out-of-bounds local.outer_rate"),
        (lambda: DiLoCo(outer_momentum=1.0), "out-of-bounds local.outer_momentum"),
        (lambda: DiLoCo(every=-2), "out-of-bounds local.every"),
        (lambda: Elastic(alpha=0.0), "out-of-bounds local.alpha"),
        (lambda: Elastic(alpha=1.0), "out-of-bounds local.alpha"),
        (lambda: Significance(0.0), "out-of-bounds local.share"),
        (lambda: Significance(most=0), "out-of-bounds local.most"),
        (lambda: make_local("easgd"), "unknown-value local"),  # type: ignore[arg-type]
    ],
)
def test_what_is_out_of_bounds_names_key_and_remedy(make: Callable[[], Local], mistake: str) -> None:
    with refused(mistake):
        make()


@pytest.mark.parametrize(
    ("settings", "mistake"),
    [
        (Settings(host="overlap"), "contradiction host"),
        (
            Settings(damping=DelayCompensation()),
            "contradiction damping",
        ),
    ],
)
def test_what_contradicts_local_steps(settings: Settings, mistake: str) -> None:
    settings.check(4)
    with refused(mistake):
        replace(settings, local=LocalSGD()).check(4)


@pytest.mark.parametrize("rule", [Bounded(), Sync(), Softsync()], ids=repr)
def test_sums_are_applied_on_arrival(rule: Rule) -> None:
    Settings(local=Downpour()).check(4)
    with refused("contradiction local"):
        Settings(rule, local=Downpour()).check(4)


def test_forces_that_would_move_the_centre_too_far() -> None:
    Settings(local=Elastic(alpha=0.9)).check(4)
    Settings(Sync(), local=Elastic(alpha=0.25)).check(4)
    Settings(Sync(), local=Elastic()).check(64)
    with pytest.raises(ValueError, match=r"local\.alpha: is 0\.5, so 4 workers .* Use at most 0\.25, or null"):
        Settings(Sync(), local=Elastic(alpha=0.5)).check(4)


@pytest.mark.parametrize(
    ("rule", "local", "is_refused"),
    [
        (Bounded(), LocalSGD(4, dense_updates=2), True),
        (Bounded(), DiLoCo(4, doubling_updates=2), True),
        (Bounded(), Significance(), True),
        (Sync(), Significance(), True),
        (Sync(), LocalSGD(4, dense_updates=2), False),
        (Async(), LocalSGD(4, dense_updates=2), False),
        (Bounded(), Elastic(4), False),
        (Bounded(), LocalSGD(4), False),
        (Softsync(), Significance(), False),
    ],
    ids=repr,
)
def test_who_waits_for_pushes_must_push_after_as_many_steps(rule: Rule, local: Local, is_refused: bool) -> None:
    if not is_refused:
        Settings(rule, local=local).check(4)
        return
    with refused("contradiction local"):
        Settings(rule, local=local).check(4)


def test_values() -> None:
    assert make_local("diloco") == DiLoCo()
    assert make_local(Elastic(3)) == Elastic(3)
    assert not make_local("none").steps
    assert NoLocalSteps().is_due(1, 0, never)
    assert repr(LocalSGD(4)) == "LocalSGD(every=4, dense_updates=0, doubling_updates=0, outer_rate=1.0)"
