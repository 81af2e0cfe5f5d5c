"""What a clock can be made of: how long workers need for themselves, and shards for a push."""

import time

import torch
from torch.optim import SGD

from scalebook.training.engine import Settings
from scalebook.training.engine.rules.settings import HostName
from scalebook.training.engine.rules.update_rules import Async, Rule
from scalebook.training.engine.worker.client import WARM_UP
from tests.training.engine.driven import driven

SLEEP_S = 0.002
SLOW = 4.0
PUSHES = WARM_UP + 12


def timings(rule: Rule, host: HostName = "inline", look_after: int = PUSHES) -> tuple[list[int], list[float], int]:
    """Of two workers that sleep, one longer, and push in turn: how often and how long each, and pushes served. Worker 0
    is asked for a snapshot after so many."""
    start = [torch.zeros(8)]
    with driven(2, Settings(rule, host=host), start, lambda parameters: SGD(parameters, lr=0.1)) as all_of_them:
        for number in range(PUSHES):
            for worker, factor in enumerate((1.0, SLOW)):
                time.sleep(SLEEP_S * factor)
                all_of_them.push(worker, [torch.ones(8)])
            if number == look_after:
                all_of_them.joined[0].snapshot()
        found = all_of_them.run.timings()
    assert found.server is not None
    seen = [one for one in found.workers if one is not None]
    return [one.count for one in seen], [one.mean for one in seen], found.server.count


def test_a_gradient_is_what_lies_between_two_pushes() -> None:
    """One thread plays both, so what the other one does is in between too."""
    counts, means, served = timings(Async())
    assert counts == [PUSHES - WARM_UP] * 2
    assert served == 2 * PUSHES
    assert all(mean >= (1 + SLOW) * SLEEP_S for mean in means)


def test_a_snapshot_in_between_is_no_gradient() -> None:
    counts, _, _ = timings(Async(), look_after=WARM_UP + 2)
    assert counts == [PUSHES - WARM_UP - 1, PUSHES - WARM_UP]


def test_servers_count_what_they_serve() -> None:
    _, _, served = timings(Async(), host="process")
    assert served == 2 * PUSHES
