"""Kill drills over a codec that leaves most of each gradient out: what a worker keeps comes once."""

import pytest

from scalebook.training.engine import HostName
from scalebook.training.engine.rules.codecs import RandomK
from scalebook.training.engine.rules.update_rules import Async, Bounded, Rule, Softsync
from tests.training.engine.drilling import drill
from tests.training.engine.killing import Phase
from tests.training.engine.scenes import Scene, Victim


@pytest.mark.parametrize(
    ("victim", "phase", "host", "rule"),
    [
        pytest.param(Victim.RETURNING, Phase.PUSHING, "inline", Async(), id="returns inline"),
        *(
            pytest.param(victim, phase, host, rule, marks=pytest.mark.drill)
            for victim in (Victim.WORKER, Victim.RETURNING, Victim.FIRST)
            for phase in (Phase.PUSHING, Phase.APPLYING)
            for host in ("inline", "process")
            for rule in (Async(), Bounded(2), Softsync(2))
        ),
    ],
)
def test_what_was_left_out_comes_once(victim: Victim, phase: Phase, host: HostName, rule: Rule) -> None:
    for seed in range(8):  # another moment when the run was over before it came
        outcome = drill(Scene(victim, phase, host, rule, shards=3, seed=seed, codec=RandomK(0.4)))
        assert outcome.is_good, outcome
        if outcome.killed:
            return
    pytest.fail("in none of eight runs the moment came")
