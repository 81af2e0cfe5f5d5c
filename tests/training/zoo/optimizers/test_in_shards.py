"""The layerwise optimizers give in shards what they give in one process."""

import pytest

from scalebook.training.zoo.optimizers import LAMB, LARS
from tests.training.engine.store.test_shard import Make, check_two_processes_in_turn

OPTIMIZERS: dict[str, Make] = {
    "LARS": lambda p: LARS(p, lr=2.0, weight_decay=0.01, trust_coefficient=0.1),
    "LARS, algorithm 1": lambda p: LARS(p, weight_decay=0.01, rate_in_momentum=True, adapt_vectors=True),
    "LAMB": lambda p: LAMB(p, lr=0.05, weight_decay=0.01),
}


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_two_processes_in_turn_give_what_one_gives_bit_for_bit(name: str, count: int) -> None:
    check_two_processes_in_turn(OPTIMIZERS[name], count)
