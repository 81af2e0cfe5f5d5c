import re

import pytest

from scalebook.training.ps import Settings
from scalebook.training.ps.policy.damping import DelayCompensation, DropAbove
from scalebook.training.ps.policy.rules import Async, Softsync, Sync


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (Settings(host="thread"), "host: 'thread' is none of inline, process, virtual. Write inline."),  # type: ignore[arg-type]
        (Settings(shards=0), "shards: 0 is less than 1. Use 1 or more."),
        (Settings(warmup_updates=-1), "warmup_updates: -1 is less than 0. Use 0 or more."),
        (Settings(overlap=True), "overlap: needs a server that applies meanwhile. Write host: process, or false."),
        (
            Settings(overlap=True, host="process", rule=Sync()),
            "overlap: does not go with sync, which waits for others anyway. Write false.",
        ),
        (Settings(overlap=True, host="process", norms=True), "overlap: does not go with norms. Write false"),
        (
            Settings(overlap=True, host="process", damping=DropAbove(2)),
            "overlap: does not go with drop_above. Write false",
        ),
        (Settings(rule=Sync(), damping=DelayCompensation()), "damping: corrects single gradients"),
        (
            Settings(rule=Sync(3)),
            "backup_workers: is 3, which leaves nobody to wait for among 3 workers. Write at most 2",
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
