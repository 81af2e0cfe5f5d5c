import pytest

from scalebook.training.engine import Settings
from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.damping import DelayCompensation, DropAbove
from scalebook.training.engine.rules.local_steps import Downpour, LocalSGD
from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.rules.update_rules import Async, Softsync, Sync
from tests.training.engine.refusing import refused


@pytest.mark.parametrize(
    ("settings", "mistake"),
    [
        (Settings(host="thread"), "unknown-value host"),  # type: ignore[arg-type]
        (Settings(shards=0), "out-of-bounds shards"),
        (Settings(warmup_updates=-1), "out-of-bounds warmup_updates"),
        (
            Settings(rule=Sync(), host="overlap"),
            "contradiction host",
        ),
        (
            Settings(drift=True, host="overlap"),
            "contradiction host",
        ),
        (
            Settings(damping=DropAbove(2), host="overlap"),
            "contradiction host",
        ),
        (Settings(rule=Sync(), damping=DelayCompensation()), "contradiction damping"),
        (
            Settings(rule=Sync(3)),
            "out-of-bounds rule.backup_workers",
        ),
        (
            Settings(rule=Sync(1, cancel=True)),
            "contradiction rule",
        ),
        (
            Settings(rule=Sync(1, cancel=True), local=LocalSGD(5), host="virtual", clock=ClockSettings(0.1)),
            "contradiction local",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(settings: Settings, mistake: str) -> None:
    with refused(mistake):
        settings.check(3)


def test_the_slots_that_rules_need() -> None:
    assert Settings(rule=Async()).slots(4) == 0
    assert Settings(rule=Async(), host="process").slots(4) == 4
    assert Settings(rule=Sync(1)).slots(4) == 4
    assert Settings(rule=Softsync(3), host="process").slots(4) == 7


@pytest.mark.parametrize(
    ("settings", "averaged", "computed", "rarely", "deal"),
    [
        (Settings(), 1, 1, False, Deal.ONE_EACH),
        (Settings(local=Downpour(3, 1)), 1, 3, True, Deal.ONE_EACH),
        (Settings(rule=Sync(1)), 3, 4, False, Deal.WORKER_0),
        (Settings(rule=Sync(1), host="virtual", clock=ClockSettings(1.0)), 3, 4, False, Deal.NOBODY),
        (Settings(rule=Softsync(2)), 2, 2, False, Deal.ONE_EACH),
        (Settings(rule=Sync(), local=LocalSGD(5)), 1, 4, True, Deal.IN_TURNS),
    ],
)
def test_what_four_workers_compute_while_one_step_is_counted(
    settings: Settings, averaged: int, computed: int, rarely: bool, deal: Deal
) -> None:
    assert (settings.averaged_in_step(4), settings.computed_in_step(4)) == (averaged, computed)
    assert (settings.pushes_rarely, settings.deal(4)) == (rarely, deal)
