"""The benchmark of the wire, shortest, without pyzmq: real processes on both sides."""

import pytest

from benchmarks.wire import OURS, cost


@pytest.mark.thorough
@pytest.mark.parametrize("encrypts", [False, True])
def test_a_gradient_costs_both_ends_something(encrypts: bool) -> None:
    measured = cost(OURS, 0.1, encrypts, 0.2)
    assert 0.05 < measured.cpu_ms < 2.2 * measured.wall_ms
