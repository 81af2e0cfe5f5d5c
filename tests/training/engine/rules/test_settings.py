import re

import pytest

from scalebook.training.engine import Settings
from scalebook.training.engine.rules.clock_settings import ClockSettings
from scalebook.training.engine.rules.damping import DelayCompensation, DropAbove
from scalebook.training.engine.rules.local_steps import Downpour, LocalSGD
from scalebook.training.engine.rules.settings import Deal
from scalebook.training.engine.rules.update_rules import Async, Softsync, Sync


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (Settings(host="thread"), "host: 'thread' is unknown. Use one of inline, process, overlap, virtual."),  # type: ignore[arg-type]
        (Settings(shards=0), "shards: 0 is less than 1. Use 1 or more."),
        (Settings(warmup_updates=-1), "warmup_updates: -1 is less than 0. Use 0 or more."),
        (
            Settings(rule=Sync(), host="overlap"),
            "host: is overlap, which has no effect with sync: its workers wait for others anyway. Write process.",
        ),
        (
            Settings(drift=True, host="overlap"),
            "host: is overlap, where the parameters that a gradient",
        ),
        (
            Settings(damping=DropAbove(2), host="overlap"),
            "host: is overlap, which cannot be combined with drop_above. Write process",
        ),
        (Settings(rule=Sync(), damping=DelayCompensation()), "damping: corrects single gradients"),
        (
            Settings(rule=Sync(3)),
            "backup_workers: is 3, which leaves no worker to wait for among 3. Write at most 2",
        ),
        (
            Settings(rule=Sync(1, cancel=True)),
            "rule: is sync with cancel, but a process of host inline cannot be stopped within a backward pass.",
        ),
        (
            Settings(rule=Sync(1, cancel=True), local=LocalSGD(5), host="virtual", clock=ClockSettings(0.1)),
            "local: is local_sgd, but cancel of the rule would lose the workers' local steps. Write none",
        ),
    ],
)
def test_settings_that_contradict_each_other_are_refused_by_name(settings: Settings, reason: str) -> None:
    with pytest.raises(ValueError, match=re.escape("trainer.strategy.init_args.") + ".*" + re.escape(reason)):
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
